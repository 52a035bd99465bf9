"""Rows of a query for a person: a DataFrame where pandas or polars is there, and a table of plain text."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from agent_kernel.store.sql import Answer

SHOWN_ROWS = 50
WIDEST = 60  # characters of a cell of a plain table
LIBRARIES = ("pandas", "polars")


def frame(answer: Answer) -> Any:
    """Return rows as a DataFrame of the library that is loaded, else of one that is installed, pandas first; None without either."""
    for name in (*(name for name in LIBRARIES if name in sys.modules), *LIBRARIES):
        if importlib.util.find_spec(name) is not None:
            library = importlib.import_module(name)
            if name == "pandas":
                return library.DataFrame.from_records(answer.rows, columns=_apart(answer.columns))
            return library.DataFrame(answer.rows, schema=_apart(answer.columns), orient="row", infer_schema_length=None, strict=False)
    return None


def _apart(names: tuple[str, ...]) -> list[str]:
    """Return columns' names, each once: SQL allows more."""
    made: list[str] = []
    for name in names:
        made.append(name if name not in made else f"{name}_{len(made) + 1}")
    return made


def plain(answer: Answer) -> str:
    """Return rows as an aligned table, long cells and long tables cut."""
    shown = [[_cell(value) for value in row] for row in answer.rows[:SHOWN_ROWS]]
    grid = [list(answer.columns), *shown]
    widths = [max(len(row[column]) for row in grid) for column in range(len(answer.columns))]
    numbers = [bool(shown) and all(_is_number(row[column]) for row in answer.rows[:SHOWN_ROWS]) for column in range(len(answer.columns))]
    lines = [_line(row, widths, numbers) for row in grid]
    lines.insert(1, "  ".join("-" * width for width in widths))
    left = len(answer.rows) - len(shown)
    if left or answer.more:
        lines.append(f"({'at least ' if answer.more else ''}{left:,} more rows)")
    return "\n".join(lines)


def _line(row: list[str], widths: list[int], numbers: list[bool]) -> str:
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numbers, strict=True)).rstrip()


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:,.6g}" if isinstance(value, float) else str(value)
    line = " ".join(text[: 4 * WIDEST].split())
    return line if len(line) <= WIDEST and len(text) <= 4 * WIDEST else line[: WIDEST - 3] + "..."

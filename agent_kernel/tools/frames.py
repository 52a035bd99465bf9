"""Tables of pandas, polars and Arrow in one form: schema, shape, head and tail as text, the whole as CSV.

None of these libraries is imported here: a value can only be a frame if its library is loaded. What would have to be computed first (a LazyFrame,
a DuckDB relation) is described and not collected.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from agent_kernel.tools.clean import clean_text, text_of
from agent_kernel.tools.loaded import is_loaded

_WHOLE_ROWS = 20  # so many rows show whole
_EDGE_ROWS = 5
_MAX_COLUMNS = 50
_MAX_CELL_CHARS = 100
_CHUNK_CELLS = 50_000  # one step of writing CSV: a few milliseconds
_NULL_ROWS = 100_000
_STR_MODULES = frozenset({"builtins", "datetime", "decimal", "uuid", "numpy", "pandas"})


class Frame(ABC):
    """One table, whatever library it is of.

    Attributes:
        kind: What it is, with its library.
        rows: Number of rows.
        index: Names of the index columns, which stand before the others in ``cells``.
        columns: Names of the columns.
        dtypes: Their types.
    """

    kind: str
    rows: int
    index: tuple[str, ...] = ()
    columns: tuple[str, ...]
    dtypes: tuple[str, ...]

    @abstractmethod
    def nulls(self) -> Sequence[int]:
        """Count the nulls of each column."""

    @abstractmethod
    def cells(self, start: int, stop: int) -> list[Sequence[Any]]:
        """Return rows as Python values, index first."""

    def csv_rows(self, start: int, stop: int) -> str:
        """Return rows as CSV without a header."""
        out = io.StringIO()
        rows = [["" if cell is None else _cell_text(cell) for cell in row] for row in self.cells(start, stop)]
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue()

    def csv(self) -> Iterator[str]:
        """Yield the whole table as CSV, a step at a time."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow([*self.index, *self.columns])
        yield clean_text(out.getvalue())
        step = max(1, _CHUNK_CELLS // max(1, len(self.columns)))
        for start in range(0, self.rows, step):
            yield clean_text(self.csv_rows(start, min(start + step, self.rows)))


class PandasFrame(Frame):
    """A pandas DataFrame, Series or Index."""

    def __init__(self, value: Any, kind: str) -> None:
        self._frame = value
        self.kind = kind
        self.rows = len(value)
        self.columns = tuple(_cell_text(name) for name in value.columns)
        self.dtypes = tuple(str(dtype) for dtype in value.dtypes)
        names = value.index.names
        self.index = tuple("" if name is None else _cell_text(name) for name in names)

    def nulls(self) -> Sequence[int]:  # noqa: D102
        counts = [0] * len(self.columns)
        for start in range(0, self.rows, _NULL_ROWS):
            found = self._frame.iloc[start : start + _NULL_ROWS].isna().sum()
            counts = [count + int(more) for count, more in zip(counts, found, strict=True)]
        return counts

    def cells(self, start: int, stop: int) -> list[Sequence[Any]]:  # noqa: D102
        part = self._frame.iloc[start:stop]
        rows = part.itertuples(index=True, name=None)
        if len(self.index) > 1:
            return [(*row[0], *row[1:]) for row in rows]
        return list(rows)

    def csv_rows(self, start: int, stop: int) -> str:  # noqa: D102
        try:
            return str(self._frame.iloc[start:stop].to_csv(header=False, lineterminator="\n"))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a cell whose text raises, SystemExit included
            return super().csv_rows(start, stop)


class PolarsFrame(Frame):
    """A polars DataFrame or Series."""

    def __init__(self, value: Any, kind: str) -> None:
        self._frame = value
        self.kind = kind
        self.rows = value.height
        self.columns = tuple(value.columns)
        self.dtypes = tuple(str(dtype) for dtype in value.dtypes)

    def nulls(self) -> Sequence[int]:  # noqa: D102
        return tuple(self._frame.null_count().row(0)) if self.columns else ()

    def cells(self, start: int, stop: int) -> list[Sequence[Any]]:  # noqa: D102
        return list(self._frame.slice(start, stop - start).rows())

    def csv_rows(self, start: int, stop: int) -> str:  # noqa: D102
        try:
            return str(self._frame.slice(start, stop - start).write_csv(include_header=False))
        except Exception:  # nested columns have no CSV form in polars
            return super().csv_rows(start, stop)


class ArrowTable(Frame):
    """An Arrow table, record batch or array."""

    def __init__(self, kind: str, names: Sequence[str], columns: Sequence[Any]) -> None:
        self._columns = columns
        self.kind = kind
        self.rows = len(columns[0]) if columns else 0
        self.columns = tuple(names)
        self.dtypes = tuple(str(column.type) for column in columns)

    def nulls(self) -> Sequence[int]:  # noqa: D102
        return [column.null_count for column in self._columns]

    def cells(self, start: int, stop: int) -> list[Sequence[Any]]:  # noqa: D102
        return list(zip(*(column.slice(start, stop - start).to_pylist() for column in self._columns), strict=True))


def as_frame(value: Any) -> Frame | None:
    """Return a value as a Frame, or None if it is none."""
    return _pandas(value) or _polars(value) or _arrow(value)


def _pandas(value: Any) -> Frame | None:
    kind = f"pandas {type(value).__name__}"
    if is_loaded(value, "pandas", "DataFrame"):
        return PandasFrame(value, kind)
    if is_loaded(value, "pandas", "Series"):
        return PandasFrame(value.to_frame(name="value" if value.name is None else value.name), kind)
    return PandasFrame(value.to_frame(index=False), kind) if is_loaded(value, "pandas", "Index") else None


def _polars(value: Any) -> Frame | None:
    if is_loaded(value, "polars", "Series"):
        return PolarsFrame(value.to_frame(), "polars Series")
    return PolarsFrame(value, "polars DataFrame") if is_loaded(value, "polars", "DataFrame") else None


def _arrow(value: Any) -> Frame | None:
    kind = f"Arrow {type(value).__name__}"
    if is_loaded(value, "pyarrow", "Table", "RecordBatch"):
        return ArrowTable(kind, value.schema.names, value.columns)
    return ArrowTable(kind, ["value"], [value]) if is_loaded(value, "pyarrow", "Array", "ChunkedArray") else None


def frame_text(frame: Frame) -> tuple[str, bool]:
    """Return a table as aligned text, and whether the text shows all of it."""
    names, more = frame.columns[:_MAX_COLUMNS], len(frame.columns) - _MAX_COLUMNS
    whole = frame.rows <= _WHOLE_ROWS and more <= 0
    schema = _aligned([("column", "type", "nulls"), *zip(names, frame.dtypes, map(str, frame.nulls()), strict=False)])
    parts = [f"{frame.kind}, {frame.rows:,} rows x {len(frame.columns):,} columns", schema]
    if more > 0:
        parts.append(f"... and {more:,} more columns")
    if frame.rows <= _WHOLE_ROWS:
        ranges = [("rows:", 0, frame.rows)] if frame.rows else []
    else:
        ranges = [(f"first {_EDGE_ROWS} rows:", 0, _EDGE_ROWS), (f"last {_EDGE_ROWS} rows:", frame.rows - _EDGE_ROWS, frame.rows)]
    width = len(frame.index) + len(names)
    for title, start, stop in ranges:
        rows = [[_cell_text(cell) for cell in row[:width]] for row in frame.cells(start, stop)]
        whole = whole and all(len(cell) <= _MAX_CELL_CHARS for row in rows for cell in row)
        shown = [[cell if len(cell) <= _MAX_CELL_CHARS else f"{cell[: _MAX_CELL_CHARS - 1]}…" for cell in row] for row in rows]
        parts += ["", title, _aligned([[*frame.index, *names], *shown])]
    return clean_text("\n".join(parts)), whole


def lazy_text(value: Any) -> str | None:
    """Return what can be said, without computing it all, of a polars LazyFrame or a DuckDB relation; None for other values."""
    if is_loaded(value, "polars", "LazyFrame"):
        return f"polars LazyFrame, not collected; call .collect() to compute it. Its plan:\n{value.explain(optimized=False)}"
    if is_loaded(value, "duckdb", "DuckDBPyRelation"):
        rows = [[_cell_text(cell) for cell in row] for row in value.limit(_WHOLE_ROWS).fetchall()]
        schema = _aligned([("column", "type"), *zip(value.columns, map(str, value.types), strict=True)])
        shown = "all" if len(rows) < _WHOLE_ROWS else f"the first {len(rows)}"
        return f"DuckDB relation, {shown} rows shown; .df() or .pl() computes it whole.\n{schema}\n\n{_aligned([value.columns, *rows])}"
    return None


def _cell_text(cell: Any) -> str:
    """Return a cell's text: ``str`` for text, numbers, dates and library scalars, a guarded repr for the rest."""
    root = type(cell).__module__.split(".")[0]
    return str(cell) if root in _STR_MODULES else text_of(cell)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text in columns; line breaks in a cell are shown as escapes."""
    flat = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*flat, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in flat)


def _one_line(cell: str) -> str:
    if "\n" not in cell and "\r" not in cell:
        return cell
    return cell.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")

"""Every tutorial runs, offline, from the first cell to the last, as nbclient runs it; and what it shows reads well in the file."""

from pathlib import Path

import nbclient
import nbformat
import pytest

from agent_kernel.notebook.cli import QUICKSTART, TOOLS, TURN

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def executed(path, tmp_path, monkeypatch):
    return run(nbformat.read(path, as_version=4), tmp_path, monkeypatch)


def run(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KERNEL_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    nbformat.validate(notebook)
    return notebook


def shown(cell):
    """All plain text that a cell shows."""
    parts = []
    for output in cell.get("outputs", ()):
        parts.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(parts)


def test_the_tutorials_are_there():
    assert QUICKSTART in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_leaves_no_widget(path, tmp_path, monkeypatch):
    notebook = executed(path, tmp_path, monkeypatch)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error", output
            assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {})


def test_the_quickstart_shows_what_it_says(tmp_path, monkeypatch):
    notebook = executed(FOLDER / QUICKSTART, tmp_path, monkeypatch)
    by_source = {cell.source: cell for cell in notebook.cells}
    sources = list(by_source)
    turn = shown(by_source[TURN.rstrip()])
    assert TOOLS.rstrip() in sources
    assert all(text in turn for text in ("1200", "950", "+9 %"))
    [whole] = [source for source in sources if source.startswith("whole =")]
    assert "characters; the last line: 2026-11-30" in shown(by_source[whole])
    [python] = [source for source in sources if source.startswith("state = await")]
    assert "revenue" in shown(by_source[python])
    assert "950" in shown(by_source[python])
    [events] = [source for source in sources if source.startswith("from agent_kernel import OfflineModel")]
    assert "TurnStarted" in shown(by_source[events])
    assert "TurnFinished" in shown(by_source[events])
    [state] = [source for source in sources if source.startswith("state = %agent")]
    assert "('revenue', 'error')" in shown(by_source[state])


def test_the_history_survives_a_restart_of_the_kernel(tmp_path, monkeypatch):
    whole = nbformat.read(FOLDER / "03_history.ipynb", as_version=4)
    [restart] = [place for place, cell in enumerate(whole.cells) if "restart" in cell.metadata.get("tags", ())]
    halves = [nbformat.from_dict({**whole, "cells": cells}) for cells in (whole.cells[:restart], whole.cells[restart:])]
    before, after = [run(half, tmp_path, monkeypatch) for half in halves]  # each in a kernel of its own
    assert "session  regions" in shown(before.cells[-1])
    by_source = {cell.source: shown(cell) for cell in after.cells}
    assert "regions" in by_source["%agent sessions"]
    assert "2 turns" in by_source["%agent sessions"]
    assert "user: And last year?" in by_source["%agent search last year"]
    assert "The current session is regions" in by_source["%agent use regions"]
    assert len(by_source["%agent log"].splitlines()) == 3
    assert "410" in next(text for source, text in by_source.items() if "harbour" in source and source.startswith("%%agent"))
    assert "shares 1 turn with regions" in by_source["%agent fork --at 1 what-if"]
    assert "forked at 1" in by_source["%agent log --tree"]
    assert "revenue" in next(text for source, text in by_source.items() if source.startswith("%agent sql"))
    assert "what-if" in next(text for source, text in by_source.items() if source.startswith("calls ="))
    assert "1230" in next(text for source, text in by_source.items() if source.startswith("calls ="))
    assert "Imported what-if, 2 turns" in by_source["%agent import what-if.json"]
    assert (tmp_path / "what-if.html").exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]

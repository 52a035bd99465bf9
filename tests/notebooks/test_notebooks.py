"""Every tutorial runs, offline, from the first cell to the last, as nbclient runs it; and what it shows reads well in the file."""

from pathlib import Path

import nbclient
import nbformat
import pytest

from agent_kernel.notebook.cli import QUICKSTART, TOOLS, TURN

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def executed(path, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_KERNEL_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    notebook = nbformat.read(path, as_version=4)
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]

"""A turn in a real JupyterLab: it streams into its cell, ends static, is saved without a trace of a widget and reads well elsewhere."""

from __future__ import annotations

import json

import nbconvert
import nbformat
import pytest
from nbclient import NotebookClient

TOOLS = """
@tool
def slow() -> str:
    "Takes its time."
    time.sleep(2.5)
    return "slow result"
@tool
def fast(region: str) -> str:
    "Answers at once."
    return "fast result of " + region
@tool
def broken() -> str:
    "Raises."
    raise ValueError("no such region")
answer = '''## Result

The **north** leads with $x < 3$; see `df.sum()`:

| region | share |
|---|---:|
| north | 56 % |
'''
"""

SCRIPT = """
agent.session.model = ScriptedModel([
    ["I look at ", 0.3, "both regions.", call("slow", "1"), call("fast", "2", '{"region": "north"}'), call("broken", "3")],
    [TextDelta(text=answer[:20]), 0.5, TextDelta(text=answer[20:])],
])
"""


@pytest.fixture
def finished(lab, load):
    """A notebook whose second cell has run a turn, saved; its path."""

    def make(name):
        script = SCRIPT.replace('call("slow", "1"), ', "")
        path = lab.write(name, [load + TOOLS + script, "%%agent\nHow do the regions compare?"])
        lab.open(path)
        lab.run(0)
        lab.run(1)
        lab.page.wait_for_selector(".jp-RenderedMarkdown h2")
        lab.save()
        return path

    return make


def test_text_and_results_show_while_the_turn_runs(lab, load):
    lab.open(lab.write("live.ipynb", [load + TOOLS + SCRIPT, "%%agent\nHow do the regions compare?"]))
    lab.run(0)
    lab.start(1)
    output = lab.output(1)
    output.get_by_text("I look at").wait_for()
    assert output.get_by_text("both regions").count() == 0
    output.get_by_text("both regions").wait_for()
    output.get_by_text("fast result of north").first.wait_for()
    cards = output.locator("details, div", has=lab.page.locator("code", has_text="slow")).last
    assert "running" in cards.inner_text()
    assert output.get_by_text("slow result").count() == 0
    assert output.get_by_text("ValueError: no such region").is_visible()
    output.get_by_text("slow result").first.wait_for()
    lab.wait()
    assert output.locator(".jp-RenderedMarkdown h2").inner_text().strip("¶") == "Result"
    assert output.get_by_text("completed").count() == 1
    assert output.locator(".jp-OutputArea-output").count() == 2


def test_a_finished_turn_is_saved_static_and_reopens_alike(lab, finished):
    path = finished("saved.ipynb")
    before = lab.output(1).inner_text()
    outputs = json.loads(path.read_text())["cells"][1]["outputs"]
    assert [sorted(output["data"]) for output in outputs] == [["text/html", "text/plain"], ["text/markdown", "text/plain"]]
    assert "widget" not in path.read_text()
    for output in outputs:
        found = output["metadata"]["agent_kernel"]
        assert found["status"] == "completed"
        assert found["model"] == "scripted"
        assert set(found) == {"session", "turn", "model", "status", "version"}
    lab.close_notebook()
    lab.open(path)
    lab.page.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    assert lab.output(1).inner_text() == before
    notebook = json.loads(path.read_text())
    notebook["cells"][1]["outputs"][0]["data"]["text/plain"] = "changed elsewhere: no longer trusted"
    other = path.with_name("unsigned.ipynb")
    other.write_text(json.dumps(notebook))
    lab.close_notebook()
    lab.open(other)
    lab.page.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    assert not lab.page.evaluate("() => window.notebook.content.model.cells.get(1).trusted")
    assert lab.output(1).inner_text() == before


def test_a_folded_card_opens_and_looks_keep_in_both_themes(lab, finished):
    finished("cards.ipynb")
    card = lab.output(1).locator("details", has_text="fast").first
    body = card.locator("pre").last
    assert not body.is_visible()
    card.locator("summary").click()
    assert body.is_visible()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.theme(theme)
        style = card.evaluate("(node) => { const own = getComputedStyle(node); return [own.borderTopWidth, own.borderTopLeftRadius, own.color]; }")
        assert style[:2] == ["1px", "6px"]
        word = lab.output(1).get_by_text("completed").evaluate("(node) => getComputedStyle(node).color")
        assert word == "rgb(26, 155, 85)"


def test_exports_of_the_saved_notebook_hold_the_answer(finished):
    path = finished("exported.ipynb")
    html, _ = nbconvert.HTMLExporter().from_filename(str(path))
    markdown, _ = nbconvert.MarkdownExporter().from_filename(str(path))
    for text in (html, markdown):
        assert "Result" in text
        assert "fast result of north" in text
        assert "no such region" in text
    assert "<strong>north</strong>" in html
    assert "**north**" in markdown


def test_a_notebook_run_without_a_browser_has_the_same_outputs(load, tmp_path, server):
    notebook = nbformat.v4.new_notebook()
    script = SCRIPT.replace('call("slow", "1"), ', "")
    notebook.cells = [nbformat.v4.new_code_cell(load + TOOLS + script), nbformat.v4.new_code_cell("%%agent\nHow do the regions compare?")]
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute(env=server.env)
    first, last = notebook.cells[1].outputs
    assert first.data["text/plain"].startswith("agent: completed")
    assert 'fast(region="north"): ok' in first.data["text/plain"]
    assert last.data["text/plain"].startswith("## Result")


def test_quiet_shows_the_answer_alone(lab, load):
    lab.open(lab.write("quiet.ipynb", [load + "agent.session.model = ScriptedModel(['the **answer**'])", "%%agent --quiet\nhi"]))
    lab.run(0)
    lab.run(1)
    lab.output(1).locator(".jp-RenderedMarkdown strong").wait_for()
    assert lab.output(1).locator(".jp-OutputArea-output").count() == 1

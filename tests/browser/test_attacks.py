"""What model and tools write runs nothing in a real JupyterLab: as it streams, at its end, reopened untrusted and trusted."""

from __future__ import annotations

import json
import random
from pathlib import Path

from agent_kernel.views.markdown import canonical

DATA = Path(__file__).resolve().parents[1] / "data"

CORPUS = """
import json
corpus = json.load(open(%r))["classes"]
def expanded(member):
    return member if isinstance(member, str) else member["text"] * min(member["times"], 200) + member["then"]
texts = [expanded(member) for each in corpus for member in each["members"]]
answer = "\\n\\n".join(texts)
halves = [TextDelta(text=answer[at : at + 700]) for at in range(0, len(answer), 700)]
paced = [step for half in halves for step in (half, 0.02)]
echo = tool(lambda text: text, name="echo", description="Says it again.")
fail = tool(lambda text: 1 / 0, name="fail", description="Fails.")
calls = [call("echo" if i %% 2 else "fail", f"c{i}", json.dumps({"text": text})) for i, text in enumerate(texts)]
calls += [call(text[:200], f"n{i}", text) for i, text in enumerate(texts)]
agent.session.model = ScriptedModel([[ReasoningDelta(text=answer), *paced, *calls], paced])
"""

SEARCH = """(roots) => {
    const found = [];
    const banned = ['SCRIPT', 'IFRAME', 'OBJECT', 'EMBED', 'STYLE', 'LINK', 'FORM', 'BUTTON', 'VIDEO', 'AUDIO', 'SVG'];
    for (const node of roots.flatMap((root) => [...root.querySelectorAll('*')])) {
        if (banned.includes(node.tagName.toUpperCase())) found.push(node.tagName);
        if (node.tagName === 'IMG' && !node.src.startsWith('data:image/')) found.push(node.src);
        for (const attribute of node.attributes) {
            if (/^on/i.test(attribute.name) || /commandlinker/.test(attribute.name)) found.push(attribute.name);
            if (/href|src|action/.test(attribute.name) && !/^(https?:\\/\\/|mailto:|#|data:image\\/)/.test(attribute.value)) found.push(attribute.value);
        }
    }
    return found;
}"""

LOOK = f"""() => {{
    const panel = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook');
    const outputs = [...panel.querySelectorAll('.jp-OutputArea-output')];
    const found = ({SEARCH})(outputs);
    return {{found, pwned: window.pwned ?? null, outputs: outputs.length, dialogs: document.querySelectorAll('.jp-Dialog').length}};
}}"""

RENDER = f"""async (texts) => {{
    const search = {SEARCH}, bad = [];
    for (const text of texts) {{
        const model = window.notebook.content.rendermime.createModel({{trusted: true, data: {{'text/markdown': text}}}});
        const renderer = window.notebook.content.rendermime.createRenderer('text/markdown', model);
        document.body.appendChild(renderer.node);
        await renderer.renderModel(model);
        const found = search([renderer.node]);
        if (found.length || window.pwned) bad.push([text, found, renderer.node.innerHTML]);
        renderer.node.remove();
        renderer.dispose();
    }}
    return bad;
}}"""


def harmless(lab):
    """Fail on anything that acted, could act, or asked another host."""
    seen = lab.page.evaluate(LOOK)
    assert seen["pwned"] is None
    assert seen["found"] == []
    assert seen["dialogs"] == 0
    assert lab.foreign() == []
    return seen["outputs"]


def test_nothing_that_model_or_tools_write_runs(lab, load):
    path = lab.write("attacks.ipynb", [load + CORPUS % str(DATA / "attacks.json"), "%%agent\ngo"])
    lab.open(path)
    lab.run(0)
    lab.start(1)
    for number in range(3):
        lab.output(1).get_by_text("running").first.wait_for()
        lab.page.wait_for_timeout(100 * number)
        harmless(lab)
    lab.wait(60)
    lab.page.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    assert harmless(lab) == 2
    details = lab.output(1).locator("details")
    assert details.count() > 80
    details.evaluate_all("(all) => all.forEach((each) => { each.open = true; })")
    for link in lab.output(1).locator("a[href]").all():
        assert link.get_attribute("href").startswith(("http://example.org", "https://example.org", "http://evil.test", "https://evil.test", "#"))
    harmless(lab)
    lab.save()
    lab.close_notebook()

    saved = json.loads(path.read_text())
    lab.open(path)  # trusted: its signature is known to this server
    assert lab.page.evaluate("() => window.notebook.content.model.cells.get(1).trusted")
    lab.page.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    assert harmless(lab) == 2
    lab.close_notebook()

    saved["cells"][0]["source"] = ["1"]
    saved["cells"][1]["source"] = ["2"]
    other = path.with_name("untrusted.ipynb")
    other.write_text(json.dumps(saved) + "\n")
    for output in saved["cells"][1]["outputs"]:
        output["data"]["text/plain"] = "changed elsewhere"
    other.write_text(json.dumps(saved))
    lab.open(other)
    assert not lab.page.evaluate("() => window.notebook.content.model.cells.get(1).trusted")
    lab.page.wait_for_selector(".jp-RenderedMarkdown mjx-container")
    assert harmless(lab) == 2


def test_jupyterlabs_own_parser_sees_nothing_in_random_mixtures(lab):
    fragments = json.loads((DATA / "attacks.json").read_text())["fragments"]
    lengths = random.choices(range(2, 30), k=500)  # noqa: S311 - seeded by the test run, which prints it
    texts = ["".join(random.choices(fragments, k=length)) for length in lengths]  # noqa: S311 - the same
    lab.open(lab.write("mixtures.ipynb", ["1"]))
    bad = lab.page.evaluate(RENDER, [canonical(text) for text in texts])
    assert bad == []
    assert lab.foreign() == []
    raw = lab.page.evaluate(RENDER, ["<img src=x onerror=a>"])
    assert raw != []  # the reader does notice

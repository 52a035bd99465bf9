"""Exports of kept sessions: readable, whole, and harmless whatever model and tools wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from html.parser import HTMLParser

import nbformat
import pytest

from agent_kernel import ScriptedModel, Session, tool
from agent_kernel.errors import ModelRejected
from agent_kernel.protocol.fold import TurnState
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.views.export import html, markdown, notebook, turn_state

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)></pre>\x1b[31m\u202e[a](javascript:alert(3)) ```\n</script>"


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError(EVIL)


def kept(replies, *prompts, name="demo"):
    """Return the record of a session, and the states its turns ended with."""

    async def main():
        states = []
        async with Session(ScriptedModel(replies, name="script"), tools=[look, fail], name=name) as session:
            for prompt in prompts:
                with contextlib.suppress(ModelRejected):
                    await session.run(prompt)
                states.append(session.state)
            return await session.history.load(session.id), states

    return asyncio.run(main())


def two_turns():
    return kept(
        [["Looking.", ToolCall(id="1", name="look", arguments='{"what": "north"}'), ToolCall(id="2", name="fail")], "The **north**.", "Done."],
        "How is it?",
        "Thanks",
    )


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_a_kept_turn_comes_back_as_the_state_it_ended_with():
    record, states = two_turns()
    for turn, state in zip(record.turns, states, strict=True):
        back = turn_state(record.id, turn)
        assert isinstance(back, TurnState)
        for field in (
            "turn_id",
            "session_id",
            "prompt",
            "model",
            "status",
            "rounds",
            "finish_reason",
            "usage",
            "error",
            "messages",
            "text",
            "reasoning",
            "answer",
        ):
            assert getattr(back, field) == getattr(state, field), field
        assert [(entry.id, entry.name, entry.arguments, entry.round, entry.status, entry.result) for entry in back.tool_calls] == [
            (entry.id, entry.name, entry.arguments, entry.round, entry.status, entry.result) for entry in state.tool_calls
        ]


def test_what_an_open_round_had_said_is_kept_where_the_turn_failed():
    record, [state] = kept([["First.", ToolCall(id="1", name="look", arguments='{"what": "x"}')], ["half a sen", ModelRejected("No.")]], "Go")
    back = turn_state(record.id, record.turns[0])
    assert state.status == back.status == "failed"
    assert back.text == state.text == "First.\n\nhalf a sen"
    assert back.error == state.error
    assert "half a sen" in markdown(record)
    assert "half a sen" in html(record)


def test_markdown_holds_prompts_calls_results_and_answers_in_order():
    record, _ = two_turns()
    text = markdown(record)
    places = [
        text.index(part) for part in ("# demo", "How is it?", "Looking.", 'look(what="north")', "saw north", "The **north**.", "Thanks", "Done.")
    ]
    assert places == sorted(places)
    assert "Session `" + record.id in text


def test_html_is_one_page_that_loads_and_runs_nothing():
    record, _ = two_turns()
    page = html(record)
    seen = Tags()
    seen.feed(page)
    assert "<strong>north</strong>" in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert not seen.tags & {"script", "img", "link", "iframe", "object", "embed", "form", "base"}
    assert not [name for name in seen.attributes if name.startswith("on")]


def test_a_notebook_has_each_prompt_as_a_cell_with_what_it_showed():
    record, states = two_turns()
    document = json.loads(notebook(record, "9.9"))
    nbformat.validate(nbformat.from_dict(document))
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in cells] == ["%load_ext agent_kernel", "%%agent\nHow is it?", "%%agent\nThanks"]
    transcript, answer = cells[1]["outputs"]
    assert "saw north" in transcript["data"]["text/html"]
    assert answer["data"]["text/markdown"].strip() == "The **north**."
    assert answer["metadata"]["agent_kernel"] == {
        "session": record.id,
        "turn": states[0].turn_id,
        "model": "script",
        "status": "completed",
        "version": "9.9",
    }


@pytest.mark.parametrize("where", ["prompt", "answer", "result", "name"])
def test_nothing_that_was_said_becomes_markup(where):
    replies = [[ToolCall(id="1", name="fail")] if where == "result" else "fine", EVIL if where == "answer" else "fine"]
    if where == "answer":
        replies = replies[1:]
    record, _ = kept(replies, EVIL if where == "prompt" else "hello", name=EVIL.replace("\n", " ") if where == "name" else "demo")
    page = html(record)
    seen = Tags()
    seen.feed(page)
    assert not seen.tags & {"script", "img"}
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert "javascript:alert" not in re.findall(r'href="([^"]*)"', page)
    assert "\x1b" not in page
    text = markdown(record)
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)  # what stands in a fence is text
    assert not re.search(r"<(script|img)", outside)
    assert "\x1b" not in text
    assert "\u202e" not in text
    outputs = [output for cell in json.loads(notebook(record, "1"))["cells"] for output in cell.get("outputs", ())]
    for output in outputs:
        shown = Tags()
        shown.feed(output["data"].get("text/html", "") + output["data"].get("text/markdown", ""))
        assert not shown.tags & {"script", "img"}


def test_an_empty_session_and_one_without_an_end_can_be_exported():
    from msgspec import structs

    record, _ = two_turns()
    empty = structs.replace(record, turns=(), name=None)
    assert f"Session {record.id[:8]}" in html(empty)
    nbformat.validate(nbformat.from_dict(json.loads(notebook(empty, "1"))))
    died = structs.replace(record, turns=(structs.replace(record.turns[0], end=None, rounds=record.turns[0].rounds[:1]),))
    assert "its kernel died" in markdown(died)
    assert "saw north" in markdown(died)

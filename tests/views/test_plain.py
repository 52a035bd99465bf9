"""Plain text of a turn, line by line."""

from __future__ import annotations

import asyncio
import io

import pytest

from agent_kernel.agent.session import Session
from agent_kernel.errors import ModelConnectionError
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.notebook.bridge import follow
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.views.plain import AnswerView, PlainView


def shown(model, *, tools=(), view=PlainView, **options):
    stream = io.StringIO()

    async def turn():
        async with Session(model, tools=tools, **options) as session:
            return await follow(session.ask("hello"), lambda: session.state, view(stream))

    state = asyncio.run(turn())
    return stream.getvalue(), state


def add(a: int, b: int) -> int:
    "Add."
    return a + b


def noisy() -> str:
    "Return what a terminal would obey."
    return "bell\x07 and \x1b[31mred\x1b[0m" + " long" * 100


def test_text_calls_and_the_answer_each_have_their_lines():
    text, _ = shown(ScriptedModel([["let me ", "see", ToolCall(id="1", name="add", arguments='{"a": 1, "b": 2}')], ["it ", "is 3"]]), tools=[add])
    assert text == 'let me see\n> add({"a": 1, "b": 2})\n< add ok, 0.0 s: 3\nit is 3\n'


def test_failures_say_why():
    text, _ = shown(ScriptedModel([[ToolCall(id="1", name="add", arguments='{"a": "x"}')], "sorry"]), tools=[add])
    assert "< add error" in text
    assert "'b'" in text or "b" in text.split("< add error")[1]


def test_control_characters_are_shown_and_lines_are_bounded():
    text, _ = shown(ScriptedModel([["\x1b[2Jcleared?", ToolCall(id="1", name="noisy")], "done"]), tools=[noisy])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[2Jcleared?" in text
    assert max(map(len, text.splitlines())) < 150


def test_the_answer_alone():
    text, _ = shown(ScriptedModel([["looking", ToolCall(id="1", name="add", arguments='{"a": 1, "b": 2}')], "it is 3"]), tools=[add], view=AnswerView)
    assert text == "it is 3\n"


def test_a_limit_and_a_cut_answer_are_said():
    text, state = shown(ScriptedModel([[ToolCall(id="1", name="add", arguments='{"a": 1, "b": 2}')]]), tools=[add], max_rounds=1)
    assert state.status == "limit"
    assert "[stopped after 1 rounds]" in text


def test_a_failing_turn_ends_its_line_and_raises():
    stream = io.StringIO()

    async def turn():
        async with Session(ScriptedModel([["some text", ModelConnectionError("The server went away. Try again.")]])) as session:
            await follow(session.ask("hello"), lambda: session.state, PlainView(stream))

    with pytest.raises(ModelConnectionError):
        asyncio.run(turn())
    assert stream.getvalue() == "some text\n"

"""What a running tool knows of its call."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading

import pytest

from agent_kernel.errors import ToolError
from agent_kernel.tools.context import ToolContext


def test_fields_and_progress(make_context):
    context, reports = make_context(round=2, index=1)
    assert (context.session_id, context.turn_id, context.round, context.index, context.call_id, context.name) == ("s", "t", 2, 1, "c1", "f")
    context.progress(1, 3, "\x1b[31mone\ud800")
    context.progress(text="two")
    assert reports == [(1, 3, "one�"), (None, None, "two")]


def test_without_a_listener_progress_does_nothing():
    context = ToolContext(session_id="s", turn_id="t", round=1, index=0, call_id="c", name="f")
    context.progress(1, 2)
    assert context.metadata == {}


def test_notes_are_merged_and_always_json(make_context):
    context, _ = make_context()
    context.note(rows=3, source={"a": {1}})
    context.note(rows=4, odd=float("nan"), thing=ToolError("x"))
    assert context.metadata == {"rows": 4, "source": {"a": [1]}, "odd": "NaN", "thing": "ToolError: x"}
    json.dumps(context.metadata, allow_nan=False)


def test_cancelled_is_seen_in_another_thread(make_context):
    context, _ = make_context()
    seen = []
    waiting = threading.Event()

    def work():
        waiting.set()
        while not context.cancelled:
            pass
        seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    assert waiting.wait(10)
    assert not context.cancelled
    context.cancel()
    thread.join(10)
    assert seen == [True]


def test_current_is_per_call(make_context):
    first, _ = make_context(index=0)
    second, _ = make_context(index=1)

    async def one(context, both):
        with context.active():
            await both.wait()
            return ToolContext.current()

    async def main():
        both = asyncio.Barrier(2)
        assert await asyncio.gather(one(first, both), one(second, both)) == [first, second]

    asyncio.run(main())


def test_current_outside_of_a_call_says_so(make_context):
    context, _ = make_context()
    with context.active():
        assert ToolContext.current() is context
        copied = contextvars.copy_context()
    with pytest.raises(ToolError, match="no tool call is running"):
        ToolContext.current()
    assert copied.run(ToolContext.current) is context

"""Models, tools, hooks and consumers that misbehave: the laws hold, and nothing hangs."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from agent_kernel import AgentKernelError, FallbackModel, History, OpenAIModel, ScriptedModel, Session, Tool, ToolContext, tool
from agent_kernel.agent.streaming import CLOSE_GRACE
from agent_kernel.errors import StoreError
from agent_kernel.protocol.events import (
    ApprovalGiven,
    FinishDelta,
    ReasoningDelta,
    TextAppended,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallProgressed,
    UsageDelta,
)
from agent_kernel.protocol.messages import ToolCall, Usage
from agent_kernel.store.kept import Memory

SECRET = "hunter2-" * 3


class SilentError(Exception):
    """Cannot even say what it is."""

    def __str__(self):
        raise RuntimeError("no text")


class OwnEnd(BaseException):
    """Not an Exception."""


FOREIGN = [asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), OwnEnd("own"), SilentError(), StopIteration()]


def names(errors):
    return [type(error).__name__ for error in errors]


def call(tool_id, name, arguments="{}"):
    return ToolCall(id=tool_id, name=name, arguments=arguments)


def statuses(events):
    return [event.result.status for event in events if isinstance(event, ToolCallFinished)]


class OwnModel:
    """A model whose stream is any callable."""

    name = "own"

    def __init__(self, stream):
        self.stream = stream


async def soon(work):
    async with asyncio.timeout(5):
        return await work


@pytest.mark.parametrize("error", FOREIGN, ids=names(FOREIGN))
def test_whatever_a_model_raises_fails_the_turn(run, make, gather, error):
    async def stream(request):
        yield TextDelta(text="some")
        raise error

    session = make(OwnModel(stream))
    events, raised = run(soon, gather(session))
    assert events[-1].status == "failed"
    assert isinstance(raised, AgentKernelError)
    assert "own" in str(raised)
    assert session.pending_prompt == "go"


WRONG = [
    b"bytes",
    None,
    TextDelta(text=b"bytes"),
    TextDelta(text=None),
    ReasoningDelta(text=3),
    ToolCallDelta(index=0, id="a", name="f", arguments=None),
    ToolCallDelta(index=0, id="a", name="f", arguments={"x": 1}),
    ToolCallDelta(index=0, id=5, name="f"),
    UsageDelta(usage={"input_tokens": 3}),
    UsageDelta(usage=Usage(input_tokens="3")),
    FinishDelta(reason=5),
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_no_proper_delta_fails_the_turn_and_stays_out_of_history(run, make, gather, wrong):
    async def stream(request):
        yield TextDelta(text="fine")
        yield wrong

    session = make(OwnModel(stream))
    events, raised = run(soon, gather(session))
    assert events[-1].status == "failed"
    assert "a model yielded" in str(raised)
    assert session.turns[-1].end.partial_text == "fine"
    msgspec.json.encode(events)


@pytest.mark.parametrize("shape", ["list", "coroutine", "none"])
def test_a_stream_that_is_no_async_generator_is_named(run, make, gather, shape):
    async def coroutine(request):
        return []

    streams = {"list": lambda request: [TextDelta(text="x")], "coroutine": coroutine, "none": lambda request: None}
    _, raised = run(soon, gather(make(OwnModel(streams[shape]))))
    assert "async generator" in str(raised)


def test_a_model_that_swallows_its_cancellation_is_stopped_at_its_next_delta(run, make):
    ended = []

    async def stream(request):
        try:
            yield TextDelta(text="x")
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    yield TextDelta(text="still here")
        finally:
            ended.append(True)

    session = make(OwnModel(stream))

    async def main():
        began = 0.0
        async for event in session.ask("go"):
            if isinstance(event, TextAppended):
                began = time.monotonic()
                session.cancel()
        assert time.monotonic() - began < 2 * CLOSE_GRACE
        assert session.state.text == "x"

    run(main)
    assert ended == [True]


def test_a_cancel_stops_the_text_that_has_already_arrived(run, make):
    session = make(ScriptedModel([["x"] * 400]))

    async def main():
        texts = 0
        async for event in session.ask("go"):
            if isinstance(event, TextAppended):
                texts += 1
                if texts == 3:
                    session.cancel()
        return texts

    assert run(main) == 3
    assert session.state.status == "cancelled"


def hook_of(kind, error):
    async def waits(*_):
        raise error

    def blocks(*_):
        raise error

    return waits if kind == "async" else blocks


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("error", FOREIGN, ids=names(FOREIGN))
def test_whatever_an_approve_hook_raises_fails_the_turn(run, make, gather, kind, error):
    @tool(approve="ask")
    def f() -> str:
        """Return."""
        return "x"

    session = make(ScriptedModel([[call("a", "f"), call("b", "f")]]), tools=[f], approve=hook_of(kind, error))
    events, raised = run(soon, gather(session))
    assert events[-1].status == "failed"
    assert "approve hook" in str(raised)
    assert statuses(events) == ["cancelled", "cancelled"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("error", FOREIGN, ids=names(FOREIGN))
def test_whatever_a_limit_hook_raises_fails_the_turn(run, make, gather, kind, error):
    def f() -> str:
        """Return."""
        return "x"

    session = make(ScriptedModel([[call("a", "f")]]), tools=[f], max_rounds=1, on_limit=hook_of(kind, error))
    events, raised = run(soon, gather(session))
    assert events[-1].status == "failed"
    assert type(raised).__name__ == "LimitHookFailed"


def test_whatever_preparing_arguments_raises_is_that_call_s_result(run, make, gather):
    @dataclass
    class Picky:
        x: int

        def __post_init__(self):
            raise SystemExit(1) if self.x else SilentError

    def f(value: Picky) -> str:
        """Never run."""
        raise AssertionError

    @tool(key=lambda value: sys.exit(1))
    def keyed(value: int) -> str:
        """Never run."""
        raise AssertionError

    def fine() -> str:
        """Run."""
        return "fine"

    calls = [call("a", "f", '{"value": {"x": 1}}'), call("b", "f", '{"value": {"x": 0}}'), call("c", "keyed", '{"value": 1}'), call("d", "fine")]
    session = make(ScriptedModel([calls, "end"]), tools=[f, keyed, fine])
    events, raised = run(soon, gather(session))
    assert raised is None
    assert statuses(events) == ["error", "error", "error", "ok"]
    assert events[-1].status == "completed"


@pytest.mark.parametrize("ending", ["timeout", "cancel"])
def test_a_sync_tool_that_returns_a_coroutine_keeps_its_timeout_and_its_cancellation(run, make, gather, ending):
    async def body():
        await asyncio.Event().wait()

    def begin():
        return body()

    f = Tool(name="f", description="d", parameters={"type": "object", "properties": {}}, call=begin, timeout=0.1 if ending == "timeout" else 30)
    session = make(ScriptedModel([[call("a", "f")], "end"]), tools=[f])

    async def main():
        if ending == "cancel":
            asyncio.get_running_loop().call_later(0.1, session.cancel)
        return await soon(gather(session))

    events, _ = run(main)
    assert statuses(events) == ["timeout" if ending == "timeout" else "cancelled"]


def test_one_at_a_time_waits_for_a_person_in_call_order(run, make, gather):
    ran = []

    @tool(approve="ask")
    def first() -> str:
        """Ask."""
        ran.append("first")
        return "1"

    def second() -> str:
        """Do not ask."""
        ran.append("second")
        return "2"

    async def approve(asked, reason):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return True

    session = make(ScriptedModel([[call("a", "first"), call("b", "second")], "end"]), tools=[first, second], approve=approve, max_parallel_tools=1)
    run(soon, gather(session))
    assert ran == ["first", "second"]


def test_a_retry_after_a_last_answer_at_the_limit_asks_something(run, make, valid):
    def f() -> str:
        """Return."""
        return "x"

    model = ScriptedModel([[call("a", "f")], "last word", "again"])
    session = make(model, tools=[f], max_rounds=1, answer_at_limit=True)

    async def main():
        await session.run("go")
        return [event async for event in session.retry()]

    run(main)
    assert [message.role for message in model.requests[2].messages] == ["user", "assistant", "tool"]
    assert [message.text for message in session.messages] == ["go", "", "x", "again"]
    assert list(session.messages) == list(run(session.history.messages, session.id))


def test_progress_notes_and_comments_are_masked_bounded_and_json(run, make, gather, monkeypatch):
    monkeypatch.setenv("DEMO_API_KEY", SECRET)

    @tool(approve="ask")
    def f(context: ToolContext) -> str:
        """Report."""
        context.progress(np.int64(3), float("inf"), f"{SECRET} " + "x" * 100_000)
        context.note(found=[{SECRET: np.float64(2.5), "text": f"a {SECRET} b"}])
        return "x"

    @tool(approve="ask")
    def g() -> str:
        """Report."""
        return "x"

    async def h(context: ToolContext) -> str:
        """Report nonsense."""
        context.progress("half", SilentError(), SilentError())
        await asyncio.sleep(0.05)
        return "x"

    session = make(
        ScriptedModel([[call("a", "f"), call("b", "g"), call("c", "h")], "end"]),
        tools=[f, g, h],
        approve=lambda asked, reason: True if asked.name == "f" else f"not with {SECRET}",
    )
    events, raised = run(soon, gather(session))
    assert raised is None
    text = msgspec.json.encode(events).decode()
    assert SECRET not in text
    assert len(text) < 20_000
    assert any(isinstance(event, ApprovalGiven) and event.comment == "not with [masked]" for event in events)
    assert all(isinstance(event.done, int | float | None) for event in events if isinstance(event, ToolCallProgressed))
    result = session.state.call("a").result
    assert result.metadata == {"found": [{"[masked]": 2.5, "text": "a [masked] b"}]}


def test_a_tool_may_close_over_what_comes_later(run):
    @tool
    def f() -> str:
        """Return."""
        return later.name

    later = Session(ScriptedModel([[call("a", "f")], "end"]), tools=[f], name="fine")
    assert run(later.run, "go").tool_calls[0].result.text == "fine"


class Full(History):
    """A history whose disk is full from some moment on."""

    full = ""

    async def append_round(self, session_id, round_):
        if self.full == "round":
            raise StoreError("the disk is full")
        await super().append_round(session_id, round_)

    async def end_turn(self, session_id, end):
        if self.full:
            raise StoreError("the disk is full")
        await super().end_turn(session_id, end)


@pytest.mark.parametrize(("full", "status"), [("round", "failed"), ("end", "completed")])
def test_a_history_that_cannot_be_written_ends_the_stream_in_good_order(run, make, gather, full, status):
    def f() -> str:
        """Return."""
        return "x"

    history = Full(Memory())
    model = ScriptedModel([[call("a", "f")], "end", "next"])
    session = make(model, tools=[f], history=history)
    history.full = full
    events, raised = run(gather, session)
    assert events[-1].status == status
    assert "disk is full" in str(raised)
    assert raised.state is session.state
    assert len(model.requests) == (1 if full == "round" else 2)
    history.full = ""
    assert not session.running
    assert run(session.run, "again").status == "completed"


def test_a_model_s_own_key_is_masked(run, make, gather):
    def f() -> str:
        """Return what the process should have kept to itself."""
        return f"key {SECRET}"

    class Keyed(ScriptedModel):
        secrets = FallbackModel([OpenAIModel("m", api_key=SECRET, base_url="http://user:other-secret@127.0.0.1:1/v1")]).secrets

    session = make(Keyed([[call("a", "f")], f"it is {SECRET[:5]}", "end"]), tools=[f])
    events, _ = run(gather, session, "my key is other-secret")
    shown = msgspec.json.encode(events).decode()
    assert SECRET not in shown
    assert "other-secret" not in shown
    assert session.state.tool_calls[0].result.text == "key [masked]"


def test_a_session_that_nobody_closes_leaves_no_folder_and_no_warning(tmp_path):
    script = """
from agent_kernel import ScriptedModel, Session, run_sync
from agent_kernel.store.kept import Memory
from agent_kernel.protocol.messages import ToolCall
def big() -> str:
    "Return much."
    return "lines\\n" * 50_000
session = Session(ScriptedModel([ToolCall(id="a", name="big"), "end"]), tools=[big])
print(run_sync(session.run("go")).tool_calls[0].result.artifact.size)
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert (ended.stdout.strip(), ended.stderr) == ("300000", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prompt", ["", " \n", 3, None, b"bytes"])
def test_a_prompt_is_a_text(run, make, prompt):
    session = make(ScriptedModel(["fine"]))
    with pytest.raises(ValueError, match="prompt"):
        run(session.run, prompt)
    assert run(session.run, "go").text == "fine"


def test_bytes_are_masked_before_they_are_stored(run, make, monkeypatch):
    monkeypatch.setenv("DEMO_API_KEY", SECRET)
    key = b"sk-" + b"a1" * 20

    def dump() -> bytes:
        """Return a process's memory."""
        return b"\xff\x00" * 100 + SECRET.encode() + b"\x80" + key + b"\x00" * 100

    session = make(ScriptedModel([[call("a", "dump")], "end"]), tools=[dump])

    async def main():
        state = await session.run("go")
        return await session.artifacts.read(state.tool_calls[0].result.artifact)

    assert run(main) == b"\xff\x00" * 100 + b"[masked]\x80[masked]" + b"\x00" * 100


def test_a_secret_in_pieces_of_reasoning_is_masked(run, make, monkeypatch, gather):
    monkeypatch.setenv("DEMO_API_KEY", SECRET)
    pieces = [ReasoningDelta(text=f"it is {SECRET[:9]}"), ReasoningDelta(text=f"{SECRET[9:]}, or {SECRET[:4]}")]
    session = make(ScriptedModel([[*pieces, "fine"]]))
    events, _ = run(gather, session)
    assert session.state.reasoning == f"it is [masked], or {SECRET[:4]}"
    assert not any(SECRET[:9] in str(event) for event in events)

"""Cancelling at any step: no task left, an ended stream, a usable history."""

import asyncio
import threading
import time

import pytest

from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import TextAppended, ToolCallFinished, ToolCallStarted, TurnFinished
from agent_kernel.protocol.messages import ToolCall


def two_calls():
    return [ToolCall(id="a", name="fast", arguments="{}"), ToolCall(id="b", name="slow", arguments="{}")]


def test_cancel_while_the_model_speaks_keeps_the_partial_text(run, make, valid):
    model = ScriptedModel([["partial ", "text", asyncio.Event()], "fine"])
    session = make(model)

    async def main():
        events = []
        async for event in session.ask("one"):
            events.append(event)
            if isinstance(event, TextAppended) and event.text == "text":
                session.cancel()
                session.cancel()
        assert events[-1].status == "cancelled"
        assert [(message.role, message.text) for message in session.messages] == [("user", "one"), ("assistant", "partial text")]
        assert session.messages[1].partial
        assert session.pending_prompt == "one"
        return await session.run("two")

    assert run(main).text == "fine"
    valid(model.requests[1])
    assert [message.text for message in model.requests[1].messages] == ["one", "partial text", "two"]


def test_cancel_before_any_text_keeps_the_prompt(run, make):
    session = make(ScriptedModel([[asyncio.Event()]]))

    async def main():
        async for event in session.ask("one"):
            if type(event).__name__ == "RoundStarted":
                session.cancel()
        return session.messages

    assert [message.text for message in run(main)] == ["one"]
    assert session.pending_prompt == "one"


def test_cancel_while_tools_run_gives_each_call_one_result(run, make, valid):
    cancelled = []

    def fast() -> str:
        """Return."""
        return "done"

    async def slow() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "never"

    model = ScriptedModel([two_calls(), "fine"])
    session = make(model, tools=[fast, slow])

    async def main():
        began = None
        events = []
        async for event in session.ask("one"):
            events.append(event)
            if isinstance(event, ToolCallFinished) and began is None:
                began = time.monotonic()
                session.cancel()
        print(f"cancel took {(time.monotonic() - began) * 1000:.0f} ms")
        assert [(event.result.call_id, event.result.status) for event in events if isinstance(event, ToolCallFinished)] == [
            ("a", "ok"),
            ("b", "cancelled"),
        ]
        assert events[-1].status == "cancelled"
        state = await session.run("two")
        assert state.text == "fine"

    run(main)
    assert cancelled == [True]
    valid(model.requests[1])
    assert session.messages[2].text == "done"


def test_a_thread_that_ignores_cancellation_is_abandoned(run, make):
    release = threading.Event()

    def slow() -> str:
        """Ignore everything."""
        release.wait(20)
        return "late"

    def fast() -> str:
        """Return."""
        return "x"

    session = make(ScriptedModel([two_calls(), "fine"]), tools=[fast, slow])

    async def main():
        began = 0.0
        async for event in session.ask("one"):
            if isinstance(event, ToolCallFinished) and not began:
                began = time.monotonic()
                session.cancel()
        elapsed = time.monotonic() - began
        print(f"cancel with a tool that ignores it took {elapsed * 1000:.0f} ms")
        assert elapsed < 1
        assert len(session.abandoned) == 1
        assert (await session.run("two")).text == "fine"

    run(main)
    release.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "agent-kernel-tool-slow"]:
        thread.join(5)
    assert len(session.abandoned) == 0
    assert session.messages[3].status == "cancelled"


def test_a_cancelled_call_says_how_long_it_ran(run, make):
    async def slow() -> None:
        """Wait."""
        await asyncio.sleep(60)

    session = make(ScriptedModel([[ToolCall(id="1", name="slow", arguments="{}")]]), tools=[slow])

    async def main():
        async for event in session.ask("one"):
            if isinstance(event, ToolCallStarted):
                session.cancel()

    run(main)
    [call] = session.state.tool_calls
    assert call.status == "cancelled"
    assert call.result.elapsed > 0


@pytest.mark.parametrize("how", ["break", "aclose", "task"])
def test_a_consumer_that_leaves_ends_the_turn(run, make, how):
    closed = []

    class Watched(ScriptedModel):
        async def stream(self, request):
            try:
                async for delta in super().stream(request):
                    yield delta
            finally:
                closed.append(True)

    session = make(Watched([["some ", "text", asyncio.Event()], "fine"]))

    async def consume():
        async for event in session.ask("one"):
            if isinstance(event, TextAppended) and event.text == "text":
                break

    async def main():
        if how == "break":
            await consume()
            import gc

            gc.collect()
            while session.running:  # noqa: ASYNC110 - the collector's closing of a generator tells nobody
                await asyncio.sleep(0.001)
        elif how == "aclose":
            stream = session.ask("one")
            async for event in stream:
                if isinstance(event, TextAppended) and event.text == "text":
                    break
            await stream.aclose()
        else:
            reached = asyncio.Event()

            async def pull():
                async for event in session.ask("one"):
                    if isinstance(event, TextAppended) and event.text == "text":
                        reached.set()

            task = asyncio.create_task(pull())
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert closed == [True]
        assert session.state.status == "cancelled"
        assert [message.text for message in session.messages] == ["one", "some text"]
        assert session.turns[-1].end.status == "cancelled"
        assert (await session.run("two")).text == "fine"

    run(main)


def test_leaving_while_tools_run_records_their_results(run, make, valid):
    stopped = []

    async def slow() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return "never"

    def fast() -> str:
        """Return."""
        return "x"

    model = ScriptedModel([two_calls(), "fine"])
    session = make(model, tools=[fast, slow])

    async def main():
        stream = session.ask("one")
        async for event in stream:
            if isinstance(event, ToolCallFinished):
                break
        await stream.aclose()
        assert [message.status for message in session.messages if message.role == "tool"][1] == "cancelled"
        await session.run("two")

    run(main)
    assert stopped == [True]
    valid(model.requests[1])


def test_cancel_from_another_thread(run, make):
    session = make(ScriptedModel([["a", asyncio.Event()]]))

    async def main():
        events = []
        async for event in session.ask("one"):
            events.append(event)
            if isinstance(event, TextAppended):
                threading.Thread(target=session.cancel).start()
        return events

    assert isinstance(run(main)[-1], TurnFinished)


def test_cancel_at_every_event(run, make, valid):
    """Whatever the last event that was seen, the history is usable and the stream ends."""

    def fast() -> str:
        """Return."""
        return "x"

    def script():
        return ScriptedModel([["t", ToolCall(id="a", name="fast", arguments="{}")], ["end"], "fine"])

    async def count():
        session = make(script(), tools=[fast])
        return len([event async for event in session.ask("one")])

    total = run(count)
    assert total >= 10

    async def cut(at):
        model = script()
        session = make(model, tools=[fast])
        events = []
        async for event in session.ask("one"):
            events.append(event)
            if event.seq == at:
                session.cancel()
        assert isinstance(events[-1], TurnFinished)
        assert events[-1].status in ("cancelled", "completed")
        while len(model.requests) < 2:
            await session.run("next")
        valid(model.requests[-1])

    for at in range(total):
        run(cut, at)


def test_cancel_without_a_turn_does_nothing(make, run):
    session = make(ScriptedModel(["fine"]))
    session.cancel()
    assert run(session.run, "go").text == "fine"


def test_close_stops_a_running_turn(run, make):
    session = make(ScriptedModel([["a", asyncio.Event()]]))

    async def main():
        stream = session.ask("one")
        async for event in stream:
            if isinstance(event, TextAppended):
                await session.close()
        return session.state.status

    assert run(main) == "cancelled"

"""The laws of the stream under generated scripts, tools, limits, and orders of asking, leaving, cancelling, forking and retrying."""

import asyncio
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_kernel import AgentKernelError, Artifacts, History, ScriptedModel, Session, ToolContext, tool
from agent_kernel.errors import ModelConnectionError, ModelRejected, NothingToRetry
from agent_kernel.protocol.events import FinishDelta, ReasoningDelta, RoundFinished, TextDelta, ToolCallFinished, ToolCallStarted, TurnFinished
from agent_kernel.protocol.fold import fold
from agent_kernel.protocol.messages import ToolCall

NAMES = ["plain", "soon", "broken", "leaving", "late", "long", "pieces", "alone", "keyed", "asking", "denied", "unknown", ""]
ARGUMENTS = ["{}", "", "null", '{"x": 1}', '{"cut', "[]", '"{}"', '{"\\ud800": 1}']
CALLS = st.builds(
    lambda call_id, name, arguments: ToolCall(id=call_id, name=name, arguments=arguments),
    st.sampled_from(["a", "b", "", "dup", "x" * 200, "\n"]),
    st.sampled_from(NAMES),
    st.sampled_from(ARGUMENTS),
)
TEXT = st.sampled_from(["word ", "", "\ud800", "\n"])
STEPS = st.one_of(TEXT.map(lambda text: TextDelta(text=text)), TEXT.map(lambda text: ReasoningDelta(text=text)), CALLS, st.just(0))
ENDS = st.sampled_from(
    [None] * 30
    + [FinishDelta(reason="length"), FinishDelta(reason="content_filter"), ModelConnectionError("gone"), ModelRejected("no")]
    + [ValueError("own"), SystemExit(2), asyncio.CancelledError()]
)
REPLIES = st.lists(st.tuples(st.lists(STEPS, max_size=6), ENDS).map(lambda both: [*both[0], *([both[1]] if both[1] is not None else [])]), max_size=8)
ACTS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "retry", "cancel", "leave", "task", "fork", "resume", "drop"]), st.integers(0, 25)),
    min_size=1,
    max_size=6,
)


def toolset():
    @tool
    def plain() -> str:
        """Return."""
        return "plain"

    @tool
    async def soon() -> dict:
        """Return later."""
        await asyncio.sleep(0)
        return {"a": [1]}

    @tool
    def broken() -> str:
        """Fail."""
        raise ValueError("broken")

    @tool
    def leaving() -> str:
        """End the process, or try to."""
        raise SystemExit

    @tool(timeout=0.005)
    async def late() -> str:
        """Take too long."""
        await asyncio.Event().wait()

    @tool
    def long() -> str:
        """Return much."""
        return "a line of text\n" * 300

    @tool
    def pieces():
        """Yield."""
        yield "a"
        yield "b"

    @tool(serial=True)
    async def alone(context: ToolContext) -> str:
        """Run alone."""
        context.progress(text="alone")
        return "alone"

    @tool(key="k")
    async def keyed() -> str:
        """Run one after another."""
        return "keyed"

    @tool(approve="ask")
    def asking() -> str:
        """Ask first."""
        return "asked"

    @tool(approve="deny")
    def denied() -> str:
        """Never run."""
        raise AssertionError

    return [plain, soon, broken, leaving, late, long, pieces, alone, keyed, asking, denied]


def check_events(events, session):
    assert [event.seq for event in events] == list(range(len(events)))
    running = set()
    for event in events:
        if isinstance(event, ToolCallStarted):
            running.add(event.call.id)
        elif isinstance(event, ToolCallFinished):
            running.discard(event.result.call_id)
        elif isinstance(event, RoundFinished):
            assert not running
    finished = Counter(event.result.call_id for event in events if isinstance(event, ToolCallFinished))
    assert set(finished.values()) <= {1}
    whole = fold(events).snapshot()
    middle = fold(events[: len(events) // 2])
    copy = middle.snapshot()
    rest = events[len(events) // 2 :]
    assert fold(rest, middle).snapshot() == fold(rest, copy).snapshot() == whole
    msgspec.json.encode(events)
    if isinstance(events[-1], TurnFinished):
        assert whole == session.state.snapshot()
        assert (session.pending_prompt is None) == (events[-1].status == "completed")


async def turn(session, act, number, events):
    """Ask or retry, and stop in the way that ``act`` says once event ``number`` was seen."""
    stream = session.retry() if act == "retry" else session.ask(f"question {number}")

    async def pull():
        async for event in stream:
            events.append(event)
            if event.seq >= number and act == "cancel":
                session.cancel()
            if event.seq >= number and act == "leave":
                break
        await stream.aclose()

    if act != "task":
        await pull()
        assert act == "leave" or isinstance(events[-1], TurnFinished)
        return
    task = asyncio.create_task(pull())
    for _ in range(number):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def acted(session, act, number):
    """Do one thing and return the session to go on with."""
    events, failed = [], None
    try:
        if act == "fork":
            return await session.fork()
        if act == "resume":
            return await session.resume(session.id) if session.turns else session
        if act == "drop":
            if session.turns:
                await session.drop_last_turn(session.turns[-1].turn_id)
            return session
        await turn(session, act, number, events)
    except NothingToRetry:
        assert session.pending_prompt is None
    except AgentKernelError as error:
        failed = error
    if failed is not None:
        assert events[-1].status == "failed"
        assert failed.state is session.state
    if events:
        check_events(events, session)
    return session


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(REPLIES, ACTS, st.integers(1, 3), st.integers(1, 4), st.booleans(), st.sampled_from([True, False, "not now"]), st.sampled_from([1, 50, 1_500]))
def test_the_laws_hold_whatever_happens(run, clock, valid, replies, acts, max_rounds, cap, answer_at_limit, decision, max_result_chars):
    async def main():
        model = ScriptedModel([*replies, *["end"] * 40])
        model.max_retries = 1
        async with History.open(None) as history, Artifacts.open(None) as artifacts:
            session = Session(
                model,
                tools=toolset(),
                history=history,
                artifacts=artifacts,
                max_rounds=max_rounds,
                max_parallel_tools=cap,
                max_result_chars=max_result_chars,
                answer_at_limit=answer_at_limit,
                approve=lambda call, reason: decision,
                clock=clock,
            )
            for act, number in [*acts, ("ask", 0)]:
                async with asyncio.timeout(10):
                    session = await acted(session, act, number)
                assert not session.running
                assert asyncio.all_tasks() == {asyncio.current_task()}
                if session.turns:
                    assert list(await history.messages(session.id)) == session.messages
        for request in model.requests:
            valid(request)
            assert request.messages[-1].role != "assistant"

    run(main)


def test_the_checks_can_fail():
    started = ToolCallStarted(turn_id="t", seq=0, at=0.0, call=ToolCall(id="a", name="f"))
    with pytest.raises(AssertionError):
        check_events([started, RoundFinished(turn_id="t", seq=1, at=0.0, round=1)], None)

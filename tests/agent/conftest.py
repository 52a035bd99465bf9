"""What the agent tests share: run a coroutine, gather a turn's events, a clock that does not wait."""

import asyncio

import pytest

from agent_kernel.agent.session import Session
from agent_kernel.protocol.events import ToolCallFinished, ToolCallStarted, TurnFinished, TurnStarted


class FakeClock:
    """Remembers how long it was asked to wait, and does not."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)

    def jitter(self):
        return 1.0


async def gathered(session, prompt="go", **options):
    """Return a turn's events, and the error that it raised or None; checks the laws that hold for every turn."""
    events, error = [], None
    try:
        async for event in session.retry(**options) if prompt is None else session.ask(prompt, **options):
            events.append(event)
    except Exception as raised:
        error = raised
    check_laws(events, session)
    return events, error


def check_laws(events, session):
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnFinished)
    assert sum(isinstance(event, TurnFinished) for event in events) == 1
    assert [event.seq for event in events] == list(range(len(events)))
    assert len({event.turn_id for event in events}) == 1
    started = [event.call.id for event in events if isinstance(event, ToolCallStarted)]
    finished = [event.result.call_id for event in events if isinstance(event, ToolCallFinished)]
    assert len(set(finished)) == len(finished)
    assert set(started) <= set(finished)
    calls = [entry.id for entry in session.state.tool_calls]
    assert len(set(calls)) == len(calls)


def check_valid(request):
    """A request that any provider accepts: each call answered once, right after its message, in order."""
    import msgspec

    waiting = []
    seen = set()
    for message in request.messages:
        if message.role == "tool":
            assert waiting, "a tool message that answers no call"
            assert message.call_id == waiting.pop(0)
            continue
        assert not waiting, f"calls without an answer: {waiting}"
        if message.role == "assistant":
            for call in message.tool_calls:
                assert call.id
                assert call.id not in seen
                seen.add(call.id)
                assert isinstance(msgspec.json.decode(call.arguments), dict)
                waiting.append(call.id)
        message.text.encode()
    assert not waiting


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def gather():
    return gathered


@pytest.fixture
def valid():
    return check_valid


@pytest.fixture
def run():
    """Run an async function and check that it leaves no task behind."""

    def runner(main, *arguments):
        async def outer():
            value = await main(*arguments)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"
            return value

        return asyncio.run(outer())

    return runner


@pytest.fixture
def make(clock):
    """Make a session on a fake clock."""

    def maker(model, **options):
        return Session(model, clock=clock, **options)

    return maker

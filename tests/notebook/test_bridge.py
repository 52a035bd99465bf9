"""Following a turn with a view, and the entries outside of a kernel."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from agent_kernel.agent.session import Session
from agent_kernel.errors import AgentKernelError, SessionBusy, ToolError, TurnInterrupted
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.notebook.bridge import Bridge, Work, follow
from agent_kernel.notebook.engine import Engine
from agent_kernel.protocol.fold import TurnState


class Recorder:
    """A view that keeps what it was told; ``fail`` names the call that raises."""

    def __init__(self, fail=None):
        self.fail = fail
        self.calls = []

    def _note(self, name, value):
        self.calls.append((name, value))
        if name == self.fail:
            raise OSError("the front end is gone")

    def start(self, state):
        self._note("start", state.status)

    def apply(self, events):
        self._note("apply", list(events))

    def finish(self, state):
        self._note("finish", state.status)


def followed(replies, view):
    async def turn():
        async with Session(ScriptedModel(replies)) as session:
            return await follow(session.ask("hello"), lambda: session.state, view), session

    return asyncio.run(turn())


def test_a_view_gets_every_event_once_in_order_between_start_and_finish():
    view = Recorder()
    followed([["a", 0.01, "b", 0.01, "c"]], view)
    assert [name for name, _ in view.calls][:: len(view.calls) - 1] == ["start", "finish"]
    events = [event for name, value in view.calls if name == "apply" for event in value]
    assert [event.seq for event in events] == list(range(len(events)))
    assert view.calls[-1] == ("finish", "completed")


def test_what_is_there_at_once_comes_in_one_call():
    view = Recorder()
    followed([[str(number) for number in range(1_000)]], view)
    assert len(view.calls) < 100


@pytest.mark.parametrize("fail", ["start", "apply", "finish"])
def test_a_view_that_fails_stops_the_showing_and_not_the_turn(fail):
    view = Recorder(fail)
    session = None

    async def turn():
        nonlocal session
        async with Session(ScriptedModel(["an answer"])) as session:
            await follow(session.ask("hello"), lambda: session.state, view)

    with pytest.raises(AgentKernelError, match="could not be shown"):
        asyncio.run(turn())
    assert session.state.text == "an answer"
    assert view.calls[-1][0] == fail


def test_a_refused_turn_never_reaches_the_view():
    view = Recorder()

    async def turn():
        async with Session(ScriptedModel([[30]])) as session:
            first = asyncio.create_task(session.run("first"))
            await asyncio.sleep(0)
            assert session.running
            with pytest.raises(SessionBusy):
                await follow(session.ask("second"), lambda: session.state, view)
            session.cancel()
            await first

    asyncio.run(turn())
    assert view.calls == []


@pytest.fixture
def bridge():
    engine = Engine()
    yield Bridge(engine)
    engine.stop()


async def where():
    return threading.current_thread().name


def test_both_entries_run_work_on_the_engine(bridge):
    assert bridge.run_blocking(Work(where())) == "agent-kernel-engine"
    assert asyncio.run(bridge.run_awaited(Work(where()))) == "agent-kernel-engine"
    assert asyncio.run(asyncio.to_thread(lambda: bridge.run_blocking(Work(where())))) == "agent-kernel-engine"


def test_errors_come_through(bridge):
    async def fails():
        raise SessionBusy("busy")

    with pytest.raises(SessionBusy):
        bridge.run_blocking(Work(fails()))
    with pytest.raises(SessionBusy):
        asyncio.run(bridge.run_awaited(Work(fails())))


class Endless:
    """Work that ends only when it is told to, and says so."""

    def __init__(self, bridge, begin=lambda: None):
        self.ended = False
        self.bridge = bridge
        self.begin = begin
        self.work = Work(self.run(), self.cancel)

    async def run(self):
        self.stopped = asyncio.Event()
        self.begin()
        await self.stopped.wait()
        self.ended = True

    def cancel(self):
        async def stop():
            self.stopped.set()

        self.bridge.engine.submit(stop())


def test_an_interrupt_stops_blocking_work_by_its_own_cancel(bridge):
    for _ in range(20):  # the interrupt lands at another place each time
        endless = Endless(bridge, begin=lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(TurnInterrupted):
            bridge.run_blocking(endless.work)
        assert endless.ended


def test_a_cancelled_cell_stops_awaited_work(bridge):
    async def cell(work):
        with pytest.raises(TurnInterrupted):
            await bridge.run_awaited(work)

    async def shell(endless):
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        endless.begin = lambda: loop.call_soon_threadsafe(begun.set)
        task = asyncio.ensure_future(cell(endless.work))
        await begun.wait()
        task.cancel()
        await task

    endless = Endless(bridge)
    asyncio.run(shell(endless))
    assert endless.ended


def test_the_main_thread_serves_tools_while_it_is_blocked(bridge):
    async def work():
        name = await bridge.places.run_main(lambda: threading.current_thread().name)
        with pytest.raises(ZeroDivisionError):
            await bridge.places.run_main(lambda: 1 / 0)
        looped = await bridge.places.run_kernel_loop(where)
        return name, looped

    assert bridge.run_blocking(Work(work())) == ("MainThread", "MainThread")


def test_without_a_main_thread_a_tool_says_so(bridge):
    async def work():
        return await bridge.places.run_main(lambda: None)

    with pytest.raises(ToolError, match="start the turn from a cell"):
        bridge.engine.wait(work())


def test_a_cancelled_call_breaks_the_main_thread_out_of_a_blocking_call(bridge):
    def block():
        threading.Event().wait(30)

    async def work():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await bridge.places.run_main(block)
        return await bridge.places.run_main(lambda: "free again")

    assert bridge.run_blocking(Work(work())) == "free again"


def test_a_turn_state_is_true_so_that_statements_show_nothing():
    assert bool(TurnState()) is True

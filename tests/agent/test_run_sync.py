"""run_sync, and the same turn in a script, a loop, and a thread."""

import asyncio
import threading

import pytest

from agent_kernel.agent.session import Session
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.notebook.running import run_sync


def test_without_a_loop_twice_on_one_session():
    session = Session(ScriptedModel(["one", "two"]))
    assert run_sync(session.run("a")).text == "one"
    assert run_sync(session.run("b")).text == "two"
    assert [message.text for message in session.messages] == ["a", "one", "b", "two"]
    run_sync(session.close())


def test_inside_a_running_loop():
    session = Session(ScriptedModel(["one"]))

    async def main():
        return run_sync(session.run("a")).text

    assert asyncio.run(main()) == "one"


def test_errors_come_through_either_way():
    async def fail():
        raise ZeroDivisionError("x")

    async def main():
        run_sync(fail())

    with pytest.raises(ZeroDivisionError):
        run_sync(fail())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def test_close_leaves_no_thread_of_ours(tmp_path):
    def big() -> str:
        """Return much."""
        return "x" * 50_000

    from agent_kernel.protocol.messages import ToolCall

    before = set(threading.enumerate())

    async def main():
        async with Session(ScriptedModel([ToolCall(id="a", name="big"), "done"]), tools=[big], max_result_chars=100) as session:
            await session.run("go")
            assert await session.result("r1") == "x" * 50_000

    run_sync(main())
    assert {thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("agent-kernel")} == set()

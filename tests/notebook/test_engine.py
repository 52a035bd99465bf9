"""The engine thread: contexts, stopping, and the two waits that may not be."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from agent_kernel.errors import AgentKernelError
from agent_kernel.notebook.engine import Engine
from agent_kernel.notebook.running import run_sync


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.stop()


async def where():
    return threading.current_thread().name


def test_work_runs_on_its_thread_with_the_callers_context(engine):
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("caller's")

    async def work():
        return variable.get(), await where()

    assert engine.wait(work()) == ("caller's", "agent-kernel-engine")
    assert "running" in repr(engine)


def test_the_engine_cannot_wait_for_itself(engine):
    async def work():
        return engine.wait(where())

    with pytest.raises(AgentKernelError, match="Await the coroutine"):
        engine.wait(work())


def test_stop_cancels_what_runs_and_ends_the_thread():
    engine = Engine()
    ended = threading.Event()
    begun = threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    future = engine.submit(work())
    assert begun.wait(5)
    engine.stop()
    engine.stop()
    assert ended.is_set()
    assert future.cancelled()
    assert "agent-kernel-engine" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(AgentKernelError, match="load_ext"):
        engine.submit(where())


def test_an_exit_while_warming_prints_nothing():
    code = "import atexit\nfrom agent_kernel.notebook.engine import Engine\nengine = Engine()\natexit.register(engine.stop)\nengine.warm(['openai', 'no_such_module', 'duckdb'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_run_sync_with_and_without_a_running_loop():
    async def inside():
        return run_sync(where()), threading.active_count()

    assert run_sync(where()) == "MainThread"
    assert asyncio.run(inside())[0] == "agent-kernel-run-sync"

    async def fails():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run_sync(fails())

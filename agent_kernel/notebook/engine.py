"""The engine: one daemon thread with one asyncio loop, where every turn of a kernel runs.

User code that blocks the main thread never stalls a stream, a sibling tool or a click here. Work is submitted with a copy of the
caller's context, so output stays with its cell. Knows nothing of turns, cells or IPython.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from agent_kernel.errors import AgentKernelError

T = TypeVar("T")

STOP_SECONDS = 2.0  # what unload and the kernel's exit wait at most for tasks to end


class Engine:
    """A running loop in a thread of its own, until ``stop``."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._stopping = threading.Event()
        self._warmer: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="agent-kernel-engine", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "stopped" if self._stopping.is_set() else "running"
        return f"<Engine {state}>"

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the engine's thread, where waiting for the engine would never end."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine, in a copy of the caller's context; from any thread.

        Raises:
            AgentKernelError: The engine has stopped.
        """
        if self._stopping.is_set():
            work.close()
            raise AgentKernelError("The agent was unloaded. Load it again with %load_ext agent_kernel.")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a short coroutine on the engine and wait for its value.

        Raises:
            AgentKernelError: The caller is the engine itself.
        """
        if self.is_current:
            work.close()
            raise AgentKernelError("This call waits for the engine and was made on the engine (in an async tool). Await the coroutine instead.")
        return self.submit(work).result()

    def warm(self, modules: Iterable[str]) -> None:
        """Import modules beside the engine's work, so that the first turn finds them ready.

        In a thread of its own: an import of half a second on the loop would hold up a first turn that comes at once.
        """
        self._warmer = threading.Thread(target=self._import, args=(tuple(modules),), name="agent-kernel-warm", daemon=True)
        self._warmer.start()

    def stop(self) -> None:
        """Cancel what runs, end the thread and close the loop; idempotent.

        A warm-up ends with the module it is importing: an interpreter that goes down in the middle of an import is noisy.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._warmer is not None:
            self._warmer.join(STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join(2 * STOP_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            with suppress(RuntimeError):  # a loop stopped from its own thread may still be in use
                self._loop.run_until_complete(self._end())
                self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        await self._loop.shutdown_asyncgens()

    def _import(self, modules: tuple[str, ...]) -> None:
        for module in modules:
            if self._stopping.is_set():
                return
            with suppress(ImportError):  # the first turn that needs it tells, in its cell
                importlib.import_module(module)

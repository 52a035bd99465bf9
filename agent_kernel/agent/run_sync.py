"""run_sync: a coroutine's result for sync code, with or without a running loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result.

    Where this thread runs no event loop, one is made for the call. Where it does (a notebook's cell), the coroutine runs on a loop in a
    thread of its own, in the caller's context, and the caller waits; an interrupt cancels the coroutine.

    Raises:
        BaseException: Whatever the coroutine raises.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return _Beside(coroutine).result()


class _Beside(Generic[T]):
    """A coroutine on a loop in a thread of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._done = threading.Event()
        self._task: asyncio.Task[T] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._value: list[T] = []
        self._error: BaseException | None = None

    def result(self) -> T:
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(self._run), name="agent-kernel-run-sync", daemon=True)
        thread.start()
        try:
            while not self._done.wait(0.1):  # a plain wait would not let an interrupt through on every platform
                pass
        except KeyboardInterrupt:
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._done.wait(1.0)
            raise
        thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]

    def _run(self) -> None:
        try:
            self._value.append(asyncio.run(self._main()))
        except BaseException as error:  # carried to the caller's thread, whatever it is
            self._error = error
        finally:
            self._done.set()

    async def _main(self) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        return await self._coroutine

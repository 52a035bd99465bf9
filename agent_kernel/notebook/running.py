"""``run_sync``: an awaitable from sync code, with or without a running loop. For scripts and for cells; not for turns of magics."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 1.0  # seconds that interrupted work has to end in good order


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its value.

    Without a running loop it gets one of its own here; with one (a notebook cell) it gets one in a thread, in a copy of this context,
    so that output stays with its cell. An interrupt cancels the work and is raised when it has ended, or a second later.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    return _run_in_thread(work)


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:  # not asyncio.run, which others patch
        return runner.run(work)


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    outcome: Future[T] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def report() -> T:
        task = asyncio.ensure_future(work)
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    def body() -> None:
        try:
            outcome.set_result(_run(report()))
        except BaseException as error:  # whatever it is belongs to the caller
            outcome.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=lambda: context.run(body), name="agent-kernel-run-sync", daemon=True).start()
    try:
        return outcome.result()
    except KeyboardInterrupt:
        if not outcome.done():
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
            wait([outcome], timeout=GRACE)
        raise

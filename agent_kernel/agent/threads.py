"""Sync work off the event loop: one daemon thread per piece of work.

A pool would be joined at the kernel's exit and starve on calls that ignore their timeout; a thread costs 75 microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], *, name: str = "agent-kernel-work") -> tuple[asyncio.Future[T], threading.Thread]:
    """Start work in a daemon thread, in a copy of the caller's context; its outcome arrives on the running loop.

    Whatever the work raises, SystemExit and KeyboardInterrupt included, becomes the future's exception (wrapped in RuntimeError where
    asyncio accepts no such exception). A future that was cancelled meanwhile discards the outcome.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome: T = context.run(work)
        except BaseException as error:  # the work is foreign code: everything it raises is reported, nothing ends the thread loudly
            failure = error
            _report(loop, lambda: None if future.done() else future.set_exception(_carried(failure)))
        else:
            _report(loop, lambda: None if future.done() else future.set_result(outcome))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return future, thread


def _report(loop: asyncio.AbstractEventLoop, settle: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed while the work ran: nobody waits any more
        loop.call_soon_threadsafe(settle)


def _carried(error: BaseException) -> BaseException:
    if isinstance(error, (StopIteration, KeyboardInterrupt, SystemExit)):
        carrier = RuntimeError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        carrier.__cause__ = error
        return carrier
    return error

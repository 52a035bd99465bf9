"""One thread for one purpose: the disk's work is handed to it, and no event loop waits for the disk.

It belongs to no loop, is made at the first use and anew in a forked child, where the parent's thread is not there.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """A thread that does one thing after another."""

    def __init__(self, name: str) -> None:
        """Name the thread."""
        self._name = name
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._last: Future[Any] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._last is None or self._last.done()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Hand over work, from any thread."""
        if self._pid != os.getpid():  # a forked child: neither the thread nor the lock's owner is here
            self._lock, self._pid, self._pool, self._last = threading.Lock(), os.getpid(), None, None
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
                weakref.finalize(self, self._pool.shutdown, wait=False)
            future = self._pool.submit(work)
            self._last = future
        return future

    async def run(self, work: Callable[[], T]) -> T:
        """Hand over work and await its result; where the waiting is cancelled, work that has not begun is dropped."""
        return await asyncio.wrap_future(self.submit(work))

    async def finish(self, work: Callable[[], T]) -> T:
        """Hand over work that is done to its end whatever becomes of who awaits it; a cancellation arrives after that end."""
        future = asyncio.wrap_future(self.submit(work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def close(self, last: Callable[[], None]) -> None:
        """Do one last thing, if there was any, and end the thread."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.submit(last)
            await asyncio.to_thread(pool.shutdown)

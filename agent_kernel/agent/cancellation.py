"""A turn's wish to stop, and the inbox through which its parallel work reports.

``Cancellation.request`` may be called from any thread; every wait of a turn goes through ``Inbox.get`` or ``Cancellation.wait``, so a
turn ends promptly wherever it is (law 8).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TurnCancelled(Exception):
    """The turn was asked to stop; caught by the turn itself."""


class Cancellation:
    """One turn's cancellation: requested once, from any thread, seen by all waits."""

    def __init__(self) -> None:
        """Start unrequested and bound to no loop."""
        self.requested = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakers: set[Callable[[], None]] = set()

    def bind(self) -> None:
        """Remember the running loop, on which waits are woken."""
        self._loop = asyncio.get_running_loop()

    def request(self) -> None:
        """Ask the turn to stop; idempotent."""
        self.requested = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def check(self) -> None:
        """Raise TurnCancelled if the turn was asked to stop."""
        if self.requested:
            raise TurnCancelled

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await something, but no longer than until the turn is asked to stop; then it is cancelled."""
        task = asyncio.ensure_future(awaitable)
        stopped = asyncio.get_running_loop().create_future()
        waker = self.on_request(lambda: None if stopped.done() else stopped.set_result(None))
        try:
            if not self.requested:
                await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise TurnCancelled
            return task.result()
        finally:
            self.forget(waker)
            task.cancel()
            stopped.cancel()

    def on_request(self, waker: Callable[[], None]) -> Callable[[], None]:
        """Have ``waker`` called on the loop when the turn is asked to stop; returns it, for ``forget``."""
        self._wakers.add(waker)
        return waker

    def forget(self, waker: Callable[[], None]) -> None:
        """Take a waker back."""
        self._wakers.discard(waker)

    def _wake(self) -> None:
        for waker in list(self._wakers):
            waker()


class Inbox(Generic[T]):
    """An unbounded queue with one reader, whose wait ends when the turn is cancelled. ``put`` belongs to the loop's thread."""

    def __init__(self, cancellation: Cancellation) -> None:
        """Start empty."""
        self.closed = False
        self._items: deque[T] = deque()
        self._cancellation = cancellation
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item and wake the reader."""
        self._items.append(item)
        self._wake()

    def take(self) -> T | None:
        """Return the next item, or None if there is none now or the turn was asked to stop."""
        if self._items and not self._cancellation.requested:
            return self._items.popleft()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return None

    async def get(self) -> T:
        """Return the next item, waiting for it.

        Raises:
            TurnCancelled: The turn was asked to stop.
        """
        self._cancellation.check()
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            waker = self._cancellation.on_request(self._wake)
            try:
                await self._waiter
            finally:
                self._cancellation.forget(waker)
            self._cancellation.check()
        return self._items.popleft()

    def close(self) -> None:
        """Drop what is there and let the writer go on: nobody reads any more."""
        self.closed = True
        self._items.clear()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def room(self) -> None:
        """Wait until the reader has taken all there is: the writer's brake."""
        while self._items and not self.closed:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

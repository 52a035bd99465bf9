"""From a cell to the engine and back: the await entry, the sync entry, the interrupt, and the turn that a view follows.

*Await entry*: the cell's coroutine waits on the kernel's loop, with a tick that keeps interrupts prompt. *Sync entry*: the main thread
is blocked and serves main-thread tools while it waits. Either way an interrupt ends the cell at once and raises TurnInterrupted, so
that Run All stops. The only door to nest_asyncio2, and that opens for one case: a kernel-loop tool under the sync entry.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from types import FrameType
from typing import Any, Generic, TypeVar

from agent_kernel.errors import AgentKernelError, TurnInterrupted
from agent_kernel.notebook.engine import Engine
from agent_kernel.notebook.places import KernelLoop, Places
from agent_kernel.protocol.events import Event
from agent_kernel.protocol.fold import TurnState
from agent_kernel.views.view import View

T = TypeVar("T")

TICK = 0.1  # seconds; a signal alone does not wake the kernel's loop
GRACE = 1.0  # seconds that an interrupted cell waits for its turn to end in good order

INTERRUPTED = "The turn was interrupted. Continue it with %agent retry."


class Work(Generic[T]):
    """What a cell asks of the engine: a coroutine, and how to stop it from any thread."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], cancel: Callable[[], None] | None = None) -> None:
        """Take a coroutine that has not begun.

        Args:
            coroutine: Runs on the engine.
            cancel: Ends it in good order; None: its task is cancelled.
        """
        self.coroutine = coroutine
        self.cancel = cancel


class Bridge:
    """The two entries from cells to one engine."""

    def __init__(self, engine: Engine, *, kernel_loop: KernelLoop = lambda: None) -> None:
        """Take the engine, and what gives the loop of the kernel's main thread (None in a terminal)."""
        self.engine = engine
        self.places = Places(kernel_loop=kernel_loop, nested=_run_nested)

    async def run_awaited(self, work: Work[T]) -> T:
        """Run work on the engine while the kernel's loop stays free.

        Raises:
            TurnInterrupted: The cell was interrupted.
        """
        future = self._submit(work)
        waiter = asyncio.wrap_future(future)
        waiter.add_done_callback(_seen)
        with self._early_stop(lambda: self._stop(work, future)) as interrupt:
            try:
                while not waiter.done():
                    await asyncio.wait([waiter], timeout=TICK)
                if interrupt.is_set():
                    await asyncio.sleep(TICK)  # the kernel's own cancellation of the cell is on its way, and must not come later
            except asyncio.CancelledError:
                interrupt.set()
                self._stop(work, future)
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([waiter], timeout=GRACE)
                future.cancel()
        if interrupt.is_set():
            self.places.deafen()
            raise TurnInterrupted(INTERRUPTED)
        return waiter.result()

    def run_blocking(self, work: Work[T]) -> T:
        """Run work on the engine while the caller's thread waits; on the main thread it serves main-thread tools meanwhile.

        Raises:
            TurnInterrupted: The cell was interrupted.
            AgentKernelError: The caller is the engine, which cannot wait for itself.
        """
        if self.engine.is_current:
            work.coroutine.close()
            raise AgentKernelError(
                "%agent cannot run inside an async tool: both need the same loop. Make the tool a plain function, or await agent.session.run(...)."
            )
        if threading.current_thread() is not threading.main_thread():
            return self._submit(work).result()
        future: Future[T] | None = None
        try:
            with self.places.pumping():
                future = self._submit(work)
                future.add_done_callback(lambda _: self.places.wake())
                while not future.done():
                    self.places.pump(TICK)
        except KeyboardInterrupt:
            self.places.deafen()
            if future is not None:
                self._stop(work, future)
                _wait_through(future)
                future.cancel()
            raise TurnInterrupted(INTERRUPTED) from None
        return future.result()

    def _submit(self, work: Work[T]) -> Future[T]:
        async def run() -> T:
            if work.cancel is not None:
                self.places.belongs_to(work.cancel)
            return await work.coroutine

        return self.engine.submit(run())

    @contextmanager
    def _early_stop(self, stop: Callable[[], None]) -> Iterator[threading.Event]:
        """Have an interrupt call ``stop`` at once, before the kernel's own handler hears of it; yields what tells that one came.

        The kernel only cancels the awaited cell once its loop is free, which a main-thread tool may hold up.
        """
        came = threading.Event()
        kernels = signal.getsignal(signal.SIGINT)
        plain = kernels in (signal.default_int_handler, self.places.on_braced_interrupt)
        if threading.current_thread() is not threading.main_thread() or not callable(kernels) or plain:
            yield came
            return

        def on_interrupt(signum: int, frame: FrameType | None) -> None:
            came.set()
            stop()
            kernels(signum, frame)

        signal.signal(signal.SIGINT, on_interrupt)
        try:
            yield came
        finally:
            if signal.getsignal(signal.SIGINT) is on_interrupt:
                signal.signal(signal.SIGINT, kernels)

    @staticmethod
    def _stop(work: Work[Any], future: Future[Any]) -> None:
        if work.cancel is None:
            future.cancel()
        else:
            work.cancel()


async def follow(events: AsyncGenerator[Event, None], state: Callable[[], TurnState | None], view: View) -> TurnState:
    """Run a turn to its end with a view beside it, and return its state; on the engine.

    What has arrived by the time the loop is free goes to the view in one call. A view that fails stops the showing, never the turn.

    Args:
        events: The turn, not begun.
        state: Gives the turn's fold once it has begun.
        view: Shows it.
    """
    show = _Show(view)
    try:
        async with aclosing(events):
            async for event in events:
                if not show.begun:
                    show.begin(state())
                show.add(event)
    finally:
        show.end()
    if show.state is None:
        raise AgentKernelError("The turn ended before it began.")
    if show.error is not None:
        raise AgentKernelError(f"The turn went on, but it could not be shown: {show.error!r}") from show.error
    return show.state


class _Show:
    """Hands a turn's events to a view, in batches."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._events: list[Event] = []
        self._flush: asyncio.Handle | None = None
        self.state: TurnState | None = None
        self.error: Exception | None = None

    @property
    def begun(self) -> bool:
        return self.state is not None

    def begin(self, state: TurnState | None) -> None:
        if state is not None:
            self.state = state
            self._guarded(lambda: self._view.start(state))

    def add(self, event: Event) -> None:
        self._events.append(event)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._flush = None
        events, self._events = self._events, []
        if events:
            self._guarded(lambda: self._view.apply(events))

    def end(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        self.flush()
        if (state := self.state) is not None:
            self._guarded(lambda: self._view.finish(state))

    def _guarded(self, call: Callable[[], None]) -> None:
        if self.error is None:
            try:
                call()
            except Exception as error:  # a front end's stream or display hook
                self.error = error


def _seen(future: asyncio.Future[Any]) -> None:
    """Look at an exception that nobody may wait for any more."""
    if not future.cancelled():
        future.exception()


def _wait_through(future: Future[Any]) -> None:
    """Wait for an interrupted turn's end; further interrupts are harmless."""
    with suppress(KeyboardInterrupt):
        concurrent.futures.wait([future], timeout=GRACE)


def _run_nested(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Run a loop that is blocked further up the stack until a task of it is done."""
    if not hasattr(loop, "_nest_patched"):  # the user may have applied this or its predecessor
        import nest_asyncio2  # noqa: PLC0415  # changes asyncio for the whole process: only where nothing else will do

        nest_asyncio2.apply(loop)
    loop.run_until_complete(task)

"""Where a tool runs: the kernel's main thread and the kernel's loop, whoever holds them at the moment.

One queue with two servers. While the kernel's loop is free (an awaited cell, or no cell) it serves; while a cell blocks the main
thread in the sync entry, that entry serves. Tools run under a SIGINT guard of our own: an interrupt that lands in one ends the turn,
a cancelled call is broken out of whatever it blocks in.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from agent_kernel.errors import ToolError
from agent_kernel.notebook.alarm import Alarm

Thunk = Callable[[], Any]
Runner = Callable[[Thunk], Awaitable[Any]]
KernelLoop = Callable[[], asyncio.AbstractEventLoop | None]
Nested = Callable[[asyncio.AbstractEventLoop, asyncio.Task[None]], None]


DEAF = 0.5  # seconds after an interrupt in which another one is ignored


class _Job:
    """One thunk on its way to the main thread, with the context that it was sent from."""

    def __init__(self, thunk: Thunk, *, on_loop: bool, cancel_turn: Callable[[], None] | None) -> None:
        self.thunk = thunk
        self.on_loop = on_loop
        self.cancel_turn = cancel_turn
        self.context = contextvars.copy_context()
        self.done: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None
        self.alarm = Alarm()
        self.armed = False  # whether an interrupt may be raised in the thunk right now
        self.broken_off = False
        self.interrupted = False
        self._outcome: Callable[[], Any] = _lost

    def result(self) -> Any:
        """Return what the thunk returned, or raise what it raised; outcomes travel as values, because futures refuse some exceptions."""
        return self._outcome()

    def run(self) -> None:
        """Run the thunk in the job's context, open to interrupts, and keep how it ended."""
        try:
            self.armed = True
            value = self.context.run(self.thunk)
            self.armed = False
        except KeyboardInterrupt:
            self.interrupted = not self.broken_off
            self.fail(ToolError("interrupted"))
        except BaseException as error:  # the user's code; SystemExit is a tool's failure too
            self.fail(error)
        else:
            self._outcome = lambda: value
        finally:
            self.armed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Await on a loop what the thunk returns; in a copy of the context, which may be entered further up the stack."""
        self.task = loop.create_task(self.work(), context=self.context.copy())
        return self.task

    def fail(self, error: BaseException) -> None:
        """Let ``result`` raise."""

        def outcome() -> Any:
            raise error

        self._outcome = outcome

    async def work(self) -> None:
        """Await what the thunk returns, and keep how it ended."""
        try:
            value = await self.thunk()
        except BaseException as error:  # the user's code; a SystemExit would end the kernel's loop
            self.fail(error)
        else:
            self._outcome = lambda: value


def _lost() -> Any:
    raise ToolError("interrupted")


class Places:
    """The kernel's main thread as a place where tools run."""

    def __init__(self, *, kernel_loop: KernelLoop, nested: Nested) -> None:
        """Name the loop that the main thread runs when no cell blocks it.

        Args:
            kernel_loop: Gives the kernel's own loop, which may not be there yet at load; None in a terminal.
            nested: Runs a loop that is blocked further up the stack until a task of it is done.
        """
        self._find_loop = kernel_loop
        self._nested = nested
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: list[_Job] = []  # innermost last; only the main thread changes it, under the lock
        self._deaf_until = 0.0
        self._pumps = 0
        self._waiting = False  # whether a pump waits, where an interrupt may be raised
        self._interrupted = False  # an interrupt came while no pump waited
        self._tasks: set[asyncio.Task[None]] = set()  # async jobs on the kernel's loop
        self._nesting = False  # whether a pump runs the kernel's loop right now
        self._cancel_turn: contextvars.ContextVar[Callable[[], None] | None] = contextvars.ContextVar("cancel_turn", default=None)

    @property
    def runners(self) -> Mapping[str, Runner]:
        """What a Session takes as ``places``."""
        return {"main": self.run_main, "kernel_loop": self.run_kernel_loop}

    @property
    def _kernel_loop(self) -> asyncio.AbstractEventLoop | None:
        return self._find_loop()

    def belongs_to(self, cancel: Callable[[], None]) -> None:
        """Tell, in the context of a turn, how an interrupt in one of its tools cancels it."""
        self._cancel_turn.set(cancel)

    async def run_main(self, thunk: Thunk) -> Any:
        """Run a thunk on the main thread and return its value."""
        return await self._send(_Job(thunk, on_loop=False, cancel_turn=self._cancel_turn.get()))

    async def run_kernel_loop(self, thunk: Thunk) -> Any:
        """Await on the kernel's loop the coroutine that a thunk returns, and return its value."""
        return await self._send(_Job(thunk, on_loop=True, cancel_turn=self._cancel_turn.get()))

    async def _send(self, job: _Job) -> Any:
        loop = self._kernel_loop
        if loop is None and not self._pumps:
            raise ToolError("There is no main thread to run this tool on: start the turn from a cell.")
        self._queue.put(job)
        if loop is not None:
            loop.call_soon_threadsafe(self._serve_from_loop)
        try:
            await asyncio.wrap_future(job.done)
        except asyncio.CancelledError:
            self._break_off(job)
            raise
        return job.result()

    # -- served by the kernel's loop

    def _serve_from_loop(self) -> None:
        """Serve what waits, in a callback of the kernel's loop; a pump serves by itself, and runs this only while it runs the loop."""
        while not self._pumps or self._nesting:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            if job is None or not job.done.set_running_or_notify_cancel():
                continue
            if job.on_loop:
                self._start_task(job, asyncio.get_running_loop())
            else:
                self._run_guarded(job, forward=not self._pumps)

    def _start_task(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        task = job.start(loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: job.done.set_result(None))

    # -- served by a blocked main thread

    @contextmanager
    def pumping(self) -> Iterator[None]:
        """Mark the main thread as blocked by the sync entry, which serves by ``pump`` and is interruptible."""
        self._pumps += 1
        self._interrupted = False
        previous = signal.signal(signal.SIGINT, self._on_pump_interrupt)
        try:
            yield
            self._raise_late()
        finally:
            signal.signal(signal.SIGINT, previous)
            self._pumps -= 1
            loop = self._kernel_loop
            if loop is not None and not self._pumps:
                loop.call_soon_threadsafe(self._serve_from_loop)  # what came too late for the pump

    def pump(self, timeout: float) -> None:
        """Serve one job, or wait at most ``timeout`` seconds for one.

        Raises:
            KeyboardInterrupt: An interrupt landed here or in the job.
        """
        self._raise_late()
        try:
            self._waiting = True
            job = self._queue.get(timeout=timeout)
        except queue.Empty:
            return
        finally:
            self._waiting = False
        if job is None or not job.done.set_running_or_notify_cancel():
            return
        loop = self._kernel_loop
        if not job.on_loop:
            self._run_guarded(job, forward=False)
        elif loop is None:
            job.thunk = partial(_run_alone, job.thunk)
            self._run_guarded(job, forward=False)
        else:
            self._start_task(job, loop)
            self._run_loop(loop, job.cancel_turn)

    def _run_loop(self, loop: asyncio.AbstractEventLoop, cancel_turn: Callable[[], None] | None) -> None:
        """Run the kernel's loop, which is blocked further up the stack, until its async jobs are done."""

        async def until_done(run: _Job) -> None:
            while self._tasks and not run.interrupted:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

        def nested() -> None:
            self._nesting = True
            try:
                self._nested(loop, loop.create_task(until_done(run), context=contextvars.copy_context()))
            finally:
                self._nesting = False

        run = _Job(nested, on_loop=True, cancel_turn=cancel_turn)
        self._run_guarded(run, forward=False)

    def brace(self, *, deaf_until: float = 0.0) -> None:
        """Stand in for Python's own interrupt handler until the kernel sets it again with the next request; in a kernel's main thread."""
        self._deaf_until = deaf_until
        here = threading.current_thread() is threading.main_thread() and self._kernel_loop is not None
        if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.on_braced_interrupt)

    def deafen(self) -> None:
        """Ignore interrupts for a moment: a second one would hit the kernel between the cell's end and its reply, which gets lost then."""
        self.brace(deaf_until=time.monotonic() + DEAF)

    def on_braced_interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Do what Python does, but not right after an interrupt."""
        if time.monotonic() > self._deaf_until:
            signal.default_int_handler(signum, frame)

    def _raise_late(self) -> None:
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _on_pump_interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        """Raise where the pump waits, else at its next step: bookkeeping is never torn in the middle."""
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt
        self._interrupted = True

    def wake(self) -> None:
        """Let a pump look up from its wait; from any thread."""
        self._queue.put(None)

    def _run_guarded(self, job: _Job, *, forward: bool) -> None:
        """Run a job's thunk on the main thread so that interrupts reach it.

        Args:
            job: The job.
            forward: Whether an interrupt goes on to the handler that stood before (the kernel's, which cancels the awaited cell);
                else it is raised.

        Raises:
            KeyboardInterrupt: An interrupt landed in the job, and ``forward`` is False.
        """
        previous = signal.signal(signal.SIGINT, self._on_interrupt)
        with self._lock:
            self._running.append(job)
        with job.alarm:
            job.run()
        with self._lock:  # a late signal of _break_off has arrived by now, and met a job that is no longer armed
            self._running.remove(job)
        signal.signal(signal.SIGINT, previous)
        if job.interrupted and job.cancel_turn is not None:
            job.cancel_turn()
        job.done.set_result(None)
        if not job.interrupted:
            return
        if not forward:
            raise KeyboardInterrupt
        if callable(previous) and previous not in (signal.default_int_handler, self.on_braced_interrupt):
            previous(signal.SIGINT, None)

    def _on_interrupt(self, _signum: int, _frame: FrameType | None) -> None:
        """Break the innermost job; async ones are cancelled first, because a raise could hit any other task of their loop."""
        job = self._running[-1] if self._running else None
        if job is None:
            return
        for each in self._running:
            each.alarm.seen()
        first, job.interrupted = not job.interrupted, job.interrupted or not job.broken_off
        if job.on_loop and first and self._tasks:
            if job.interrupted and job.cancel_turn is not None:
                job.cancel_turn()  # before the tasks end, or the turn would go on with their failures
            for task in list(self._tasks):
                task.get_loop().call_soon_threadsafe(task.cancel)
            return
        if job.armed:
            job.armed = False
            raise KeyboardInterrupt

    def _break_off(self, job: _Job) -> None:
        """End a job whose caller has gone: drop it, cancel its task, or break it out of a blocking call. From any thread."""
        if job.done.cancel():
            return
        if job.task is not None:
            job.task.get_loop().call_soon_threadsafe(job.task.cancel)
            return
        with self._lock:
            if job in self._running:
                job.broken_off = True
                _interrupt_main_thread()


def _run_alone(thunk: Thunk) -> Any:
    """Await what a thunk returns on a loop of its own, where there is no kernel."""

    async def work() -> Any:
        return await thunk()

    return asyncio.run(work())


def _interrupt_main_thread() -> None:
    """Break the main thread out of a blocking call; interrupt_main() alone does not wake sleeps, locks and subprocesses."""
    main = threading.main_thread().ident
    if sys.platform != "win32" and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        import _thread  # noqa: PLC0415  # only where signals cannot be sent to a thread

        _thread.interrupt_main()

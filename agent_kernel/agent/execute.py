"""One tool call, run to an Outcome, wherever it runs: thread, loop, main thread, executor.

Law 7: whatever a tool does (exception, SystemExit, a CancelledError of its own, a bad value) becomes an Outcome; only the cancellation of
the turn passes through. A tool that ignores its timeout or its cancellation is abandoned and its outcome discarded.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import operator
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Thread
from typing import Any

from msgspec import Struct

from agent_kernel.agent.intake import Intake, Prepared
from agent_kernel.agent.threads import in_thread
from agent_kernel.errors import ToolError
from agent_kernel.protocol.messages import ResultStatus
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.serialise import drain
from agent_kernel.tools.signature import CONTEXT
from agent_kernel.tools.tool import BoundCall, Tool

Place = Callable[[Callable[[], Any]], Awaitable[Any]]
TRACEBACK_CHARACTERS = 4_000  # of a tool's traceback kept for the person; the model sees one line


class Outcome(Struct, frozen=True, kw_only=True):
    """How a call ended, with its prepared value or error text."""

    status: ResultStatus
    prepared: Prepared
    error: str | None = None
    traceback: str | None = None


class Abandoned:
    """What was started and would not stop: threads and tasks that are still alive, counted for the status line."""

    def __init__(self) -> None:
        """Start with none."""
        self._alive: list[Thread | asyncio.Future[Any]] = []

    def add(self, work: Thread | asyncio.Future[Any]) -> None:
        """Note work that goes on without us."""
        self._alive.append(work)

    async def settle(self, seconds: float) -> None:
        """Give cancelled tasks of this loop a moment to end."""
        loop = asyncio.get_running_loop()
        tasks = {work for work in self._alive if not isinstance(work, Thread) and not work.done() and work.get_loop() is loop}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def __len__(self) -> int:
        self._alive = [work for work in self._alive if (work.is_alive() if isinstance(work, Thread) else not work.done())]
        return len(self._alive)


class Execution:
    """Runs calls for one dispatch."""

    def __init__(self, *, intake: Intake, executor: Executor | None, places: Mapping[str, Place], abandoned: Abandoned) -> None:
        """Keep the collaborators; ``executor`` None: a daemon thread per sync call."""
        self._intake, self._executor, self._places, self._abandoned = intake, executor, places, abandoned

    async def settle(self, seconds: float) -> None:
        """Give cancelled tools a moment to end."""
        await self._abandoned.settle(seconds)

    async def run(self, tool: Tool, bound: BoundCall, context: ToolContext) -> Outcome:
        """Run a call to its end, its timeout, or the turn's cancellation (which alone is raised)."""
        thread: Thread | None = None
        task: asyncio.Future[Outcome | Awaitable[Any]]
        deadline = None if tool.timeout is None else time.monotonic() + tool.timeout
        try:
            if tool.is_async or tool.runs_on in self._places or self._executor is not None:
                task = asyncio.ensure_future(self._on_loop(lambda: self._value(tool, bound, context), context))
            else:
                task, thread = in_thread(lambda: self._call(bound, context), name=f"agent-kernel-tool-{tool.name}")
        except RuntimeError as error:  # the system has no thread left
            return failure(error, self._intake)
        value = await self._within(deadline, task, thread, context)
        if inspect.isawaitable(value):  # a sync tool returned a coroutine, which is the rest of the call
            rest = value
            task = asyncio.ensure_future(self._on_loop(lambda: _awaited(rest), context))
            value = await self._within(deadline, task, None, context)
        return value if isinstance(value, Outcome) else self._timed_out(tool)

    async def _within(
        self, deadline: float | None, task: asyncio.Future[Outcome | Awaitable[Any]], thread: Thread | None, context: ToolContext
    ) -> Outcome | Awaitable[Any] | None:
        """Wait for a call; None: its time is up, and it is abandoned."""
        try:
            await asyncio.wait({task}, timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            return self._finished(task) if task.done() else None
        finally:
            if not task.done():
                context.cancel()
                task.cancel()
                self._abandoned.add(thread or task)

    def _finished(self, task: asyncio.Future[Outcome | Awaitable[Any]]) -> Outcome | Awaitable[Any]:
        try:
            return task.result()
        except asyncio.CancelledError:
            return failure(ToolError("The tool cancelled itself."), self._intake)
        except Exception as error:
            return failure(error, self._intake)

    def _call(self, bound: BoundCall, context: ToolContext) -> Outcome | Awaitable[Any]:
        """Run a sync tool and prepare its value, all in the tool's own thread: a database relation lives there. A coroutine comes back as it is."""
        try:
            with context.active():
                value = bound.run(context)
                if inspect.iscoroutine(value):
                    return value
                return Outcome(status="ok", prepared=self._intake.prepare(value))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return failure(error, self._intake)

    async def _on_loop(self, work: Callable[[], Awaitable[Any]], context: ToolContext) -> Outcome | Awaitable[Any]:
        try:
            with context.active():
                value = await work()
        except asyncio.CancelledError:
            if context.cancelled:
                raise
            return failure(ToolError("The tool cancelled itself."), self._intake)
        except BaseException as error:
            told = error
            future, _ = in_thread(lambda: failure(told, self._intake))  # an error's text may be as long as any result
            return await future
        return value if isinstance(value, Outcome) or inspect.iscoroutine(value) else await self._prepared(value)

    async def _value(self, tool: Tool, bound: BoundCall, context: ToolContext) -> Any:
        place = self._places.get(tool.runs_on)
        if place is not None and tool.is_async:
            return await place(lambda: self._body(bound, context))
        if place is not None:
            current = contextvars.copy_context()
            return await place(lambda: current.run(self._call, bound, context))
        if tool.is_async or self._executor is None:
            return await self._body(bound, context)
        return await self._in_executor(self._executor, bound, context)

    async def _in_executor(self, executor: Executor, bound: BoundCall, context: ToolContext) -> Any:
        """Run a sync tool in the user's executor; one that is no thread pool gets a call that can be pickled, without context."""
        if isinstance(executor, ThreadPoolExecutor):
            return await asyncio.wrap_future(executor.submit(contextvars.copy_context().run, self._call, bound, context))
        return await asyncio.wrap_future(executor.submit(call_portable, *portable(bound)))

    @staticmethod
    async def _body(bound: BoundCall, context: ToolContext) -> Any:
        value = bound.run(context)
        if inspect.isasyncgen(value):
            return await drain(value, context)
        return await value if inspect.isawaitable(value) else value

    async def _prepared(self, value: Any) -> Outcome:
        if self._intake.is_small(value):
            return Outcome(status="ok", prepared=self._intake.prepare(value))
        future, _ = in_thread(lambda: self._intake.prepare(value))
        return Outcome(status="ok", prepared=await future)

    def _timed_out(self, tool: Tool) -> Outcome:
        text = f"The tool timed out after {tool.timeout:g} s."
        return Outcome(status="timeout", prepared=self._intake.prepare(text), error=text)


async def _awaited(rest: Awaitable[Any]) -> Any:
    return await rest


def portable(bound: BoundCall) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a call that another process can make.

    A module's function goes by its name, because the name holds the Tool and pickle would not take the function; one of a notebook goes
    as it is, for executors that pickle functions by value.

    Raises:
        ToolError: The tool wants a ToolContext, which does not leave this process.
    """
    if any(value is CONTEXT for value in (*bound.args, *bound.kwargs.values())):
        raise ToolError(f"{bound.tool.name} takes a ToolContext and cannot run in another process; use a thread pool, or drop that parameter.")
    function = bound.tool.call
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    named = module not in (None, "__main__") and "<" not in name
    return (module, name) if named else function, bound.args, bound.kwargs


def call_portable(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a portable call, in whatever process this is."""
    if isinstance(target, tuple):
        module, name = target
        target = operator.attrgetter(name)(importlib.import_module(module))
    return target(*args, **kwargs)


def failure(error: BaseException, intake: Intake, *, status: ResultStatus = "error") -> Outcome:
    """Return an error as an Outcome: a ToolError speaks for itself, anything else with its type and, for the person, its traceback."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, (SystemExit, KeyboardInterrupt, StopIteration)):
        error = error.__cause__
    prepared = intake.prepare(_text(error)) if isinstance(error, ToolError) else intake.prepare(error)
    trace = None if isinstance(error, ToolError) else intake.prepare(_traceback(error)).text[-TRACEBACK_CHARACTERS:]
    return Outcome(status=status, prepared=prepared, error=_one_line(prepared.text), traceback=trace)


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # an exception class of the user's may fail to describe itself
        return type(error).__name__


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # the same, within its traceback
        return ""


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 200 else line[:199] + "…"

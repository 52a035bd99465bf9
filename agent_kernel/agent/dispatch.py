"""dispatch: the calls of one round, run in parallel, reported as facts the moment they happen.

Every call handed in ends with exactly one result, in completion order; siblings never disturb each other. What escapes from here, apart
from the turn's cancellation and a failing approve hook, is our bug (law 7).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from msgspec import Struct

from agent_kernel.agent.approval import Approver, Policy, effective_policy, reason_for
from agent_kernel.agent.cancellation import Cancellation, Inbox
from agent_kernel.agent.execute import Execution, Outcome, failure
from agent_kernel.agent.foreign import described
from agent_kernel.agent.intake import Intake, Kept
from agent_kernel.agent.schedule import Phase, Slot, startable
from agent_kernel.errors import ToolError
from agent_kernel.model.assemble import parse_arguments
from agent_kernel.protocol.events import ApprovalGiven, ApprovalRequested, ToolCallFinished, ToolCallProgressed, ToolCallStarted
from agent_kernel.protocol.messages import ToolCall, ToolResult
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.tool import BoundCall, Tool
from agent_kernel.tools.toolbox import Toolbox

Fact = tuple[type, dict[str, Any]]  # an Event's class and its fields, without turn, seq and time
SAME_FAILURES = 3  # after so many in one turn the same failing call is refused
CANCEL_GRACE = 0.2  # seconds that cancelled tools get to end before they are abandoned
PROGRESS_INTERVAL = 0.05  # seconds between two progress events of one call


class Failures:
    """Counts failing calls of one turn by name and canonical arguments."""

    def __init__(self) -> None:
        """Start with none."""
        self._counts: dict[tuple[str, str], int] = {}

    def refused(self, call: ToolCall) -> bool:
        """Tell whether this call has failed too often already."""
        return self._counts.get(self._key(call), 0) >= SAME_FAILURES

    def note(self, call: ToolCall, result: ToolResult) -> None:
        """Count a failure."""
        if result.status in ("error", "timeout"):
            key = self._key(call)
            self._counts[key] = self._counts.get(key, 0) + 1

    @staticmethod
    def _key(call: ToolCall) -> tuple[str, str]:
        try:
            return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
        except (ValueError, RecursionError):
            return call.name, call.arguments


class Turned(Struct, frozen=True, kw_only=True):
    """What a dispatch needs to know of its turn."""

    session_id: str
    turn_id: str
    round: int
    policy: Policy | None
    cap: int


class _Entry:
    """One call on its way."""

    def __init__(self, call: ToolCall, context: ToolContext, report: _Report) -> None:
        self.call, self.context, self.report = call, context, report
        self.tool: Tool | None = None
        self.bound: BoundCall | None = None
        self.phase: Phase = "ready"
        self.started = 0.0
        self.task: asyncio.Task[None] | None = None
        self.problem: ToolError | None = None

    def slot(self) -> Slot:
        return Slot(phase=self.phase, serial=self.tool is not None and self.tool.serial, key=self.bound.key if self.bound else None)


class Dispatch:
    """Runs one round's calls; ``results`` holds what has ended, by call id."""

    def __init__(
        self,
        calls: Sequence[ToolCall],
        *,
        turn: Turned,
        toolbox: Toolbox,
        execution: Execution,
        intake: Intake,
        approver: Approver,
        failures: Failures,
        cancellation: Cancellation,
    ) -> None:
        """Keep the collaborators; must be made on the loop that runs the turn."""
        self.results: dict[str, ToolResult] = {}
        self._turn, self._toolbox, self._execution, self._intake = turn, toolbox, execution, intake
        self._approver, self._failures, self._cancellation = approver, failures, cancellation
        self._inbox: Inbox[Fact] = Inbox(cancellation)
        self._loop = asyncio.get_running_loop()
        self._crash: BaseException | None = None
        self._entries = [self._entry(index, call) for index, call in enumerate(calls)]

    async def facts(self) -> AsyncGenerator[Fact, None]:
        """Run the calls and yield what happens.

        Raises:
            TurnCancelled: The turn was asked to stop; calls without a result were cancelled.
            AgentKernelError: The approve hook failed.
        """
        for entry in self._entries:
            self._prepare(entry)
        try:
            while True:
                for index in startable([entry.slot() for entry in self._entries], self._turn.cap):
                    self._start(self._entries[index])
                if not len(self._inbox) and all(entry.phase == "done" for entry in self._entries):
                    return
                fact = await self._inbox.get()
                if self._crash is not None:
                    raise self._crash
                yield fact
        finally:
            await self._stop()

    def _entry(self, index: int, call: ToolCall) -> _Entry:
        report = _Report(self._loop, call.id, self._inbox, self._intake)
        turn = self._turn
        context = ToolContext(
            session_id=turn.session_id, turn_id=turn.turn_id, round=turn.round, index=index, call_id=call.id, name=call.name, report=report
        )
        return _Entry(call, context, report)

    def _prepare(self, entry: _Entry) -> None:
        """Find the tool and convert the arguments; what does not fit becomes an error result, and the tool is not called."""
        try:
            entry.tool, entry.bound = self._bound(entry.call)
        except ToolError as error:
            entry.problem = error
        if entry.tool is not None and entry.problem is None:
            policy = effective_policy(entry.tool.approve, self._turn.policy)
            if policy == "ask" and not self._approver.allows(entry.tool):
                entry.phase = "asking"
                self._spawn(entry, self._ask(entry, entry.tool, reason_for(entry.tool.approve, entry.call.name)))
            elif policy == "deny":
                self._deny(entry, "the policy denies this tool")

    def _bound(self, call: ToolCall) -> tuple[Tool, BoundCall]:
        if not call.name:
            raise ToolError("The call names no tool.")
        tool = self._toolbox.get(call.name)
        if self._failures.refused(call):
            raise ToolError(
                f"This very call has failed {SAME_FAILURES} times in this turn and is refused: change its arguments or answer without it."
            )
        arguments = parse_arguments(call.arguments)
        try:
            bound = tool.bind(arguments)
            _ = bound.key  # computed here, where a failing key function becomes an error result
        except (ToolError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a user's class or key function may raise anything, SystemExit included
            raise ToolError(f"The arguments of {tool.name} could not be prepared: {described(error)}") from error
        return tool, bound

    def _spawn(self, entry: _Entry, work: Any) -> None:
        entry.task = asyncio.create_task(work)
        entry.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._crash = task.exception()
            self._inbox.put((ToolCallProgressed, {}))  # only wakes the loop, which raises

    async def _ask(self, entry: _Entry, tool: Tool, reason: str) -> None:
        self._inbox.put((ApprovalRequested, {"call": entry.call, "reason": reason}))
        verdict = await self._approver.ask(entry.call, tool, reason)
        decision = "allow" if verdict.allowed else "deny"
        comment = None if verdict.comment is None else self._intake.line(verdict.comment)
        self._inbox.put((ApprovalGiven, {"call_id": entry.call.id, "decision": decision, "comment": comment}))
        if verdict.allowed:
            entry.phase = "ready"
        else:
            self._deny(entry, verdict.comment)

    def _deny(self, entry: _Entry, comment: str | None) -> None:
        text = f"[denied] The call was not run: {comment}" if comment else "[denied] The call was not run: the person said no."
        self._finish(entry, failure(ToolError(text), self._intake, status="denied"), None)

    def _start(self, entry: _Entry) -> None:
        entry.phase, entry.started = "running", time.monotonic()
        self._inbox.put((ToolCallStarted, {"call": entry.call}))
        self._spawn(entry, self._run(entry))

    async def _run(self, entry: _Entry) -> None:
        if entry.tool is None or entry.bound is None or entry.problem is not None:
            outcome = failure(entry.problem or ToolError("The call could not be prepared."), self._intake)
        else:
            outcome = await self._execution.run(entry.tool, entry.bound, entry.context)
        kept = await self._intake.keep(outcome.prepared)
        self._finish(entry, outcome, kept)

    def _finish(self, entry: _Entry, outcome: Outcome, kept: Kept | None) -> None:
        metadata: dict[str, Any] = self._intake.facts(entry.context.metadata)
        if outcome.traceback:
            metadata["traceback"] = outcome.traceback
        result = ToolResult(
            call_id=entry.call.id,
            name=entry.call.name,
            status=outcome.status,
            excerpt=kept.excerpt if kept else self._intake.inline(outcome.prepared),
            artifact=kept.artifact if kept else None,
            attachments=kept.attachments if kept else (),
            metadata=metadata,
            elapsed=time.monotonic() - entry.started if entry.started else 0.0,
            error=outcome.error,
        )
        entry.phase = "done"
        entry.report.close()
        self.results[entry.call.id] = result
        self._failures.note(entry.call, result)
        self._inbox.put((ToolCallFinished, {"result": result}))

    async def _stop(self) -> None:
        """Cancel what still runs and give it a moment; what does not end is abandoned."""
        running = [(entry, entry.task) for entry in self._entries if entry.task is not None and not entry.task.done()]
        for entry, task in running:
            entry.context.cancel()
            task.cancel()
        if running:
            await asyncio.wait([task for _, task in running], timeout=CANCEL_GRACE)
            await self._execution.settle(CANCEL_GRACE)


class _Report:
    """Carries a tool's progress, from any thread, to the inbox: the newest counts, and at most one event is under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call_id: str, inbox: Inbox[Fact], intake: Intake) -> None:
        self._loop, self._call_id, self._inbox, self._intake = loop, call_id, inbox, intake
        self._lock = threading.Lock()
        self._newest: tuple[float | None, float | None, str | None] | None = None
        self._sent = 0.0
        self._closed = False

    def close(self) -> None:
        """Send nothing more: the call has its result."""
        self._closed = True

    def __call__(self, done: float | None, total: float | None, text: str | None) -> None:
        with self._lock:
            waiting = self._newest is not None
            self._newest = (done, total, text if text is not None or self._newest is None else self._newest[2])
        if not waiting and not self._loop.is_closed():
            delay = max(0.0, self._sent + PROGRESS_INTERVAL - time.monotonic())
            self._loop.call_soon_threadsafe(self._later, delay)

    def _later(self, delay: float) -> None:
        if delay > 0:
            self._loop.call_later(delay, self._send)
        else:
            self._send()

    def _send(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
            self._sent = time.monotonic()
        if newest is not None and not self._closed:
            done, total, text = newest
            shown = None if text is None else self._intake.line(text)
            self._inbox.put((ToolCallProgressed, {"call_id": self._call_id, "text": shown, "done": done, "total": total}))

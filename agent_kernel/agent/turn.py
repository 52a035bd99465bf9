"""run_turn: one turn, from its prompt to TurnFinished, as one async generator of Events.

Rounds of one model message and its calls; retries, limits and refusals are decided here. Laws 1 to 4 and 8 are kept here: whatever ends
the turn, its state is left whole, and the events that a leaving consumer no longer takes are folded all the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar, get_args

from msgspec import Struct

from agent_kernel.agent.answer import Answer
from agent_kernel.agent.approval import Approver, Policy, call_hook
from agent_kernel.agent.cancellation import Cancellation, TurnCancelled
from agent_kernel.agent.context import LAST_ANSWER, Outgoing, build_request
from agent_kernel.agent.dispatch import Dispatch, Failures, Turned
from agent_kernel.agent.execute import Execution
from agent_kernel.agent.foreign import Raised, described, tame
from agent_kernel.agent.intake import Intake
from agent_kernel.agent.limits import Limits
from agent_kernel.agent.redact import Redactor
from agent_kernel.agent.retrying import Attempts, Clock
from agent_kernel.agent.streaming import stream_answer
from agent_kernel.errors import AgentKernelError, LimitHookFailed, ModelError
from agent_kernel.model.base import Model
from agent_kernel.protocol.events import (
    Event,
    MessageCompleted,
    ModelRetried,
    RoundFinished,
    RoundLimitReached,
    RoundStarted,
    TextAppended,
    ToolCallFinished,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from agent_kernel.protocol.fold import TurnState
from agent_kernel.protocol.messages import AssistantMessage, Excerpt, Message, ResultStatus, ToolCall, ToolResult, TurnStatus
from agent_kernel.protocol.request import ModelRequest
from agent_kernel.tools.plainly import exception_text
from agent_kernel.tools.toolbox import Toolbox

E = TypeVar("E")
Events = AsyncGenerator[Event, None]
OnLimit = Callable[[str], bool | Awaitable[bool | None] | None]


class Setup(Struct, frozen=True, kw_only=True):
    """All that a turn works with.

    ``prior`` are the session's messages to go on from, ready to be sent, ``asked`` whether the prompt is among them; ``check_kept`` raises
    what kept the last round from being recorded.
    """

    session_id: str
    turn_id: str
    prompt: str
    prior: Sequence[Message]
    asked: bool
    check_kept: Callable[[], None]
    model: Model
    toolbox: Toolbox
    system_prompt: str | None
    tool_choice: str
    limits: Limits
    policy: Policy | None
    approver: Approver
    on_limit: OnLimit | None
    execution: Execution
    intake: Intake
    redactor: Redactor
    fresh_id: Callable[[str | None], str]
    clock: Clock


def check_options(model: object, toolbox: Toolbox, prompt: object, tool_choice: str, policy: str | None) -> None:
    """Check what one turn is asked with.

    Raises:
        ValueError: The model is none, the prompt is empty or no text, or there is no such choice or policy.
    """
    if isinstance(model, type) or not hasattr(model, "stream"):
        raise ValueError(f"The session's model is an object with stream(request), such as OpenAIModel('gpt-5-mini'), not {model!r}.")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("The prompt is empty: say what you want to ask, as a text.")
    if tool_choice not in ("auto", "none", "required") and tool_choice not in toolbox:
        raise ValueError(f"tool_choice is auto, none, required or a tool's name, not {tool_choice!r}. Tools: {', '.join(toolbox.names) or 'none'}.")
    if policy is not None and policy not in get_args(Policy):
        raise ValueError(f"policy is allow, ask or deny, not {policy!r}.")


async def run_turn(setup: Setup, state: TurnState, cancellation: Cancellation) -> Events:
    """Run a turn and yield its events; ``state`` is their fold, kept up to date before each is yielded.

    Raises:
        AgentKernelError: After TurnFinished(failed): what ended the turn.
    """
    turn = _Turn(setup, state, cancellation)
    cancellation.bind()
    try:
        yield turn.make(TurnStarted, session_id=setup.session_id, prompt=setup.prompt, model=str(getattr(setup.model, "name", "")))
        async with contextlib.aclosing(turn.rounds()) as rounds:
            async for event in rounds:
                yield event
        yield turn.make(TurnFinished, status=turn.status, error=None)
    except TurnCancelled:
        for event in turn.settled():
            yield event
    except Exception as error:
        failure = turn.explained(error)
        for event in turn.closing_results():
            yield event
        yield turn.make(TurnFinished, status="failed", error=str(failure))
        failure.state = state
        if failure is error:
            raise
        raise failure from error
    finally:
        turn.settled()


class _Turn:
    """A turn while it runs."""

    def __init__(self, setup: Setup, state: TurnState, cancellation: Cancellation) -> None:
        self._setup, self._state, self._cancellation = setup, state, cancellation
        self._failures = Failures()
        self._answer = Answer(setup.fresh_id)
        self._own = Outgoing()
        self._dispatch: Dispatch | None = None
        self._round_open = False
        self.status: TurnStatus = "completed"

    def make(self, kind: type[E], **fields: Any) -> E:
        """Make the next event and fold it."""
        build: Callable[..., E] = kind
        event: Any = build(turn_id=self._setup.turn_id, seq=self._state.seq + 1, at=time.time(), **fields)
        self._state.apply(event)
        made: E = event
        return made

    async def rounds(self) -> Events:
        """Run rounds until the turn has its answer or a limit."""
        allowed = number = 0
        maximum = self._setup.limits.max_rounds
        while True:
            if number == allowed:
                if number:
                    continued = await self._continued(number)
                    yield self.make(RoundLimitReached, rounds=number, continued=continued)
                    if not continued:
                        break
                allowed += maximum
            number += 1
            async with contextlib.aclosing(self._round(number)) as events:
                async for event in events:
                    yield event
            self._setup.check_kept()
            if self._ended():
                return
        self.status = "limit"
        if self._setup.limits.answer_at_limit:
            async for event in self._last_answer(number + 1):
                yield event

    def _ended(self) -> bool:
        """Tell whether the last round was the turn's last."""
        return self.status == "length" or not self._answer.calls

    async def _continued(self, number: int) -> bool:
        hook = self._setup.on_limit
        if hook is None:
            return False
        reason = f"The turn has used its {number} rounds and the model asks for more tools. Go on for {self._setup.limits.max_rounds} more?"
        try:
            return await self._cancellation.wait(tame(call_hook(hook, reason))) is True
        except TurnCancelled:
            raise
        except Exception as error:
            raise LimitHookFailed(f"The on_limit hook failed: {described(error)}") from error

    async def _round(self, number: int) -> Events:
        choice = self._setup.tool_choice
        if choice not in ("auto", "none") and number > 1:
            choice = "auto"
        async with contextlib.aclosing(self._message(number, choice)) as events:
            async for event in events:
                yield event
        if self.status == "length":
            for event in self._not_run("[not run] The answer was cut by the length limit, so this call may be incomplete."):
                yield event
        else:
            async with contextlib.aclosing(self._results(number)) as events:
                async for event in events:
                    yield event
        self._round_open = False
        yield self.make(RoundFinished, round=number)

    async def _message(self, number: int, choice: str, *, last: bool = False) -> Events:
        """Ask the model until a message is whole, retrying what helps."""
        request, trimmed = self._request(choice, last=last)
        self._round_open = True
        yield self.make(RoundStarted, round=number, input_trimmed=trimmed)
        attempts = Attempts(retries=int(getattr(self._setup.model, "max_retries", 0) or 0), clock=self._setup.clock)
        while True:
            self._cancellation.check()
            self._answer = Answer(self._setup.fresh_id)
            try:
                async with contextlib.aclosing(
                    stream_answer(self._setup.model, request, self._answer, self._setup.redactor, self._cancellation)
                ) as facts:
                    async for kind, fields in facts:
                        yield self.make(kind, **fields)
                self._answer.check()
                break
            except ModelError as error:
                used = self._answer.usage or error.usage
                if used is not None:
                    yield self.make(UsageReported, usage=used)
                delay = attempts.delay(error, shown=self._answer.shown)
                if delay is None:
                    raise
                yield self.make(ModelRetried, attempt=attempts.made, delay=delay, error=self._masked(error))
            await self._cancellation.wait(self._setup.clock.sleep(delay))
        message = self._answer.message(str(getattr(self._setup.model, "name", "")), request)
        if message.partial:
            self.status = "length"
        yield self.make(MessageCompleted, message=message)
        if message.usage is not None:
            yield self.make(UsageReported, usage=message.usage)

    def _request(self, choice: str, *, last: bool) -> tuple[ModelRequest, bool]:
        setup = self._setup
        own = self._state.messages[1:] if setup.asked else self._state.messages
        prompts = [text for text in (setup.system_prompt, LAST_ANSWER if last else None) if text]
        return build_request(
            [*setup.prior, *self._own.take(own)],
            system_prompt="\n\n".join(prompts) or None,
            tools=setup.toolbox.specs(),
            tool_choice=choice,
            max_input_tokens=setup.limits.max_input_tokens,
        )

    async def _results(self, number: int) -> Events:
        if not self._answer.calls:
            return
        setup = self._setup
        turned = Turned(session_id=setup.session_id, turn_id=setup.turn_id, round=number, policy=setup.policy, cap=setup.limits.max_parallel_tools)
        self._dispatch = Dispatch(
            self._answer.calls,
            turn=turned,
            toolbox=setup.toolbox,
            execution=setup.execution,
            intake=setup.intake,
            approver=setup.approver,
            failures=self._failures,
            cancellation=self._cancellation,
        )
        async with contextlib.aclosing(self._dispatch.facts()) as facts:
            async for kind, fields in facts:
                yield self.make(kind, **fields)

    async def _last_answer(self, number: int) -> Events:
        """Ask once more with tools off, so that the person gets an answer; the turn stays a limited one, whatever comes of it."""
        async with contextlib.aclosing(self._message(number, "none", last=True)) as events:
            async for event in events:
                yield event
        self.status = "limit"
        for event in self._not_run("[not run] Tools are off: the turn has reached its round limit."):
            yield event
        self._round_open = False
        yield self.make(RoundFinished, round=number)

    def _not_run(self, text: str) -> list[Event]:
        return [self._result(call, "not_run", text) for call in self._answer.calls]

    def _result(self, call: ToolCall, status: ResultStatus, text: str) -> Event:
        shown = Excerpt(text=text, shown=len(text), total=len(text))
        started = self._state.call(call.id).started_at
        elapsed = max(0.0, time.time() - started) if started is not None else 0.0
        result = ToolResult(call_id=call.id, name=call.name, status=status, excerpt=shown, elapsed=elapsed, error=text)
        return self.make(ToolCallFinished, result=result)

    def settled(self) -> list[Event]:
        """Close a turn that was broken off: partial text, one result per call, the end. Does nothing for a turn that has ended."""
        state = self._state
        if state.status != "running" or state.turn_id == "":
            return []
        events: list[Event] = []
        if self._round_open:
            held = self._answer.flush()
            if held:
                events.append(self.make(TextAppended, text=held))
            if self._message_open() and state.round_text(state.rounds).strip():
                events.append(self.make(MessageCompleted, message=self._answer.partial(str(getattr(self._setup.model, "name", "")))))
            if not self._message_open():
                events += self.closing_results()
                events.append(self.make(RoundFinished, round=state.rounds))
        events.append(self.make(TurnFinished, status="cancelled", error=None))
        return events

    def _message_open(self) -> bool:
        return self._round_open and not isinstance(self._last_message(), AssistantMessage)

    def closing_results(self) -> list[Event]:
        """Give each open call of the open round its result: the real one if the call has ended, else cancelled."""
        message = self._last_message()
        if not self._round_open or not isinstance(message, AssistantMessage):
            return []
        finished = self._dispatch.results if self._dispatch else {}
        events: list[Event] = []
        for call in message.tool_calls:
            if self._state.call(call.id).result is None:
                if call.id in finished:
                    events.append(self.make(ToolCallFinished, result=finished[call.id]))
                else:
                    events.append(
                        self._result(call, "cancelled", "[cancelled] The turn was stopped before this call ended; it may have had effects.")
                    )
        return events

    def _last_message(self) -> Message:
        return self._state.messages[-1]

    def explained(self, error: Exception) -> AgentKernelError:
        """Return the error to raise: ours as it is, a user's Model's or hook's named as such."""
        if isinstance(error, AgentKernelError) and not isinstance(error, Raised):
            error.args = (self._masked(error), *error.args[1:])
            return error
        name = getattr(self._setup.model, "name", "the model")
        return AgentKernelError(f"The turn failed in {name}: {self._setup.redactor.text(described(error))}")

    def _masked(self, error: Exception) -> str:
        return self._setup.redactor.text(exception_text(error))

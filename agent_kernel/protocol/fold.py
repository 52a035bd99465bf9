"""TurnState, the fold of a turn's events: all that a view, a session or a person needs to know of a turn.

The one mutable value of the house, held to the golden files in tests/data.
Law: fold(prefix), then fold(rest), equals fold(all); a snapshot plus the rest gives the same. Linear in the text: growing text is
kept as parts and joined when read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct, field, structs

from agent_kernel.protocol.events import (
    ApprovalGiven,
    ApprovalRequested,
    Event,
    MessageCompleted,
    ModelRetried,
    ReasoningAppended,
    RoundFinished,
    RoundLimitReached,
    RoundStarted,
    TextAppended,
    ToolCallDrafted,
    ToolCallFinished,
    ToolCallProgressed,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from agent_kernel.protocol.messages import AssistantMessage, Message, ToolMessage, ToolResult, Usage, UserMessage

CallStatus = Literal["drafted", "queued", "asking", "running", "ok", "error", "cancelled", "timeout", "denied", "not_run"]


class ToolCallState(Struct, kw_only=True):
    """One call within a TurnState; times in seconds since the epoch, ``fragments`` are pieces of the arguments' JSON text."""

    id: str
    name: str
    round: int
    fragments: list[str] = field(default_factory=list)
    status: CallStatus = "drafted"
    reason: str | None = None
    comment: str | None = None
    progress_text: str | None = None
    done: float | None = None
    total: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    result: ToolResult | None = None

    def __repr__(self) -> str:
        """Return a line for a person; the fields hold the rest."""
        result = "" if self.result is None else f", {self.result.elapsed:.1f} s: {_clipped(self.result.text)!r}"
        return f"<ToolCallState {self.name}({_clipped(self.arguments)}) {self.status}{result}>"

    @property
    def arguments(self) -> str:
        """JSON text of the arguments, as far as it has arrived."""
        return _joined(self.fragments)


class TurnState(Struct, kw_only=True):
    """What is known of one turn.

    Attributes:
        seq: The last event's; -1 before the first.
        status: ``running`` until TurnFinished, then its status.
        rounds: Model requests made, retries of one not counted.
        texts: Visible text per round, as parts.
        reasonings: Reasoning per round, as parts.
        tool_calls: One entry per call, in call order, failed ones included.
        messages: What the turn has said so far: the prompt, then each finished message; a round's tool messages come in call order.
        finish_reason: The last message's.
        usage: Sum over all requests.
        error: One line, where the turn failed.
        input_trimmed: Whether a request of this turn left out old messages or did not fit its token budget.
        limit: Rounds done when the round limit stopped the turn, else None.
        retries: Requests that were asked again.
    """

    turn_id: str = ""
    session_id: str = ""
    prompt: str = ""
    model: str = ""
    seq: int = -1
    status: Literal["running", "completed", "limit", "length", "cancelled", "failed"] = "running"
    rounds: int = 0
    texts: list[list[str]] = field(default_factory=list)
    reasonings: list[list[str]] = field(default_factory=list)
    tool_calls: list[ToolCallState] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    input_trimmed: bool = False
    limit: int | None = None
    retries: int = 0
    last_error: str | None = None
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def text(self) -> str:
        """The visible answer: the rounds' texts, a blank line between them."""
        return "\n\n".join(text for text in map(_joined, self.texts) if text.strip())

    @property
    def reasoning(self) -> str:
        """The reasoning of all rounds, a blank line between them."""
        return "\n\n".join(text for text in map(_joined, self.reasonings) if text.strip())

    @property
    def answer(self) -> str:
        """The text of the last round that has any."""
        return next((text for text in map(_joined, reversed(self.texts)) if text.strip()), "")

    def __repr__(self) -> str:
        """Return a status line; the fields hold the rest."""
        return f"<TurnState {self.status}: {self.rounds} rounds, {len(self.tool_calls)} calls, {_clipped(self.text)!r}>"

    def round_text(self, number: int) -> str:
        """Return the visible text of one round (from 1)."""
        return _joined(self.texts[number - 1])

    def call(self, call_id: str) -> ToolCallState:
        """Return the entry of a call.

        Raises:
            KeyError: No such call in this turn.
        """
        for entry in reversed(self.tool_calls):
            if entry.id == call_id:
                return entry
        raise KeyError(call_id)

    def snapshot(self) -> TurnState:
        """Return an independent copy in normal form (each text one part): equal for equal histories."""
        return structs.replace(
            self,
            texts=[_packed(parts) for parts in self.texts],
            reasonings=[_packed(parts) for parts in self.reasonings],
            tool_calls=[structs.replace(entry, fragments=_packed(entry.fragments)) for entry in self.tool_calls],
            messages=list(self.messages),
        )

    def apply(self, event: Event) -> None:
        """Fold one event in; one that was folded already (its seq is not above ours) changes nothing.

        Raises:
            ValueError: An event is missing in between.
        """
        if event.seq <= self.seq:
            return
        if event.seq != self.seq + 1:
            raise ValueError(f"event {event.seq} came after {self.seq}: events are missing in between")
        self.seq = event.seq
        if type(event) is TextAppended:
            self.texts[-1].append(event.text)
        else:
            _FOLDS[type(event)](self, event)


def fold(events: list[Event], state: TurnState | None = None) -> TurnState:
    """Fold events into a new state, or into the one that is given, and return it."""
    state = TurnState() if state is None else state
    for event in events:
        state.apply(event)
    return state


def _clipped(text: str) -> str:
    line = " ".join(text[:240].split())
    return line if len(line) <= 60 else line[:59] + "…"


def _joined(parts: list[str]) -> str:
    if len(parts) > 1:
        parts[:] = ["".join(parts)]
    return parts[0] if parts else ""


def _packed(parts: list[str]) -> list[str]:
    text = "".join(parts)
    return [text] if text else []


def _turn_started(state: TurnState, event: TurnStarted) -> None:
    state.turn_id, state.session_id, state.prompt, state.model = event.turn_id, event.session_id, event.prompt, event.model
    state.started_at = event.at
    state.messages.append(UserMessage(text=event.prompt))


def _round_started(state: TurnState, event: RoundStarted) -> None:
    state.rounds = event.round
    state.input_trimmed = state.input_trimmed or event.input_trimmed
    state.texts.append([])
    state.reasonings.append([])


def _reasoning_appended(state: TurnState, event: ReasoningAppended) -> None:
    state.reasonings[-1].append(event.text)


def _drafted(state: TurnState, event: ToolCallDrafted) -> None:
    entry = state.tool_calls[-1] if state.tool_calls else None
    if entry is None or entry.id != event.call_id:
        known = [each for each in state.tool_calls if each.id == event.call_id]
        entry = known[0] if known else ToolCallState(id=event.call_id, name=event.name, round=state.rounds)
        if not known:
            state.tool_calls.append(entry)
    entry.name = event.name or entry.name
    entry.fragments.append(event.arguments)


def _message_completed(state: TurnState, event: MessageCompleted) -> None:
    message = event.message
    state.finish_reason = message.finish_reason
    state.texts[-1][:] = [message.text]
    state.reasonings[-1][:] = [message.reasoning]
    state.tool_calls[:] = [entry for entry in state.tool_calls if entry.status != "drafted"]
    state.tool_calls += [
        ToolCallState(id=call.id, name=call.name, round=state.rounds, fragments=[call.arguments], status="queued") for call in message.tool_calls
    ]
    state.messages.append(message)


def _call_started(state: TurnState, event: ToolCallStarted) -> None:
    entry = state.call(event.call.id)
    entry.status, entry.started_at = "running", event.at


def _call_progressed(state: TurnState, event: ToolCallProgressed) -> None:
    entry = state.call(event.call_id)
    entry.done, entry.total = event.done, event.total
    entry.progress_text = event.text if event.text is not None else entry.progress_text


def _call_finished(state: TurnState, event: ToolCallFinished) -> None:
    entry = state.call(event.result.call_id)
    entry.status, entry.result, entry.finished_at = event.result.status, event.result, event.at


def _round_finished(state: TurnState, event: RoundFinished) -> None:  # noqa: ARG001 - every fold has one shape
    message = state.messages[-1]
    if isinstance(message, AssistantMessage):
        state.messages += [tool_message(entry.result) for entry in map(state.call, (call.id for call in message.tool_calls)) if entry.result]


def tool_message(result: ToolResult) -> ToolMessage:
    """Return the message that tells the model of a result."""
    return ToolMessage(call_id=result.call_id, name=result.name, status=result.status, text=result.excerpt.text, artifact=result.artifact)


def _limit_reached(state: TurnState, event: RoundLimitReached) -> None:
    state.limit = None if event.continued else event.rounds


def _retried(state: TurnState, event: ModelRetried) -> None:
    state.retries += 1
    state.last_error = event.error
    state.texts[-1].clear()
    state.reasonings[-1].clear()
    state.tool_calls[:] = [entry for entry in state.tool_calls if entry.status != "drafted"]


def _approval_requested(state: TurnState, event: ApprovalRequested) -> None:
    entry = state.call(event.call.id)
    entry.status, entry.reason = "asking", event.reason


def _approval_given(state: TurnState, event: ApprovalGiven) -> None:
    entry = state.call(event.call_id)
    entry.status, entry.comment = "queued", event.comment


def _usage_reported(state: TurnState, event: UsageReported) -> None:
    state.usage = state.usage + event.usage


def _turn_finished(state: TurnState, event: TurnFinished) -> None:
    state.status, state.error, state.finished_at = event.status, event.error, event.at
    state.tool_calls[:] = [entry for entry in state.tool_calls if entry.status != "drafted"]


_FOLDS: dict[type, Callable[[TurnState, Any], None]] = {
    TurnStarted: _turn_started,
    RoundStarted: _round_started,
    ReasoningAppended: _reasoning_appended,
    ToolCallDrafted: _drafted,
    MessageCompleted: _message_completed,
    ToolCallStarted: _call_started,
    ToolCallProgressed: _call_progressed,
    ToolCallFinished: _call_finished,
    RoundFinished: _round_finished,
    RoundLimitReached: _limit_reached,
    ModelRetried: _retried,
    ApprovalRequested: _approval_requested,
    ApprovalGiven: _approval_given,
    UsageReported: _usage_reported,
    TurnFinished: _turn_finished,
}

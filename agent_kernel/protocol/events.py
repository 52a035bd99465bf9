"""Deltas (fragments from a model) and Events (past-tense facts about a turn), as tagged values.

Only model/ creates Deltas, only agent/ creates Events. Every Event carries its turn, a ``seq`` that grows by one from 0, and
``at`` in seconds since the epoch. JSON: one object with the class name under ``type``; no field is ever left out, because the
browser folds the same objects.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from agent_kernel.protocol.messages import AssistantMessage, ToolCall, ToolResult, TurnStatus, Usage


class _Delta(Struct, frozen=True, kw_only=True, tag=True):
    pass


class TextDelta(_Delta, frozen=True, kw_only=True):
    """A piece of the visible answer."""

    text: str


class ReasoningDelta(_Delta, frozen=True, kw_only=True):
    """A piece of the model's reasoning, where the provider shows it."""

    text: str


class ToolCallDelta(_Delta, frozen=True, kw_only=True):
    """A fragment of a tool call, as the provider sent it: any field but one may be absent; ``arguments`` is a piece of JSON text."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    extra: dict[str, Any] | None = None


class UsageDelta(_Delta, frozen=True, kw_only=True):
    """What the request has used; the last one of a stream counts."""

    usage: Usage


class FinishDelta(_Delta, frozen=True, kw_only=True):
    """The stream ended properly: ``reason`` is stop, tool_calls, length, content_filter or another word; ``model`` is who answered."""

    reason: str | None = None
    model: str | None = None


Delta = TextDelta | ReasoningDelta | ToolCallDelta | UsageDelta | FinishDelta


class _Event(Struct, frozen=True, kw_only=True, tag=True):
    turn_id: str
    seq: int
    at: float


class TurnStarted(_Event, frozen=True, kw_only=True):
    """The first event of every turn."""

    session_id: str
    prompt: str
    model: str


class RoundStarted(_Event, frozen=True, kw_only=True):
    """A model request is about to leave; rounds count from 1. ``input_trimmed``: old messages were left out of it, or it does not fit."""

    round: int
    input_trimmed: bool = False


class TextAppended(_Event, frozen=True, kw_only=True):
    """The answer grew."""

    text: str


class ReasoningAppended(_Event, frozen=True, kw_only=True):
    """The reasoning grew."""

    text: str


class ToolCallDrafted(_Event, frozen=True, kw_only=True):
    """The model is writing a call; ``arguments`` is the new fragment, ``name`` all that is known of it."""

    call_id: str
    name: str
    arguments: str


class MessageCompleted(_Event, frozen=True, kw_only=True):
    """The model's message of this round is whole."""

    message: AssistantMessage


class ToolCallStarted(_Event, frozen=True, kw_only=True):
    """A call left the queue."""

    call: ToolCall


class ToolCallProgressed(_Event, frozen=True, kw_only=True):
    """A running tool reported progress: ``done`` of ``total`` in its own unit (None: unknown), ``text`` is what to show."""

    call_id: str
    text: str | None = None
    done: float | None = None
    total: float | None = None


class ToolCallFinished(_Event, frozen=True, kw_only=True):
    """A call has its result; in completion order on the stream."""

    result: ToolResult


class RoundFinished(_Event, frozen=True, kw_only=True):
    """The round's messages are kept."""

    round: int


class RoundLimitReached(_Event, frozen=True, kw_only=True):
    """``rounds`` were done; ``continued`` tells whether the limit hook allowed more."""

    rounds: int
    continued: bool


class ModelRetried(_Event, frozen=True, kw_only=True):
    """The open round is asked again after ``delay`` seconds; its text and drafts are void. ``attempt`` counts from 1."""

    attempt: int
    delay: float
    error: str


class ApprovalRequested(_Event, frozen=True, kw_only=True):
    """A call waits for a person."""

    call: ToolCall
    reason: str


class ApprovalGiven(_Event, frozen=True, kw_only=True):
    """The person, or the policy in their place, decided."""

    call_id: str
    decision: Literal["allow", "deny"]
    comment: str | None = None


class UsageReported(_Event, frozen=True, kw_only=True):
    """One request's usage, failed attempts included."""

    usage: Usage


class TurnFinished(_Event, frozen=True, kw_only=True):
    """The last event of every turn."""

    status: TurnStatus
    error: str | None = None


Event = (
    TurnStarted
    | RoundStarted
    | TextAppended
    | ReasoningAppended
    | ToolCallDrafted
    | MessageCompleted
    | ToolCallStarted
    | ToolCallProgressed
    | ToolCallFinished
    | RoundFinished
    | RoundLimitReached
    | ModelRetried
    | ApprovalRequested
    | ApprovalGiven
    | UsageReported
    | TurnFinished
)

"""A session's turns as records that are appended and never changed, and what its messages are, given them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from agent_kernel.protocol.messages import AssistantMessage, Message, ToolMessage, ToolResult, TurnStatus, Usage


class RoundRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A finished round; ``messages`` begins with the turn's prompt if no earlier record holds it."""

    turn_id: str
    round: int
    messages: tuple[Message, ...]
    results: tuple[ToolResult, ...] = ()
    at: float


class TurnEnd(Struct, frozen=True, kw_only=True, gc=False):
    """How a turn ended; ``messages`` holds the prompt where no round could keep it."""

    turn_id: str
    status: TurnStatus
    error: str | None = None
    partial_text: str = ""
    messages: tuple[Message, ...] = ()
    usage: Usage
    at: float


class TurnRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A turn: ``retries`` names the turn whose prompt it asked again; ``end`` is None while it runs, or if its kernel died."""

    turn_id: str
    prompt: str
    model: str
    started_at: float
    retries: str | None = None
    rounds: tuple[RoundRecord, ...] = ()
    end: TurnEnd | None = None
    replaced: bool = False


class SessionRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A session as kept; times in seconds since the epoch. ``forked_from`` is another session's id, ``forked_at`` turns were shared."""

    id: str
    name: str | None
    created_at: float
    updated_at: float
    forked_from: str | None = None
    forked_at: int | None = None
    turns: tuple[TurnRecord, ...] = ()


def lines(turns: Iterable[TurnRecord]) -> list[list[TurnRecord]]:
    """Group turns as a person counts them: a retry belongs to the turn that it retries; replaced turns do not count."""
    grouped: list[list[TurnRecord]] = []
    for turn in turns:
        if turn.replaced:
            continue
        if turn.retries is not None and grouped and grouped[-1][-1].turn_id == turn.retries:
            grouped[-1].append(turn)
        else:
            grouped.append([turn])
    return grouped


def turn_messages(turn: TurnRecord) -> list[Message]:
    """Return what one turn left behind."""
    kept = [message for record in turn.rounds for message in record.messages]
    return kept + list(turn.end.messages if turn.end else ())


def without_partial(messages: list[Message]) -> list[Message]:
    """Drop a trailing answer, with the results of calls that a partial one could not make: what a retry goes on from.

    An answer without calls goes even if it is whole (the last word at a round limit, a cancel just before the end): a request that ended
    with it would ask for nothing.
    """
    end = len(messages)
    while end and isinstance(messages[end - 1], ToolMessage):
        end -= 1
    last = messages[end - 1] if end else None
    return messages[: end - 1] if isinstance(last, AssistantMessage) and (last.partial or not last.tool_calls) else messages


def thread(turns: Iterable[TurnRecord]) -> list[Message]:
    """Return a session's messages: its turns' messages in order, partial answers dropped where a retry followed."""
    messages: list[Message] = []
    for line in lines(turns):
        said: list[Message] = []
        for turn in line:
            said = [*without_partial(said), *turn_messages(turn)]
        messages += said
    return messages

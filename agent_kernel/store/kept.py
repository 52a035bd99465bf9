"""What a History is kept in: the one small face that memory and a Home have in common; and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct, structs

from agent_kernel.store.lines import Assembled, Line, RoundKept, SessionCreated, SessionDeleted, TurnEnded, assemble
from agent_kernel.store.records import SessionRecord, lines


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session in a list; times in seconds since the epoch, ``turns`` as a person counts them, ``prompt`` is the first one."""

    id: str
    name: str | None
    created_at: float
    updated_at: float
    turns: int
    prompt: str | None = None
    notebook: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None


class Found(Struct, frozen=True, kw_only=True):
    """A message or tool result that holds a text; ``line`` is the first line that does. ``name`` is the tool's, ``turn`` counts from 1."""

    session_id: str
    session: str | None
    turn_id: str
    turn: int
    role: str
    name: str | None
    line: str
    at: float


class Kept(Protocol):
    """Lines of sessions, kept somewhere."""

    async def append(self, lines: Sequence[Line]) -> None:
        """Keep lines; they are safe when this returns. Raises StoreError if they are not."""
        ...

    async def session(self, session_id: str, waiting: Sequence[Line] = ()) -> Assembled:
        """Return a session; ``waiting`` are lines of it that are not kept yet."""
        ...

    async def of_session(self, session_id: str) -> tuple[list[Line], list[Line]]:
        """Return a session's own lines, and those of the turns that it shares."""
        ...

    async def summaries(self) -> list[SessionSummary]:
        """Return all sessions that are not deleted, the one with the newest turn first."""
        ...

    async def search(self, text: str, limit: int) -> list[Found]:
        """Return what holds a text, case aside, the newest first."""
        ...

    async def holder(self, session_id: str) -> str | None:
        """Return who else asks in a session now, in words; None if nobody does."""
        ...

    async def close(self) -> None:
        """Release what is held."""
        ...


class Memory:
    """Lines in memory: gone with the process."""

    def __init__(self) -> None:
        """Start empty."""
        self._lines: dict[str, list[Line]] = {}
        self._turns: dict[str, list[Line]] = {}
        self._count = 0

    async def append(self, lines: Sequence[Line]) -> None:
        """Keep lines."""
        for line in lines:
            self._count += 1
            numbered = structs.replace(line, n=self._count)
            self._lines.setdefault(line.session_id, []).append(numbered)
            if isinstance(line, (RoundKept, TurnEnded)):
                self._turns.setdefault(line.turn.turn_id, []).append(numbered)

    async def session(self, session_id: str, waiting: Sequence[Line] = ()) -> Assembled:
        """Return a session."""
        own, shared = await self.of_session(session_id)
        return assemble(session_id, [*own, *waiting], shared)

    async def of_session(self, session_id: str) -> tuple[list[Line], list[Line]]:
        """Return a session's lines and those that it shares."""
        own = self._lines.get(session_id, [])
        shared = [turn_id for line in own if isinstance(line, SessionCreated) for turn_id in line.shared]
        return list(own), [line for turn_id in shared for line in self._turns.get(turn_id, ())]

    async def summaries(self) -> list[SessionSummary]:
        """Return all sessions."""
        found = [summary(await self._record(session_id)) for session_id in self._alive()]
        return sorted(found, key=lambda each: each.updated_at, reverse=True)

    async def search(self, text: str, limit: int) -> list[Found]:
        """Look through all sessions."""
        found = [hit for session_id in self._alive() for hit in matches(await self._record(session_id), text)]
        return sorted(found, key=lambda hit: hit.at, reverse=True)[:limit]

    async def holder(self, session_id: str) -> str | None:  # noqa: ARG002 - memory is nobody else's
        """Return None: no other process sees this memory."""
        return None

    async def close(self) -> None:
        """Hold nothing."""

    def _alive(self) -> list[str]:
        return [session_id for session_id, own in self._lines.items() if not any(isinstance(line, SessionDeleted) for line in own)]

    async def _record(self, session_id: str) -> SessionRecord:
        return (await self.session(session_id)).record


def summary(record: SessionRecord, notebook: str | None = None) -> SessionSummary:
    """Return a session's entry in a list."""
    grouped = lines(record.turns)
    return SessionSummary(
        id=record.id,
        name=record.name,
        created_at=record.created_at,
        updated_at=record.updated_at,
        turns=len(grouped),
        prompt=grouped[0][0].prompt if grouped else None,
        notebook=notebook,
        forked_from=record.forked_from,
        forked_at=record.forked_at,
    )


def matches(record: SessionRecord, text: str) -> list[Found]:
    """Return the messages of one session that hold a text, case aside."""
    wanted, found = text.lower(), []
    for number, group in enumerate(lines(record.turns), start=1):
        for turn in group:
            for round_ in turn.rounds:
                for message in round_.messages:
                    if wanted in message.text.lower():
                        hit = Found(
                            session_id=record.id,
                            session=record.name,
                            turn_id=turn.turn_id,
                            turn=number,
                            role=message.role,
                            name=getattr(message, "name", None),
                            line=matching_line(message.text, text),
                            at=round_.at,
                        )
                        found.append(hit)
    return found


def matching_line(text: str, wanted: str) -> str:
    """Return the line of a text that holds what was looked for, at most 200 characters around it."""
    at = text.lower().find(wanted.lower())
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : len(text) if end < 0 else end]
    inside = at - start
    return line if len(line) <= 200 else line[max(0, inside - 80) : inside + 120]

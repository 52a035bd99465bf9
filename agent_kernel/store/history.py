"""History: every session's turns, as records that are appended and never changed.

One face for any place where the records are kept; for now that is memory. Everything but ``open`` is a coroutine. What a session's
messages are, given its turns, is decided by ``thread``, a pure function.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from msgspec import structs

from agent_kernel.errors import StoreError
from agent_kernel.protocol.messages import Message
from agent_kernel.store.records import RoundRecord, SessionRecord, TurnEnd, TurnRecord, lines, thread


def _changed(turns: tuple[TurnRecord, ...], turn_id: str, change: Callable[[TurnRecord], TurnRecord]) -> tuple[TurnRecord, ...]:
    return tuple(change(turn) if turn.turn_id == turn_id else turn for turn in turns)


class History:
    """Sessions and their turns; made by ``History.open``."""

    def __init__(self) -> None:
        """Start empty."""
        self._sessions: dict[str, SessionRecord] = {}

    def __repr__(self) -> str:
        return f"<History in memory: {len(self._sessions)} sessions>"

    @classmethod
    def open(cls, folder: str | Path | None = None) -> History:
        """Return a history; None keeps it in memory. Does no I/O.

        Raises:
            StoreError: A folder was given: this version keeps history in memory only.
        """
        if folder is not None:
            raise StoreError(f"History cannot be kept in {folder} by this version: open it with None, which keeps it in memory.")
        return cls()

    async def create(self, *, name: str | None = None, session_id: str | None = None) -> SessionRecord:
        """Add an empty session and return it."""
        now = time.time()
        record = SessionRecord(id=session_id or str(uuid.uuid4()), name=name, created_at=now, updated_at=now)
        if record.id in self._sessions:
            raise StoreError(f"There is a session {record.id} already.")
        self._sessions[record.id] = record
        return record

    async def list(self) -> list[SessionRecord]:
        """Return all sessions, the one with the newest turn first."""
        return sorted(self._sessions.values(), key=lambda record: record.updated_at, reverse=True)

    async def load(self, session_id: str) -> SessionRecord:
        """Return a session with its turns.

        Raises:
            StoreError: No session has this id.
        """
        return self._get(session_id)

    async def messages(self, session_id: str) -> Sequence[Message]:
        """Return a session's messages in order, without the system message."""
        return thread(self._get(session_id).turns)

    async def start_turn(self, session_id: str, turn: TurnRecord) -> None:
        """Add a turn that begins now; a session that is not there yet is created."""
        if session_id not in self._sessions:
            await self.create(session_id=session_id)
        record = self._get(session_id)
        self._put(record, (*record.turns, turn), turn.started_at)

    async def append_round(self, session_id: str, round_: RoundRecord) -> None:
        """Keep a finished round of a running turn."""
        record = self._get(session_id)
        self._put(record, _changed(record.turns, round_.turn_id, lambda turn: structs.replace(turn, rounds=(*turn.rounds, round_))), round_.at)

    async def end_turn(self, session_id: str, end: TurnEnd) -> None:
        """Keep how a turn ended."""
        record = self._get(session_id)
        self._put(record, _changed(record.turns, end.turn_id, lambda turn: structs.replace(turn, end=end)), end.at)

    async def replace_turns(self, session_id: str, turn_ids: Iterable[str]) -> None:
        """Mark turns as replaced: they stay on record and leave the session's thread."""
        record, gone = self._get(session_id), set(turn_ids)
        turns = tuple(structs.replace(turn, replaced=True) if turn.turn_id in gone else turn for turn in record.turns)
        self._put(record, turns, time.time())

    async def rename(self, session_id: str, name: str) -> SessionRecord:
        """Give a session another label.

        Raises:
            StoreError: No such session, or an empty or too long name (200 characters).
        """
        label = name.strip()
        if not label or len(label) > 200:
            raise StoreError("A session's name has 1 to 200 characters.")
        record = structs.replace(self._get(session_id), name=label)
        self._sessions[session_id] = record
        return record

    async def delete(self, session_id: str) -> None:
        """Remove a session and its turns."""
        self._get(session_id)
        del self._sessions[session_id]

    async def fork(self, session_id: str, *, at: int | None = None, name: str | None = None) -> SessionRecord:
        """Add a session that shares the first ``at`` turns (None: all, as a person counts them) and return it.

        Raises:
            StoreError: No such session, or it has fewer turns.
        """
        source = self._get(session_id)
        grouped = lines(source.turns)
        at = len(grouped) if at is None else at
        if not 0 <= at <= len(grouped):
            raise StoreError(f"Session {source.name or source.id} has {len(grouped)} turns; it cannot be forked at {at}.")
        shared = tuple(turn for line in grouped[:at] for turn in line)
        new = await self.create(name=name or source.name)
        forked = structs.replace(new, forked_from=source.id, forked_at=at, turns=shared)
        self._sessions[new.id] = forked
        return forked

    async def close(self) -> None:
        """Release what is held; a history in memory holds nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _get(self, session_id: str) -> SessionRecord:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise StoreError(f"There is no session {session_id}; history.list() shows those that are there.") from None

    def _put(self, record: SessionRecord, turns: tuple[TurnRecord, ...], at: float) -> None:
        self._sessions[record.id] = structs.replace(record, turns=turns, updated_at=at)

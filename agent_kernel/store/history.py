"""History: sessions and their turns, in memory or in a Home, for any number of kernels at once.

What happened is kept as lines that are written once; what a session is follows from its lines by pure functions. Everything but
``open`` is a coroutine. A place that cannot be written does not stop a turn: lines wait in memory until it can be written again.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from agent_kernel.errors import SchemaTooNew, SessionBusy, StoreError
from agent_kernel.protocol.messages import Message
from agent_kernel.store.home import Home
from agent_kernel.store.kept import Found, Kept, Memory, SessionSummary
from agent_kernel.store.lines import (
    Assembled,
    Line,
    RoundKept,
    SessionClaimed,
    SessionCreated,
    SessionDeleted,
    SessionReleased,
    SessionRenamed,
    TurnEnded,
    TurnHead,
    TurnsReplaced,
    assemble,
)
from agent_kernel.store.records import RoundRecord, SessionRecord, TurnEnd, TurnRecord, lines, thread

LONGEST_NAME = 200  # characters


class History:
    """Sessions and their turns; made by ``History.open``."""

    def __init__(self, kept: Kept) -> None:
        """Take the place where lines are kept."""
        self.kept = kept
        self.problem: str | None = None  # why lines wait in memory; None: all are kept
        self._waiting: list[Line] = []
        self._heads: dict[str, TurnHead] = {}  # of turns that run in this process
        self._positions: dict[str, int] = {}  # session -> place of its last turn, of sessions that this process asks in
        self._seen: dict[str, int] = {}  # the same of sessions that were loaded, for the case that they cannot be read any more
        self._pid = os.getpid()

    def __repr__(self) -> str:
        waiting = f", {len(self._waiting)} lines wait to be written" if self._waiting else ""
        return f"<History in {getattr(self.kept, 'folder', 'memory')}{waiting}>"

    @classmethod
    def open(cls, folder: str | Path | None = None) -> History:
        """Return the history of a folder, shared with every kernel that opens it; None keeps it in memory. Does no I/O."""
        return cls(Memory() if folder is None else Home(Path(folder).expanduser().absolute()))

    async def create(
        self, *, name: str | None = None, session_id: str | None = None, notebook: str | None = None, fresh: bool = False
    ) -> SessionRecord:
        """Add an empty session and return it.

        Args:
            name: A label.
            session_id: Its id; None: a new one.
            notebook: The notebook in which it begins.
            fresh: The id was just made at random, so that nothing is read first: a first turn need not wait for the index.

        Raises:
            StoreError: There is a session of this id already, or the name is too long.
        """
        if session_id is not None and not fresh and (found := await self._if_readable(session_id)) is not None and found.created:
            raise StoreError(f"There is a session {session_id} already.")
        made = session_id or str(uuid.uuid4())
        born = SessionCreated(session_id=made, at=time.time(), name=_label(name) if name else None, notebook=notebook)
        self._positions[made] = 0  # before the write, which is done to its end even if who awaits it is cancelled
        await self._write([born])
        return assemble(made, [born]).record

    async def list(self) -> list[SessionSummary]:
        """Return all sessions, the one with the newest turn first."""
        return await self.kept.summaries()

    async def load(self, session_id: str) -> SessionRecord:
        """Return a session with its turns.

        Raises:
            StoreError: No session has this id.
        """
        return (await self._existing(session_id)).record

    async def messages(self, session_id: str) -> Sequence[Message]:
        """Return a session's messages in order, without the system message.

        Raises:
            StoreError: No session has this id.
        """
        return thread((await self.load(session_id)).turns)

    async def search(self, text: str, *, limit: int = 50) -> Sequence[Found]:
        """Return messages and tool results that hold a text, case aside, the newest first."""
        return await self.kept.search(text, limit) if text else []

    async def claim(self, session_id: str) -> SessionRecord | None:
        """Make this process the one that asks in a session, and return the session as it is then.

        None: it was the one already, or the session cannot be read now, which does not stop a turn.

        Raises:
            SessionBusy: Another kernel that still runs asks in it.
            SchemaTooNew: A newer version of agent_kernel writes in this home.
            StoreError: The session was deleted.
        """
        self._after_fork()
        if session_id in self._positions:
            return None
        await self._free(session_id)
        await self._write([SessionClaimed(session_id=session_id, at=time.time())])
        try:
            await self._free(session_id)  # two that claimed at once both see each other here, and both step back
        except SessionBusy:
            await self._write([SessionReleased(session_id=session_id, at=time.time())])
            raise
        found = await self._if_readable(session_id)
        if found is not None and _is_gone(found):
            raise StoreError(f"The session {session_id} was deleted: nothing can be asked in it. Start another (%agent new).")
        self._positions[session_id] = self._seen.get(session_id, 0) if found is None else found.positions
        return None if found is None else found.record

    async def release(self, session_id: str) -> None:
        """Let other processes ask in a session that this one is done with."""
        if self._positions.pop(session_id, None) is not None:
            await self._write([SessionReleased(session_id=session_id, at=time.time())])

    async def start_turn(self, session_id: str, turn: TurnRecord) -> None:
        """Take note of a turn that begins; it is written with its first finished round or its end.

        Raises:
            SessionBusy: Another kernel that still runs asks in this session.
        """
        await self.claim(session_id)
        self._positions[session_id] += 1
        self._heads[turn.turn_id] = TurnHead(
            turn_id=turn.turn_id,
            position=self._positions[session_id],
            prompt=turn.prompt,
            model=turn.model,
            started_at=turn.started_at,
            retries=turn.retries,
        )

    async def append_round(self, session_id: str, round_: RoundRecord) -> None:
        """Keep a finished round of a running turn."""
        await self._write([RoundKept(session_id=session_id, at=round_.at, turn=self._heads[round_.turn_id], round=round_)])

    async def end_turn(self, session_id: str, end: TurnEnd) -> None:
        """Keep how a turn ended."""
        await self._write([TurnEnded(session_id=session_id, at=end.at, turn=self._heads.pop(end.turn_id), end=end)])

    async def replace_turns(self, session_id: str, turn_ids: Iterable[str]) -> None:
        """Mark turns as replaced: they stay on record and leave the session's thread."""
        await self._existing(session_id)
        await self._write([TurnsReplaced(session_id=session_id, at=time.time(), turn_ids=tuple(turn_ids))])

    async def rename(self, session_id: str, name: str) -> SessionRecord:
        """Give a session another label.

        Raises:
            StoreError: No such session, or an empty or too long name (200 characters).
        """
        label = _label(name)
        found = await self._existing(session_id)
        at = max(time.time(), found.record.updated_at)  # a clock that was set back does not bring an older name to the fore
        await self._write([SessionRenamed(session_id=session_id, at=at, name=label)])
        return await self.load(session_id)

    async def delete(self, session_id: str) -> None:
        """Remove a session; turns that forks share stay with them.

        Raises:
            StoreError: No session has this id.
        """
        await self._existing(session_id)
        await self._write([SessionDeleted(session_id=session_id, at=time.time())])
        self._positions.pop(session_id, None)

    async def fork(self, session_id: str, *, at: int | None = None, name: str | None = None) -> SessionRecord:
        """Add a session that shares the first ``at`` turns (None: all, as a person counts them) and return it; no message is copied.

        Raises:
            StoreError: No such session, or it has fewer turns.
        """
        source = await self.load(session_id)
        grouped = lines(source.turns)
        at = len(grouped) if at is None else at
        if not 0 <= at <= len(grouped):
            raise StoreError(f"Session {source.name or source.id[:8]} has {len(grouped)} turns; it cannot be forked at {at}.")
        shared = tuple(turn.turn_id for line in grouped[:at] for turn in line)
        made = str(uuid.uuid4())
        born = SessionCreated(
            session_id=made, at=time.time(), name=_label(name) if name else source.name, forked_from=source.id, forked_at=at, shared=shared
        )
        await self._write([born])
        self._positions[made] = len(shared)
        return await self.load(made)

    async def close(self) -> None:
        """Write what waits, if it can be written, and release what is held."""
        if self._waiting:
            await self._write([])
        await self.kept.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _write(self, new: Sequence[Line]) -> None:
        """Keep lines, also if whoever awaits it is cancelled meanwhile."""
        self._after_fork()
        keeping = asyncio.ensure_future(self._keep(new))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            await asyncio.wait([keeping])
            raise

    async def _keep(self, new: Sequence[Line]) -> None:
        """Keep lines; where that fails they wait, and go first the next time."""
        batch = [*self._waiting, *new]
        self._waiting = []
        try:
            await self.kept.append(batch)
        except StoreError as error:
            self._waiting = sorted(batch + self._waiting, key=lambda line: line.at)
            self.problem = str(error)
        else:
            self.problem = None

    def _after_fork(self) -> None:
        """In a forked child, leave to the parent what is the parent's: its sessions, and the lines that wait."""
        if self._pid != os.getpid():
            self._pid, self._positions, self._waiting = os.getpid(), {}, []

    async def _if_readable(self, session_id: str) -> Assembled | None:
        """Return a session, or None if what is kept of it cannot be read."""
        try:
            return await self._stored(session_id)
        except SchemaTooNew:
            raise
        except StoreError:
            return None

    async def _read(self, session_id: str) -> Assembled:
        """Return a session; where it cannot be read, what waits of it, if anything does."""
        waiting = self._waiting_of(session_id)
        found = await self._if_readable(session_id) if waiting else await self._stored(session_id)
        return assemble(session_id, waiting) if found is None else found

    async def _stored(self, session_id: str) -> Assembled:
        found = await self.kept.session(session_id, self._waiting_of(session_id))
        self._seen[session_id] = found.positions
        return found

    def _waiting_of(self, session_id: str) -> Sequence[Line]:
        return [line for line in self._waiting if line.session_id == session_id]

    async def _existing(self, session_id: str) -> Assembled:
        found = await self._read(session_id)
        if _is_gone(found):
            raise StoreError(f"There is no session {session_id}; history.list() shows those that are there.")
        return found

    async def _free(self, session_id: str) -> None:
        try:
            holder = None if self._waiting else await self.kept.holder(session_id)
        except SchemaTooNew:
            raise
        except StoreError:
            return  # who asks where cannot be known now: that does not stop a turn
        if holder is not None:
            raise SessionBusy(f"The session is open in {holder}: ask there, or fork it here (%agent fork, --fork before the prompt, session.fork()).")


def _is_gone(found: Assembled) -> bool:
    return found.deleted or not (found.created or found.record.turns)


def _label(name: str) -> str:
    label = name.strip()
    if not label or len(label) > LONGEST_NAME:
        raise StoreError(f"A session's name has 1 to {LONGEST_NAME} characters.")
    return label

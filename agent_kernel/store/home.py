"""Home: one folder with its journals and its index; what a History on disk is kept in.

Layout: ``HOME/journals/*.jsonl`` (the truth), ``HOME/index/`` or, where HOME lies on a network disk, a folder of the user's cache (the index
and its lock), ``HOME/artifacts``. Folders are 0700. Appends run on one worker thread, everything with DuckDB on another; nothing here
touches an event loop for longer than it takes to hand work over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from agent_kernel.errors import StoreError
from agent_kernel.store.compact import tidy
from agent_kernel.store.index import Index
from agent_kernel.store.journal import Journal, JournalFile, JournalMoved, is_alive, journals, read_at
from agent_kernel.store.kept import Found, SessionSummary, matching_line
from agent_kernel.store.lines import Assembled, Line, assemble
from agent_kernel.store.mounts import on_remote_disk
from agent_kernel.store.worker import Worker

T = TypeVar("T")
DRAIN_EVERY = 1.0  # seconds between two drains that follow appends; readers drain by themselves
RETRIES = 3  # when a journal is rewritten between finding a line's place and reading it

SUMMARIES = """SELECT session_id, name, epoch(created_at), epoch(updated_at), turns, first_prompt, notebook, forked_from, forked_at
    FROM sessions ORDER BY updated_at DESC, session_id"""
SEARCH = """WITH hits AS (
        SELECT session_id, turn_id, position, role, name, text, stamp FROM message_lines WHERE contains(lower(text), lower(?))
        AND session_id NOT IN (SELECT session_id FROM session_lines WHERE kind = 'SessionDeleted') ORDER BY stamp DESC LIMIT ?)
    SELECT hits.session_id, s.name, hits.turn_id, hits.position, hits.role, hits.name, hits.text, hits.stamp FROM hits
    LEFT JOIN (SELECT session_id, arg_max(name, (stamp, n)) FILTER (name IS NOT NULL) AS name FROM session_lines
        WHERE session_id IN (SELECT session_id FROM hits) GROUP BY session_id) s USING (session_id) ORDER BY hits.stamp DESC"""
PLACES = """WITH wanted AS (
        SELECT journal, start, length FROM places WHERE session_id = ?
        UNION ALL SELECT journal, start, length FROM places WHERE turn_id IN (
            SELECT unnest(from_json(shared, '["VARCHAR"]')) FROM session_lines WHERE session_id = ? AND shared IS NOT NULL)),
    placed AS (SELECT journal, list(start ORDER BY start) AS starts, list(length ORDER BY start) AS lengths FROM wanted GROUP BY journal)
    SELECT journal, generation, starts, lengths FROM placed JOIN drained USING (journal) ORDER BY journal"""
CLAIMS = """SELECT journal, arg_max(kind, (stamp, n)) FROM places
    WHERE session_id = ? AND kind IN ('SessionCreated', 'SessionClaimed', 'SessionReleased', 'RoundKept', 'TurnEnded')
    GROUP BY journal ORDER BY max(stamp)"""


class Home:
    """The lines of all sessions of one folder, shared with any number of other processes."""

    def __init__(self, folder: Path, *, index_folder: Path | None = None, host: str | None = None) -> None:
        """Name the folder; nothing touches the disk before the first use.

        Args:
            folder: The home.
            index_folder: Where the index is; None: in the home, or in the user's cache where the home is on a network disk.
            host: This machine's name; None: the system's.
        """
        self.folder = folder
        self.journal_folder = folder / "journals"
        self._host = host or socket.gethostname()
        self._index_folder = index_folder
        self._journal = Journal(self.journal_folder, host=self._host)
        self._index: Index | None = None
        self._writer = Worker("agent-kernel-journal")
        self._reader = Worker("agent-kernel-index")
        self._drained = time.monotonic()  # so that a first turn does not share the processor with the making of an index

    async def append(self, lines: Sequence[Line]) -> None:
        """Keep lines in this process's journal; they are on disk when this returns.

        Raises:
            StoreError: They could not be written; none counts.
        """
        await self._writer.finish(lambda: self._append(lines))
        if time.monotonic() - self._drained > DRAIN_EVERY and self._reader.idle:
            self._drained = time.monotonic()
            self._reader.submit(self._drain)

    async def session(self, session_id: str, waiting: Sequence[Line] = ()) -> Assembled:
        """Return a session, read from the journals themselves."""
        return await self._reader.run(lambda: self._session(session_id, waiting))

    async def of_session(self, session_id: str) -> tuple[list[Line], list[Line]]:
        """Return a session's own lines and those that it shares, read from the journals themselves."""
        return await self._reader.run(lambda: _parted(session_id, self._of_session(session_id)))

    async def summaries(self) -> list[SessionSummary]:
        """Return all sessions that are not deleted, the newest first."""
        rows = await self.query(SUMMARIES)
        names = ("id", "name", "created_at", "updated_at", "turns", "prompt", "notebook", "forked_from", "forked_at")
        return [SessionSummary(**dict(zip(names, row, strict=True))) for row in rows]

    async def search(self, text: str, limit: int) -> list[Found]:
        """Return what holds a text, case aside, the newest first."""
        rows = await self.query(SEARCH, [text, limit])
        return [
            Found(
                session_id=row[0], session=row[1], turn_id=row[2], turn=row[3], role=row[4], name=row[5], line=matching_line(row[6], text), at=row[7]
            )
            for row in rows
        ]

    async def holder(self, session_id: str) -> str | None:
        """Return which other process asks in a session now, in words."""
        rows = await self.query(CLAIMS, [session_id])
        return await self._writer.run(lambda: self._other_holder(rows))

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one of our own queries over an index that is up to date."""
        return await self.read(lambda connection: list(_fetched(connection.execute(sql, list(parameters)))))

    async def read(self, query: Callable[[Any], T]) -> T:
        """Run a function on the index's connection, in the worker thread."""
        return await self._reader.run(lambda: self.index().read(query))

    async def tidy(self) -> None:
        """Rewrite the journals of ended processes of this machine without what nobody needs: the bytes of deleted sessions go.

        Raises:
            HistoryLocked: Others held the index for too long.
            StoreError: The disk refused.
        """
        await self._reader.finish(lambda: tidy(self.index(), self.journal_folder, host=self._host))

    async def close(self) -> None:
        """End both workers and release the journal."""
        await self._writer.close(self._journal.close)
        await self._reader.close(self._last_drain)

    def index(self) -> Index:
        """Return the index; only in the worker thread."""
        if self._index is None:
            with contextlib.suppress(OSError):  # whoever uses it is told
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._index = Index(self._index_folder or index_folder(self.folder), self.journal_folder)
        return self._index

    def _append(self, lines: Sequence[Line]) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"History cannot be written in {self.folder}: {error.strerror or error}.") from error
        self._journal.append(lines)

    def _drain(self) -> None:
        try:
            if self.journal_folder.exists():
                self.index().drain()
        except StoreError:
            pass  # somebody else drains this very moment, or whoever reads next is told

    def _last_drain(self) -> None:
        try:
            self._drain()
        finally:
            if self._index is not None:
                self._index.close()

    def _session(self, session_id: str, waiting: Sequence[Line]) -> Assembled:
        own, shared = _parted(session_id, self._of_session(session_id))
        return assemble(session_id, [*own, *waiting], shared)

    def _of_session(self, session_id: str) -> list[Line]:
        for attempt in range(RETRIES):
            try:
                return self._lines_at(self._places(session_id))
            except JournalMoved:
                if attempt == RETRIES - 1:
                    self.index().rebuild()
        return self._lines_at(self._places(session_id))

    def _places(self, session_id: str) -> list[tuple[str, int, list[int], list[int]]]:
        return self.index().read(lambda connection: list(_fetched(connection.execute(PLACES, [session_id, session_id]))))

    def _lines_at(self, rows: list[tuple[str, int, list[int], list[int]]]) -> list[Line]:
        """Read lines from the journals.

        Raises:
            JournalMoved: A journal was rewritten since the index was asked.
            StoreError: A journal cannot be read.
        """
        if not rows:
            return []
        files = journals(self.journal_folder)
        found: list[Line] = []
        for journal, generation, starts, lengths in rows:
            file = files.get(journal)
            if file is None or file.generation != generation:
                raise JournalMoved(f"The journal {journal} was rewritten meanwhile.")
            try:
                found += read_at(file.path, list(zip(starts, lengths, strict=True)))
            except FileNotFoundError:
                raise JournalMoved(f"The journal {journal} was rewritten meanwhile.") from None
            except OSError as error:
                raise StoreError(f"The journal {file.path} cannot be read: {error.strerror or error}.") from error
        return found

    def _other_holder(self, rows: list[tuple[str, str]]) -> str | None:
        """Return the other process that claimed a session last and lives; what one process says in several journals is one story."""
        files = journals(self.journal_folder)
        last: dict[str, tuple[str, JournalFile]] = {}
        for journal, kind in rows:
            file = files.get(journal)
            if file is not None and not self._journal.wrote(file) and is_alive(file, self._host):
                last[file.writer] = (kind, file)
        for kind, file in last.values():
            if kind != "SessionReleased":
                return f"the kernel with process id {file.pid} on {file.host}"
        return None


def index_folder(home: Path) -> Path:
    """Return where the index of a home is: beside the journals, or in the user's cache where they lie on a network or read-only disk."""
    there = next(path for path in (home, *home.parents) if path.exists())
    if os.access(there, os.W_OK) and not on_remote_disk(home):
        return home / "index"
    name = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("agent_kernel") / name


def default_home() -> Path:
    """Return the home that nobody named: ``AGENT_KERNEL_HOME``, else a folder among the platform's data of this user."""
    named = os.environ.get("AGENT_KERNEL_HOME")
    return Path(named).expanduser().absolute() if named else platformdirs.user_data_path("agent_kernel")


def _parted(session_id: str, found: list[Line]) -> tuple[list[Line], list[Line]]:
    return [line for line in found if line.session_id == session_id], [line for line in found if line.session_id != session_id]


def _fetched(result: Any) -> Any:
    while rows := result.fetchmany(1_000):  # more at once would hold the GIL for long
        yield from rows

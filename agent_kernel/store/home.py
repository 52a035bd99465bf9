"""Home: one folder with its journals and its index; what a History on disk is kept in.

Layout: ``HOME/journals/*.jsonl`` (the truth), ``HOME/index/`` or, where HOME lies on a network disk, a folder of the user's cache (the index
and its lock), ``HOME/artifacts``. Folders are 0700. Appends run on one worker thread, everything with DuckDB on another; nothing here
touches an event loop for longer than it takes to hand work over.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from agent_kernel.errors import HistoryLocked, StoreError
from agent_kernel.store.index import Index
from agent_kernel.store.journal import Journal, is_alive, journals, read_at
from agent_kernel.store.kept import Found, SessionSummary, matching_line
from agent_kernel.store.lines import Line
from agent_kernel.store.mounts import on_remote_disk

T = TypeVar("T")
DRAIN_EVERY = 1.0  # seconds between two drains that follow appends; readers drain by themselves
RETRIES = 3  # when a journal is rewritten between finding a line's place and reading it

SUMMARIES = """SELECT session_id, name, epoch(created_at), epoch(updated_at), turns, first_prompt, notebook, forked_from, forked_at
    FROM sessions ORDER BY updated_at DESC, session_id"""
SEARCH = """WITH hits AS (
        SELECT session_id, turn_id, role, name, text, stamp FROM message_lines WHERE contains(lower(text), lower(?))
        AND session_id NOT IN (SELECT session_id FROM session_lines WHERE kind = 'SessionDeleted') ORDER BY stamp DESC LIMIT ?)
    SELECT hits.session_id, sessions.name, hits.turn_id, coalesce(t.position, 0), hits.role, hits.name, hits.text, hits.stamp
    FROM hits LEFT JOIN sessions USING (session_id)
    LEFT JOIN (SELECT turn_id, any_value(position) AS position FROM turn_lines WHERE turn_id IN (SELECT turn_id FROM hits) GROUP BY turn_id) t
    USING (turn_id) ORDER BY hits.stamp DESC"""
PLACES = """SELECT journal, start, length FROM places WHERE session_id = ?
    UNION ALL SELECT journal, start, length FROM places WHERE turn_id IN (
        SELECT unnest(from_json(shared, '["VARCHAR"]')) FROM session_lines WHERE session_id = ? AND shared IS NOT NULL)"""
CLAIMS = """SELECT journal, arg_max(kind, (stamp, n)) FROM places
    WHERE session_id = ? AND kind IN ('SessionCreated', 'SessionClaimed', 'SessionReleased', 'RoundKept', 'TurnEnded') GROUP BY journal"""


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
        self._own: set[str] = set()
        self._index: Index | None = None
        self._writer = _Worker("agent-kernel-journal")
        self._reader = _Worker("agent-kernel-index")
        self._drained = 0.0

    async def append(self, lines: Sequence[Line]) -> None:
        """Keep lines in this process's journal; they are on disk when this returns.

        Raises:
            StoreError: They could not be written; none counts.
        """
        await self._writer.run(lambda: self._append(lines))
        if time.monotonic() - self._drained > DRAIN_EVERY and self._reader.idle:
            self._drained = time.monotonic()
            self._reader.submit(self._drain)

    async def of_session(self, session_id: str) -> tuple[list[Line], list[Line]]:
        """Return a session's own lines and those that it shares, read from the journals themselves."""
        found = await self._reader.run(lambda: self._of_session(session_id))
        return [line for line in found if line.session_id == session_id], [line for line in found if line.session_id != session_id]

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

    async def close(self) -> None:
        """End both workers and release the journal."""
        await self._writer.close(self._journal.close)
        await self._reader.close(self._drain)

    def index(self) -> Index:
        """Return the index; only in the worker thread."""
        if self._index is None:
            self._index = Index(self._index_folder or index_folder(self.folder), self.journal_folder)
        return self._index

    def _append(self, lines: Sequence[Line]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal.append(lines)
        self._own.add(self._journal.id)

    def _drain(self) -> None:
        try:
            if self.journal_folder.exists():
                self.index().drain()
        except HistoryLocked:
            pass  # somebody else drains this very moment
        except StoreError:
            pass  # whoever reads next is told

    def _of_session(self, session_id: str) -> list[Line]:
        for attempt in range(RETRIES):
            rows = self.index().read(lambda connection: connection.execute(PLACES, [session_id, session_id]).fetchall())
            try:
                return self._lines_at(rows)
            except (FileNotFoundError, StoreError):
                if attempt == RETRIES - 1:
                    self.index().rebuild()
        rows = self.index().read(lambda connection: connection.execute(PLACES, [session_id, session_id]).fetchall())
        return self._lines_at(rows)

    def _lines_at(self, rows: list[tuple[str, int, int]]) -> list[Line]:
        files = journals(self.journal_folder)
        places: dict[str, list[tuple[int, int]]] = {}
        for journal, start, length in rows:
            places.setdefault(journal, []).append((start, length))
        found: list[Line] = []
        for journal, wanted in places.items():
            if journal not in files:
                raise FileNotFoundError(journal)
            found += read_at(files[journal].path, sorted(set(wanted)))
        return found

    def _other_holder(self, rows: list[tuple[str, str]]) -> str | None:
        files = journals(self.journal_folder)
        for journal, kind in rows:
            file = files.get(journal)
            if kind != "SessionReleased" and journal not in self._own and file is not None and is_alive(file, self._host):
                return f"the kernel with process id {file.pid} on {file.host}"
        return None


def index_folder(home: Path) -> Path:
    """Return where the index of a home is: beside the journals, or in the user's cache where they lie on a network disk."""
    if not on_remote_disk(home):
        return home / "index"
    name = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
    return platformdirs.user_cache_path("agent_kernel") / name


def _fetched(result: Any) -> Any:
    while rows := result.fetchmany(1_000):  # more at once would hold the GIL for long
        yield from rows


class _Worker:
    """One thread for one purpose, made at the first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._last: Future[Any] | None = None

    @property
    def idle(self) -> bool:
        return self._last is None or self._last.done()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            weakref.finalize(self, self._pool.shutdown, wait=False)
        future = self._pool.submit(work)
        self._last = future
        return future

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.submit(work))

    async def close(self, last: Callable[[], None]) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.submit(last)
            await asyncio.to_thread(pool.shutdown)

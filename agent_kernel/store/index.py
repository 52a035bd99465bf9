"""The index: one DuckDB file over all journals of a home, brought up to date and read in the same short moment under its lock.

Rows and the place up to which each journal is drained are written in one transaction: whatever dies when, no line is lost or doubled. An
index is never mended: where one is damaged, of another version or held by a program of the user's, the next one is begun
(``history-2.duckdb``) and filled from the journals. All sync; for one worker thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from agent_kernel.errors import StoreError
from agent_kernel.store.database import Database, IndexNotWritable, locked, trouble
from agent_kernel.store.journal import JournalFile, journals, read_raw
from agent_kernel.store.lines import decode
from agent_kernel.store.schema import INDEX_VERSION, TABLES, Row, rows_of, statements

T = TypeVar("T")
READ_BUDGET = 60.0  # seconds that a reader waits for the lock: an index of a million messages is made in half a minute
DRAIN_BUDGET = 0.05  # seconds that a drain after an append waits: somebody else drains then
IN_USE_BUDGET = 1.0  # seconds that a program of the user's may hold the file before the next one is begun
AT_ONCE = 16 << 20  # bytes of journal in one transaction of a long drain
ROWS_AT_ONCE = 500  # handed to DuckDB in one call, which holds the GIL
IN_MEMORY = Path(":memory:")
_NAME = re.compile(r"history(-(?P<number>\d+))?\.duckdb")


class Index:
    """The index of one home."""

    def __init__(self, folder: Path, journal_folder: Path) -> None:
        """Name the folder of the index (on a local disk) and of the journals."""
        self.folder = folder
        self.lock = folder / "history.lock"
        self._journals = journal_folder
        self._database = Database(folder / "spill")

    @property
    def path(self) -> Path:
        """The file in use: the one with the highest number."""
        return max(self.files(), key=_number, default=self.folder / "history.duckdb")

    def files(self) -> list[Path]:
        """Return all index files that are there; more than one after a step aside."""
        return [path for path in self.folder.glob("history*.duckdb") if _NAME.fullmatch(path.name)]

    def read(self, query: Callable[[Any], T], *, budget: float = READ_BUDGET) -> T:
        """Drain all journals, then run a query on the connection and return what it returns.

        Where the disk has no room or cannot be written, the query sees an index made in memory for it.

        Raises:
            HistoryLocked: Others held the lock for longer than the budget.
            SchemaTooNew: A newer agent_kernel wrote a journal.
            StoreError: The query is wrong, or neither the index nor a new one can be used.
        """
        try:
            with locked(self.lock, budget=budget):
                return self.read_locked(query)
        except IndexNotWritable:
            return self._attempt(IN_MEMORY, query)

    def read_locked(self, query: Callable[[Any], T]) -> T:
        """Do what ``read`` does, for who holds the lock already."""
        try:
            return self._attempt(self.path, query)
        except _Unusable as error:
            fresh = self._begin_next(keep=error.kind == "damaged")
        try:
            return self._attempt(fresh, query)
        except _Unusable as error:
            raise StoreError(f"The index {fresh} cannot be used: {error}") from error

    def drain(self) -> None:
        """Bring the index up to date, unless somebody else is at it."""
        with locked(self.lock, budget=DRAIN_BUDGET):
            self.read_locked(lambda _: None)

    def drain_patiently(self) -> None:
        """Bring the index up to date, however long others are at it."""
        with locked(self.lock, budget=READ_BUDGET):
            self.read_locked(lambda _: None)

    def rebuild(self) -> None:
        """Throw the index away and make it again from the journals."""
        with locked(self.lock, budget=READ_BUDGET):
            self._attempt(self._begin_next(keep=False), lambda _: None)

    def close(self) -> None:
        """Release the database's threads and memory."""
        self._database.close()

    def _attempt(self, path: Path, query: Callable[[Any], T]) -> T:
        """Open, drain and ask once.

        Raises:
            _Unusable: The next index has to be begun.
        """
        deadline = time.monotonic() + IN_USE_BUDGET
        while True:
            try:
                return self._open_and_ask(path, query)
            except Exception as error:
                kind = trouble(error)
                if kind is None or isinstance(error, StoreError):
                    raise
                if kind == "in use" and time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                if kind in ("damaged", "in use"):
                    raise _Unusable(str(error), kind) from error
                if kind in ("no room", "refused"):
                    raise IndexNotWritable(f"The index {path} cannot be written: {error}") from error
                tried = "The query failed" if kind == "other" else f"The index {path} cannot be used"
                raise StoreError(f"{tried}: {error}") from error

    def _open_and_ask(self, path: Path, query: Callable[[Any], T]) -> T:
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(self._database.attached(path))
                self._prepare(connection)
                self._drain(connection)
            except Exception as error:
                if trouble(error) == "other":  # our own SQL is right: what it stumbled over is a table that is not as it should be
                    raise _Unusable(str(error), "damaged") from error
                raise
            return query(connection)

    def _prepare(self, connection: Any) -> None:
        try:
            found = connection.execute("SELECT version FROM meta").fetchall()
        except Exception as error:
            if trouble(error) != "other" or connection.execute("SHOW TABLES").fetchall():
                raise
        else:
            if found != [(INDEX_VERSION,)]:
                raise _Unusable("another version made it", "old")
            return
        connection.execute("BEGIN")
        for statement in statements():
            connection.execute(statement)
        connection.execute("COMMIT")

    def _drain(self, connection: Any) -> None:
        known = {row[0]: (row[1], row[2]) for row in connection.execute("SELECT journal, generation, size FROM drained").fetchall()}
        found = journals(self._journals)
        for file in found.values():
            generation, size = known.get(file.id, (0, 0))
            if generation != file.generation or file.size < size:  # rewritten; or cut: its process could not write a line to its end
                size = 0
            if generation != file.generation or file.size != size:
                with contextlib.suppress(OSError):  # rewritten this very moment (the next drain reads the new file), or unreadable: see doctor
                    _drain_one(connection, file, size, fresh=generation != 0 and size == 0)
        for gone in known.keys() - found.keys():
            with _transaction(connection):
                _forget(connection, gone)

    def _begin_next(self, *, keep: bool) -> Path:
        """Give up the index, ``keep`` it under another name for whoever wants to look, and name the next one."""
        self._database.close()
        old = self.files()
        last = max(map(_number, old), default=0)
        for path in old:
            wal = path.with_name(path.name + ".wal")
            for each in (path, wal):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    if keep and path == max(old, key=_number):
                        each.rename(each.with_name(f"{each.name}.broken-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"))
                    else:
                        each.unlink()
        fresh = self.folder / f"history-{last + 1}.duckdb"
        fresh.with_name(fresh.name + ".wal").unlink(missing_ok=True)
        return fresh


class _Unusable(StoreError):
    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


def _number(path: Path) -> int:
    named = _NAME.fullmatch(path.name)
    return int(named["number"] or 1) if named else 0


@contextlib.contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(Exception):  # the transaction may be over already; the first error counts
            connection.execute("ROLLBACK")
        raise


def _drain_one(connection: Any, file: JournalFile, start: int, *, fresh: bool) -> None:
    """Take in the new lines of one journal; ``fresh``: it was rewritten, so what was known of it goes."""
    rows: dict[str, list[Row]] = {name: [] for name in TABLES}
    taken = end = start
    for at, raw in read_raw(file.path, start):
        end = at + len(raw) + 1
        line = decode(raw) if raw else None
        if line is not None:
            for table, row in rows_of(file.id, at, len(raw), line):
                rows[table].append(row)
        if end - taken >= AT_ONCE:
            _take_in(connection, file, rows, end, fresh=fresh)
            rows, taken, fresh = {name: [] for name in TABLES}, end, False
    if end > taken or fresh:
        _take_in(connection, file, rows, end, fresh=fresh)


def _take_in(connection: Any, file: JournalFile, rows: dict[str, list[Row]], end: int, *, fresh: bool) -> None:
    with _transaction(connection):
        if fresh:
            _forget(connection, file.id)
        connection.execute("DELETE FROM drained WHERE journal = ?", [file.id])
        connection.execute("INSERT INTO drained VALUES (?, ?, ?)", [file.id, file.generation, end])
        for table, values in rows.items():
            if values:
                with connection.appender(table) as appender:  # flushed at the block's end, before the commit
                    for first in range(0, len(values), ROWS_AT_ONCE):
                        appender.append_rows(values[first : first + ROWS_AT_ONCE])


def _forget(connection: Any, journal: str) -> None:
    for table in TABLES:
        connection.execute(f"DELETE FROM {table} WHERE journal = ?", [journal])  # noqa: S608 - our own table names

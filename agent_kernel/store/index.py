"""The index: one DuckDB file over all journals of a home, brought up to date and read in the same short moment under its lock.

Rows and the place up to which each journal is drained are written in one transaction: whatever dies when, no line is lost or doubled. A
file that cannot be read is set aside and the index made again from the journals. All sync; for one worker thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from agent_kernel.errors import AgentKernelError, StoreError
from agent_kernel.store.database import attach, connect, is_database_error, locked
from agent_kernel.store.journal import JournalFile, journals, read_lines
from agent_kernel.store.lines import Line
from agent_kernel.store.schema import INDEX_VERSION, TABLES, rows_of, statements

T = TypeVar("T")
READ_BUDGET = 10.0  # seconds that a reader waits for the lock
DRAIN_BUDGET = 0.05  # seconds that a drain after an append waits: somebody else drains then
AT_ONCE = 20_000  # lines in one transaction of a long drain


class Index:
    """The index of one home."""

    def __init__(self, folder: Path, journal_folder: Path) -> None:
        """Name the folder of the index (on a local disk) and of the journals."""
        self.path = folder / "history.duckdb"
        self._lock = folder / "history.lock"
        self._journals = journal_folder

    def read(self, query: Callable[[Any], T], *, budget: float = READ_BUDGET) -> T:
        """Drain all journals, then run a query on the connection and return what it returns.

        Raises:
            HistoryLocked: Others held the lock for longer than the budget.
            SchemaTooNew: A newer agent_kernel wrote a journal.
            StoreError: Neither the index nor a new one can be used.
        """
        with locked(self._lock, budget=budget):
            try:
                return self._attempt(query)
            except Exception as error:
                if isinstance(error, AgentKernelError) or not (is_database_error(error) or isinstance(error, OSError)):
                    raise
                self._set_aside()
                try:
                    return self._attempt(query)
                except Exception as again:
                    if is_database_error(again) or isinstance(again, OSError):
                        raise StoreError(f"The index {self.path} cannot be used: {again}") from again
                    raise

    def drain(self) -> None:
        """Bring the index up to date, unless somebody else is at it."""
        self.read(lambda _: None, budget=DRAIN_BUDGET)

    def rebuild(self) -> None:
        """Throw the index away and make it again from the journals."""
        with locked(self._lock, budget=READ_BUDGET):
            self._remove()
            self._attempt(lambda _: None)

    def _attempt(self, query: Callable[[Any], T]) -> T:
        connection = connect()
        try:
            self._attach(connection)
            with contextlib.suppress(FileNotFoundError):  # a journal was rewritten meanwhile: the next drain reads its new file
                self._drain(connection)
            return query(connection)
        finally:
            connection.close()

    def _attach(self, connection: Any) -> None:
        attach(connection, self.path)
        found = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'history' AND table_name = 'meta'").fetchone()
        if found[0] and connection.execute("SELECT version FROM meta").fetchone()[0] == INDEX_VERSION:
            return
        if found[0]:
            connection.execute("USE memory")
            connection.execute("DETACH history")
            self._remove()
            attach(connection, self.path)
        connection.execute("BEGIN")
        for statement in statements():
            connection.execute(statement)
        connection.execute("COMMIT")

    def _drain(self, connection: Any) -> None:
        known = {row[0]: (row[1], row[2]) for row in connection.execute("SELECT journal, generation, size FROM drained").fetchall()}
        for file in journals(self._journals).values():
            generation, size = known.get(file.id, (0, 0))
            if generation != file.generation or file.size > size:
                self._drain_one(connection, file, size if generation == file.generation else 0, fresh=generation not in (0, file.generation))

    def _drain_one(self, connection: Any, file: JournalFile, start: int, *, fresh: bool) -> None:
        """Take in the new lines of one journal; ``fresh``: it was rewritten, so what was known of it goes."""
        batch: list[tuple[int, int, Line]] = []
        for found in read_lines(file.path, start):
            batch.append(found)
            if len(batch) == AT_ONCE:
                self._take_in(connection, file, batch, fresh=fresh)
                batch, fresh = [], False
        if batch or fresh:
            self._take_in(connection, file, batch, fresh=fresh)

    @staticmethod
    def _take_in(connection: Any, file: JournalFile, batch: list[tuple[int, int, Line]], *, fresh: bool) -> None:
        rows: dict[str, list[Any]] = {name: [] for name in TABLES}
        for start, length, line in batch:
            for table, row in rows_of(file.id, start, length, line):
                rows[table].append(row)
        end = batch[-1][0] + batch[-1][1] + 1 if batch else 0
        connection.execute("BEGIN")
        try:
            if fresh:
                for table in TABLES:
                    connection.execute(f"DELETE FROM {table} WHERE journal = ?", [file.id])  # noqa: S608 - our own table names
            connection.execute("DELETE FROM drained WHERE journal = ?", [file.id])
            connection.execute("INSERT INTO drained VALUES (?, ?, ?)", [file.id, file.generation, end])
            for table, values in rows.items():
                if values:
                    with connection.appender(table) as appender:  # flushed at the block's end, before the commit
                        appender.append_rows(values)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):  # the transaction may be over already; the first error counts
                connection.execute("ROLLBACK")
            raise

    def _set_aside(self) -> None:
        """Move a damaged index out of the way, kept for whoever wants to look."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                path.rename(path.with_name(f"{path.name}.broken-{stamp}-{os.getpid()}"))

    def _remove(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> Iterable[Path]:
        return (self.path, self.path.with_name(self.path.name + ".wal"))

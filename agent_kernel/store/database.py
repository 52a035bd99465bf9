"""The only door to DuckDB: a file is attached for moments, behind a lock file, with defaults that suit a guest in a kernel.

Making an in-memory instance takes 20 ms, attaching a file to one takes 1: so a process keeps an instance, and no file. A file is always
ATTACHed as TYPE duckdb: ``connect(path)`` of 2.0.1 reads the header before it locks, and processes that take turns lose commits.
Imported off the event loop only; for one thread at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from agent_kernel.errors import HistoryLocked, StoreError

SETTINGS: dict[str, Any] = {
    "memory_limit": "512MB",  # DuckDB's own default is 80 % of the machine
    "threads": 2,
    "async_threads": 1,
    "autoinstall_known_extensions": "false",  # a missing extension would be asked for on the network
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # a table's name must not find a variable of the user's
}
POLL = 0.002  # seconds between two tries for the lock
NAME = "history"  # of the attached file in SQL

Trouble = Literal["damaged", "in use", "no room", "refused", "other"]


class IndexNotWritable(StoreError):
    """The disk has no room for the index, or refuses it."""


class Database:
    """An in-memory instance of this process, to which one file at a time is attached."""

    def __init__(self, spill: Path) -> None:
        """Name the folder for what does not fit into memory; the instance comes with the first use."""
        self._spill = spill
        self._connection: Any = None
        self._pid = 0

    @contextlib.contextmanager
    def attached(self, path: Path) -> Iterator[Any]:
        """Give a connection on which a file is attached as ``history`` and is the default; afterwards the file is closed."""
        connection = self._ready()
        try:
            attach(connection, path)
            yield connection
            connection.execute("USE memory")
            connection.execute(f"DETACH {NAME}")
        except BaseException:
            self.close()  # whatever it was in the middle of goes with it
            raise

    def close(self) -> None:
        """Close the instance, and with it the file."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _ready(self) -> Any:
        if self._connection is None or self._pid != os.getpid():
            self._connection = connect({"temp_directory": str(self._spill)})
            # A forked child must never run its destructor, which would close and check-point the parent's file: one reference stays for ever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._pid = os.getpid()
        return self._connection


def connect(options: dict[str, Any] | None = None) -> Any:
    """Return an in-memory connection with our settings."""
    import duckdb  # noqa: PLC0415  # 80 ms and 70 MB: at the first use, in a worker thread

    return duckdb.connect(":memory:", config={**SETTINGS, **(options or {})})


def trouble(error: BaseException) -> Trouble | None:
    """Tell what an error of DuckDB's says about the file; None: it is no error of DuckDB's."""
    import duckdb  # noqa: PLC0415  # as above

    if not isinstance(error, duckdb.Error):
        return None
    text = str(error)
    if "No space left" in text:
        return "no room"
    if isinstance(error, duckdb.OperationalError) and ("file handle conflict" in text or "Could not set lock" in text):
        return "in use"
    if "Permission denied" in text or "Read-only file system" in text:
        return "refused"
    damage = (duckdb.IOException, duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)
    return "damaged" if isinstance(error, damage) or text.startswith("Corrupt database file") else "other"


def attach(connection: Any, path: Path, *, read_only: bool = False) -> None:
    """Attach a file as ``history`` and make it the default."""
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS {NAME} (TYPE duckdb{', READ_ONLY' if read_only else ''})")
    connection.execute(f"USE {NAME}")


@contextlib.contextmanager
def locked(path: Path, *, budget: float) -> Iterator[None]:
    """Hold the lock file for a moment.

    Raises:
        HistoryLocked: Another process held it for longer than ``budget`` seconds.
        IndexNotWritable: The lock file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IndexNotWritable(f"The index cannot be locked at {path}: {error.strerror or error}.") from error
    try:
        _take(descriptor, path, budget)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too, and would hold the lock
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, budget: float) -> None:
    deadline = time.monotonic() + budget
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise HistoryLocked(f"Another process has held {path} for {budget:g} s; try again.") from None
            time.sleep(POLL)
        else:
            return

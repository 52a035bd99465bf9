"""The only door to DuckDB: connections that are open for moments, behind a lock file, with defaults that suit a guest in a kernel.

Every open is an in-memory instance that ATTACHes the file as TYPE duckdb: ``connect(path)`` of 2.0.1 reads the header before it locks, and
processes that take turns lose commits. Imported off the event loop only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def connect() -> Any:
    """Return an in-memory connection with our settings."""
    import duckdb  # noqa: PLC0415  # 80 ms and 70 MB: at the first use, in a worker thread

    return duckdb.connect(":memory:", config=SETTINGS)


def is_database_error(error: Exception) -> bool:
    """Tell whether an error is DuckDB's."""
    import duckdb  # noqa: PLC0415  # as above

    return isinstance(error, duckdb.Error)


def attach(connection: Any, path: Path, *, read_only: bool = False) -> None:
    """Attach a file as ``history`` and make it the default."""
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS history (TYPE duckdb{', READ_ONLY' if read_only else ''})")
    connection.execute("USE history")


@contextlib.contextmanager
def locked(path: Path, *, budget: float) -> Iterator[None]:
    """Hold the lock file for a moment.

    Raises:
        HistoryLocked: Another process held it for longer than ``budget`` seconds.
        StoreError: The lock file cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"The index cannot be locked at {path}: {error.strerror or error}.") from error
    try:
        _take(descriptor, path, budget)
        yield
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

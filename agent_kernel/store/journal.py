"""Journals: one append-only file per process, each append one write and one fdatasync; and how anybody reads them.

Files are named ``HOST-PID-UUID.gN.jsonl``; N is the generation, which grows when a journal of an ended process is rewritten. A process holds
an flock on the journal that it writes, so that others on its machine know it is alive. The journal is the truth; every index over it
can be made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from agent_kernel.errors import StoreError
from agent_kernel.store.lines import Line, decode, encode

ROTATE_AT = 64 << 20  # bytes; a longer journal is followed by a new one, so that rewriting one stays cheap
SILENT_AFTER = 3_600.0  # seconds without a write after which another machine's journal is taken to be that of an ended process
_NAME = re.compile(r"(?P<id>(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32})\.g(?P<generation>\d+)\.jsonl")
READ_AT_ONCE = 1 << 20  # bytes


class JournalFile(Struct, frozen=True, kw_only=True):
    """A journal as found in the folder; ``size`` in bytes, ``modified`` in seconds since the epoch."""

    path: Path
    id: str
    host: str
    pid: int
    generation: int
    size: int
    modified: float


class Journal:
    """The journal that this process writes; made at the first append. For one thread at a time."""

    def __init__(self, folder: Path, *, host: str, clock: Callable[[], float] = time.time) -> None:
        """Name the folder of all journals and this machine."""
        self._folder, self._host, self._clock = folder, _clean(host), clock
        self._descriptor: int | None = None
        self._pid = 0
        self._size = 0
        self._torn = False  # whether the file may end in a part of a line
        self._next = 1
        self._last_at = 0.0
        self.id = ""

    def append(self, lines: Sequence[Line]) -> list[Line]:
        """Write lines, numbered and timed in the order of this journal, and return them when they are on disk.

        Time never goes back within a journal, whatever the machine's clock does.

        Raises:
            StoreError: They could not be written; none of them counts.
        """
        try:
            self._ready()
            numbered: list[Line] = []
            for line in lines:
                self._last_at = max(self._last_at, line.at)
                numbered.append(structs.replace(line, n=self._next + len(numbered), at=self._last_at))
            self._write(b"".join(map(encode, numbered)))
        except OSError as error:
            raise StoreError(f"History cannot be written in {self._folder}: {error.strerror or error}.") from error
        self._next += len(numbered)
        return numbered

    def close(self) -> None:
        """Release the file and its lock."""
        if self._descriptor is not None and self._pid == os.getpid():
            os.close(self._descriptor)
        self._descriptor = None

    def _ready(self) -> None:
        """Have a journal of this very process: a forked child begins its own."""
        if self._descriptor is not None and self._pid != os.getpid():
            with contextlib.suppress(OSError):
                os.close(self._descriptor)  # the parent's file; its lock stays with the parent
            self._descriptor = None
        if self._descriptor is not None and self._size < ROTATE_AT:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.close()
        self._pid = os.getpid()
        self.id = f"{self._host}-{self._pid}-{uuid.uuid4().hex}"
        path = self._folder / f"{self.id}.g1.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: others judge by the process id and the file's age
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sync_folder(self._folder)
        self._size, self._torn, self._next = 0, False, 1

    def _write(self, data: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError("the journal is closed")
        if self._torn:
            data = b"\n" + data  # ends the part of a line that an earlier failure left: readers skip it
        start = self._size
        try:
            written = 0
            while written < len(data):  # a write can be short: disk full, a signal
                count = os.write(descriptor, data[written:])
                written += count
                self._size += count
            os.fdatasync(descriptor)
        except OSError:
            self._torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, start)
                self._size, self._torn = start, False
            raise
        self._torn = False


def journals(folder: Path) -> dict[str, JournalFile]:
    """Return the newest generation of every journal in a folder, by id."""
    found: dict[str, JournalFile] = {}
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return {}
    for entry in entries:
        named = _NAME.fullmatch(entry.name)
        if named is None:
            continue
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue  # rewritten this very moment; the newer generation is there
        file = JournalFile(
            path=Path(entry.path),
            id=named["id"],
            host=named["host"],
            pid=int(named["pid"]),
            generation=int(named["generation"]),
            size=status.st_size,
            modified=status.st_mtime,
        )
        if file.id not in found or found[file.id].generation < file.generation:
            found[file.id] = file
    return found


def is_alive(file: JournalFile, host: str) -> bool:
    """Tell whether the process that writes a journal is still there; of another machine's, whether it has written lately."""
    if file.host != _clean(host):
        return time.time() - file.modified < SILENT_AFTER
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return _process_exists(file.pid)
    finally:
        os.close(descriptor)
    return False


def read_raw(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes without newline) of each complete line from an offset on; a torn last line is not complete.

    Raises:
        FileNotFoundError: The journal was rewritten meanwhile.
    """
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        at, rest = start, b""
        while piece := file.read(READ_AT_ONCE):
            parts = (rest + piece).split(b"\n")
            rest = parts.pop()
            for part in parts:
                yield at, part
                at += len(part) + 1


def read_lines(path: Path, start: int = 0) -> Iterator[tuple[int, int, Line]]:
    """Yield (offset, length, line) of each whole line of ours from an offset on; garbage is passed over."""
    for at, raw in read_raw(path, start):
        line = decode(raw) if raw else None
        if line is not None:
            yield at, len(raw), line


def read_at(path: Path, places: Sequence[tuple[int, int]]) -> list[Line]:
    """Return the lines at (offset, length) places of one journal.

    Raises:
        FileNotFoundError: The journal was rewritten meanwhile.
        StoreError: There is no line at a place: the index is not of this file.
    """
    found = []
    with path.open("rb", buffering=0) as file:
        for at, length in places:
            line = decode(os.pread(file.fileno(), length, at))
            if line is None:
                raise StoreError(f"{path.name} holds no line at {at}; the index will be made again.")
            found.append(line)
    return found


def _clean(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", host)[:64] or "host"


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

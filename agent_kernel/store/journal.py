"""Journals: one append-only file per process, each append one write and one fdatasync; and how anybody reads them.

Files are named ``HOST-PID-WRITERPART.gN.jsonl``, WRITER and PART of 16 random digits each; N is the generation, which grows when a journal
of an ended process is rewritten. A process holds an flock on the journals that it writes, so that others on its machine know it is
alive. The journal is the truth; every index over it can be made again.
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
PART = 16  # digits of a journal's id that tell those of one writer apart
_NAME = re.compile(r"(?P<id>(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32})\.g(?P<generation>\d+)\.jsonl")
READ_AT_ONCE = 1 << 20  # bytes
READ_NEAR = 64 << 10  # bytes read where one line is wanted


class JournalFile(Struct, frozen=True, kw_only=True):
    """A journal as found in the folder; ``size`` in bytes, ``modified`` in seconds since the epoch."""

    path: Path
    id: str
    host: str
    pid: int
    generation: int
    size: int
    modified: float

    @property
    def writer(self) -> str:
        """Which ``Journal`` of which process wrote it; a long one writes several."""
        return self.id[:-PART]


class JournalMoved(StoreError):
    """A journal is not what the index says: it was rewritten meanwhile, or the index is of another one."""


class Journal:
    """The journal that this process writes; made at the first append. For one thread at a time."""

    def __init__(self, folder: Path, *, host: str, clock: Callable[[], float] = time.time) -> None:
        """Name the folder of all journals and this machine."""
        self._folder, self._host, self._clock = folder, clean_host(host), clock
        self._descriptor: int | None = None
        self._retired: list[int] = []  # full journals of this process, held so that others still see what it claimed in them
        self._path = folder
        self._pid = 0
        self._size = 0
        self._next = 1
        self._last_at = 0.0
        self._writer = ""  # the part of their names that all its journals share

    def append(self, lines: Sequence[Line]) -> list[Line]:
        """Write lines, numbered and timed in the order of this journal, and return them when they are on disk.

        Time never goes back within a process, whatever the machine's clock does.

        Raises:
            StoreError: They could not be written; none of them counts.
        """
        if not lines:
            return []
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

    def wrote(self, file: JournalFile) -> bool:
        """Tell whether a journal is this one's; not so in a forked child, of what its parent wrote."""
        return self._pid == os.getpid() and file.writer == self._writer

    def close(self) -> None:
        """Release the files and their locks."""
        if self._pid == os.getpid():
            for descriptor in (*self._retired, *([] if self._descriptor is None else [self._descriptor])):
                os.close(descriptor)
        self._descriptor, self._retired = None, []

    def _ready(self) -> None:
        """Have a journal of this very process, with room: a forked child begins its own."""
        if self._pid != os.getpid():
            for descriptor in (*self._retired, *([] if self._descriptor is None else [self._descriptor])):
                with contextlib.suppress(OSError):
                    os.close(descriptor)  # the parent's; its locks stay with the parent
            self._descriptor, self._retired = None, []
        if self._descriptor is not None and self._size < ROTATE_AT:
            return
        if self._descriptor is not None:
            self._retire()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._writer = f"{self._host}-{self._pid}-{uuid.uuid4().hex[PART:]}"
        self._path = self._folder / f"{self._writer}{uuid.uuid4().hex[:PART]}.g1.jsonl"
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._size, self._next = 0, 1
        with contextlib.suppress(OSError):  # a file system without locks: others judge by the process id and the file's age
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # waits at most for somebody who looks whether we live
        sync_folder(self._folder)

    def _write(self, data: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError("the journal is closed")
        try:
            written = 0
            while written < len(data):  # a write can be short: disk full, a signal
                written += os.write(descriptor, data[written:])
            os.fdatasync(descriptor)
        except OSError:
            self._take_back(descriptor)
            raise
        self._size += len(data)

    def _take_back(self, descriptor: int) -> None:
        """Cut off what a failed write left, and write to this file no more.

        A reader may have seen a part of it. The file stays shorter than what that reader knows, which tells it to read it again.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, self._size)
        if self._size:
            self._retire()
            return
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(descriptor)
        self._descriptor = None

    def _retire(self) -> None:
        if self._descriptor is not None:
            self._retired.append(self._descriptor)
        self._descriptor = None


def journals(folder: Path) -> dict[str, JournalFile]:
    """Return the newest generation of every journal in a folder, by id."""
    found: dict[str, JournalFile] = {}
    for file in generations(folder):
        if file.id not in found or found[file.id].generation < file.generation:
            found[file.id] = file
    return found


def generations(folder: Path) -> list[JournalFile]:
    """Return every journal file of a folder, older generations that a rewriting left behind included."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
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
        found.append(file)
    return found


def is_alive(file: JournalFile, host: str) -> bool:
    """Tell whether the process that writes a journal is still there; of another machine's, whether it has written lately."""
    if file.host != clean_host(host):
        return time.time() - file.modified < SILENT_AFTER
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return _process_exists(file.pid)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, by it or by a child that it forked and that outlives it; or the file system has no locks
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
        at, rest = start, bytearray()
        while piece := file.read(READ_AT_ONCE):
            first, *others = piece.split(b"\n")
            rest += first
            for part in others:
                yield at, bytes(rest)
                at += len(rest) + 1
                rest = bytearray(part)


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
        JournalMoved: There is no line at a place: the index is not of this file.
    """
    found = []
    piece, begin = b"", 0
    with path.open("rb", buffering=0) as file:
        for at, length in places:
            if not begin <= at <= at + length <= begin + len(piece):
                piece, begin = os.pread(file.fileno(), max(length, READ_NEAR), at), at  # the next ones are near, as a rule
            line = decode(piece[at - begin : at - begin + length])
            if line is None:
                raise JournalMoved(f"{path.name} holds no line at {at}.")
            found.append(line)
    return found


def clean_host(host: str) -> str:
    """Return a machine's name as it stands in the names of journals."""
    return re.sub(r"[^A-Za-z0-9.]", "_", host)[:64] or "host"


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

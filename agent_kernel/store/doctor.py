"""The doctor: looks through a home and says what is wrong with it, as values; mends what can be mended without losing a line.

Journals are the truth: their lines are never touched, except for a torn end that nobody was told is kept. Everything else can be made
again, or is in the way. All sync.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from agent_kernel.errors import HistoryLocked, SchemaTooNew, StoreError
from agent_kernel.store.compact import leftovers, tidy
from agent_kernel.store.database import attach, connect, locked, trouble
from agent_kernel.store.home import default_home, index_folder
from agent_kernel.store.index import READ_BUDGET, Index
from agent_kernel.store.journal import JournalFile, generations, is_alive, journals, read_lines, read_raw
from agent_kernel.store.lines import RoundKept, decode
from agent_kernel.store.schema import INDEX_VERSION, TABLES, rows_of

OLD = 3_600.0  # seconds after which an unfinished file belongs to nobody who still lives
CHUNK = 1 << 20  # bytes

Level = Literal["problem", "note"]


class Finding(Struct, frozen=True, kw_only=True):
    """Something that the doctor found; a note is no fault. ``mend`` mends it, None: it cannot be mended."""

    path: Path
    text: str
    level: Level = "problem"
    mend: Callable[[], None] | None = None
    mended: bool = False


def checkup(home: Path | None, *, fix: bool = False) -> tuple[Path, list[Finding]]:
    """Examine a home of this machine, None: the default one, where it is there; return its path too."""
    folder = default_home() if home is None else home.expanduser().absolute()
    if not folder.exists():
        return folder, []
    index = Index(index_folder(folder), folder / "journals")
    try:
        found = examine(folder, index, host=socket.gethostname(), fix=fix)
        if fix and (folder / "journals").is_dir():
            with contextlib.suppress(StoreError):  # what stands in the way is among the findings
                tidy(index, folder / "journals", host=socket.gethostname(), grace=0)
        return folder, found
    finally:
        index.close()


def examine(home: Path, index: Index, *, host: str, fix: bool = False) -> list[Finding]:
    """Return what is wrong with a home; ``fix`` mends what can be mended, and the findings say so."""
    checks = itertools.chain(of_folders(home), of_journals(home / "journals", index, host), of_index(index, home), of_artifacts(home))
    return [_mended(finding) if fix and finding.mend is not None else finding for finding in checks]


def _mended(finding: Finding) -> Finding:
    try:
        if finding.mend is not None:
            finding.mend()
    except (OSError, StoreError) as error:
        return structs.replace(finding, text=f"{finding.text}; it could not be mended: {error}")
    return structs.replace(finding, mended=True)


def of_folders(home: Path) -> Iterator[Finding]:
    """Find what others on this machine may read or write."""
    for folder in (home, home / "journals", home / "index", home / "artifacts"):
        if folder.is_dir():
            yield from _permissions(folder, 0o700)


def of_journals(folder: Path, index: Index, host: str) -> Iterator[Finding]:
    """Find what is wrong with the journals."""
    if not folder.is_dir():
        return
    obsolete: set[Path] = set()
    with contextlib.suppress(StoreError), locked(index.lock, budget=READ_BUDGET):  # under which no rewriting is under way
        obsolete = set(leftovers(folder, host))
    for path in sorted(obsolete):
        yield Finding(path=path, text="is left over from a rewriting that did not end", mend=path.unlink)
    for file in generations(folder):
        if file.path not in obsolete:
            yield from _permissions(file.path, 0o600)
            yield from _of_journal(file, host)


def _of_journal(file: JournalFile, host: str) -> Iterator[Finding]:
    garbage, end = 0, 0
    try:
        for at, raw in read_raw(file.path):
            end = at + len(raw) + 1
            garbage += bool(raw) and decode(raw) is None
        size = file.path.stat().st_size
    except SchemaTooNew as error:
        yield Finding(path=file.path, text=f"is of a newer version. {error}")
        return
    except FileNotFoundError:
        return  # rewritten this very moment
    except OSError as error:
        yield Finding(path=file.path, text=f"cannot be read: {error.strerror or error}")
        return
    if garbage:
        yield Finding(path=file.path, text=f"has {garbage} lines that are no lines of a history; they are passed over")
    if end < size and not is_alive(file, host):
        text = f"ends in {size - end} bytes of a line that was never finished"
        yield Finding(path=file.path, text=text, mend=lambda: os.truncate(file.path, end))


def of_index(index: Index, home: Path) -> Iterator[Finding]:
    """Find what is wrong with the index, without bringing it up to date."""
    for path in sorted(index.folder.glob("history*.broken-*")):
        yield Finding(path=path, text="was set aside because it could not be read", mend=path.unlink)
    path = index.path
    for spare in index.files():
        if spare != path:
            yield Finding(path=spare, text="is an older index that is used no more", mend=spare.unlink)
    if not path.exists():
        return
    try:
        with locked(index.lock, budget=READ_BUDGET):
            wrong = _compared(path, home / "journals")
    except (HistoryLocked, StoreError) as error:
        yield Finding(path=path, text=str(error))
        return
    if wrong is not None:
        yield Finding(path=path, text=wrong, mend=index.rebuild)


def _compared(path: Path, folder: Path) -> str | None:
    """Return in what an index does not agree with the journals; None: in nothing."""
    connection = connect()
    try:
        attach(connection, path, read_only=True)
        if connection.execute("SELECT version FROM meta").fetchall() != [(INDEX_VERSION,)]:
            return "is of another version"
        return _rows_that_differ(connection, journals(folder))
    except Exception as error:
        kind = trouble(error)
        if kind is None:
            raise
        return "is held by another program" if kind == "in use" else f"cannot be read: {str(error).splitlines()[0]}"
    finally:
        connection.close()


def _rows_that_differ(connection: Any, files: dict[str, JournalFile]) -> str | None:
    kept: dict[str, Counter[str]] = {}
    for table in TABLES:
        for journal, count in connection.execute(f"SELECT journal, count(*) FROM {table} GROUP BY journal").fetchall():  # noqa: S608 - our own names
            kept.setdefault(journal, Counter())[table] = count
    for journal, generation, size in connection.execute("SELECT journal, generation, size FROM drained").fetchall():
        file = files.get(journal)
        if file is None or file.generation != generation or file.size < size:
            continue  # rewritten since: the next drain reads it again
        expected = Counter({"drained": 1})
        for at, length, line in _readable(file):
            if at >= size:
                break
            expected.update(table for table, _ in rows_of(journal, at, length, line))
        if expected != +kept.get(journal, Counter()):
            return f"does not agree with the journal {journal}"
    return "names a journal twice" if any(rows["drained"] != 1 for rows in kept.values()) else None


def _readable(file: JournalFile) -> Iterator[tuple[int, int, Any]]:
    with contextlib.suppress(OSError, SchemaTooNew):  # said where the journals are looked at
        yield from read_lines(file.path)


def of_artifacts(home: Path) -> Iterator[Finding]:
    """Find outputs that are not what their names say, unfinished ones, and those that history names and that are gone."""
    root, there = home / "artifacts", set()
    for part in root.glob(".part-*"):
        if time.time() - part.stat().st_mtime > OLD:
            yield Finding(path=part, text="was never finished", mend=part.unlink)
    for path in root.glob("*/*"):
        digest = path.parent.name + path.name
        if not re.fullmatch("[0-9a-f]{64}", digest) or not path.is_file():
            yield Finding(path=path, text="is no output of ours", level="note")
            continue
        there.add(f"sha256:{digest}")
        yield from _permissions(path, 0o400)
        if _hash(path) != digest:
            aside = root / f".broken-{digest}"
            yield Finding(path=path, text="does not hold what its name says", mend=functools.partial(_set_aside, path, aside))
    missing = _named(home / "journals") - there
    if missing:
        text = f"lacks {len(missing)} outputs that history names: too old, too many, or deleted"
        yield Finding(path=root, text=text, level="note")


def _named(folder: Path) -> set[str]:
    named: set[str] = set()
    for file in journals(folder).values():
        for _, _, line in _readable(file):
            if isinstance(line, RoundKept):
                for result in line.round.results:
                    named.update(each.hash for each in (result.artifact, *result.attachments) if each is not None)
    return named


def _set_aside(path: Path, aside: Path) -> None:
    path.rename(aside)


def _hash(path: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(CHUNK):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _permissions(path: Path, most: int) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & ~most:
        yield Finding(path=path, text=f"has the permissions {mode:04o}, more than {most:04o}", mend=lambda: path.chmod(most))

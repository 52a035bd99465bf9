"""Compaction: journals of ended processes are written anew without what nobody needs, as their next generation.

What goes are claims and releases, and the lines of deleted sessions except turns that a fork shares; only this frees their bytes. A
deletion itself goes when nothing else is left of its session. Dies it half-way, the old generation or both are there, and the newest counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_kernel.errors import StoreError
from agent_kernel.store.database import locked
from agent_kernel.store.index import READ_BUDGET, Index
from agent_kernel.store.journal import JournalFile, clean_host, generations, is_alive, journals, read_raw, sync_folder
from agent_kernel.store.lines import decode

GRACE = 60.0  # seconds after a deletion in which a fork that another process makes this very moment may still ask for its turns

# (journal, n) of every line that nobody needs; the parameter is the time before which a deletion must lie.
NEEDLESS = """WITH gone AS (SELECT session_id FROM session_lines WHERE kind = 'SessionDeleted' GROUP BY session_id HAVING max(stamp) <= ?),
    shared AS (
        SELECT DISTINCT unnest(from_json(shared, '["VARCHAR"]')) AS turn_id FROM session_lines
        WHERE shared IS NOT NULL AND session_id NOT IN (FROM gone)),
    bare AS (
        SELECT session_id FROM places WHERE session_id IN (FROM gone) GROUP BY session_id HAVING bool_and(kind = 'SessionDeleted'))
    SELECT journal, n FROM places WHERE kind IN ('SessionClaimed', 'SessionReleased')
        OR (kind <> 'SessionDeleted' AND session_id IN (FROM gone) AND (turn_id IS NULL OR turn_id NOT IN (FROM shared)))
        OR (kind = 'SessionDeleted' AND session_id IN (FROM bare))"""


def tidy(index: Index, folder: Path, *, host: str, grace: float = GRACE) -> None:
    """Rewrite the journals of ended processes of this machine; the lock is held for one journal at a time.

    Args:
        index: The home's index.
        folder: The home's journals.
        host: This machine.
        grace: Seconds for which the lines of a deleted session stay.

    Raises:
        HistoryLocked: Others held the index for too long.
        StoreError: The disk refused; what was there is there still.
    """
    for journal in _needless(index, folder, host, grace):
        with locked(index.lock, budget=READ_BUDGET):
            drop = index.read_locked(lambda connection: _to_drop(connection, grace)).get(journal)
            file = journals(folder).get(journal)
            if drop and file is not None and not is_alive(file, host):
                try:
                    rewrite(file, drop)
                except OSError as error:
                    raise StoreError(f"The journal {file.path} cannot be rewritten: {error.strerror or error}.") from error
    index.drain_patiently()


def _needless(index: Index, folder: Path, host: str, grace: float) -> list[str]:
    """Remove what earlier rewritings left behind, and return the journals that hold what nobody needs and may be rewritten."""
    with locked(index.lock, budget=READ_BUDGET):
        for path in leftovers(folder, host):
            path.unlink(missing_ok=True)
        drop = index.read_locked(lambda connection: _to_drop(connection, grace))
    here = clean_host(host)
    return [file.id for file in journals(folder).values() if file.id in drop and file.host == here and not is_alive(file, host)]


def _to_drop(connection: Any, grace: float) -> dict[str, set[int]]:
    drop: dict[str, set[int]] = {}
    for journal, n in connection.execute(NEEDLESS, [time.time() - grace]).fetchall():
        drop.setdefault(journal, set()).add(n)
    return drop


def leftovers(folder: Path, host: str) -> list[Path]:
    """Return files of this machine's rewritings that died: older generations and unfinished ones. For who holds the index's lock."""
    here, newest = clean_host(host), journals(folder)
    old = [file.path for file in generations(folder) if file.host == here and newest[file.id].generation > file.generation]
    unfinished = re.compile(rf"\.{re.escape(here)}-\d+-[0-9a-f]+\.g\d+\.part")
    return old + [path for path in folder.glob(".*.part") if unfinished.fullmatch(path.name)]


def rewrite(file: JournalFile, drop: Iterable[int]) -> None:
    """Write a journal anew without the lines of some numbers; garbage stays, a torn end does not. For who holds the index's lock.

    Raises:
        OSError: The disk refused; the journal is as it was.
    """
    drop, folder = set(drop), file.path.parent
    with file.path.open("rb", buffering=0) as old:
        try:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody writes it after all
        except OSError:
            pass  # no locks on this disk: the process id has told that it ended
        part = folder / f".{file.id}.g{file.generation + 1}.part"
        try:
            kept = _copy(file.path, part, drop)
            if kept:
                os.utime(part, (file.modified, file.modified))  # so that other machines go on taking it for an ended process's
                part.rename(folder / f"{file.id}.g{file.generation + 1}.jsonl")
                sync_folder(folder)
        finally:
            part.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            file.path.unlink()
        sync_folder(folder)


def _copy(source: Path, target: Path, drop: set[int]) -> int:
    """Copy the lines that stay, sync them, and return how many they are."""
    kept = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        for _, raw in read_raw(source):
            line = decode(raw) if raw else None
            if raw and (line is None or line.n not in drop):
                out.write(raw + b"\n")
                kept += 1
        out.flush()
        os.fsync(out.fileno())
    return kept

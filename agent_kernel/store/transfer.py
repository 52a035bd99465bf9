"""A session as one JSON file, to be kept elsewhere and brought back: all its lines, the turns that it shares, its whole outputs.

What comes in is foreign: it is checked, gets new ids only where this history knows the old ones, and keeps its times. A session that
shared turns of another comes back whole by itself. Pure but for ``write_apart``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from agent_kernel.errors import SchemaTooNew, StoreError
from agent_kernel.protocol.messages import Artifact
from agent_kernel.store.journal import Journal
from agent_kernel.store.lines import (
    VERSION,
    Line,
    RoundKept,
    SessionClaimed,
    SessionCreated,
    SessionDeleted,
    SessionReleased,
    TurnEnded,
    TurnsReplaced,
)


class ExportedArtifact(Struct, frozen=True, kw_only=True):
    """A whole output; ``data`` is base64 in JSON."""

    hash: str
    media_type: str
    size: int
    data: bytes


class Exported(Struct, frozen=True, kw_only=True):
    """A session outside a history."""

    session_id: str
    lines: tuple[Line, ...]
    shared: tuple[Line, ...] = ()
    artifacts: tuple[ExportedArtifact, ...] = ()
    kind: Literal["agent_kernel session"] = "agent_kernel session"
    v: int = VERSION


class _Head(Struct):
    kind: str = ""
    v: int = 0


def packed(session_id: str, own: Iterable[Line], shared: Iterable[Line], artifacts: Iterable[ExportedArtifact]) -> Exported:
    """Return a session to be written to a file; who asks in it now is not part of it."""
    lines = tuple(line for line in own if not isinstance(line, (SessionClaimed, SessionReleased)))
    return Exported(session_id=session_id, lines=lines, shared=tuple(shared), artifacts=tuple(artifacts))


def encoded(exported: Exported) -> bytes:
    """Return the file's bytes."""
    return msgspec.json.format(msgspec.json.encode(exported), indent=1) + b"\n"


def decoded(raw: bytes) -> Exported:
    """Return the session of a file's bytes.

    Raises:
        SchemaTooNew: A newer version of agent_kernel wrote it.
        StoreError: It is no session, or not a whole one.
    """
    try:
        head = msgspec.json.decode(raw, type=_Head)
        if head.kind != "agent_kernel session":
            raise StoreError('This is no session that agent_kernel exported as JSON (its "kind" is another).')
        if head.v > VERSION:
            raise SchemaTooNew("A newer agent_kernel wrote this session: update this one (pip install -U agent_kernel).")
        found = msgspec.json.decode(raw, type=Exported)
    except msgspec.MsgspecError as error:
        raise StoreError(f"This is no session that agent_kernel exported as JSON: {error}.") from error
    if any(line.v > VERSION for line in (*found.lines, *found.shared)):
        raise SchemaTooNew("A newer agent_kernel wrote this session: update this one (pip install -U agent_kernel).")
    if not found.lines or any(line.session_id != found.session_id or isinstance(line, SessionDeleted) for line in found.lines):
        raise StoreError("The file does not hold one whole session.")
    if any(not isinstance(line, (RoundKept, TurnEnded)) for line in found.shared):
        raise StoreError("The file does not hold one whole session.")
    return found


def artifacts_of(lines: Iterable[Line]) -> list[Artifact]:
    """Return what lines refer to in the side store, each content once."""
    results = [result for line in lines if isinstance(line, RoundKept) for result in line.round.results]
    found = [artifact for result in results for artifact in (result.artifact, *result.attachments) if artifact is not None]
    return list({artifact.hash: artifact for artifact in found}.values())


def turn_ids(exported: Exported) -> set[str]:
    """Return the ids of all turns of a session, shared ones included."""
    return {line.turn.turn_id for line in (*exported.lines, *exported.shared) if isinstance(line, (RoundKept, TurnEnded))}


def adopted(exported: Exported, *, session_known: bool, turns_known: set[str]) -> list[Line]:
    """Return the lines to keep: with the ids that came in, where this history does not know them; else with new ones.

    Args:
        exported: What came in.
        session_known: Whether this history knows the session's id, be it of a deleted one.
        turns_known: Those of its turns' ids that are here. If all shared ones are, they are shared again; else they become its own.
    """
    made = str(uuid.uuid4()) if session_known or not _is_id(exported.session_id) else exported.session_id
    fresh: dict[str, str] = {}
    shared = {turn_id: place for place, turn_id in enumerate(_shared(exported.lines), start=1)}
    by_reference = shared.keys() <= turns_known

    def named(turn_id: str) -> str:
        if (turn_id in shared and by_reference) or not (session_known or turn_id in turns_known):
            return turn_id
        return fresh.setdefault(turn_id, str(uuid.uuid4()))

    lines: list[Line] = []
    for line in exported.lines:
        if isinstance(line, SessionCreated):
            lines.append(structs.replace(line, session_id=made, shared=line.shared if by_reference else ()))
        elif not isinstance(line, (SessionClaimed, SessionReleased)):
            lines.append(_renamed(line, made, named))
    for line in exported.shared if not by_reference else ():
        if isinstance(line, (RoundKept, TurnEnded)) and line.turn.turn_id in shared:
            moved = structs.replace(line, turn=structs.replace(line.turn, position=shared[line.turn.turn_id]))
            lines.append(_renamed(moved, made, named))
    lines.sort(key=lambda line: (line.at, line.n))
    return [*lines, SessionReleased(session_id=made, at=lines[-1].at)]


def _shared(lines: Iterable[Line]) -> tuple[str, ...]:
    return next((line.shared for line in lines if isinstance(line, SessionCreated)), ())


def _renamed(line: Line, session_id: str, named: Callable[[str], str]) -> Line:
    match line:
        case RoundKept(turn=turn, round=round_):
            turn_id = named(turn.turn_id)
            retries = named(turn.retries) if turn.retries else None
            return structs.replace(
                line,
                session_id=session_id,
                turn=structs.replace(turn, turn_id=turn_id, retries=retries),
                round=structs.replace(round_, turn_id=turn_id),
            )
        case TurnEnded(turn=turn, end=end):
            turn_id = named(turn.turn_id)
            retries = named(turn.retries) if turn.retries else None
            return structs.replace(
                line, session_id=session_id, turn=structs.replace(turn, turn_id=turn_id, retries=retries), end=structs.replace(end, turn_id=turn_id)
            )
        case TurnsReplaced(turn_ids=turn_ids):
            return structs.replace(line, session_id=session_id, turn_ids=tuple(map(named, turn_ids)))
    return structs.replace(line, session_id=session_id)


def write_apart(folder: Path, host: str, lines: Sequence[Line]) -> None:
    """Write lines to a journal of their own, which keeps their times: in this process's journal they would become today's.

    Raises:
        StoreError: They could not be written.
    """
    journal = Journal(folder, host=host)
    try:
        journal.append(lines)
    finally:
        journal.close()


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False

"""A session as one JSON file, to be kept elsewhere and brought back: its record with all turns, and its whole outputs.

What comes in is foreign: it is checked, keeps its times, and gets new ids only where this history knows the old ones. A session that
shared turns of another shares them again where they are, else they become its own. Pure but for ``write_apart``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from agent_kernel.errors import SchemaTooNew, StoreError
from agent_kernel.protocol.messages import Artifact
from agent_kernel.store.journal import Journal
from agent_kernel.store.lines import VERSION, Line, RoundKept, SessionCreated, SessionReleased, SessionRenamed, TurnEnded, TurnHead, TurnsReplaced
from agent_kernel.store.records import SessionRecord, TurnRecord


class ExportedArtifact(Struct, frozen=True, kw_only=True):
    """A whole output; ``data`` is base64 in JSON."""

    hash: str
    media_type: str
    size: int
    data: bytes


class Exported(Struct, frozen=True, kw_only=True):
    """A session outside a history."""

    session: SessionRecord
    notebook: str | None = None
    artifacts: tuple[ExportedArtifact, ...] = ()
    kind: Literal["agent_kernel session"] = "agent_kernel session"
    v: int = VERSION


class _Head(Struct):
    kind: str = ""
    v: int = 0


def encoded(exported: Exported) -> bytes:
    """Return the file's bytes."""
    return msgspec.json.format(msgspec.json.encode(exported), indent=1) + b"\n"


def decoded(raw: bytes) -> Exported:
    """Return the session of a file's bytes.

    Raises:
        SchemaTooNew: A newer version of agent_kernel wrote it.
        StoreError: It is no session.
    """
    try:
        head = msgspec.json.decode(raw, type=_Head)
        if head.kind != "agent_kernel session":
            raise StoreError('This is no session that agent_kernel exported as JSON (its "kind" is another).')
        if head.v > VERSION:
            raise SchemaTooNew("A newer agent_kernel wrote this session: update this one (pip install -U agent_kernel); nothing was imported.")
        return msgspec.json.decode(raw, type=Exported)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"This is no session that agent_kernel exported as JSON: {error}.") from error


def artifacts_of(record: SessionRecord) -> list[Artifact]:
    """Return what a session refers to in the side store, each content once."""
    results = [result for turn in record.turns for round_ in turn.rounds for result in round_.results]
    found = [artifact for result in results for artifact in (result.artifact, *result.attachments) if artifact is not None]
    return list({artifact.hash: artifact for artifact in found}.values())


def adopted(exported: Exported, *, session_known: bool, turns_known: set[str]) -> list[Line]:
    """Return the lines to keep: with the ids that came in, where this history does not know them; else with new ones.

    Args:
        exported: What came in.
        session_known: Whether this history knows the session's id, be it of a deleted one.
        turns_known: Those of its turns' ids that are here.
    """
    record = exported.session
    session_id = str(uuid.uuid4()) if session_known or not _is_id(record.id) else record.id
    shared = _shared(record, turns_known)
    ids = {turn.turn_id: turn.turn_id for turn in record.turns}
    for turn in record.turns[len(shared) :]:
        if session_known or turn.turn_id in turns_known:
            ids[turn.turn_id] = str(uuid.uuid4())
    turns = [_with_ids(turn, ids) for turn in record.turns]
    made = list(lines_of(structs.replace(record, id=session_id, turns=tuple(turns)), notebook=exported.notebook, shared=shared))
    return [*made, SessionReleased(session_id=session_id, at=made[-1].at)]


def lines_of(record: SessionRecord, *, notebook: str | None = None, shared: Sequence[str] = ()) -> Iterator[Line]:
    """Yield the lines from which a session comes to be what its record says, in the order of their times.

    Args:
        record: The session.
        notebook: Where it began.
        shared: Ids of its first turns that other sessions hold.
    """
    own = [(place, turn) for place, turn in enumerate(record.turns, start=1) if turn.turn_id not in shared]
    lines: list[Line] = [line for place, turn in own for line in _of_turn(record.id, place, turn)]
    lines.sort(key=lambda line: line.at)
    yield SessionCreated(
        session_id=record.id,
        at=record.created_at,
        name=record.name,
        notebook=notebook,
        forked_from=record.forked_from,
        forked_at=record.forked_at,
        shared=tuple(shared),
    )
    yield from lines
    last = max([record.created_at, *(line.at for line in lines)])
    if replaced := tuple(turn.turn_id for turn in record.turns if turn.replaced):
        yield TurnsReplaced(session_id=record.id, at=max(last, record.updated_at), turn_ids=replaced)
    elif record.updated_at > last and record.name:
        yield SessionRenamed(session_id=record.id, at=record.updated_at, name=record.name)


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


def _of_turn(session_id: str, place: int, turn: TurnRecord) -> Iterator[Line]:
    head = TurnHead(turn_id=turn.turn_id, position=place, prompt=turn.prompt, model=turn.model, started_at=turn.started_at, retries=turn.retries)
    for round_ in turn.rounds:
        yield RoundKept(session_id=session_id, at=round_.at, turn=head, round=round_)
    if turn.end is not None:
        yield TurnEnded(session_id=session_id, at=turn.end.at, turn=head, end=turn.end)


def _shared(record: SessionRecord, known: set[str]) -> list[str]:
    """Return the ids of a fork's first turns that this history has, in the session it was forked from or elsewhere."""
    shared: list[str] = []
    for turn in record.turns if record.forked_from is not None else ():
        if turn.turn_id not in known or turn.replaced:
            break
        shared.append(turn.turn_id)
    return shared


def _with_ids(turn: TurnRecord, ids: dict[str, str]) -> TurnRecord:
    made = ids[turn.turn_id]
    return structs.replace(
        turn,
        turn_id=made,
        retries=ids.get(turn.retries, turn.retries) if turn.retries is not None else None,
        rounds=tuple(structs.replace(round_, turn_id=made) for round_ in turn.rounds),
        end=structs.replace(turn.end, turn_id=made) if turn.end is not None else None,
    )


def turn_ids(records: Iterable[TurnRecord]) -> set[str]:
    """Return the ids of turns."""
    return {turn.turn_id for turn in records}


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False

"""The lines of a journal: what happened to sessions, as tagged values, and how a session is put together from them.

JSON with the kind under ``t`` and the schema version under ``v``. A line is written once and never changed; ``n`` numbers the lines of one
journal from 1 and survives its rewriting, so (journal, n) names a line for ever. Pure: no I/O. The values hold no cycles (``gc=False``):
loading 10,000 of them took three times as long, and held up the event loop, while the collector looked through them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from agent_kernel.errors import SchemaTooNew
from agent_kernel.store.records import RoundRecord, SessionRecord, TurnEnd, TurnRecord

VERSION = 1  # of the lines; a reader refuses what is newer and mends what is older


class _Line(Struct, frozen=True, kw_only=True, tag_field="t", tag=True, gc=False):
    session_id: str
    at: float
    n: int = 0
    v: int = VERSION


class SessionCreated(_Line, frozen=True, kw_only=True):
    """A session came to be; a fork shares the turns that it names."""

    name: str | None = None
    notebook: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    shared: tuple[str, ...] = ()


class SessionRenamed(_Line, frozen=True, kw_only=True):
    """A session got another label."""

    name: str


class SessionDeleted(_Line, frozen=True, kw_only=True):
    """A session is gone; turns that forks share stay."""


class SessionClaimed(_Line, frozen=True, kw_only=True):
    """The journal's process asks in this session from now on."""


class SessionReleased(_Line, frozen=True, kw_only=True):
    """The journal's process asks in it no more."""


class TurnsReplaced(_Line, frozen=True, kw_only=True):
    """Turns left the session's thread."""

    turn_ids: tuple[str, ...]


class TurnHead(Struct, frozen=True, kw_only=True, gc=False):
    """What every line of a turn repeats of it; ``position`` orders the turns of a session, from 1."""

    turn_id: str
    position: int
    prompt: str
    model: str
    started_at: float
    retries: str | None = None


class RoundKept(_Line, frozen=True, kw_only=True):
    """A finished round."""

    turn: TurnHead
    round: RoundRecord


class TurnEnded(_Line, frozen=True, kw_only=True):
    """How a turn ended."""

    turn: TurnHead
    end: TurnEnd


Line = SessionCreated | SessionRenamed | SessionDeleted | SessionClaimed | SessionReleased | TurnsReplaced | RoundKept | TurnEnded


class _Version(Struct):
    v: int = 0


_decoder = msgspec.json.Decoder(Line)
_versions = msgspec.json.Decoder(_Version)
_encoder = msgspec.json.Encoder()


def encode(line: Line) -> bytes:
    """Return a line's bytes, newline included."""
    return _encoder.encode(line) + b"\n"


def decode(raw: bytes) -> Line | None:
    """Return the line of some bytes; None for what is no line of ours (torn, garbage).

    Raises:
        SchemaTooNew: A newer version of agent_kernel wrote it.
    """
    try:
        line = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        _check_version(_version_of(raw))
        return None
    _check_version(line.v)
    return line


def _version_of(raw: bytes) -> int:
    """Return the version of what may be a line of a kind that we do not know; 0: it is none."""
    try:
        return _versions.decode(raw).v
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


def _check_version(version: int) -> None:
    if version > VERSION:
        raise SchemaTooNew("The history was written by a newer agent_kernel: update this one (pip install -U agent_kernel); nothing was changed.")


_PASSING = (SessionClaimed, SessionReleased)  # they say who asks, and change nothing of the session


class Assembled(Struct, frozen=True, kw_only=True):
    """What lines say of one session; ``positions`` is the highest place of its own turns."""

    record: SessionRecord
    created: bool
    deleted: bool
    notebook: str | None
    positions: int


def assemble(session_id: str, lines: Iterable[Line], shared: Sequence[Line] = ()) -> Assembled:
    """Put a session together from its own lines and those of the turns that it shares; order and repetition do not matter.

    Args:
        session_id: Which session.
        lines: All lines that name it.
        shared: Lines of turns of other sessions that it shares as a fork.
    """
    own = sorted(lines, key=lambda line: (line.at, line.n))
    kinds: dict[type, list[Any]] = {}
    for line in own:
        kinds.setdefault(type(line), []).append(line)
    births: list[SessionCreated] = kinds.get(SessionCreated, [])
    birth = births[0] if births else SessionCreated(session_id=session_id, at=min((line.at for line in own), default=0.0))
    names = [line.name for line in kinds.get(SessionRenamed, ())]
    replaced = {turn_id for line in kinds.get(TurnsReplaced, ()) for turn_id in line.turn_ids}
    order = {turn_id: place for place, turn_id in enumerate(birth.shared)}
    inherited = turns_of(line for line in shared if isinstance(line, (RoundKept, TurnEnded)) and line.turn.turn_id in order)
    inherited.sort(key=lambda turn: order[turn.turn_id])
    said: list[RoundKept | TurnEnded] = kinds.get(RoundKept, []) + kinds.get(TurnEnded, [])
    turns = [structs.replace(turn, replaced=True) if turn.turn_id in replaced else turn for turn in inherited + turns_of(said)]
    record = SessionRecord(
        id=session_id,
        name=names[-1] if names else birth.name,
        created_at=birth.at,
        updated_at=max([birth.at, *(lines[-1].at for kind, lines in kinds.items() if kind not in _PASSING)]),
        forked_from=birth.forked_from,
        forked_at=birth.forked_at,
        turns=tuple(turns),
    )
    return Assembled(
        record=record,
        created=bool(births),
        deleted=SessionDeleted in kinds,
        notebook=birth.notebook,
        positions=max((line.turn.position for line in said), default=len(inherited)),
    )


def turns_of(lines: Iterable[RoundKept | TurnEnded]) -> list[TurnRecord]:
    """Put turns together, in the order of their session."""
    heads: dict[str, TurnHead] = {}
    rounds: dict[str, dict[int, RoundRecord]] = {}
    ends: dict[str, TurnEnd] = {}
    for line in lines:
        heads.setdefault(line.turn.turn_id, line.turn)
        if isinstance(line, RoundKept):
            rounds.setdefault(line.turn.turn_id, {})[line.round.round] = line.round
        else:
            ends[line.turn.turn_id] = line.end
    made = []
    for head in sorted(heads.values(), key=lambda head: (head.position, head.started_at, head.turn_id)):
        kept = rounds.get(head.turn_id, {})
        made.append(
            TurnRecord(
                turn_id=head.turn_id,
                prompt=head.prompt,
                model=head.model,
                started_at=head.started_at,
                retries=head.retries,
                rounds=tuple(kept[number] for number in sorted(kept)),
                end=ends.get(head.turn_id),
            )
        )
    return made

"""Commands on the current session: use, new, fork, log, rename. Coroutines for the engine that return the text to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_kernel.agent.session import Session
from agent_kernel.errors import SettingsError, StoreError
from agent_kernel.notebook import arguments as fit
from agent_kernel.notebook.app import App
from agent_kernel.notebook.finding import SHORT_ID, clip, find, when
from agent_kernel.protocol.messages import Usage
from agent_kernel.store.history import LONGEST_NAME
from agent_kernel.store.kept import SessionSummary
from agent_kernel.store.records import SessionRecord, TurnRecord, lines


async def use(app: App, arguments: Sequence[str]) -> str:
    """Go on with a stored session."""
    session = await app.resumed((await find(app.history, arguments[0])).id)
    await app.use(session)
    pending = f" Its last prompt has no answer: %agent retry goes on with {clip(session.pending_prompt, 60)!r}." if session.pending_prompt else ""
    return f"The current session is {_called(session)}.{pending}"


async def new(app: App, arguments: Sequence[str]) -> str:
    """Start a session."""
    session = await app.open_session(_label(arguments[0]) if arguments else None)
    await app.use(session)
    return f"The current session is {_called(session)}, a new one."


async def fork(app: App, arguments: Sequence[str]) -> str:
    """Go on beside the current session."""
    wanted, session = fit.fork(arguments) or fit.Fork(), await app.current()
    if not session.turns:
        raise SettingsError("This session has no turn yet; there is nothing to fork. %agent new starts another.")
    other = app.adopt(await session.fork(wanted.at, name=wanted.name))
    await app.use(other)
    shared = len(lines(other.turns))
    turns = "1 turn" if shared == 1 else f"{shared} turns"
    return f"The current session is {_called(other)}, which shares {turns} with {_called(session)}."


async def rename(app: App, arguments: Sequence[str]) -> str:
    """Name the current session."""
    session = await app.current()
    label = _label(arguments[0])
    if any(each.id == session.id for each in await app.history.list()):
        await app.history.rename(session.id, label)
    session.name = label
    return f"The current session is {_called(session)}."


async def log(app: App, arguments: Sequence[str]) -> str:
    """List the current session's turns, or its family of forks."""
    session = await app.current()
    if not any(each.id == session.id for each in await app.history.list()):
        return "This session has no turn yet."
    record = await app.history.load(session.id)
    if not arguments:
        return "\n".join(_turn_row(f"{number:>3}", group) for number, group in enumerate(lines(record.turns), start=1)) or "No turn yet."
    return "\n".join(await _tree(app, record))


async def _tree(app: App, record: SessionRecord) -> list[str]:
    """Return the session's oldest ancestor and all that was forked from it, each with its own turns."""
    sessions = {each.id: each for each in await app.history.list()}
    root, seen = record.id, {record.id}
    while (parent := sessions[root].forked_from) is not None and parent in sessions and parent not in seen:
        root = parent
        seen.add(root)
    return await _branch(app, sessions, root, current=record.id, depth=0)


async def _branch(app: App, sessions: Mapping[str, SessionSummary], session_id: str, *, current: str, depth: int) -> list[str]:
    summary, record = sessions[session_id], await app.history.load(session_id)
    indent, shared = "    " * depth, summary.forked_at or 0
    origin = f"  forked at {shared}" if summary.forked_from is not None else ""
    mark = "*" if session_id == current else " "
    rows = [f"{indent}{mark} {session_id[:SHORT_ID]}  {summary.name or ''}{origin}".rstrip()]
    for number, group in enumerate(lines(record.turns), start=1):
        if number > shared or summary.forked_from not in sessions:
            rows.append(indent + _turn_row(f"{number:>3}", group))
    rows += [indent + _turn_row("  -", [turn]) + "  (replaced)" for turn in record.turns if turn.replaced]
    for child in sorted(sessions.values(), key=lambda each: each.created_at):
        if child.forked_from == session_id:
            rows += await _branch(app, sessions, child.id, current=current, depth=depth + 1)
    return rows


def _turn_row(number: str, group: Sequence[TurnRecord]) -> str:
    last = group[-1]
    calls = sum(len(round_.results) for turn in group for round_ in turn.rounds)
    usage = sum((turn.end.usage for turn in group if turn.end is not None), Usage())
    tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    facts = [
        last.end.status if last.end else "no end",
        *([f"{calls} tool call{'s' if calls > 1 else ''}"] if calls else []),
        *([f"{tokens:,} tokens"] if tokens else []),
        *([f"asked {len(group)} times"] if len(group) > 1 else []),
    ]
    return f"{number}  {when(group[0].started_at)}  {clip(group[0].prompt, 60)}  ({', '.join(facts)})"


def _called(session: Session) -> str:
    return f"{session.name} ({session.id[:SHORT_ID]})" if session.name else session.id[:SHORT_ID]


def _label(name: str) -> str:
    label = name.strip()
    if not label or len(label) > LONGEST_NAME:
        raise StoreError(f"A session's name has 1 to {LONGEST_NAME} characters.")
    return label

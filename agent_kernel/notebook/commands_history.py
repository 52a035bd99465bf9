"""Commands on all that is kept: sessions, search, delete, export, import, usage, sql. Coroutines for the engine, thin over NotebookHistory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from agent_kernel.errors import SettingsError, StoreError
from agent_kernel.notebook import arguments as fit
from agent_kernel.notebook.app import App
from agent_kernel.notebook.finding import SHORT_ID, clip, find, row, when
from agent_kernel.notebook.tables import plain
from agent_kernel.store.records import lines
from agent_kernel.store.sql import Answer

LISTED = 50  # sessions that `sessions` shows without a TEXT, and hits of `search`
LINE = 100  # characters of a matching line


class Shown(Struct, frozen=True):
    """A value that a command gives: it is displayed, and is what `x = %agent ...` keeps."""

    value: Any


async def sessions(app: App, arguments: Sequence[str]) -> str:
    """List sessions."""
    current, text = await app.current(), arguments[0] if arguments else None
    found = await app.history.list(text=text)
    listed = found if text else found[:LISTED]
    rows = [row(each, mark="*" if each.id == current.id else " ") for each in listed]
    if len(listed) < len(found):
        rows.append(f"... and {len(found) - len(listed):,} older ones: %agent sessions TEXT finds them.")
    if text and not rows:
        return f"No session has {text!r} in its name, prompts, notebook or date. To send it as a prompt: %agent -- sessions {text}"
    return "\n".join(rows) or "No session has a turn yet."


async def search(app: App, arguments: Sequence[str]) -> str:
    """Find messages and tool results."""
    text = arguments[0]
    found = await app.history.search(text, limit=LISTED)
    if not found:
        return f"Nothing that is kept holds {text!r}. To send it as a prompt: %agent -- search {text}"
    numbers = {session_id: await _numbers(app, session_id) for session_id in dict.fromkeys(hit.session_id for hit in found)}
    rows = []
    for hit in found:
        number = numbers[hit.session_id].get(hit.turn_id)
        place = f"turn {number}" if number else "replaced"
        who = f"{hit.role} {hit.name}" if hit.name else hit.role
        rows.append(f"{hit.session_id[:SHORT_ID]}  {when(hit.at)}  {place:<8}  {who}: {_around(hit.line, text)}")
    if len(found) == LISTED:
        rows.append(f"These are the newest {LISTED}.")
    return "\n".join([*rows, "%agent show SESSION N shows a turn."])


async def _numbers(app: App, session_id: str) -> dict[str, int]:
    """Return the numbers of a session's turns, by id, as `show` counts them."""
    try:
        record = await app.history.load(session_id)
    except StoreError:  # deleted this very moment
        return {}
    return {turn.turn_id: number for number, group in enumerate(lines(record.turns), start=1) for turn in group}


def _around(line: str, text: str) -> str:
    at = max(0, line.lower().find(text.lower()) - LINE // 3)
    return clip(("..." if at else "") + line[at:], LINE)


async def delete(app: App, arguments: Sequence[str]) -> str:
    """Delete a session for good."""
    session = await find(app.history, arguments[0])
    await app.forget(session.id)
    outputs = await app.history.remove(session.id)
    turns = "1 turn" if session.turns == 1 else f"{session.turns} turns"
    whole = f" and {outputs} kept result{'s' if outputs != 1 else ''}" if outputs else ""
    return (
        f"Deleted: {session.name or 'the session without a name'} ({session.id[:SHORT_ID]}), {turns}{whole}: {clip(session.prompt or '', 60)}".rstrip(
            ": "
        )
    )


async def export(app: App, arguments: Sequence[str]) -> str:
    """Write the current session to a file."""
    wanted = fit.export(arguments)
    if wanted is None:
        raise SettingsError("The command is %agent export [md|json|ipynb|html] PATH [--force].")
    session = await app.current()
    if not session.turns:
        raise SettingsError("This session has no turn yet; there is nothing to export. %agent use SESSION chooses another.")
    path = await app.history.export(session.id, wanted.path, wanted.format, force=wanted.force)
    return f"Written: {path}"


async def import_(app: App, arguments: Sequence[str]) -> str:
    """Bring back a session from a file."""
    record = await app.history.import_file(arguments[0])
    turns = len(lines(record.turns))
    return f"Imported {record.name or 'a session without a name'}, {turns} turn{'s' if turns != 1 else ''}: %agent use {record.id[:SHORT_ID]}"


async def usage(app: App, arguments: Sequence[str]) -> str:
    """Sum tokens and cost."""
    by = arguments[1] if arguments else None
    found = await app.history.usage(by)
    if not found:
        return "No turn has said what it used."
    columns = (*([by] if by else []), "turns", "input", "output", "cached", "reasoning", "cost $")
    rows = [
        (
            *([each.key or "unknown"] if by else []),
            *(each.turns, each.input_tokens, each.output_tokens, each.cached_tokens, each.reasoning_tokens, each.cost),
        )
        for each in found
    ]
    note = "\nSome of these numbers are estimates." if any(each.estimated for each in found) else ""
    return plain(Answer(columns=columns, rows=rows)) + note


async def sql(app: App, arguments: Sequence[str]) -> Shown | str:
    """Query the history."""
    found = await app.history.sql(arguments[0])
    return plain(found) if isinstance(found, Answer) else Shown(found)

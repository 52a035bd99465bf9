"""How people name sessions: by name, or by the beginning of an id; and how a session stands in a list."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agent_kernel.errors import SettingsError
from agent_kernel.notebook.history import NotebookHistory
from agent_kernel.notebook.settings import close
from agent_kernel.store.kept import SessionSummary

SHORT_ID = 8  # digits of an id that are shown
SHORTEST = 2  # digits of an id that name a session
NAMES = 12  # that a message about an unknown session lists


async def find(history: NotebookHistory, word: str) -> SessionSummary:
    """Return the session that a person names.

    Raises:
        SettingsError: There is none, or more than one; the message lists them.
    """
    return chosen(await history.list(), word)


def chosen(sessions: Sequence[SessionSummary], word: str) -> SessionSummary:
    """Return the session of a name, else of an id or its beginning.

    Raises:
        SettingsError: There is none, or more than one.
    """
    found = [each for each in sessions if each.id == word] or [each for each in sessions if each.name == word]
    if not found and len(word) >= SHORTEST:
        found = [each for each in sessions if each.id.startswith(word.lower())]
    if len(found) == 1:
        return found[0]
    if found:
        listed = "\n".join(row(each) for each in found)
        raise SettingsError(f"{word} names {len(found)} sessions; write more of the id:\n{listed}")
    names = list(dict.fromkeys(each.name or each.id[:SHORT_ID] for each in sessions))[:NAMES]
    raise SettingsError(
        f"There is no session {word!r}.{close(word, names)} %agent sessions lists them. Nothing was sent; for a prompt write %agent -- ..."
    )


def row(session: SessionSummary, *, mark: str = " ") -> str:
    """Return a session's line in a list."""
    turns = "1 turn " if session.turns == 1 else f"{session.turns} turns"
    return (
        f"{mark} {session.id[:SHORT_ID]}  {when(session.updated_at)}  {session.name or '':<16} {turns:>8}  {clip(session.prompt or '', 60)}".rstrip()
    )


def when(at: float) -> str:
    """Return a time for a list."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def clip(text: str, length: int) -> str:
    """Return the text's beginning on one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 3] + "..."

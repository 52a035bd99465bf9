"""The subcommands of `%agent`: a first word that is one of them is the command, and its arguments must fit.

Each is a coroutine that runs on the engine and returns the text to show. What does not fit sends nothing and names both ways out.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct

from agent_kernel.errors import SettingsError
from agent_kernel.notebook import arguments as fit
from agent_kernel.notebook import commands_history as kept
from agent_kernel.notebook import commands_look as look
from agent_kernel.notebook import commands_session as talk
from agent_kernel.notebook.app import App
from agent_kernel.notebook.options import OPTIONS
from agent_kernel.notebook.settings import SETTINGS
from agent_kernel.store.sql import TIME_LIMIT, VIEWS

Run = Callable[[App, Sequence[str]], Coroutine[Any, Any, Any]]


class Command(Struct, frozen=True):
    """One subcommand; ``fits`` tells whether its arguments make sense, ``run`` is None where the magic runs it as a turn."""

    name: str
    usage: str
    about: str
    fits: fit.Fits
    run: Run | None
    split: fit.Split = fit.words


def match(text: str, *, with_options: bool = False) -> tuple[Command, tuple[str, ...]] | None:
    """Return the command that a line begins with and its arguments, or None for a prompt.

    Args:
        text: The line behind its options.
        with_options: Whether there were any: then only a lone command that runs a turn (``retry``) is one, for it alone can heed them.

    Raises:
        SettingsError: The arguments do not fit.
    """
    first, _, rest = text.strip().partition(" ")
    command = _BY_NAME.get(first)
    if command is None or (with_options and (command.run is not None or rest)):
        return None
    arguments = command.split(rest)
    if not command.fits(arguments):
        raise SettingsError(f"Nothing was sent: the command is %agent {command.usage}.\nTo send it as a prompt: %agent -- {text.strip()}")
    return command, arguments


def help_text(name: str | None = None) -> str:
    """Return the help on everything, or on one command."""
    if name is not None:
        command = _BY_NAME[name]
        return "\n".join([f"%agent {command.usage}", f"  {command.about}", *_more(name)])
    width = max(len(command.usage) for command in COMMANDS)
    options = [
        (", ".join(filter(None, (option.short, f"--{option.field.replace('_', '-')}"))), option.value or "", option.about) for option in OPTIONS
    ]
    return "\n".join(
        [
            "%%agent [options]      the cell's text is the prompt",
            "%agent [options] TEXT  TEXT is the prompt; x = %agent TEXT keeps the turn's state",
            "",
            "Options, before the prompt (-- ends them):",
            *(f"  {f'{names} {value}':<28} {about}" for names, value, about in options),
            "",
            "Commands (a SESSION is a name, or the beginning of an id):",
            *(f"  %agent {command.usage:<{width}}  {command.about}" for command in COMMANDS),
            "",
            "Tools are functions decorated with @tool (from agent_kernel import tool); those your notebook names are on offer.",
        ]
    )


def _more(name: str) -> list[str]:
    if name == "set":
        return [f"  {setting.name:<19} {setting.about}" for setting in SETTINGS]
    if name != "sql":
        return []
    rows = [
        f"One statement of DuckDB's SQL that reads, on one line, at most {TIME_LIMIT:g} s; the result is a DataFrame where pandas or polars is there."
    ]
    rows += ["In Python: await agent.history.sql('''SELECT ...'''). The views and their columns:"]
    for view, (about, columns) in VIEWS.items():
        rows += [f"{view}: {about}", f"    {', '.join(columns)}"]
    return [f"  {row}" for row in rows]


async def _help(_: App, arguments: Sequence[str]) -> str:
    return help_text(arguments[0] if arguments else None)


def _known(arguments: Sequence[str]) -> bool:
    return not arguments or (len(arguments) == 1 and arguments[0] in _BY_NAME)


COMMANDS: tuple[Command, ...] = (
    Command("status", "status", "what the current session is and has", fit.nothing, look.status),
    Command("model", "model [NAME]", "show or change the model", fit.at_most_one, look.model),
    Command("tools", "tools", "the tools on offer", fit.nothing, look.tools),
    Command("retry", "retry", "go on with a turn that failed or was stopped; may follow options", fit.nothing, None),
    Command(
        "sessions", "sessions [TEXT]", "sessions, the newest first; TEXT in name, prompt, notebook or date", fit.anything, kept.sessions, fit.whole
    ),
    Command("use", "use SESSION", "go on with a session", fit.one, talk.use),
    Command("new", "new [NAME]", "start a session", fit.at_most_one, talk.new),
    Command("fork", "fork [--at N] [NAME]", "go on beside this session, from its turn N", lambda words: fit.fork(words) is not None, talk.fork),
    Command("show", "show [SESSION] [N]", "a conversation, its turn N; show HANDLE: a whole large result", fit.shown, look.show),
    Command("log", "log [--tree]", "this session's turns; --tree: with its forks and what was replaced", fit.tree, talk.log),
    Command("search", "search TEXT", "messages and tool results that hold a text, the newest first", fit.one, kept.search, fit.whole),
    Command("rename", "rename NAME", "name this session (quotes keep a name with blanks together)", fit.one, talk.rename),
    Command("delete", "delete SESSION", "delete a session for good", fit.one, kept.delete),
    Command(
        *("export", "export [md|json|ipynb|html] PATH [--force]", "write this session to a file"),
        *(lambda words: fit.export(words) is not None, kept.export),
    ),
    Command("import", "import PATH.json", "bring back a session that was exported as json", fit.json_file, kept.import_),
    Command("usage", "usage [by model|notebook|day]", "tokens and cost of all sessions", fit.grouped, kept.usage),
    Command("sql", "sql SELECT ...", "query the history; %agent help sql has the views", fit.sql, kept.sql, fit.whole),
    Command("set", "set [NAME [VALUE]]", "show or change settings; VALUE default undoes it", fit.set_one, look.set_, fit.name_and_rest),
    Command("help", "help [COMMAND]", "this text", _known, _help),
)

_BY_NAME: Mapping[str, Command] = {command.name: command for command in COMMANDS}

"""The subcommands of `%agent`: a first word that is one of them is the command, and its arguments must fit.

Each is a coroutine that runs on the engine and returns the text to show. What does not fit sends nothing and names both ways out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct

from agent_kernel.errors import SettingsError
from agent_kernel.notebook.app import App
from agent_kernel.notebook.options import OPTIONS
from agent_kernel.notebook.settings import SETTINGS, close, find
from agent_kernel.protocol.messages import AssistantMessage, ToolMessage, UserMessage
from agent_kernel.store.records import SessionRecord, lines

SHOWN = 8_000  # characters of a result that `show` prints
CLIP = 400  # characters of a message that `show` prints

Run = Callable[[App, Sequence[str]], Coroutine[Any, Any, str]]


class Command(Struct, frozen=True):
    """One subcommand; ``fits`` tells whether its arguments make sense, ``run`` is None where the magic runs it as a turn."""

    name: str
    usage: str
    about: str
    fits: Callable[[Sequence[str]], bool]
    run: Run | None


def match(text: str, *, with_options: bool = False) -> tuple[Command, tuple[str, ...]] | None:
    """Return the command that a line begins with and its arguments, or None for a prompt.

    Args:
        text: The line behind its options.
        with_options: Whether there were any: then only a lone command that runs a turn (``retry``) is one, for it alone can heed them.

    Raises:
        SettingsError: The arguments do not fit.
    """
    words = text.split()
    command = _BY_NAME.get(words[0]) if words else None
    if command is None or (with_options and (command.run is not None or len(words) > 1)):
        return None
    arguments = tuple(text.split(None, 2)[1:]) if command.name == "set" else tuple(words[1:])
    if not command.fits(arguments):
        raise SettingsError(f"Nothing was sent: the command is %agent {command.usage}.\nTo send it as a prompt: %agent -- {text.strip()}")
    return command, tuple(argument.strip() for argument in arguments)


def help_text(name: str | None = None) -> str:
    """Return the help on everything, or on one command."""
    if name is not None:
        command = _BY_NAME[name]
        extra = "\n" + "\n".join(f"  {setting.name:<19} {setting.about}" for setting in SETTINGS) if name == "set" else ""
        return f"%agent {command.usage}\n  {command.about}{extra}"
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
            "Commands:",
            *(f"  %agent {command.usage:<21} {command.about}" for command in COMMANDS),
            "",
            "Tools are functions decorated with @tool (from agent_kernel import tool); those your notebook names are on offer.",
        ]
    )


async def _status(app: App, _: Sequence[str]) -> str:
    session = await app.current()
    state, tools = session.state, [tool.name for tool in app.offered()]
    turns = sum(isinstance(message, UserMessage) for message in session.messages)
    rows = [
        ("session", f"{session.name or 'without a name'} ({session.id[:8]})"),
        ("turns", f"{turns}" + (f", the last one {state.status}" if state is not None else "")),
        ("model", session.model.name),
        ("tools", ", ".join(tools) or "none"),
    ]
    if session.abandoned:
        rows.append(("running", f"{len(session.abandoned)} tool calls that were cancelled and do not stop"))
    if session.pending_prompt is not None:
        rows.append(("pending", f"{_clip(session.pending_prompt, 60)} (%agent retry continues)"))
    return "\n".join(f"{name:<8} {value}" for name, value in rows)


async def _model(app: App, arguments: Sequence[str]) -> str:
    if arguments:
        app.settings.set("model", arguments[0])
    session = await app.current()
    session.model = await app.models.wanted(None, app.settings.values(), session.model)
    return f"The model is {session.model.name}."


async def _tools(app: App, _: Sequence[str]) -> str:
    tools = list(app.offered())
    if not tools:
        return "No tools are on offer. Decorate a function with @tool (from agent_kernel import tool) and run its cell."
    return "\n".join(f"{tool.name:<20} {_clip(tool.description, 100)}" for tool in tools)


async def _sessions(app: App, _: Sequence[str]) -> str:
    current = await app.current()
    records = await app.history.list()
    rows = [_session_row(record, mark="*" if record.id == current.id else " ") for record in records]
    return "\n".join(rows) or "No session has a turn yet."


def _session_row(record: SessionRecord, *, mark: str) -> str:
    turns = lines(record.turns)
    first = _clip(turns[0][0].prompt, 60) if turns else ""
    return f"{mark} {record.id[:8]}  {record.name or '':<16} {len(turns):>3} turns  {first}"


async def _use(app: App, arguments: Sequence[str]) -> str:
    wanted = arguments[0]
    records = await app.history.list()
    found = [record for record in records if record.name == wanted] or [record for record in records if record.id.startswith(wanted)]
    if not found:
        names = {record.name or record.id[:8] for record in records}
        raise SettingsError(f"There is no session {wanted!r}.{close(wanted, names)} %agent sessions lists them.")
    session = await app.resumed(found[0].id)
    app.use(session)
    return f"The current session is {session.name or session.id[:8]}."


async def _show(app: App, arguments: Sequence[str]) -> str:
    if arguments:
        value = await app.read(arguments[0])
        text = value if isinstance(value, str) else repr(value)
        cut = len(text) - SHOWN
        return text if cut <= 0 else f"{text[:SHOWN]}\n[{cut:,} more characters: agent.result({arguments[0]!r}) is the whole]"
    session = await app.current()
    parts = [_said(message) for message in session.messages]
    return "\n".join(part for part in parts if part) or "This session has no turn yet."


def _said(message: Any) -> str:
    match message:
        case UserMessage(text=text):
            return f"user: {_clip(text, CLIP)}"
        case AssistantMessage(text=text, tool_calls=calls):
            return "\n".join(
                [*([f"assistant: {_clip(text, CLIP)}"] if text else []), *(f"  > {call.name}({_clip(call.arguments, 100)})" for call in calls)]
            )
        case ToolMessage(name=name, status=status, text=text):
            return f"  < {name} {status}: {_clip(text, 100)}"
    return ""


async def _set(app: App, arguments: Sequence[str]) -> str:
    if not arguments:
        return f"{app.settings!r}\n\nThe settings file is {app.settings.path}"
    if len(arguments) == 1:
        return next(f"{name} is {value!r} ({source})." for name, value, source in app.settings.rows() if name == arguments[0])
    name, value = arguments
    kept = app.settings.set(name, None if value == "default" else value)
    return f"{name} is {kept!r} in this kernel." if kept is not None else f"{name} is what file, environment or default say."


async def _help(_: App, arguments: Sequence[str]) -> str:
    return help_text(arguments[0] if arguments else None)


def _clip(text: str, length: int) -> str:
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 3] + "..."


def _nothing(arguments: Sequence[str]) -> bool:
    return not arguments


def _at_most_one(arguments: Sequence[str]) -> bool:
    return len(arguments) <= 1


def _handle(arguments: Sequence[str]) -> bool:
    return not arguments or (len(arguments) == 1 and re.fullmatch(r"[a-z]\d+", arguments[0]) is not None)


def _known_setting(arguments: Sequence[str]) -> bool:
    """Settings raise by themselves, with close names, unless what follows reads like a sentence."""
    if arguments:
        names = {setting.name for setting in SETTINGS}
        if arguments[0] not in names and len(arguments) > 1 and " " in arguments[1]:
            return False
        find(arguments[0])
    return True


COMMANDS: tuple[Command, ...] = (
    Command("status", "status", "what the current session is and has", _nothing, _status),
    Command("model", "model [NAME]", "show or change the model", _at_most_one, _model),
    Command("tools", "tools", "the tools on offer", _nothing, _tools),
    Command("sessions", "sessions", "all sessions, the newest first", _nothing, _sessions),
    Command("use", "use SESSION", "go on with a session, by name or id", lambda arguments: len(arguments) == 1, _use),
    Command("show", "show [HANDLE]", "the conversation, or the whole of a large result", _handle, _show),
    Command("retry", "retry", "go on with a turn that failed or was stopped; may follow options", _nothing, None),
    Command("set", "set [NAME [VALUE]]", "show or change settings; VALUE default undoes it", _known_setting, _set),
    Command("help", "help [COMMAND]", "this text", lambda arguments: not arguments or (len(arguments) == 1 and arguments[0] in _BY_NAME), _help),
)

_BY_NAME: Mapping[str, Command] = {command.name: command for command in COMMANDS}

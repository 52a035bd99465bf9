"""Commands that look at this kernel: status, model, tools, show, set. Coroutines for the engine that return the text to show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agent_kernel.errors import SettingsError
from agent_kernel.notebook.app import App
from agent_kernel.notebook.arguments import is_handle, is_turn
from agent_kernel.notebook.finding import clip, find
from agent_kernel.protocol.messages import AssistantMessage, Message, ToolMessage, UserMessage
from agent_kernel.store.records import TurnRecord, lines, thread

SHOWN = 8_000  # characters of a result that `show` prints
CLIP = 400  # characters of a message that `show` prints


async def status(app: App, _: Sequence[str]) -> str:
    """Tell what the current session is and has."""
    session = await app.current()
    state, names = session.state, [tool.name for tool in app.offered()]
    turns = sum(isinstance(message, UserMessage) for message in session.messages)
    problem = app.history.problem
    rows = [
        ("session", f"{session.name or 'without a name'} ({session.id[:8]})"),
        ("turns", f"{turns}" + (f", the last one {state.status}" if state is not None else "")),
        ("model", session.model.name),
        ("tools", ", ".join(names) or "none"),
        ("kept", f"in {app.kept.folder}" if problem is None else f"in memory only: {problem}"),
    ]
    if session.abandoned:
        rows.append(("running", f"{len(session.abandoned)} tool calls that were cancelled and do not stop"))
    if session.pending_prompt is not None:
        rows.append(("pending", f"{clip(session.pending_prompt, 60)} (%agent retry continues)"))
    return "\n".join(f"{name:<8} {value}" for name, value in rows)


async def model(app: App, arguments: Sequence[str]) -> str:
    """Show or change the model."""
    if arguments:
        app.settings.set("model", arguments[0])
    session = await app.current()
    session.model = await app.models.wanted(None, app.settings.values(), session.model)
    return f"The model is {session.model.name}."


async def tools(app: App, _: Sequence[str]) -> str:
    """List the tools on offer."""
    found = list(app.offered())
    if not found:
        return "No tools are on offer. Decorate a function with @tool (from agent_kernel import tool) and run its cell."
    return "\n".join(f"{tool.name:<20} {clip(tool.description, 100)}" for tool in found)


async def show(app: App, arguments: Sequence[str]) -> str:
    """Show a conversation, one turn of it, or a whole result."""
    if len(arguments) == 1 and is_handle(arguments[0]):
        value = await app.read(arguments[0])
        text = value if isinstance(value, str) else repr(value)
        cut = len(text) - SHOWN
        return text if cut <= 0 else f"{text[:SHOWN]}\n[{cut:,} more characters: agent.result({arguments[0]!r}) is the whole]"
    number = int(arguments[-1]) if arguments and is_turn(arguments[-1]) else None
    if arguments and (number is None or len(arguments) == 2):
        turns: Sequence[TurnRecord] = (await app.history.load((await find(app.history, arguments[0])).id)).turns
    else:
        session = await app.current()
        if number is None:
            return conversation(session.messages)
        turns = session.turns
    return conversation(thread(turns if number is None else _turn(turns, number)))


def conversation(messages: Iterable[Message]) -> str:
    """Return messages as text, a line or two each."""
    return "\n".join(filter(None, map(_said, messages))) or "This session has no turn yet."


def _turn(turns: Sequence[TurnRecord], number: int) -> list[TurnRecord]:
    grouped = lines(turns)
    if not 1 <= number <= len(grouped):
        raise SettingsError(f"There is no turn {number}: the session has {len(grouped)}. %agent log lists them.")
    return grouped[number - 1]


def _said(message: Any) -> str:
    match message:
        case UserMessage(text=text):
            return f"user: {clip(text, CLIP)}"
        case AssistantMessage(text=text, tool_calls=calls):
            return "\n".join(
                [*([f"assistant: {clip(text, CLIP)}"] if text else []), *(f"  > {call.name}({clip(call.arguments, 100)})" for call in calls)]
            )
        case ToolMessage(name=name, status=status, text=text):
            return f"  < {name} {status}: {clip(text, 100)}"
    return ""


async def set_(app: App, arguments: Sequence[str]) -> str:
    """Show or change settings."""
    if not arguments:
        return f"{app.settings!r}\n\nThe settings file is {app.settings.path}"
    if len(arguments) == 1:
        return next(f"{name} is {value!r} ({source})." for name, value, source in app.settings.rows() if name == arguments[0])
    name, value = arguments
    if name == "home" and app.kept.opened:
        raise SettingsError(f"This kernel keeps its sessions in {app.kept.folder} already. Set home first in a new kernel, or AGENT_KERNEL_HOME.")
    kept = app.settings.set(name, None if value == "default" else value)
    return f"{name} is {kept!r} in this kernel." if kept is not None else f"{name} is what file, environment or default say."

"""A turn's parts as HTML: the status line, a card per tool call, the reasoning.

Only details, summary, pre, code, span, div and progress with inline style, which JupyterLab keeps for untrusted notebooks; greys are
translucent and colours of middle tone, so that they hold on light and dark ground. All text goes through literal.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from agent_kernel.protocol.fold import ToolCallState, TurnState
from agent_kernel.protocol.messages import AssistantMessage
from agent_kernel.views.literal import clipped, escaped, named, one_line, visible

MAX_PREVIEW = 4_000  # characters of a result in its card
MAX_ARGUMENTS = 2_000
MAX_NAME = 80
LINE = 96  # characters of arguments or of a short result in a card's first line

GREEN, RED, AMBER, BLUE, GREY = "#1a9b55", "#e5484d", "#c07a00", "#3e82f7", "#8a8f98"
STATUS = {  # what the reader sees, and its colour
    "drafted": ("\u270e writing", GREY),
    "queued": ("\u25cb queued", GREY),
    "asking": ("? waiting for approval", AMBER),
    "running": ("\u25cf running", BLUE),
    "ok": ("\u2713 ok", GREEN),
    "error": ("\u2717 error", RED),
    "timeout": ("\u2717 timeout", RED),
    "cancelled": ("\u2298 cancelled", AMBER),
    "denied": ("\u2298 denied", AMBER),
    "not_run": ("\u2298 not run", GREY),
    "completed": ("\u2713 completed", GREEN),
    "limit": ("\u2298 stopped at the round limit", AMBER),
    "length": ("\u2298 cut at the length limit", AMBER),
    "failed": ("\u2717 failed", RED),
}
OPENED = {"error", "timeout", "denied"}  # what a reader has to see without a click
DOT = " · "

FRAME = "margin:2px 0 6px;padding:1px 0 1px 12px;border-left:3px solid rgba(128,128,128,0.35)"
QUIET = "opacity:0.7"
CARD = "margin:4px 0;padding:3px 10px;border:1px solid rgba(128,128,128,0.3);border-radius:6px"
BOX = (
    "margin:6px 0 4px;padding:6px 8px;max-height:20em;overflow:auto;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;"
    "background:rgba(128,128,128,0.1);border-radius:4px;font-size:0.9em"
)
CODE = "background:none;padding:0;white-space:pre-wrap;overflow-wrap:anywhere"


def status_line(state: TurnState, now: float) -> str:
    """Return the line above a turn."""
    facts = "".join(f' <span style="{QUIET}">· {fact}</span>' for fact in map(_code, facts_of(state, now)))
    return f'<div style="margin:2px 0">{badge(state.status)}{facts}</div>'


def facts_of(state: TurnState, now: float) -> list[str]:
    """Return who answers, how far the turn is and how long it takes, as short texts."""
    calls = len(state.tool_calls)
    facts = [model_of(state)]
    if state.rounds > 1:
        facts.append(f"{state.rounds} rounds")
    if calls:
        facts.append("1 tool call" if calls == 1 else f"{calls} tool calls")
    if state.retries:
        facts.append("asked again" if state.retries == 1 else f"asked again {state.retries} times")
    if state.started_at is not None:
        facts.append(seconds((state.finished_at or now) - state.started_at))
    tokens = (state.usage.input_tokens or 0) + (state.usage.output_tokens or 0)
    if tokens:
        facts.append(f"{'about ' if state.usage.estimated else ''}{tokens:,} tokens")
    if state.input_trimmed:
        facts.append("older messages were left out")
    return facts


def model_of(state: TurnState) -> str:
    """Return the name of the model that answered last, or of the one that was asked."""
    for message in reversed(state.messages):
        if isinstance(message, AssistantMessage) and message.model:
            return one_line(message.model, MAX_NAME)
    return one_line(state.model, MAX_NAME)


def badge(status: str) -> str:
    """Return a status as a word with a sign and a colour."""
    word, colour = STATUS[status]
    return f'<span style="color:{colour};font-weight:600;white-space:nowrap">{word}</span>'


def seconds(value: float) -> str:
    """Return a span of time for a reader."""
    value = max(0.0, value)
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"


def card(entry: ToolCallState, now: float) -> str:
    """Return a tool call's card: opened if it failed, folded if it went well, and not foldable while it runs."""
    head = f"{badge(entry.status)} {_call(entry)}{_quiet(_timing(entry, now))}{_quiet(_aside(entry))}"
    body = _body(entry)
    if entry.result is None or not body:
        return f'<div style="{CARD}">{head}{body}</div>'
    opened = " open" if entry.status in OPENED else ""
    return f'<details{opened} style="{CARD}"><summary style="cursor:pointer">{head}</summary>{body}</details>'


def reasoning(text: str) -> str:
    """Return a round's reasoning, folded."""
    if not text.strip():
        return ""
    head = f'<summary style="cursor:pointer;{QUIET}">reasoning · {_code(f"{len(text):,} characters")}</summary>'
    return f'<details style="margin:2px 0">{head}{_box(text, MAX_PREVIEW, style=";font-family:inherit")}</details>'


def problem(text: str) -> str:
    """Return what ended a turn."""
    return f'<pre style="{BOX};border-left:3px solid {RED}">{escaped(text)}</pre>'


def arguments_line(entry: ToolCallState, limit: int = LINE) -> str:
    """Return a call's arguments as they would be written in Python, on one line."""
    values = _decoded(entry)
    if values is None:
        return f"({one_line(entry.arguments, limit)})"
    return f"({one_line(', '.join(f'{named(name)}={_short_json(value, limit)}' for name, value in values.items()), limit)})"


def calls_by_round(state: TurnState) -> dict[int, list[ToolCallState]]:
    """Return the calls of each round that has any."""
    grouped: dict[int, list[ToolCallState]] = {}
    for entry in state.tool_calls:
        grouped.setdefault(entry.round, []).append(entry)
    return grouped


def call_name(entry: ToolCallState) -> str:
    """Return a tool's name in which every character can be seen."""
    return named(entry.name[: MAX_NAME + 1])[: 2 * MAX_NAME] or "(no name)"


def first_line(entry: ToolCallState, limit: int = LINE) -> str:
    """Return the beginning of what came of a call."""
    if entry.result is None:
        return ""
    return one_line(entry.result.error or entry.result.text if entry.status != "ok" else entry.result.text, limit)


def aside(entry: ToolCallState) -> str:
    """Return what else is known of a call, in a few words."""
    if entry.status == "asking":
        return visible(entry.reason or "")
    if entry.result is None:
        return DOT.join(filter(None, [_progress(entry), visible(entry.progress_text or "")[:LINE]]))
    return f"kept whole as {named(entry.result.artifact.handle)}" if entry.result.artifact else ""


def _call(entry: ToolCallState) -> str:
    arguments = arguments_line(entry)
    return f'<code style="{CODE};font-weight:600">{escaped(call_name(entry))}</code><code style="{CODE};{QUIET}">{escaped(arguments)}</code>'


def _timing(entry: ToolCallState, now: float) -> str:
    if entry.result is not None:
        return seconds(entry.result.elapsed)
    return seconds(now - entry.started_at) if entry.started_at is not None else ""


def _aside(entry: ToolCallState) -> str:
    text = aside(entry)
    if entry.result is None:
        return text
    result = entry.result.text.strip()
    short = "" if "\n" in result or len(result) > LINE or entry.status != "ok" else result
    return DOT.join(filter(None, [f"\u2192 {short}" if short else "", text]))


def _body(entry: ToolCallState) -> str:
    """Return what a card shows when it is opened."""
    parts = []
    if entry.result is None:
        if entry.total:
            parts.append(f'<div><progress max="100" value="{_percent(entry):.0f}" style="width:60%"></progress></div>')
        return "".join(parts)
    pretty = _pretty(entry)
    if len(pretty) > LINE:
        parts.append(_box(pretty, MAX_ARGUMENTS))
    if entry.comment and entry.status != "denied":  # a denied call's result quotes it
        parts.append(f'<div style="{QUIET}">{_code(visible(entry.comment))}</div>')
    text = entry.result.text or entry.result.error or ""
    if text.strip():
        parts.append(_box(text, MAX_PREVIEW, where="the model read it whole" if entry.result.artifact is None else ""))
    if entry.result.artifact is not None:
        handle = named(entry.result.artifact.handle)
        parts.append(f'<div style="{QUIET}">The whole output: <code style="{CODE}">agent.result(&quot;{escaped(handle)}&quot;)</code></div>')
    return "".join(parts)


def _box(text: str, limit: int, where: str = "", style: str = "") -> str:
    shown, left = clipped(text, limit)
    more = f"\n\u2026 {left:,} more characters{f' ({where})' if where else ''}" if left else ""
    return f'<pre style="{BOX}{style}">{escaped(shown)}{more}</pre>'


def _quiet(text: str) -> str:
    return f' <span style="{QUIET}">· {_code(text)}</span>' if text else ""


def _code(text: str) -> str:
    """Return text in an element where nothing is typeset, in the font around it."""
    return f'<code style="{CODE};font-family:inherit;font-size:inherit;color:inherit">{escaped(text)}</code>'


def _percent(entry: ToolCallState) -> float:
    return min(100.0, max(0.0, 100 * (entry.done or 0) / (entry.total or 1)))


def _progress(entry: ToolCallState) -> str:
    if entry.done is None:
        return ""
    return f"{entry.done:g} of {entry.total:g}" if entry.total else f"{entry.done:g}"


def _decoded(entry: ToolCallState) -> dict[str, object] | None:
    if len(entry.arguments) > 10 * MAX_ARGUMENTS:
        return None
    values = _quietly(lambda: json.loads(entry.arguments))
    return values if isinstance(values, dict) else None


def _short_json(value: object, limit: int) -> str:
    if isinstance(value, str):
        value = value[: 2 * limit]
    return json.dumps(value, ensure_ascii=False)


def _pretty(entry: ToolCallState) -> str:
    values = _decoded(entry)
    return entry.arguments if values is None else json.dumps(values, ensure_ascii=False, indent=2)


def _quietly(read: Callable[[], object]) -> object:
    """Return what a reader of foreign text gives, or None where the text is not what it reads."""
    try:
        return read()
    except (ValueError, RecursionError):
        return None

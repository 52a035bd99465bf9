"""A turn's end in a cell: the static transcript, then the answer, and where both came from.

Pure: from a TurnState to mime bundles. The transcript looks the same in a trusted, an untrusted and an exported notebook, and its plain
text reads well alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_kernel.protocol.fold import ToolCallState, TurnState
from agent_kernel.views.cards import (
    DOT,
    FRAME,
    STATUS,
    arguments_line,
    aside,
    call_name,
    calls_by_round,
    card,
    facts_of,
    first_line,
    model_of,
    problem,
    reasoning,
    seconds,
    status_line,
)
from agent_kernel.views.literal import visible
from agent_kernel.views.markdown import answer_html, canonical

AGAIN = "Continue with %agent retry."
PENDING = {"failed", "cancelled", "limit", "length"}


def transcript(state: TurnState) -> dict[str, str]:
    """Return what the turn did, without its answer."""
    return {"text/html": transcript_html(state), "text/plain": transcript_text(state)}


def answer(state: TurnState) -> dict[str, str] | None:
    """Return the turn's answer, or None if it has none."""
    number = answer_round(state)
    return None if number is None else markdown_of(state.round_text(number))


def markdown_of(text: str) -> dict[str, str]:
    """Return text of a model as an output that front ends render."""
    return {"text/markdown": canonical(text), "text/plain": visible(text)}


def provenance(state: TurnState, version: str) -> dict[str, Any]:
    """Return the metadata of a turn's outputs."""
    return {
        "agent_kernel": {
            "session": state.session_id,
            "turn": state.turn_id,
            "model": model_of(state),
            "status": state.status,
            "version": version,
        }
    }


def transcript_html(state: TurnState) -> str:
    """Return the transcript for a browser."""
    now = state.finished_at or 0.0
    rounds = "".join(_rounds_html(state, now))
    return f'<div style="{FRAME}">{status_line(state, now)}{rounds}{ending_html(state)}</div>'


def _rounds_html(state: TurnState, now: float) -> Iterator[str]:
    """Yield each round: reasoning, text (not that of the answer), cards in call order."""
    last, calls = answer_round(state), calls_by_round(state)
    for number in range(1, len(state.texts) + 1):
        yield reasoning("".join(state.reasonings[number - 1]))
        text = "" if number == last else state.round_text(number)
        if text.strip():
            yield answer_html(text)
        yield from (card(entry, now) for entry in calls.get(number, ()))


def ending_html(state: TurnState) -> str:
    """Return why the turn ended, where that has to be said."""
    parts = [problem(state.error)] if state.error else []
    if state.status in PENDING:
        parts.append(f'<div style="opacity:0.7">{AGAIN}</div>')
    return "".join(parts)


def answer_round(state: TurnState) -> int | None:
    """Return the round whose text is the answer, once the turn has ended: the last one, unless its text only announces calls."""
    last = len(state.texts)
    if state.status == "running" or not last or not state.round_text(last).strip():
        return None
    return None if any(entry.round == last for entry in state.tool_calls) else last


def transcript_text(state: TurnState) -> str:
    """Return the transcript as plain text: the tools one line each, the status, and how to go on."""
    lines = [f"agent: {DOT.join([status_word(state.status), *facts_of(state, state.finished_at or 0.0)])}"]
    last, calls = answer_round(state), calls_by_round(state)
    for number in range(1, len(state.texts) + 1):
        text = state.round_text(number).strip()
        if text and number != last:
            lines += [f"  {line}" for line in visible(text).split("\n")]
        lines += [f"  {call_text(entry)}" for entry in calls.get(number, ())]
    if state.error:
        lines.append(f"  {visible(state.error)}")
    if state.status in PENDING:
        lines.append(f"  {AGAIN}")
    return "\n".join(lines)


def call_text(entry: ToolCallState) -> str:
    """Return a call and its outcome on one line."""
    outcome = first_line(entry)
    more = f" ({aside(entry)})" if aside(entry) else ""
    elapsed = f", {seconds(entry.result.elapsed)}" if entry.result else ""
    return f"{call_name(entry)}{arguments_line(entry)}: {status_word(entry.status)}{elapsed}{more}{': ' if outcome else ''}{outcome}"


def status_word(status: str) -> str:
    """Return a status as words alone."""
    return STATUS[status][0].split(" ", 1)[1]

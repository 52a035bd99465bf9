"""A kept session for readers: Markdown, one self-contained page of HTML, or a notebook that can be run again.

Pure: from a SessionRecord to text. Each turn is brought back to the TurnState that it ended with, so that an export shows what the cell
showed. Everything that model and tools wrote goes through literal.py and markdown.py, as in a cell.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent_kernel.protocol.fold import ToolCallState, TurnState
from agent_kernel.protocol.messages import AssistantMessage, ToolResult, Usage
from agent_kernel.store.records import SessionRecord, TurnRecord, lines, turn_messages
from agent_kernel.views.canonical import fenced
from agent_kernel.views.cards import DOT, arguments_line, call_name, facts_of, seconds
from agent_kernel.views.ending import answer, answer_round, provenance, status_word, transcript, transcript_html
from agent_kernel.views.literal import escaped, named, one_line, visible
from agent_kernel.views.markdown import answer_html, canonical

NO_END = "There is no end on record: this turn still runs in another kernel, or its kernel died."
LONGEST_TITLE = 100  # characters

STYLE = """body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif;color-scheme:light dark}
h1{font-size:1.4rem}h2{font-size:1rem;margin-top:2.2rem;opacity:.7}pre.prompt{white-space:pre-wrap;overflow-wrap:anywhere;padding:.6rem .9rem;
border-radius:6px;background:rgba(62,130,247,.12);font:inherit}
table{border-collapse:collapse}td,th{border:1px solid rgba(128,128,128,.4);padding:.2rem .5rem}
pre{overflow:auto}"""

# Nothing in the page may load or run anything, whatever it says.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def turn_state(session_id: str, turn: TurnRecord) -> TurnState:
    """Return the state that a kept turn ended with."""
    end = turn.end
    state = TurnState(
        turn_id=turn.turn_id,
        session_id=session_id,
        prompt=turn.prompt,
        model=turn.model,
        status=end.status if end else "failed",
        error=end.error if end else NO_END,
        messages=turn_messages(turn),
        started_at=turn.started_at,
        finished_at=end.at if end else max([turn.started_at, *(round_.at for round_ in turn.rounds)]),
    )
    results = {result.call_id: result for round_ in turn.rounds for result in round_.results}
    for message in state.messages:
        if isinstance(message, AssistantMessage):
            _add_round(state, message, results)
    if end is not None and end.status in {"failed", "cancelled"}:
        _add_partial(state, end.partial_text)
    said = [message.usage for message in state.messages if isinstance(message, AssistantMessage) and message.usage is not None]
    state.usage = end.usage if end else sum(said, Usage())
    return state


def _add_round(state: TurnState, message: AssistantMessage, results: dict[str, ToolResult]) -> None:
    state.texts.append([message.text])
    state.reasonings.append([message.reasoning])
    state.rounds = len(state.texts)
    state.finish_reason = message.finish_reason
    for call in message.tool_calls:
        result = results.get(call.id)
        status = result.status if result else "not_run"
        state.tool_calls.append(
            ToolCallState(id=call.id, name=call.name, round=state.rounds, fragments=[call.arguments], status=status, result=result)
        )


def _add_partial(state: TurnState, partial: str) -> None:
    """Add what the open round had said when the turn ended."""
    rest = partial.removeprefix(state.text).strip("\n")
    if rest and rest != state.text:
        state.texts.append([rest])
        state.reasonings.append([])
        state.rounds = len(state.texts)


def title(record: SessionRecord) -> str:
    """Return what a session is called: its name, else the beginning of its first prompt."""
    first = record.turns[0].prompt if record.turns else ""
    return one_line(record.name or first, LONGEST_TITLE) or f"Session {record.id[:8]}"


def markdown(record: SessionRecord) -> str:
    """Return a session as Markdown: prompts, calls, results and texts in the order they came."""
    parts = [f"# {_inline(title(record))}", f"Session `{named(record.id)}`, begun {_when(record.created_at)}."]
    for number, state in _states(record):
        parts.append(f"## {number}")
        parts.append(fenced(visible(state.prompt), "text"))
        for index in range(1, len(state.texts) + 1):
            text = state.round_text(index)
            parts += [canonical(text).rstrip("\n")] if text.strip() else []
            parts += [_call(entry) for entry in state.tool_calls if entry.round == index]
        parts += [fenced(visible(state.error), "text")] if state.error else []
        facts = DOT.join([status_word(state.status), *facts_of(state, state.finished_at or 0.0)])
        parts.append(f"*{_inline(facts)}*")
    return "\n\n".join(parts) + "\n"


def html(record: SessionRecord) -> str:
    """Return a session as one page that loads nothing and runs nothing."""
    sections = []
    for number, state in _states(record):
        last = answer_round(state)
        prose = answer_html(state.round_text(last)) if last is not None else ""
        sections.append(f'<section><h2>{number}</h2><pre class="prompt">{escaped(state.prompt)}</pre>{transcript_html(state)}{prose}</section>')
    name = escaped(title(record))
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{name}</title><style>{STYLE}</style>'
    about = f"<p>Session <code>{escaped(record.id)}</code>, begun {_when(record.created_at)}.</p>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>{name}</h1>{about}\n' + "\n".join(sections) + "\n</body></html>\n"


def notebook(record: SessionRecord, version: str) -> str:
    """Return a session as a notebook: each prompt a cell, with what the cell showed."""
    begun = f"# {_inline(title(record))}\n\nSession `{named(record.id)}`, begun {_when(record.created_at)}."
    cells = [{"cell_type": "markdown", "id": "about", "metadata": {}, "source": begun}, _code_cell("load", "%load_ext agent_kernel", [])]
    for place, (_, state) in enumerate(_states(record), start=1):
        metadata = provenance(state, version)
        shown = [transcript(state), *filter(None, [answer(state)])]
        outputs = [{"output_type": "display_data", "metadata": metadata, "data": data} for data in shown]
        cells.append(_code_cell(f"turn-{place}", f"%%agent\n{state.prompt}", outputs))
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    document = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


READABLE: dict[str, Callable[[SessionRecord, str], str]] = {
    "md": lambda record, _: markdown(record),
    "html": lambda record, _: html(record),
    "ipynb": notebook,
}


def _code_cell(name: str, source: str, outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "source": source, "outputs": outputs}


def _states(record: SessionRecord) -> Iterator[tuple[str, TurnState]]:
    """Yield every turn that counts with its number; a retry bears its turn's number and a letter."""
    for number, group in enumerate(lines(record.turns), start=1):
        for again, turn in enumerate(group):
            yield f"{number}" + (f", asked again ({again})" if again else ""), turn_state(record.id, turn)


def _call(entry: ToolCallState) -> str:
    outcome = entry.result.text or entry.result.error or "" if entry.result else ""
    elapsed = f", {seconds(entry.result.elapsed)}" if entry.result else ""
    kept = f", kept whole as {named(entry.result.artifact.handle)}" if entry.result and entry.result.artifact else ""
    head = fenced(f"{call_name(entry)}{arguments_line(entry, 2_000)}", "python")
    about = _inline(f"{status_word(entry.status)}{elapsed}{kept}")
    return "\n\n".join(filter(None, [head, f"{about}:" if outcome.strip() else about, fenced(visible(outcome), "text") if outcome.strip() else ""]))


def _inline(text: str) -> str:
    """Return text for the middle of a line of Markdown: what could be markup is escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#$|~&])", lambda found: f"&#{ord(found.group())};", visible(text).replace("\n", " "))


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))

"""The index: tables over the journals' lines and the views that people query, as SQL; and the rows that a line becomes. Pure.

Every row names its line by (journal, n). ``places`` says where each line stands in its file, so that a session is loaded from the journals
themselves; the other tables hold typed columns for what is searched, filtered or summed, and JSON for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agent_kernel.protocol.messages import AssistantMessage, ToolCall, ToolMessage, ToolResult, Usage
from agent_kernel.store.lines import Line, RoundKept, SessionCreated, SessionRenamed, TurnEnded, TurnHead, TurnsReplaced

INDEX_VERSION = 2  # of the tables; another one in the file means: make the index again

TABLES: dict[str, str] = {
    "drained": "journal VARCHAR, generation INTEGER, size BIGINT",
    "places": "journal VARCHAR, n BIGINT, session_id VARCHAR, turn_id VARCHAR, kind VARCHAR, stamp DOUBLE, start BIGINT, length INTEGER",
    "session_lines": "journal VARCHAR, n BIGINT, session_id VARCHAR, kind VARCHAR, stamp DOUBLE, name VARCHAR, notebook VARCHAR, forked_from VARCHAR,"
    " forked_at INTEGER, shared VARCHAR, replaced VARCHAR",
    "turn_lines": "journal VARCHAR, n BIGINT, session_id VARCHAR, turn_id VARCHAR, position INTEGER, prompt VARCHAR, model VARCHAR,"
    " started_at DOUBLE, retries VARCHAR, round INTEGER, stamp DOUBLE, status VARCHAR, error VARCHAR, partial_text VARCHAR,"
    " input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT, cache_write_tokens BIGINT, reasoning_tokens BIGINT, cost DOUBLE,"
    " estimated BOOLEAN",
    "message_lines": "journal VARCHAR, n BIGINT, session_id VARCHAR, turn_id VARCHAR, round INTEGER, place INTEGER, stamp DOUBLE, role VARCHAR,"
    " text VARCHAR, reasoning VARCHAR, call_id VARCHAR, name VARCHAR, status VARCHAR, model VARCHAR, finish_reason VARCHAR, partial BOOLEAN,"
    " position INTEGER",
    "call_lines": "journal VARCHAR, n BIGINT, session_id VARCHAR, turn_id VARCHAR, round INTEGER, place INTEGER, stamp DOUBLE, call_id VARCHAR,"
    " name VARCHAR, arguments VARCHAR",
    "result_lines": "journal VARCHAR, n BIGINT, session_id VARCHAR, turn_id VARCHAR, round INTEGER, stamp DOUBLE, call_id VARCHAR, name VARCHAR,"
    " status VARCHAR, elapsed DOUBLE, error VARCHAR, text VARCHAR, shown BIGINT, total BIGINT, handle VARCHAR, hash VARCHAR, media_type VARCHAR,"
    " size BIGINT, metadata VARCHAR",
}

VIEWS: dict[str, str] = {
    "sessions": """
        WITH own AS (
            SELECT session_id AS id, arg_max(name, (stamp, n)) FILTER (name IS NOT NULL) AS name, min(stamp) AS created, max(stamp) AS changed,
                   any_value(notebook) AS notebook, any_value(forked_from) AS forked_from, any_value(forked_at) AS forked_at,
                   bool_or(kind = 'SessionDeleted') AS deleted
            FROM session_lines WHERE kind NOT IN ('SessionClaimed', 'SessionReleased') GROUP BY session_id),
        said AS (
            SELECT session_id, count(DISTINCT turn_id) FILTER (retries IS NULL) AS turns, max(stamp) AS last_turn,
                   arg_min(prompt, position) AS first_prompt
            FROM turn_lines GROUP BY session_id)
        SELECT coalesce(own.id, said.session_id) AS session_id, name, to_timestamp(coalesce(created, last_turn)) AS created_at,
               to_timestamp(greatest(coalesce(changed, 0), coalesce(last_turn, 0))) AS updated_at, notebook, forked_from, forked_at,
               coalesce(turns, 0) AS turns, first_prompt
        FROM own FULL JOIN said ON own.id = said.session_id WHERE NOT coalesce(deleted, false)""",
    "turns": """
        SELECT session_id, turn_id, any_value(position) AS position, any_value(prompt) AS prompt, any_value(model) AS model,
               to_timestamp(any_value(started_at)) AS started_at, to_timestamp(max(stamp)) AS updated_at, any_value(retries) AS retries,
               coalesce(max(round), 0) AS rounds, any_value(status) AS status, any_value(error) AS error, any_value(partial_text) AS partial_text,
               any_value(input_tokens) AS input_tokens, any_value(output_tokens) AS output_tokens, any_value(cached_tokens) AS cached_tokens,
               any_value(cache_write_tokens) AS cache_write_tokens, any_value(reasoning_tokens) AS reasoning_tokens, any_value(cost) AS cost,
               coalesce(any_value(estimated), false) AS estimated
        FROM turn_lines WHERE session_id IN (SELECT session_id FROM sessions) GROUP BY session_id, turn_id""",
    "messages": """
        SELECT session_id, turn_id, round, place, to_timestamp(stamp) AS written_at, role, text, reasoning, call_id, name, status, model,
               finish_reason, partial
        FROM message_lines WHERE session_id NOT IN (SELECT session_id FROM session_lines WHERE kind = 'SessionDeleted')""",
    "tool_calls": """
        SELECT session_id, turn_id, round, place, to_timestamp(stamp) AS written_at, call_id, name, arguments
        FROM call_lines WHERE session_id NOT IN (SELECT session_id FROM session_lines WHERE kind = 'SessionDeleted')""",
    "results": """
        SELECT session_id, turn_id, round, to_timestamp(stamp) AS written_at, call_id, name, status, elapsed, error, text, shown, total, handle, hash,
               media_type, size, metadata
        FROM result_lines WHERE session_id NOT IN (SELECT session_id FROM session_lines WHERE kind = 'SessionDeleted')""",
    "usage": """
        SELECT turns.session_id, sessions.name AS session, sessions.notebook, turn_id, model, CAST(started_at AS DATE) AS day, input_tokens,
               output_tokens, cached_tokens, reasoning_tokens, cost, estimated
        FROM turns JOIN sessions USING (session_id) WHERE input_tokens IS NOT NULL OR output_tokens IS NOT NULL""",
}


def statements() -> list[str]:
    """Return the SQL that makes an empty index."""
    made = [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()]
    made += [f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items()]
    return [*made, f"CREATE TABLE meta AS SELECT {INDEX_VERSION} AS version"]


Row = tuple[Any, ...]


def rows_of(journal: str, start: int, length: int, line: Line) -> Iterator[tuple[str, Row]]:
    """Yield (table, row) for a line that stands at a place of a journal."""
    turn_id = line.turn.turn_id if isinstance(line, (RoundKept, TurnEnded)) else None
    kind = type(line).__name__
    yield "places", (journal, line.n, line.session_id, turn_id, kind, line.at, start, length)
    if isinstance(line, RoundKept):
        yield "turn_lines", (*_head(journal, line, line.turn), line.round.round, line.at, *(None,) * 10)
        yield from _round_rows(journal, line)
    elif isinstance(line, TurnEnded):
        end = line.end
        yield "turn_lines", (*_head(journal, line, line.turn), None, line.at, end.status, end.error, end.partial_text, *_usage(end.usage))
        yield from _message_rows(journal, line, line.turn, 0, end.messages)
    else:
        yield "session_lines", _session_row(journal, kind, line)


def _session_row(journal: str, kind: str, line: Line) -> Row:
    name = line.name if isinstance(line, (SessionCreated, SessionRenamed)) else None
    created = (line.notebook, line.forked_from, line.forked_at, _json(line.shared)) if isinstance(line, SessionCreated) else (None,) * 4
    return (journal, line.n, line.session_id, kind, line.at, name, *created, _json(line.turn_ids) if isinstance(line, TurnsReplaced) else None)


def _head(journal: str, line: Line, head: TurnHead) -> Row:
    return (journal, line.n, line.session_id, head.turn_id, head.position, head.prompt, head.model, head.started_at, head.retries)


def _usage(usage: Usage) -> Row:
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cost,
        usage.estimated,
    )


def _round_rows(journal: str, line: RoundKept) -> Iterator[tuple[str, Row]]:
    number = line.round.round
    yield from _message_rows(journal, line, line.turn, number, line.round.messages)
    for result in line.round.results:
        yield "result_lines", (journal, line.n, line.session_id, line.turn.turn_id, number, line.at, *_result(result))


def _message_rows(journal: str, line: Line, head: TurnHead, number: int, messages: tuple[Any, ...]) -> Iterator[tuple[str, Row]]:
    at = head.position
    for place, message in enumerate(messages):
        key = (journal, line.n, line.session_id, head.turn_id, number, place, line.at)
        said = (message.role, message.text)
        match message:
            case AssistantMessage():
                yield "message_lines", (*key, *said, message.reasoning, None, None, None, message.model, message.finish_reason, message.partial, at)
                for index, call in enumerate(message.tool_calls):
                    yield "call_lines", (*key[:5], index, line.at, *_call(call))
            case ToolMessage():
                yield "message_lines", (*key, *said, None, message.call_id, message.name, message.status, None, None, False, at)
            case _:
                yield "message_lines", (*key, *said, *(None,) * 6, False, at)


def _call(call: ToolCall) -> Row:
    return (call.id, call.name, call.arguments)


def _result(result: ToolResult) -> Row:
    kept = result.artifact
    where = (kept.handle, kept.hash, kept.media_type, kept.size) if kept else (None,) * 4
    shown = result.excerpt
    outcome = (result.call_id, result.name, result.status, result.elapsed, result.error, shown.text, shown.shown, shown.total)
    return (*outcome, *where, _json(result.metadata))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

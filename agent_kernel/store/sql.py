"""SQL over a history for people: one statement that reads the documented views, and sums of usage.

A person's SQL never meets the index itself: it runs on a throwaway copy of it, attached read-only to an instance of its own that is then
locked down, so that no statement writes, opens or fetches anything and no kernel waits for a long query. All of it off the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent_kernel.errors import SettingsError, StoreError
from agent_kernel.store.database import attach, connect, locked, trouble
from agent_kernel.store.home import Home
from agent_kernel.store.index import READ_BUDGET
from agent_kernel.store.kept import Kept
from agent_kernel.store.schema import TABLES, rows_of, statements
from agent_kernel.store.transfer import lines_of
from agent_kernel.store.worker import Worker

MOST_ROWS = 100_000  # of an answer; a query that needs more than that wants a LIMIT or a sum
TIME_LIMIT = 30.0  # seconds
PREFIX = "sql-"  # of throwaway folders beside the index
STALE_AFTER = 3_600.0  # seconds after which a throwaway folder is that of a killed process
READING = {"SELECT", "EXPLAIN"}  # what DuckDB calls statements that give rows; DESCRIBE, SHOW and SUMMARIZE are SELECT to it

# The views as people are told of them; a test holds them to the index.
VIEWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sessions": (
        "one row per session",
        ("session_id", "name", "created_at", "updated_at", "notebook", "forked_from", "forked_at", "turns", "first_prompt"),
    ),
    "turns": (
        "one row per turn; retries names the turn that it asks again",
        (
            *("session_id", "turn_id", "position", "prompt", "model", "started_at", "updated_at", "retries", "rounds", "status", "error"),
            *("partial_text", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost", "estimated"),
        ),
    ),
    "messages": (
        "what was said, by role: user, assistant, tool",
        (
            *("session_id", "turn_id", "round", "place", "written_at", "role", "text", "reasoning", "call_id", "name", "status", "model"),
            *("finish_reason", "partial"),
        ),
    ),
    "tool_calls": (
        "what the model asked for; arguments is JSON",
        ("session_id", "turn_id", "round", "place", "written_at", "call_id", "name", "arguments"),
    ),
    "results": (
        "what came of it; elapsed in seconds, shown and total in characters, handle and hash of a whole output that is kept",
        (
            *("session_id", "turn_id", "round", "written_at", "call_id", "name", "status", "elapsed", "error", "text", "shown", "total"),
            *("handle", "hash", "media_type", "size", "metadata"),
        ),
    ),
    "usage": (
        "tokens and cost (US dollars) per turn",
        (
            *("session_id", "session", "notebook", "turn_id", "model", "day", "input_tokens", "output_tokens", "cached_tokens"),
            *("reasoning_tokens", "cost", "estimated"),
        ),
    ),
}

GROUPS = {"model": "model", "notebook": "notebook", "day": "day"}
_SUMS = """count(*), sum(input_tokens)::BIGINT, sum(output_tokens)::BIGINT, sum(cached_tokens)::BIGINT, sum(reasoning_tokens)::BIGINT, sum(cost),
    bool_or(estimated) FROM usage"""


class Answer(Struct, frozen=True, kw_only=True):
    """The rows of a query; ``more`` tells that there were more than are here."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool = False


class UsageSum(Struct, frozen=True, kw_only=True):
    """Usage of some turns; ``key`` is the model, notebook or day (ISO 8601) they have in common, None where unknown or all."""

    key: str | None
    turns: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    estimated: bool


async def usage(kept: Kept, by: str | None = None) -> list[UsageSum]:
    """Return what was used, in one sum or grouped by ``model``, ``notebook`` or ``day``, the latest day and the largest sums first.

    Raises:
        SettingsError: It cannot be grouped by that.
        StoreError: The history cannot be read.
    """
    if by is not None and by not in GROUPS:
        raise SettingsError(f"Usage can be summed by {', '.join(GROUPS)}, not by {by!r}.")
    order = "1 DESC" if by == "day" else "3 DESC NULLS LAST, 1"
    query = f"SELECT CAST({GROUPS[by]} AS VARCHAR), {_SUMS} GROUP BY 1 ORDER BY {order}" if by else f"SELECT NULL, {_SUMS}"
    names = UsageSum.__struct_fields__
    return [UsageSum(**{**dict(zip(names, row, strict=True)), "estimated": bool(row[-1])}) for row in await _rows(kept, query) if row[1]]


async def prompted(kept: Kept, text: str) -> set[str]:
    """Return the ids of sessions in which a prompt holds a text, case aside."""
    query = "SELECT DISTINCT session_id FROM turns WHERE contains(lower(prompt), lower(?))"
    return {row[0] for row in await _rows(kept, query, [text])}


async def known_turns(kept: Kept, turn_ids: set[str]) -> set[str]:
    """Return those of some turns' ids that sessions of this history have."""
    query = "SELECT DISTINCT turn_id FROM turns WHERE turn_id IN (SELECT unnest(?))"
    return {row[0] for row in await _rows(kept, query, [sorted(turn_ids)])} if turn_ids else set()


async def still_kept(kept: Kept) -> set[str]:
    """Return the hashes of the whole outputs that results of sessions refer to."""
    return {row[0] for row in await _rows(kept, "SELECT DISTINCT hash FROM results WHERE hash IS NOT NULL")}


async def ask(kept: Kept, text: str, *, most_rows: int = MOST_ROWS, time_limit: float = TIME_LIMIT) -> Answer:
    """Run one reading statement over the views and return its rows.

    Args:
        kept: What the history is kept in.
        text: The statement.
        most_rows: Rows that are fetched.
        time_limit: Seconds until the statement is interrupted.

    Raises:
        StoreError: It is no single reading statement, it is wrong, forbidden or too slow, or the history cannot be read.
    """
    worker = Worker("agent-kernel-sql")
    query = _Query(text, most_rows, time_limit)
    try:
        if isinstance(kept, Home):
            await kept.read(lambda _: None)  # up to date, and the index is there
            with contextlib.suppress(_NoCopy):
                return await worker.run(lambda: query.on_copy(kept))
        connection = await _loaded(kept)
        return await worker.run(lambda: query.on(connection))
    except asyncio.CancelledError:
        query.stop()
        raise
    finally:
        await worker.close(lambda: None)


class _NoCopy(StoreError):
    """The disk has no room for a copy of the index, or there is no index on it."""


class _Query:
    """One statement, and the means to stop it."""

    def __init__(self, text: str, most_rows: int, time_limit: float) -> None:
        self._text, self._most_rows, self._time_limit = text, most_rows, time_limit
        self._connection: Any = None
        self._late = False
        self._stopped = False

    def stop(self) -> None:
        """End the statement; from any thread."""
        self._stopped = True
        with contextlib.suppress(Exception):  # none yet, or closed this very moment
            self._connection.interrupt()

    def on_copy(self, home: Home) -> Answer:
        """Run on a copy of a home's index."""
        index = home.index()  # made by the read before this
        _sweep(index.folder)
        try:
            with tempfile.TemporaryDirectory(prefix=PREFIX, dir=index.folder) as folder:
                copy = Path(folder) / "history.duckdb"
                with locked(index.lock, budget=READ_BUDGET):  # nobody has the file open, this process included
                    shutil.copyfile(index.path, copy)
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(index.path.with_name(index.path.name + ".wal"), copy.with_name(copy.name + ".wal"))
                connection = connect({"temp_directory": folder})
                attach(connection, copy, read_only=True)
                return self.on(connection)
        except OSError as error:
            raise _NoCopy(f"No copy of the history could be made in {index.folder}: {error.strerror or error}.") from error

    def on(self, connection: Any) -> Answer:
        """Lock a connection down, run the statement and close the connection."""
        self._connection = connection
        timer = threading.Timer(self._time_limit, self._time_out)
        timer.daemon = True
        try:
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            timer.start()
            return self._run(connection)
        except Exception as error:
            if trouble(error) is None:
                raise
            raise StoreError(self._explained(str(error))) from error
        finally:
            timer.cancel()
            connection.close()

    def _run(self, connection: Any) -> Answer:
        found = connection.extract_statements(self._text)
        if len(found) != 1 or found[0].type.name not in READING:
            raise StoreError("One statement that reads is allowed here, such as SELECT ... FROM sessions; nothing was run. See %agent help sql.")
        if self._stopped:
            raise StoreError("The query was stopped.")
        result = connection.execute(found[0])
        rows: list[tuple[Any, ...]] = []
        while len(rows) <= self._most_rows and (batch := result.fetchmany(1_000)):
            rows += batch
        return Answer(columns=tuple(column[0] for column in result.description), rows=rows[: self._most_rows], more=len(rows) > self._most_rows)

    def _time_out(self) -> None:
        self._late = True
        self.stop()

    def _explained(self, message: str) -> str:
        if self._late:
            return f"The query was stopped: it took longer than {self._time_limit:g} s."
        if self._stopped:
            return "The query was stopped."
        lines = [line for line in message.split("\n") if line.strip()]
        said = " ".join(lines[:2]) if lines[1:] and lines[1].startswith(("Did you mean", "Candidate")) else (lines or ["no reason given"])[0]
        reach = " SQL here reads the history's views and nothing else." if "Permission Error" in said or "attached in read" in said else ""
        return f"The query was refused: {said}{reach}"


def _sweep(folder: Path) -> None:
    """Remove throwaway folders of processes that were killed."""
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(path, ignore_errors=True)


async def _rows(kept: Kept, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one of our own queries."""
    if isinstance(kept, Home):
        return await kept.query(query, parameters)
    connection = await _loaded(kept)
    try:
        return list(connection.execute(query, list(parameters)).fetchall())
    finally:
        connection.close()


async def _loaded(kept: Kept) -> Any:
    """Return a connection with the tables and views of a history that has no index, for one use."""
    rows: dict[str, list[Any]] = {name: [] for name in TABLES}
    numbers, seen = itertools.count(1), set[str]()
    for session in sorted(await kept.summaries(), key=lambda each: each.created_at):
        found = await kept.session(session.id)
        shared = [turn.turn_id for turn in found.record.turns if turn.turn_id in seen]
        seen.update(turn.turn_id for turn in found.record.turns)
        for line in lines_of(found.record, notebook=found.notebook, shared=shared):
            for table, row in rows_of("memory", next(numbers), 0, line):
                rows[table].append(row)

    def load() -> Any:
        connection = connect()
        for statement in statements():
            connection.execute(statement)
        for table, values in rows.items():
            if values:
                with connection.appender(table) as appender:
                    appender.append_rows(values)
        return connection

    return await asyncio.to_thread(load)

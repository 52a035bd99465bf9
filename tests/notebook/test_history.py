"""NotebookHistory in process: SQL that may only read, sums, filters, and sessions that travel as files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest

from agent_kernel import ScriptedModel, Session, tool
from agent_kernel.errors import SchemaTooNew, SettingsError, StoreError
from agent_kernel.notebook import tables
from agent_kernel.notebook.history import NotebookHistory
from agent_kernel.protocol.events import UsageDelta
from agent_kernel.protocol.messages import ToolCall, Usage
from agent_kernel.store import sql
from agent_kernel.store.artifacts import Artifacts
from agent_kernel.store.home import Home
from agent_kernel.store.kept import Memory


@tool
def big() -> str:
    """Return more than the model sees."""
    return "x" * 50_000 + " needle"


@contextlib.asynccontextmanager
async def opened(folder, notebook=None):
    async with Artifacts.open(folder) as artifacts, NotebookHistory(Home(folder), artifacts=artifacts, notebook=notebook) as history:
        yield history, artifacts


async def asked(history, artifacts, *prompts, name="demo"):
    used = UsageDelta(usage=Usage(input_tokens=100, output_tokens=10, cost=0.5))
    model = ScriptedModel([[ToolCall(id="c1", name="big"), used], *([f"answer to {prompt}", used] for prompt in prompts)], name="script")
    session = Session(model, tools=[big], history=history, artifacts=artifacts, name=name)
    for prompt in prompts:
        await session.run(prompt)
    return session


@pytest.mark.parametrize("kind", ["home", "memory"])
def test_the_documented_views_are_what_is_there(tmp_path, kind):
    async def main():
        async with NotebookHistory(Home(tmp_path) if kind == "home" else Memory()) as history:
            for view, (_, columns) in sql.VIEWS.items():
                assert (await history.rows(f"SELECT * FROM {view}")).columns == columns  # noqa: S608 - our own names

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["home", "memory"])
def test_rows_sums_and_filters(tmp_path, kind):
    async def main():
        async with (
            Artifacts.open(tmp_path) as artifacts,
            NotebookHistory(Home(tmp_path) if kind == "home" else Memory(), artifacts=artifacts, notebook="reports/a.ipynb") as history,
        ):
            first = await asked(history, artifacts, "How is the north?", "And the south?", name="north")
            await asked(history, artifacts, "Something else", name="other")
            branch = await first.fork(at=1)
            answer = await history.rows("SELECT name, turns FROM sessions WHERE forked_from IS NULL ORDER BY name")
            assert answer.rows == [("north", 2), ("other", 1)]
            assert (await history.rows("SELECT status, handle FROM results")).rows == [("ok", "r1"), ("ok", "r1")]
            [total] = await history.usage()
            assert (total.turns, total.input_tokens, total.output_tokens, total.cost, total.estimated) == (3, 500, 50, 2.5, False)
            assert [(each.key, each.turns) for each in await history.usage("model")] == [("script", 3)]
            assert [(each.key, each.turns) for each in await history.usage("day")] == [(time.strftime("%Y-%m-%d"), 3)]
            with pytest.raises(SettingsError, match="model, notebook, day"):
                await history.usage("name")
            assert {each.id for each in await history.list(text="SOUTH")} == {first.id}
            assert branch.id in {each.id for each in await history.list(text=branch.id[:8])}
            assert len(await history.list(text=time.strftime("%Y-%m-%d"))) == 3
            assert await history.list(text="nowhere") == []
            if kind == "home":
                assert len(await history.list(text="reports/a")) == 3
                assert [each.key for each in await history.usage("notebook")] == ["reports/a.ipynb"]

    asyncio.run(main())


HOSTILE = (
    "COPY (SELECT 1) TO '{out}'",
    "WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO '{index}') SELECT 1",
    "WITH x AS (DELETE FROM turn_lines RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO drained VALUES ('j', 1, 1) RETURNING *) SELECT * FROM x",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "EXPLAIN ANALYZE DELETE FROM turn_lines",
    "ATTACH '{out}'",
    "ATTACH ':memory:' AS other",
    "DETACH history",
    "INSTALL httpfs",
    "LOAD json",
    "PRAGMA enable_external_access=true",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "CREATE TABLE mine (i INTEGER)",
    "CREATE TABLE memory.mine (i INTEGER)",
    "DROP VIEW sessions",
    "UPDATE session_lines SET name = 'x'",
    "EXPORT DATABASE '{out}'",
    "IMPORT DATABASE '{out}'",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "CALL pragma_version()",
    "PREPARE p AS SELECT 1",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_csv('/etc/hostname')",
    "SELECT * FROM '/etc/hostname'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('/etc/hostname')",
    "SELECT * FROM read_text('http://127.0.0.1:9/x')",
    "SELECT * FROM read_blob('{index}')",
    "SELECT secret FROM duckdb_secrets(); SELECT 1",
    "SELECT 1; COPY (SELECT 1) TO '{out}'",
    "SELECT getvariable(",
    "SELECT * FROM no_such_table",
    "not sql at all",
    "",
    "-- only a comment",
)


@pytest.mark.parametrize("statement", HOSTILE)
def test_hostile_sql_is_refused_in_one_line_and_writes_nothing(tmp_path, statement):
    home, out = tmp_path / "home", tmp_path / "out"

    async def main():
        async with opened(home) as (history, artifacts):
            await asked(history, artifacts, "hello")
            before = (await history.rows("SELECT * FROM sessions")).rows
            text = statement.format(out=out, index=home / "index" / "history.duckdb")
            with pytest.raises(StoreError) as refused:
                await history.rows(text)
            assert "\n" not in str(refused.value)
            assert not out.exists()
            assert (await history.rows("SELECT * FROM sessions")).rows == before
            assert [path for path in (home / "index").iterdir() if path.is_dir()] == []

    asyncio.run(main())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_reading_statements_of_any_kind_are_allowed(tmp_path):
    async def main():
        async with opened(tmp_path) as (history, artifacts):
            await asked(history, artifacts, "hello")
            for statement in (
                "FROM turns",
                "DESCRIBE sessions",
                "SHOW TABLES",
                "SUMMARIZE turns",
                "EXPLAIN SELECT 1",
                "WITH a AS (SELECT 1 AS x) SELECT x FROM a;",
                "VALUES (1)",
            ):
                assert (await history.rows(statement)).rows
            wide = await sql.ask(history.kept, "SELECT range FROM range(10)", most_rows=3)
            assert (wide.rows, wide.more) == ([(0,), (1,), (2,)], True)

    asyncio.run(main())


ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000000) b"


def test_a_slow_query_ends_at_its_limit_at_a_cancel_and_holds_nobody_up(tmp_path):
    async def main():
        async with opened(tmp_path) as (history, artifacts):
            await asked(history, artifacts, "hello")
            with pytest.raises(StoreError, match=r"longer than 0\.2 s"):
                await sql.ask(history.kept, ENDLESS, time_limit=0.2)
            slow = asyncio.create_task(history.rows(ENDLESS))
            while not list((tmp_path / "index").glob(f"{sql.PREFIX}*")):  # noqa: ASYNC110 - the folder is the sign
                await asyncio.sleep(0.005)
            async with opened(tmp_path) as (other, _):
                assert len(await other.list()) == 1  # the index is free
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert [path for path in (tmp_path / "index").iterdir() if path.is_dir()] == []

    asyncio.run(main())


def test_a_frame_of_the_library_that_is_there_else_a_plain_table(monkeypatch):
    answer = sql.Answer(columns=("name", "n", "n"), rows=[("a", 1, None), ("b" * 100, 22, 0.5)], more=True)
    made = tables.frame(answer)
    assert type(made).__module__.startswith(("pandas", "polars"))
    assert made.shape == (2, 3)
    for library in ("pandas", "polars"):
        monkeypatch.setattr(tables, "LIBRARIES", (library,))
        frame = tables.frame(answer)
        assert type(frame).__module__.startswith(library)
        assert list(frame.columns) == ["name", "n", "n_3"]
    monkeypatch.setattr(tables, "LIBRARIES", ("no_such_library",))
    assert tables.frame(answer) is None
    lines = tables.plain(answer).split("\n")
    assert lines[0].split() == ["name", "n", "n"]
    assert lines[2].endswith(" 1")
    assert lines[3].split()[1:] == ["22", "0.5"]
    assert lines[3].split()[0].endswith("...")
    assert lines[4] == "(at least 0 more rows)"
    assert tables.plain(sql.Answer(columns=("a",), rows=[])) == "a\n-"


def everything(record):
    """What must come back: all but the session's and its turns' ids."""
    turns = [
        (turn.prompt, turn.model, turn.started_at, turn.replaced, [(round_.messages, round_.results, round_.at) for round_ in turn.rounds])
        for turn in record.turns
    ]
    ends = [(turn.end.status, turn.end.error, turn.end.partial_text, turn.end.usage, turn.end.at) for turn in record.turns if turn.end]
    return record.name, record.created_at, record.updated_at, turns, ends


def test_a_session_travels_to_another_machine_and_back_whole(tmp_path):
    async def main():
        file = tmp_path / "session.json"
        async with opened(tmp_path / "a", notebook="a.ipynb") as (history, artifacts):
            session = await asked(history, artifacts, "one", "two", "three")
            await session.drop_last_turn(session.turns[-1].turn_id)
            await history.rename(session.id, "another name")
            record = await history.load(session.id)
            await history.export(session.id, file)
            again = await history.import_file(file)
            assert again.id != session.id
            assert everything(again) == everything(record)
            assert not {turn.turn_id for turn in again.turns} & {turn.turn_id for turn in record.turns}
        async with opened(tmp_path / "b") as (history, artifacts):
            here = await history.import_file(file)
            assert here == record
            assert (await history.list())[0].notebook == "a.ipynb"
            assert [hit.turn_id for hit in await history.search("answer to one")] == [record.turns[0].turn_id]
            resumed = await Session(ScriptedModel(["four"]), history=history, artifacts=artifacts).resume(here.id)
            assert str(await resumed.result("r1")).endswith(" needle")
            await resumed.run("next")
            assert [message.text for message in await history.messages(here.id)][-2:] == ["next", "four"]
            await history.remove(here.id)
            assert (await history.import_file(file)).id != here.id  # the id of a deleted session is taken too

    asyncio.run(main())


def test_a_fork_travels_with_what_it_shares(tmp_path):
    async def main():
        file, source = tmp_path / "fork.json", tmp_path / "source.json"
        async with opened(tmp_path / "a") as (history, artifacts):
            session = await asked(history, artifacts, "one", "two")
            fork = await session.fork(at=1, name="fork")
            fork.model = ScriptedModel(["beside"])
            await fork.run("three")
            await history.export(fork.id, file)
            await history.export(session.id, source)
            said = await history.messages(fork.id)
            again = await history.import_file(file)
            assert (await history.messages(again.id)) == said
            assert [turn.turn_id for turn in again.turns][:1] == [session.turns[0].turn_id]  # shared again, not copied
        async with opened(tmp_path / "b") as (history, _):
            alone = await history.import_file(file)
            assert (await history.messages(alone.id)) == said
            later = await history.import_file(source)
            assert later.id == session.id
            assert not {turn.turn_id for turn in alone.turns} & {turn.turn_id for turn in later.turns}
            assert len(await history.search("answer to one")) == 2

    asyncio.run(main())


def test_bad_files_are_refused_and_import_nothing(tmp_path):
    async def main():
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        async with opened(tmp_path / "a") as (history, artifacts):
            session = await asked(history, artifacts, "one")
            await history.export(session.id, good)
        document = json.loads(good.read_text())
        cases = {
            "is no session": (b"", b"[]", b"{}", b"\xff\xfe", b'{"kind": "other"}', json.dumps(document | {"session": {"id": "x"}}).encode()),
            "is damaged": (json.dumps(document | {"artifacts": [document["artifacts"][0] | {"data": "AAAA"}]}).encode(),),
        }
        async with opened(tmp_path / "b") as (history, _):
            for wanted, raws in cases.items():
                for raw in raws:
                    bad.write_bytes(raw)
                    with pytest.raises(StoreError, match=wanted):
                        await history.import_file(bad)
            bad.write_text(json.dumps(document | {"v": 99, "session": "in a later form"}))
            with pytest.raises(SchemaTooNew):
                await history.import_file(bad)
            with pytest.raises(StoreError, match="cannot be read"):
                await history.import_file(tmp_path / "none.json")
            assert await history.list() == []
            bad.write_text(json.dumps(document | {"session": document["session"] | {"id": "../../etc"}}))
            assert len((await history.import_file(bad)).id) == 36

    asyncio.run(main())


def test_exports_are_written_whole_or_not_at_all(tmp_path):
    async def main():
        async with opened(tmp_path / "home") as (history, artifacts):
            session = await asked(history, artifacts, "one")
            target = tmp_path / "out.md"
            target.write_text("mine")
            with pytest.raises(StoreError, match="there already"):
                await history.export(session.id, target)
            assert target.read_text() == "mine"
            await history.export(session.id, target, force=True)
            assert "answer to one" in target.read_text()
            for path, wanted in (
                (tmp_path / "no" / "out.md", "cannot be written"),
                (tmp_path / "out.docx", "not as docx"),
                (tmp_path / "out", "without a suffix"),
            ):
                with pytest.raises(StoreError, match=wanted):
                    await history.export(session.id, path)
            with pytest.raises(StoreError, match="no session"):
                await history.export("nosuch", tmp_path / "x.md")
            assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "out.md"]

    asyncio.run(main())


def test_deleting_a_session_takes_its_outputs_but_none_that_another_needs(tmp_path):
    async def main():
        async with opened(tmp_path) as (history, artifacts):
            first, second = await asked(history, artifacts, "one"), await asked(history, artifacts, "two")  # the same output, kept once
            kept = first.artifact("r1")
            fork = await second.fork()
            assert await history.remove(first.id) == 0
            assert str(await artifacts.read(kept)).endswith(" needle")
            await history.release(second.id)
            assert await history.remove(second.id) == 0  # the fork shares the turn
            assert str(await fork.result("r1")).endswith(" needle")
            assert await history.remove(fork.id) == 1
            with pytest.raises(StoreError):
                await artifacts.read(kept)

    asyncio.run(main())


def test_sql_sees_no_variable_of_the_users():
    async def main():
        secret = sql.Answer(columns=("a",), rows=[(1,)])
        frame = tables.frame(secret)
        async with NotebookHistory(Memory()) as history:
            with pytest.raises(StoreError, match="frame"):
                await history.rows("SELECT * FROM frame")
        assert frame.shape == (1, 1)

    asyncio.run(main())

"""A home that several processes and machines share, and History over it."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import threading

import pytest

from agent_kernel.errors import SchemaTooNew, SessionBusy, StoreError
from agent_kernel.store.history import History
from agent_kernel.store.home import Home, default_home, index_folder
from agent_kernel.store.journal import Journal, journals, read_lines
from agent_kernel.store.lines import RoundKept, SessionRenamed

ANSWERS = """
import asyncio, sys, time, uuid
from agent_kernel.protocol.messages import AssistantMessage, Usage, UserMessage
from agent_kernel.store.history import History
from agent_kernel.store.records import RoundRecord, TurnEnd, TurnRecord

async def put(history, session_id, prompt, answer):
    turn_id = str(uuid.uuid4())
    await history.start_turn(session_id, TurnRecord(turn_id=turn_id, prompt=prompt, model="m", started_at=time.time()))
    messages = (UserMessage(text=prompt), AssistantMessage(text=answer))
    await history.append_round(session_id, RoundRecord(turn_id=turn_id, round=1, messages=messages, at=time.time()))
    await history.end_turn(session_id, TurnEnd(turn_id=turn_id, status="completed", usage=Usage(), at=time.time()))

async def main():
    async with History.open(sys.argv[1]) as history:
        session_id = sys.argv[2] if len(sys.argv) > 2 else (await history.create(name="theirs")).id
        await put(history, session_id, "from the child", "yes")
        print(session_id, flush=True)
        if (await asyncio.to_thread(sys.stdin.readline)) == "release\\n":
            await history.release(session_id)
            print("released", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def texts(messages):
    return [message.text for message in messages]


def test_folders_are_for_their_owner(using, home, turn):
    async def main(history):
        assert list(home.parent.iterdir()) == []  # open does no I/O
        assert await history.list() == []
        await turn(history, (await history.create()).id)

    using(main)
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in (home, home / "journals", home / "index"))


def test_another_process_finds_reads_forks_and_searches_what_this_one_keeps(using, home, child, turn):
    process = child(ANSWERS, home)
    session_id = process.stdout.readline().strip()

    async def main(history):
        [found] = await history.list()
        assert (found.id, found.name, found.turns, found.prompt) == (session_id, "theirs", 1, "from the child")
        assert texts(await history.messages(session_id)) == ["from the child", "yes"]
        assert [hit.line for hit in await history.search("THE CHILD")] == ["from the child"]
        fork = await history.fork(session_id)
        await turn(history, fork.id, "mine")
        assert texts(await history.messages(fork.id)) == ["from the child", "yes", "mine", "a"]
        assert texts(await history.messages(session_id)) == ["from the child", "yes"]
        with pytest.raises(SessionBusy, match=f"process id {process.pid} on "):
            await turn(history, session_id)

    using(main)


def test_a_session_is_free_when_its_kernel_releases_it_or_ends(using, home, child, turn):
    process = child(ANSWERS, home)
    session_id = process.stdout.readline().strip()

    async def busy(history):
        with pytest.raises(SessionBusy, match="fork it here"):
            await history.claim(session_id)
        with pytest.raises(SessionBusy):  # and it stays so: to be refused is no claim
            await history.claim(session_id)

    async def free(history):
        assert await history.claim(session_id) is not None
        await turn(history, session_id, "now mine")
        assert await history.claim(session_id) is None
        await history.release(session_id)

    using(busy)
    print("release", file=process.stdin, flush=True)
    assert process.stdout.readline() == "released\n"
    using(free)
    again = child(ANSWERS, home, session_id)
    assert again.stdout.readline().strip() == session_id
    using(busy)
    again.kill()
    again.wait()
    using(free)

    async def main(history):
        assert texts(await history.messages(session_id)) == ["from the child", "yes", "now mine", "a"] * 2

    using(main)


def test_a_claim_holds_when_the_journal_that_has_it_is_full(using, home, turn, monkeypatch):
    from agent_kernel.store import journal as module

    monkeypatch.setattr(module, "ROTATE_AT", 500)  # bytes: a constant, so that each turn begins a journal

    async def main(history):
        first, second = await history.create(), await history.create()
        for _ in range(3):
            await turn(history, second.id)
        assert len(journals(home / "journals")) > 3
        async with History(Home(home)) as other:
            for session in (first, second):
                with pytest.raises(SessionBusy):
                    await other.claim(session.id)
            await history.release(first.id)
            assert await other.claim(first.id) is not None

    using(main)


def test_two_that_claim_at_once_are_never_both_let_in(using, home, turn):
    async def main(history):
        session = await history.create()
        await history.release(session.id)
        for _ in range(10):
            async with History(Home(home)) as one, History(Home(home)) as two:
                outcomes = await asyncio.gather(one.claim(session.id), two.claim(session.id), return_exceptions=True)
                assert sum(isinstance(outcome, SessionBusy) for outcome in outcomes) >= 1
                assert all(isinstance(outcome, SessionBusy) or outcome.id == session.id for outcome in outcomes)

    using(main)


def test_two_machines_on_one_home_with_an_index_each(using, home, tmp_path, turn):
    def machine(name):
        return History(Home(home, index_folder=tmp_path / name, host=name))

    async def main():
        async with machine("alpha") as one, machine("beta") as two:
            session = await one.create(name="shared")
            await turn(one, session.id, "from alpha")
            assert texts(await two.messages(session.id)) == ["from alpha", "a"]
            with pytest.raises(SessionBusy, match="on alpha"):
                await two.claim(session.id)
            await one.release(session.id)
            await turn(two, session.id, "from beta")
            assert texts(await one.messages(session.id)) == ["from alpha", "a", "from beta", "a"]
            fork = await one.fork(session.id, at=1)
            assert [hit.session_id for hit in await two.search("from alpha")] == [session.id]
            await two.rename(session.id, "renamed")
            assert {found.name for found in await one.list()} == {"renamed", "shared"}
            await one.delete(session.id)
            assert [found.id for found in await two.list()] == [fork.id]
            assert texts(await two.messages(fork.id)) == ["from alpha", "a"]
        assert {file.host for file in journals(home / "journals").values()} == {"alpha", "beta"}
        assert (tmp_path / "alpha" / "history.duckdb").exists()
        assert (tmp_path / "beta" / "history.duckdb").exists()
        assert not (home / "index").exists()

    asyncio.run(main())


def test_user_code_opens_hashes_and_copies_the_index_while_it_is_used(using, home, tmp_path, turn):
    """Every open and close of the file in this process drops the locks that DuckDB holds on it: our own lock must do without them."""
    import duckdb

    stop = threading.Event()
    visits = []

    def visit():
        copy = tmp_path / "copy"
        while not stop.is_set():
            for path in list((home / "index").glob("history*.duckdb*")):
                try:
                    hashlib.sha256(path.read_bytes()).hexdigest()
                    shutil.copyfile(path, copy)
                    with path.open("r+b"):
                        pass
                except FileNotFoundError:
                    continue
                visits.append(path.name)
            if len(visits) % 20 == 0 and visits:
                try:
                    with duckdb.connect(str(home / "index" / "history.duckdb"), read_only=True) as connection:
                        connection.execute("SELECT count(*) FROM places").fetchone()
                except duckdb.Error:
                    continue  # we have it this very moment, or it is not there yet

    async def main(history):
        session = await history.create()
        async with History(Home(home)) as other:
            for number in range(40):
                await turn(history, session.id, f"q{number}")
                assert len(await other.messages(session.id)) == 2 * (number + 1)
                assert len(await history.search(f"q{number}")) >= 1
        return session.id

    thread = threading.Thread(target=visit)
    thread.start()
    try:
        session_id = using(main)
    finally:
        stop.set()
        thread.join()
    assert len(visits) > 40

    async def whole(history):
        assert texts(await history.messages(session_id))[::2] == [f"q{number}" for number in range(40)]
        assert len(await history.kept.query("SELECT DISTINCT journal, n FROM places")) == len(await history.kept.query("SELECT 1 FROM places"))

    using(whole)


def test_nothing_runs_on_the_event_loop(using, home, turn):
    """Every read and write of a file and every query is done by a thread of the worker that is there for it."""
    seen = set()

    def watch(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.endswith(("store/journal.py", "store/index.py", "store/database.py", "store/compact.py")):
            seen.add((threading.current_thread().name.rsplit("_", 1)[0], frame.f_code.co_name))

    async def main(history):
        threading.setprofile(watch)
        import sys

        sys.setprofile(watch)
        try:
            session = await history.create(name="x")
            await turn(history, session.id)
            await history.list()
            await history.search("q")
            fork = await history.fork(session.id)
            await history.rename(fork.id, "y")
            await history.delete(fork.id)
            await history.kept.tidy()
            await history.close()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    using(main)
    names = {name for name, function in seen if function not in ("__init__", "<lambda>")}
    assert names == {"agent-kernel-journal", "agent-kernel-index"}
    assert {"append", "read", "attached"} <= {function for _, function in seen}


def test_no_thread_and_no_file_is_left_open_after_close(using, turn, tmp_path):
    before = set(threading.enumerate())

    async def main(history):
        await turn(history, (await history.create()).id)
        await history.list()

    using(main)
    assert set(threading.enumerate()) <= before
    open_files = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{name}")]  # noqa: PTH115, PTH208, PTH114
    assert not [name for name in open_files if name.startswith(str(tmp_path))]


def test_a_cancelled_write_is_kept_all_the_same(using, home, line):
    async def main(history):
        session = await history.create()
        for number in range(20):
            write = asyncio.ensure_future(history.rename(session.id, f"name {number}"))
            appended = asyncio.ensure_future(
                history._write([SessionRenamed(session_id=session.id, at=1e12 + number, name=f"late {number}")])
            )  # the write alone, so that the moment is sure
            await asyncio.sleep(0)
            appended.cancel()
            with pytest.raises(asyncio.CancelledError):
                await appended
            await write
        assert history.problem is None
        assert len(asyncio.all_tasks()) == 1

    using(main)
    names = [line.name for file in journals(home / "journals").values() for _, _, line in read_lines(file.path) if isinstance(line, SessionRenamed)]
    assert {f"late {number}" for number in range(20)} <= set(names)


def test_lines_that_wait_survive_a_cancel_and_are_written_when_there_is_room(tmp_path, turn):
    home = tmp_path / "home"
    home.write_text("in the way")

    async def main():
        history = History(Home(home))
        session = await history.create(name="kept later")
        assert "cannot be written" in history.problem
        await turn(history, session.id, "one")
        write = asyncio.ensure_future(turn(history, session.id, "two"))
        await asyncio.sleep(0)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert texts(await history.messages(session.id))[:2] == ["one", "a"]
        home.unlink()
        await turn(history, session.id, "three")
        assert history.problem is None
        await history.close()
        return session.id

    session_id = asyncio.run(main())

    async def again():
        async with History(Home(home)) as history:
            [found] = await history.list()
            assert (found.id, found.name) == (session_id, "kept later")
            said = texts(await history.messages(session_id))
            assert said[:2] == ["one", "a"]
            assert said[-2:] == ["three", "a"]

    asyncio.run(again())


def test_a_home_that_cannot_be_written_is_read_through_an_index_elsewhere(using, small_disk, tmp_path, turn, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    disk = small_disk(8_000)

    async def write(history):
        session = await history.create(name="old")
        await turn(history, session.id, "before")
        return session.id

    session_id = using(write, disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)  # noqa: S607

    async def read(history):
        assert [found.name for found in await history.list()] == ["old"]
        assert texts(await history.messages(session_id)) == ["before", "a"]
        await turn(history, session_id, "kept in memory")
        assert "Read-only" in history.problem
        assert texts(await history.messages(session_id)) == ["before", "a", "kept in memory", "a"]
        new = await history.create(name="new")
        await turn(history, new.id, "new too")
        assert texts(await history.messages(new.id)) == ["new too", "a"]

    using(read, disk / "home")
    assert list((tmp_path / "cache").rglob("history*.duckdb"))


def test_a_resumed_session_goes_on_when_there_is_no_place_for_an_index(using, home, turn):
    async def first(history):
        session = await history.create()
        for number in range(3):
            await turn(history, session.id, f"q{number}")
        return session.id

    session_id = using(first)

    async def second(history):
        await history.load(session_id)
        shutil.move(home / "index", home / "aside")
        (home / "index").write_text("in the way")
        assert len((await history.claim(session_id)).turns) == 3  # through an index in memory
        await turn(history, session_id, "q3")

    using(second)
    (home / "index").unlink()

    async def third(history):
        assert texts(await history.messages(session_id))[::2] == [f"q{number}" for number in range(4)]

    using(third)


def test_a_newer_version_in_the_home_refuses_clearly(using, home, turn):
    async def main(history):
        session = await history.create()
        await turn(history, session.id)
        (home / "journals" / f"there-1-{'0' * 32}.g1.jsonl").write_bytes(b'{"v":2,"t":"Unheard"}\n')
        for operation in (history.list, lambda: history.load(session.id), lambda: history.search("q"), lambda: history.claim("other")):
            with pytest.raises(SchemaTooNew, match="newer agent_kernel"):
                await operation()
        await turn(history, session.id)  # what this kernel asks in already goes on

    using(main)


def test_a_forked_kernel_process_writes_on_its_own_and_leaves_the_parents_be(using, home, turn):
    """The child uses history objects that its parent made, whose threads it does not have, and ends normally."""

    async def main(history):
        session = await history.create(name="parent's")
        await turn(history, session.id, "one")
        await history.list()
        return session.id

    history = History(Home(home))
    session_id = asyncio.run(main(history))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:

            async def in_child():
                with pytest.raises(SessionBusy, match=f"process id {os.getppid()} "):
                    await turn(history, session_id, "two")
                mine = await history.create(name="child's")
                await turn(history, mine.id, "three")
                await history.close()

            asyncio.run(in_child())
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    async def after():
        await turn(history, session_id, "four")
        assert {found.name for found in await history.list()} == {"parent's", "child's"}
        assert texts(await history.messages(session_id))[::2] == ["one", "four"]
        await history.close()

    asyncio.run(after())
    assert {file.pid for file in journals(home / "journals").values()} == {os.getpid(), pid}


def test_a_kernel_that_forks_and_both_end_in_the_normal_way(home, child, using):
    code = """
import asyncio, os, sys, threading
from agent_kernel.store.history import History
history = History.open(sys.argv[1])
loop = asyncio.new_event_loop()
engine = threading.Thread(target=loop.run_forever, daemon=True)
engine.start()
def run(coroutine): return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)
session = run(history.create(name="x"))
for number in range(20):
    run(history.rename(session.id, "y"))
    reading = asyncio.run_coroutine_threadsafe(history.list(), loop)
    if os.fork() == 0:
        sys.exit(0)  # destructors, exit functions and all
    assert os.wait()[1] == 0
    assert len(reading.result(30)) == 1
print(len(run(history.list())), flush=True)
"""
    process = child(code, home)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "1\n")

    async def main(history):
        assert [found.name for found in await history.list()] == ["y"]

    using(main)


def test_a_rewriting_between_finding_and_reading_is_noticed(using, home, line):
    journal = Journal(home / "journals", host="here")
    journal.append([line.created("s"), *(line.kept("s", f"t{number}", number, prompt=f"q{number}") for number in range(9))])
    journal.close()

    async def main(history):
        from agent_kernel.store.compact import rewrite

        kept = history.kept
        rows = await kept._reader.run(lambda: kept._places("s"))  # what a reader knows before a journal is rewritten under it
        [file] = journals(home / "journals").values()
        rewrite(file, {4})
        with pytest.raises(StoreError, match="rewritten"):
            kept._lines_at(rows)
        assert len((await history.load("s")).turns) == 8

    using(main)


def test_an_index_that_lies_is_made_again(using, home, turn):
    async def main(history):
        session = await history.create()
        await turn(history, session.id, "one")
        await history.kept.read(lambda connection: connection.execute("UPDATE places SET start = start + 7"))
        assert texts(await history.messages(session.id)) == ["one", "a"]

    using(main)


def test_where_a_home_and_its_index_are(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_KERNEL_HOME", str(tmp_path / "mine"))
    assert default_home() == tmp_path / "mine"
    assert index_folder(tmp_path / "mine" / "deeper") == tmp_path / "mine" / "deeper" / "index"
    monkeypatch.delenv("AGENT_KERNEL_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_home() == tmp_path / "data" / "agent_kernel"


def test_a_round_is_in_the_journal_when_it_is_acknowledged(using, home, turn):
    async def main(history):
        session = await history.create()
        await turn(history, session.id, "now", end=False)
        found = [line for file in journals(home / "journals").values() for _, _, line in read_lines(file.path)]
        assert isinstance(found[-1], RoundKept)

    using(main)

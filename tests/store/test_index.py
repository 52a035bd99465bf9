"""The index: exactly once, whatever happens to journals, to the index and to who reads."""

import os
import random
import threading

import pytest

from agent_kernel.errors import HistoryLocked, SchemaTooNew, StoreError
from agent_kernel.store import index as module
from agent_kernel.store.compact import rewrite
from agent_kernel.store.database import attach, connect, locked
from agent_kernel.store.journal import Journal, journals
from agent_kernel.store.lines import SessionRenamed, encode
from agent_kernel.store.schema import TABLES, VIEWS


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def journal(home):
    journal = Journal(home / "journals", host="here")
    yield journal
    journal.close()


@pytest.fixture
def index(index_of, home):
    return index_of(home)


def counts(index):
    return index.read(lambda c: {table: c.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES})  # noqa: S608


def places(index):
    return index.read(lambda c: c.execute("SELECT journal, n FROM places ORDER BY ALL").fetchall())


def names(index):
    return index.read(
        lambda c: [row[0] for row in c.execute("SELECT name FROM session_lines WHERE kind = 'SessionRenamed' ORDER BY stamp, n").fetchall()]
    )


def renamed(number):
    return SessionRenamed(session_id="s", at=float(number), name=str(number))


def test_each_line_is_taken_in_once(index, journal, line):
    journal.append([line.created("s", name="x"), line.kept("s", "t1"), line.ended("s", "t1")])
    expected = {"drained": 1, "places": 3, "session_lines": 1, "turn_lines": 2, "message_lines": 2, "call_lines": 0, "result_lines": 0}
    assert counts(index) == counts(index) == expected
    journal.append([line.kept("s", "t2", 2)])
    assert counts(index)["places"] == 4
    index.rebuild()
    assert counts(index)["places"] == 4
    assert names(index) == []


def test_no_journal_and_no_home_is_an_empty_index(index):
    assert counts(index)["places"] == 0


def test_the_views_can_be_queried(index, journal, line):
    journal.append([line.created("s", name="x", notebook="n.ipynb"), line.kept("s", "t1", prompt="one"), line.ended("s", "t1", at=2.0)])
    for view in VIEWS:
        index.read(lambda c, view=view: c.execute(f"SELECT * FROM {view}").fetchall())  # noqa: S608
    assert index.read(lambda c: c.execute("SELECT name, notebook, turns, first_prompt FROM sessions").fetchall()) == [("x", "n.ipynb", 1, "one")]


def test_many_batches_and_many_journals(index, home, monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 300)  # bytes: a constant, so that a batch ends every few lines
    shuffler = random.Random(3)  # noqa: S311
    writers = [Journal(home / "journals", host=f"h{number}") for number in range(4)]
    total = 0
    for _ in range(40):
        total += len(shuffler.choice(writers).append([renamed(total + each) for each in range(shuffler.randrange(1, 6))]))
        if shuffler.random() < 0.3:
            assert counts(index)["places"] == total
    assert counts(index)["places"] == total
    assert len(set(places(index))) == total
    for each in writers:
        each.close()


def test_garbage_and_a_torn_end_are_passed_and_not_looked_at_again(index, home, journal):
    journal.append([renamed(1)])
    [file] = journals(home / "journals").values()
    with file.path.open("ab") as out:
        out.write(b"garbage\n\x00\n" + encode(renamed(2)) + b"more garbage\n" + encode(renamed(3))[:-10])
    assert names(index) == ["1", "2"]
    size = index.read(lambda c: c.execute("SELECT size FROM drained").fetchone()[0])
    assert size == file.path.read_bytes().rindex(b"\n") + 1
    with file.path.open("ab") as out:
        out.write(encode(renamed(3))[-10:])
    assert names(index) == ["1", "2", "3"]


def test_an_index_that_knew_an_older_generation_reads_again_and_adds_nothing_twice(index, home, journal, tmp_path):
    journal.append([renamed(number) for number in range(10)])
    other = module.Index(tmp_path / "other", home / "journals")
    assert len(places(index)) == len(places(other)) == 10
    journal.close()
    [file] = journals(home / "journals").values()
    rewrite(file, {2, 5})
    [new] = journals(home / "journals").values()
    assert (new.generation, new.id) == (2, file.id)
    assert not file.path.exists()
    for each in (index, other):
        assert places(each) == [(file.id, n) for n in (1, 3, 4, 6, 7, 8, 9, 10)]
        assert each.read(lambda c: c.execute("SELECT generation, size FROM drained").fetchall()) == [(2, new.size)]
    rewrite(new, set(range(1, 11)))
    for each in (index, other):
        assert sum(counts(each).values()) == 0
    other.close()


def test_both_generations_beside_each_other_count_once(index, home, journal):
    journal.append([renamed(1), renamed(2)])
    assert len(places(index)) == 2
    [file] = journals(home / "journals").values()
    file.path.with_name(file.path.name.replace(".g1.", ".g2.")).write_bytes(file.path.read_bytes())
    assert len(places(index)) == 2


def test_a_line_that_was_seen_and_taken_back_goes_and_the_next_one_is_not_missed(index, home, journal):
    journal.append([renamed(1), renamed(2)])
    assert names(index) == ["1", "2"]
    [file] = journals(home / "journals").values()
    os.truncate(file.path, len(encode(renamed(1))))
    assert names(index) == ["1"]


def test_a_journal_that_is_gone_takes_its_rows_along(index, home, journal):
    journal.append([renamed(1)])
    other = Journal(home / "journals", host="there")
    other.append([renamed(2)])
    other.close()
    assert names(index) == ["1", "2"]
    next(file for file in journals(home / "journals").values() if file.host == "there").path.unlink()
    assert names(index) == ["1"]
    assert counts(index)["drained"] == 1


def test_an_unreadable_journal_stops_no_other(index, home, journal):
    (home / "journals").mkdir(parents=True)
    (home / "journals" / f"here-1-{'0' * 32}.g1.jsonl").mkdir()
    journal.append([renamed(1)])
    assert names(index) == ["1"]


def test_a_newer_version_is_refused_and_what_is_there_stays(index, home, journal):
    journal.append([renamed(1)])
    assert names(index) == ["1"]
    newer = home / "journals" / f"there-1-{'0' * 32}.g1.jsonl"
    newer.write_bytes(b'{"v":2,"t":"Unheard"}\n')
    with pytest.raises(SchemaTooNew, match="update"):
        names(index)
    newer.unlink()
    assert names(index) == ["1"]
    assert not list(index.folder.glob("*broken*"))


DAMAGE = {
    "empty": lambda data: b"",
    "garbage": lambda data: b"hello" * 100,
    "zeros": lambda data: bytes(len(data)),
    "half": lambda data: data[: len(data) // 2],
    "only the header": lambda data: data[:12_288],
    "header flipped": lambda data: b"\xff" * 4_096 + data[4_096:],
    "all blocks flipped": lambda data: data[:12_288] + bytes(byte ^ 0xFF for byte in data[12_288:]),
    "other magic": lambda data: data[:8] + b"XXXX" + data[12:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_set_aside_and_made_again(index, journal, damage):
    journal.append([renamed(number) for number in range(200)])
    expected = counts(index)
    damaged = index.path
    damaged.write_bytes(damage(damaged.read_bytes()))
    assert counts(index) == expected
    assert len(set(places(index))) == 200
    assert [path.name.split("-")[0] for path in index.folder.glob("*broken*")] == ["history.duckdb.broken"]
    assert index.path != damaged
    journal.append([renamed(1_000)])
    assert counts(index)["places"] == 201


def scribble(path, sql):
    connection = connect()
    attach(connection, path)
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    "sql",
    ["UPDATE meta SET version = 0", "DROP TABLE places CASCADE", "DROP TABLE meta; ", "ALTER TABLE drained DROP COLUMN size",
     "ALTER TABLE places DROP COLUMN length", "DELETE FROM meta"],
)  # fmt: skip
def test_an_index_with_other_tables_is_made_again(index, journal, sql):
    journal.append([renamed(number) for number in range(5)])
    assert len(places(index)) == 5
    scribble(index.path, sql)
    journal.append([renamed(9)])
    assert len(places(index)) == 6


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: bytes(len(data)), lambda data: b"x" * 350, lambda data: data[:-3], lambda data: b""], ids=["half", "zeros", "garbage", "short", "empty"])  # fmt: skip
def test_a_damaged_write_ahead_log_loses_nothing(index, journal, damage, child):
    journal.append([renamed(number) for number in range(50)])
    index.read(lambda _: None)
    code = """
import os, sys
from agent_kernel.store.database import attach, connect
connection = connect()
attach(connection, sys.argv[1])
connection.execute("BEGIN")
connection.execute("DELETE FROM places")
connection.execute("DELETE FROM session_lines")
connection.execute("DELETE FROM drained")
connection.execute("COMMIT")
os._exit(0)
"""
    assert child(code, index.path).wait() == 0  # dies with a log that says: drain all again
    log = index.path.with_name(index.path.name + ".wal")
    log.write_bytes(damage(log.read_bytes()))
    journal.append([renamed(number) for number in range(50, 60)])
    assert names(index) == [str(number) for number in range(60)]
    journal.append([renamed(60)])
    assert names(index) == [str(number) for number in range(61)]


def test_an_error_in_a_query_is_told_and_leaves_the_index_alone(index, journal):
    journal.append([renamed(1)])
    assert names(index) == ["1"]
    inode = index.path.stat().st_ino
    with pytest.raises(StoreError, match=r"query failed.*nonsense"):
        index.read(lambda c: c.execute("SELECT * FROM nonsense"))
    with pytest.raises(ZeroDivisionError):
        index.read(lambda _: 1 / 0)
    assert names(index) == ["1"]
    assert index.path.stat().st_ino == inode
    assert not list(index.folder.glob("*broken*"))


def test_a_lock_that_others_hold_is_waited_for_within_the_budget(index, journal):
    journal.append([renamed(1)])
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with locked(index.lock, budget=5):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)
    with pytest.raises(HistoryLocked, match="Another process"):
        index.read(lambda _: None, budget=0.05)
    leave.set()
    assert names(index) == ["1"]
    thread.join()


@pytest.mark.parametrize("mode", ["read_only=True", "read_only=False"])
def test_a_program_that_keeps_the_file_open_does_not_lock_us_out(index, journal, child, mode):
    journal.append([renamed(number) for number in range(5)])
    assert len(places(index)) == 5
    held = index.path
    process = child(f"import duckdb, sys\nc = duckdb.connect(sys.argv[1], {mode})\nprint('ready', flush=True)\nsys.stdin.readline()", held)
    assert process.stdout.readline() == "ready\n"
    journal.append([renamed(5)])
    assert len(places(index)) == 6
    assert index.path != held
    process.communicate("\n")
    assert process.returncode == 0
    journal.append([renamed(6)])
    assert len(places(index)) == 7
    assert not list(index.folder.glob("*broken*"))


def test_the_persons_own_connection_in_this_process_does_not_lock_us_out(index, journal):
    import duckdb

    journal.append([renamed(number) for number in range(5)])
    assert len(places(index)) == 5
    with duckdb.connect(str(index.path), read_only=True) as theirs:
        assert len(places(index)) == 5
        assert theirs.execute("SELECT count(*) FROM places").fetchone() == (5,)
    journal.append([renamed(6)])
    assert len(places(index)) == 6


def test_a_short_visit_is_waited_for(index, journal):
    import duckdb

    journal.append([renamed(1)])
    assert names(index) == ["1"]
    path, visiting = index.path, threading.Event()

    def visit():
        with duckdb.connect(str(path), read_only=True):
            visiting.set()
            threading.Event().wait(0.2)

    thread = threading.Thread(target=visit)
    thread.start()
    visiting.wait(30)
    assert names(index) == ["1"]
    assert index.path == path
    thread.join()


def test_a_full_disk_is_read_through_memory_and_room_makes_all_well(index_of, small_disk, fill, tmp_path, line):
    disk = small_disk(4_000)
    journal = Journal(tmp_path / "journals", host="here")
    index = module.Index(disk / "index", tmp_path / "journals")
    journal.append([line.created("s")])
    assert len(places(index)) == 1
    filler = fill(disk)
    journal.append([line.kept("s", f"t{number}", number, prompt=str(random.random()) * 50) for number in range(300)])  # noqa: S311
    assert len(places(index)) == 301  # from an index in memory
    with pytest.raises(StoreError, match="No space"):
        index.drain_patiently()
    filler.unlink()
    assert len(places(index)) == 301
    assert len(set(places(index))) == 301
    assert not list(index.folder.glob("*broken*"))
    index.close()
    journal.close()


def test_a_fork_in_the_middle_of_a_read_harms_nothing(index, journal):
    """A child that was forked while a worker had the file open ends in the normal way, with all that runs at an end."""
    journal.append([renamed(number) for number in range(20)])
    reading, go_on = threading.Event(), threading.Event()

    def slow(connection):
        connection.execute("DELETE FROM drained WHERE false")
        reading.set()
        go_on.wait(30)
        return connection.execute("SELECT count(*) FROM places").fetchone()[0]

    seen = []
    thread = threading.Thread(target=lambda: seen.append(index.read(slow)))
    thread.start()
    reading.wait(30)
    pid = os.fork()
    if pid == 0:
        index.close()
        del index
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    go_on.set()
    thread.join()
    assert seen == [20]
    journal.append([renamed(20)])
    assert len(places(index)) == 21


def test_a_forked_child_reads_with_an_instance_of_its_own(index, journal):
    journal.append([renamed(number) for number in range(3)])
    assert len(places(index)) == 3
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if len(places(index)) == 3 else 2
            index.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(places(index)) == 3

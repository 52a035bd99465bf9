"""Compaction: what goes, what stays, and that nothing is lost wherever it is interrupted."""

import asyncio
import os
import socket

import pytest

from agent_kernel.errors import StoreError
from agent_kernel.store import compact
from agent_kernel.store.compact import leftovers, tidy
from agent_kernel.store.journal import Journal, clean_host, journals, read_lines

HERE = socket.gethostname()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def kinds(home):
    return sorted((type(line).__name__, line.session_id) for file in journals(home / "journals").values() for _, _, line in read_lines(file.path))


def size(home):
    return sum(file.size for file in journals(home / "journals").values())


def tidied(using, grace=0.0):
    async def main(history):
        await history.kept._reader.run(
            lambda: tidy(history.kept.index(), history.kept.journal_folder, host=HERE, grace=grace)
        )  # with a grace of our own

    using(main)


def texts(messages):
    return [message.text for message in messages]


def test_deleted_sessions_and_claims_go_and_the_rest_stays(using, home, turn):
    async def main(history):
        keep, drop = await history.create(name="keep"), await history.create(name="drop")
        for number in range(3):
            await turn(history, keep.id, f"keep {number}")
            await turn(history, drop.id, "SECRET" * 100)
        await history.release(keep.id)
        await history.claim(keep.id)
        await history.delete(drop.id)
        return keep.id

    keep = using(main)
    before = size(home)
    assert b"SECRET" in next((home / "journals").iterdir()).read_bytes()
    tidied(using)
    assert size(home) < before / 2
    [path] = (home / "journals").iterdir()
    assert ".g2." in path.name
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"SECRET" not in path.read_bytes()
    assert {kind for kind, _ in kinds(home)} == {"SessionCreated", "RoundKept", "TurnEnded", "SessionDeleted"}

    async def after(history):
        assert [found.id for found in await history.list()] == [keep]
        assert texts(await history.messages(keep))[::2] == ["keep 0", "keep 1", "keep 2"]
        assert list(await history.search("SECRET")) == []

    using(after)
    tidied(using)
    tidied(using)
    assert {session for _, session in kinds(home)} == {keep}
    using(after)


def test_what_a_fork_shares_stays_until_the_fork_goes_too(using, home, turn):
    async def main(history):
        source = await history.create(name="source")
        await turn(history, source.id, "shared")
        await turn(history, source.id, "not shared")
        fork = await history.fork(source.id, at=1)
        second = await history.fork(fork.id)
        await history.delete(source.id)
        await history.delete(fork.id)
        return source.id, second.id

    source, second = using(main)
    tidied(using)

    async def after(history):
        assert [found.id for found in await history.list()] == [second]
        assert texts(await history.messages(second)) == ["shared", "a"]
        assert list(await history.search("not shared")) == []
        await history.delete(second)

    using(after)
    assert ("SessionDeleted", source) in kinds(home)  # else the shared turns would bring their session back
    for _ in range(3):
        tidied(using)
    assert kinds(home) == []
    assert list((home / "journals").iterdir()) == []


def test_a_deletion_stays_while_anything_else_is_left_of_its_session(using, home, line):
    """The session's lines stand in a journal of another machine, which is not ours to rewrite."""
    other = Journal(home / "journals", host="elsewhere")
    other.append([line.created("s", name="there"), line.kept("s", "t1")])
    other.close()

    async def main(history):
        await history.delete("s")

    using(main)
    for _ in range(2):
        tidied(using)

    async def after(history):
        assert await history.list() == []

    using(after)
    assert ("SessionDeleted", "s") in kinds(home)


def test_a_fresh_deletion_waits(using, home, turn):
    async def main(history):
        session = await history.create()
        await turn(history, session.id)
        await history.delete(session.id)

    using(main)
    tidied(using, grace=60.0)
    assert len(kinds(home)) > 3


def test_living_and_other_peoples_journals_are_left_alone(using, home, turn, child):
    code = """
import asyncio, sys
from agent_kernel.store.history import History
async def main():
    async with History.open(sys.argv[1]) as history:
        session = await history.create(name="x")
        await history.delete(session.id)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""
    process = child(code, home)
    assert process.stdout.readline() == "ready\n"
    before = kinds(home)
    tidied(using)
    assert kinds(home) == before
    process.communicate("\n")
    tidied(using)
    tidied(using)  # the deletion goes when it is all that is left
    assert kinds(home) == []


def test_home_tidies_in_the_background(using, home, turn):
    async def main(history):
        session = await history.create(name="x")
        await turn(history, session.id)
        await history.release(session.id)

    using(main)
    assert "SessionReleased" in dict(kinds(home))

    async def tidying(history):
        await asyncio.gather(history.kept.tidy(), history.list(), history.search("q"))

    using(tidying)
    assert "SessionReleased" not in dict(kinds(home))


def test_numbers_times_garbage_and_age_survive(home, line):
    journal = Journal(home / "journals", host="here")
    kept = journal.append([line.created("s", 5.0), line.kept("s", "t1", at=6.0), line.kept("s", "t2", 2, at=7.0), line.kept("s", "t3", 3, at=8.0)])
    journal.close()
    [file] = journals(home / "journals").values()
    with file.path.open("ab") as out:
        out.write(b"garbage\n\ntorn")
    os.utime(file.path, (1_000, 1_000))
    [file] = journals(home / "journals").values()
    compact.rewrite(file, {2})
    [new] = journals(home / "journals").values()
    assert [found for _, _, found in read_lines(new.path)] == [kept[0], kept[2], kept[3]]
    assert new.path.read_bytes().endswith(b"\ngarbage\n")
    assert new.modified == 1_000


@pytest.mark.parametrize("step", ["before the rename", "before the removal"])
def test_dying_half_way_loses_nothing_and_leaves_nothing_for_long(using, home, turn, child, step):
    async def main(history):
        keep, drop = await history.create(name="keep"), await history.create(name="drop")
        await turn(history, keep.id)
        await turn(history, drop.id)
        await history.delete(drop.id)

    using(main)
    call = {"before the rename": "os.rename", "before the removal": "os.unlink"}[step]
    code = f"""
import os, pathlib, sys
from agent_kernel.store.compact import tidy
from agent_kernel.store.index import Index
def end(event, arguments):
    if event in ("os.rename", "os.remove") and str(arguments[0]).count("journals") and {{"os.rename": "os.rename", "os.unlink": "os.remove"}}[{call!r}] == event:
        if ".part" not in str(arguments[0]) or event == "os.rename":
            os._exit(3)
sys.addaudithook(end)
home = pathlib.Path(sys.argv[1])
tidy(Index(home / "index", home / "journals"), home / "journals", host={HERE!r}, grace=0)
"""
    process = child(code, home)
    process.wait()
    assert process.returncode == 3
    assert len(list((home / "journals").iterdir())) == 2
    assert len(leftovers(home / "journals", HERE)) == 1

    async def after(history):
        assert [found.name for found in await history.list()] == ["keep"]
        assert texts(await history.messages((await history.list())[0].id)) == ["q", "a"]

    using(after)
    tidied(using)
    using(after)
    assert leftovers(home / "journals", HERE) == []


def test_a_full_disk_leaves_the_journal_as_it_was(using, small_disk, fill, turn):
    disk = small_disk(6_000)
    home = disk / "home"

    async def main(history):
        keep, drop = await history.create(name="keep"), await history.create(name="drop")
        await turn(history, keep.id, "x" * 200_000)
        await history.delete(drop.id)
        return keep.id

    keep = using(main, home)
    before = kinds(home)
    fill(disk)

    async def full(history):
        with pytest.raises(StoreError, match="No space"):
            await history.kept._reader.run(lambda: tidy(history.kept.index(), history.kept.journal_folder, host=HERE, grace=0))
        assert [found.id for found in await history.list()] == [keep]

    using(full, home)
    assert kinds(home) == before
    assert len(list((home / "journals").iterdir())) == 1


def test_a_machines_name_as_it_stands_in_file_names():
    assert clean_host("a.b-c/d") == "a.b_c_d"
    assert clean_host("") == "host"

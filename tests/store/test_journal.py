"""Journals: numbers, time, short writes, a full disk, rotation, forks, liveness, and what a reader passes over."""

import os
import signal
import time
from pathlib import Path

import pytest

from agent_kernel.errors import SchemaTooNew, StoreError
from agent_kernel.store import journal as module
from agent_kernel.store.journal import Journal, JournalMoved, generations, is_alive, journals, read_at, read_lines, read_raw
from agent_kernel.store.lines import SessionRenamed, encode

HOST = "here"


def renamed(name, at=1.0):
    return SessionRenamed(session_id="s", at=at, name=name)


def lines_of(folder):
    return [line for file in journals(folder).values() for _, _, line in read_lines(file.path)]


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journals", host=HOST)
    yield journal
    journal.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "journals"


def test_lines_are_numbered_and_time_never_goes_back(journal, folder):
    kept = [*journal.append([renamed("a", 5.0), renamed("b", 3.0)]), *journal.append([renamed("c", 4.0)]), *journal.append([renamed("d", 6.0)])]
    assert [line.n for line in kept] == [1, 2, 3, 4]
    assert [line.at for line in kept] == [5.0, 5.0, 5.0, 6.0]
    assert lines_of(folder) == kept


def test_nothing_is_made_before_the_first_line(journal, folder):
    assert journal.append([]) == []
    assert not folder.exists()
    assert journals(folder) == {}


def test_files_are_for_their_owner_and_named_by_host_process_and_generation(folder):
    journal = Journal(folder, host="a/b c-d\n")
    journal.append([renamed("x")])
    [file] = journals(folder).values()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (file.host, file.pid, file.generation) == ("a_b_c_d_", os.getpid(), 1)
    assert file.path.name == f"{file.id}.g1.jsonl"
    assert journal.wrote(file)
    journal.close()


def test_other_files_are_no_journals_and_the_newest_generation_counts(folder):
    folder.mkdir()
    name = f"host-1-{'0' * 32}"
    for other in (
        "notes.txt",
        f"{name}.jsonl",
        f"{name}.g1.jsonl.part",
        f".{name}.g3.part",
        f"{name}.gx.jsonl",
        "host-1-zz.g1.jsonl",
        f"host-{'0' * 32}.g1.jsonl",
    ):
        (folder / other).write_text("x")
    for generation in (2, 10, 9):
        (folder / f"{name}.g{generation}.jsonl").write_text("")
    assert [file.generation for file in journals(folder).values()] == [10]
    assert sorted(file.generation for file in generations(folder)) == [2, 9, 10]


def test_a_full_disk_keeps_nothing_of_a_batch_and_room_makes_all_well(small_disk, fill):
    folder = small_disk(64) / "journals"
    journal = Journal(folder, host=HOST)
    first = journal.append([renamed("a" * 100)])
    filler = fill(folder.parent)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    batch = [renamed("b" * 900, 2.0), renamed("c" * 9000, 3.0), renamed("d", 4.0)]
    for _ in range(3):
        with pytest.raises(StoreError, match="No space left"):
            journal.append(batch)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before  # no part of a line, no litter
    filler.unlink()
    kept = first + journal.append(batch)
    assert sorted(lines_of(folder), key=lambda line: line.at) == kept
    assert all(is_alive(file, HOST) for file in journals(folder).values())  # the first one too: what was claimed in it is claimed still
    files = list(journals(folder).values())
    journal.close()
    assert not any(is_alive(file, HOST) for file in files)


def test_a_journal_whose_write_failed_is_never_appended_to_again(small_disk):
    folder = small_disk(64) / "journals"
    journal = Journal(folder, host=HOST)
    journal.append([renamed("a")])
    [old] = journals(folder).values()
    with pytest.raises(StoreError):
        journal.append([renamed("b" * 100_000)])
    journal.append([renamed("c")])
    assert old.path.stat().st_size == old.size
    assert len(journals(folder)) == 2
    journal.close()


def test_short_writes_are_gone_on_with(folder, child):
    code = """
import resource, signal, sys
from pathlib import Path
from agent_kernel.errors import StoreError
from agent_kernel.store.journal import Journal
from agent_kernel.store.lines import SessionRenamed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
journal = Journal(Path(sys.argv[1]), host="here")
def line(size): return SessionRenamed(session_id="s", at=1.0, name="x" * size)
journal.append([line(600)])
try:
    journal.append([line(600)])  # the system writes a part of it, then refuses
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
journal.append([line(601)])
"""
    out, _ = child(code, folder).communicate()
    assert "too large" in out
    assert sorted(len(line.name) for line in lines_of(folder)) == [600, 601]


def test_a_file_in_the_folders_place_is_a_clear_error(folder):
    folder.write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        Journal(folder, host=HOST).append([renamed("a")])


def test_a_long_journal_is_followed_by_another_and_both_are_alive(journal, folder):
    big = "x" * (1 << 20)
    for _ in range(module.ROTATE_AT // (1 << 20) + 2):
        journal.append([renamed(big)])
    files = sorted(journals(folder).values(), key=lambda file: -file.size)
    assert len(files) == 2
    assert files[0].size < module.ROTATE_AT + (2 << 20)
    assert files[0].writer == files[1].writer
    assert all(journal.wrote(file) and is_alive(file, HOST) for file in files)
    assert [line.n for _, _, line in read_lines(files[1].path)] == [1, 2]
    journal.close()
    assert not any(is_alive(file, HOST) for file in files)


def test_a_forked_child_begins_its_own_journal_and_its_end_harms_nothing(journal, folder):
    journal.append([renamed("parent", 1.0)])
    pid = os.fork()
    if pid == 0:
        try:
            journal.append([renamed("child", 2.0)])
            journal.close()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    journal.append([renamed("parent again", 3.0)])
    files = journals(folder)
    assert {file.pid for file in files.values()} == {os.getpid(), pid}
    mine = next(file for file in files.values() if file.pid == os.getpid())
    other = next(file for file in files.values() if file.pid == pid)
    assert [line.name for _, _, line in read_lines(mine.path)] == ["parent", "parent again"]
    assert [line.name for _, _, line in read_lines(other.path)] == ["child"]
    assert journal.wrote(mine)
    assert not journal.wrote(other)
    assert is_alive(mine, HOST)
    assert not is_alive(other, HOST)


WRITES_AND_WAITS = """
import sys
from pathlib import Path
from agent_kernel.store.journal import Journal
from agent_kernel.store.lines import SessionRenamed
journal = Journal(Path(sys.argv[1]), host="here")
journal.append([SessionRenamed(session_id="s", at=1.0, name="x")])
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_process_is_alive_until_it_is_not(folder, child):
    process = child(WRITES_AND_WAITS, folder)
    assert process.stdout.readline() == "ready\n"
    [file] = journals(folder).values()
    assert is_alive(file, HOST)
    assert is_alive(file, HOST)  # looking does not change it
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not is_alive(file, HOST)


def test_a_child_that_outlives_its_parent_does_not_keep_it_alive(folder, child):
    code = WRITES_AND_WAITS.replace(
        "sys.stdin.readline()", "import os, signal\nif os.fork() == 0:\n    signal.pause()\nprint('forked', flush=True)\nsys.stdin.readline()"
    )
    process = child(code, folder)
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "forked\n"]
    [file] = journals(folder).values()
    children = list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    assert is_alive(file, HOST)
    try:
        process.kill()
        process.wait()
        assert not is_alive(file, HOST)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def test_another_machines_journal_is_judged_by_its_age(journal, folder):
    journal.append([renamed("x")])
    [file] = journals(folder).values()
    assert is_alive(file, "elsewhere")
    old = time.time() - module.SILENT_AFTER - 1
    os.utime(file.path, (old, old))
    [file] = journals(folder).values()
    assert not is_alive(file, "elsewhere")
    assert is_alive(file, HOST)


def test_a_journal_that_is_gone_is_nobodys(journal, folder):
    journal.append([renamed("x")])
    [file] = journals(folder).values()
    file.path.unlink()
    assert not is_alive(file, HOST)


def test_torn_and_garbage_lines_are_passed_over(tmp_path):
    path = tmp_path / "x.jsonl"
    good = [encode(renamed(name)) for name in "abc"]
    path.write_bytes(good[0] + b"\n\n" + b"\x00" * 100 + b"\n" + good[1][:-20] + b"\n" + good[1] + b"[1, 2]\n" + good[2] + good[0][:-1])
    found = list(read_lines(path))
    assert [line.name for _, _, line in found] == ["a", "b", "c"]
    assert [line.name for line in read_at(path, [(at, length) for at, length, _ in found])] == ["a", "b", "c"]
    assert [line.name for _, _, line in read_lines(path, found[1][0])] == ["b", "c"]
    with pytest.raises(JournalMoved):
        read_at(path, [(3, 10)])
    path.write_bytes(good[0] + b'{"v": 99}\n')
    with pytest.raises(SchemaTooNew):
        list(read_lines(path))


def test_lines_longer_than_one_reading_are_whole(tmp_path):
    path = tmp_path / "x.jsonl"
    lines = [renamed(letter * size) for letter, size in (("a", 10), ("b", 3 * module.READ_AT_ONCE), ("c", module.READ_AT_ONCE - 70), ("d", 1))]
    path.write_bytes(b"".join(map(encode, lines)) + b"torn")
    assert [line for _, _, line in read_lines(path)] == lines
    last = list(read_raw(path))[-1]
    assert last[0] + len(last[1]) + 1 == path.stat().st_size - len(b"torn")

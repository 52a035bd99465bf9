"""The doctor: what it finds in a home, what it mends, and that a healthy one is left as it is."""

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
import time

import pytest

from agent_kernel.notebook.cli import main as cli
from agent_kernel.store.artifacts import Artifacts
from agent_kernel.store.database import attach, connect
from agent_kernel.store.doctor import checkup
from agent_kernel.store.journal import Journal, journals
from agent_kernel.store.lines import encode


@pytest.fixture
def home(tmp_path, using, turn):
    """A home with two sessions, a journal of an ended process and two outputs."""
    home = tmp_path / "home"

    async def main(history):
        for name in ("one", "two"):
            session = await history.create(name=name)
            for _ in range(3):
                await turn(history, session.id)
        async with Artifacts.open(home) as artifacts:
            await artifacts.put("x" * 100)
            await artifacts.put(b"y" * 100, media_type="image/png")
        await history.list()  # makes the index

    using(main)
    return home


def journal_of(home):
    return next(iter(journals(home / "journals").values()))


def snapshot(home):
    return {
        str(path.relative_to(home)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in home.rglob("*")
        if "index" not in path.parts
    }


def found(home, *, fix=False):
    return [finding.text for finding in checkup(home, fix=fix)[1] if finding.level == "problem" and not finding.mended]


def rows(home):
    connection = connect()
    attach(connection, max((home / "index").glob("history*.duckdb")), read_only=True)
    count = connection.execute("SELECT count(*) FROM places").fetchone()[0]
    connection.close()
    return count


def test_a_healthy_home_has_no_problem_and_is_left_alone(home, capsys):
    before = snapshot(home)
    assert checkup(home) == (home, [])
    assert cli(["doctor", str(home)]) == 0
    assert "no problems" in capsys.readouterr().out
    assert snapshot(home) == before


def test_no_home_is_no_problem(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AGENT_KERNEL_HOME", str(tmp_path / "nowhere"))
    assert cli(["doctor"]) == 0
    assert "no history" in capsys.readouterr().out
    assert not (tmp_path / "nowhere").exists()


def test_a_home_in_use_is_no_problem(tmp_path, using, turn):
    async def main(history):
        session = await history.create()
        for _ in range(3):
            await turn(history, session.id)
            assert await asyncio.to_thread(found, tmp_path / "home") == []
            assert await asyncio.to_thread(found, tmp_path / "home", fix=True) == []
        assert len(await history.messages(session.id)) == 6

    using(main)


def spoil_torn(home):
    with journal_of(home).path.open("ab") as out:
        out.write(b'{"t":"SessionRena')
    return "never finished"


def spoil_index_half(home):
    path = next((home / "index").glob("history*.duckdb"))
    path.write_bytes(path.read_bytes()[:20_000])
    return "cannot be read"


def spoil_index_rows(sql, text):
    def spoil(home):
        connection = connect()
        attach(connection, next((home / "index").glob("history*.duckdb")))
        connection.execute(sql)
        connection.close()
        return text

    return spoil


def spoil_set_aside(home):
    (home / "index" / "history.duckdb.broken-20260101-000000-1").write_text("x")
    return "set aside"


def spoil_spare(home):
    path = next((home / "index").glob("history*.duckdb"))
    (home / "index" / "history-7.duckdb").write_bytes(path.read_bytes())
    return "older index"


def spoil_generation(home):
    file = journal_of(home)
    file.path.with_name(f"{file.id}.g2.jsonl").write_bytes(file.path.read_bytes())
    return "left over"


def spoil_unfinished(home):
    file = journal_of(home)
    file.path.with_name(f".{file.id}.g2.part").write_bytes(b"x")
    return "left over"


def spoil_mode(name, mode):
    def spoil(home):
        path = {"home": home, "journals": home / "journals", "journal": journal_of(home).path, "output": next((home / "artifacts").glob("*/*"))}[name]
        path.chmod(mode)
        return "permissions"

    return spoil


def spoil_part(home):
    path = home / "artifacts" / ".part-abc"
    path.write_bytes(b"x")
    os.utime(path, (1, 1))
    return "never finished"


def spoil_content(home):
    path = next((home / "artifacts").glob("*/*"))
    path.chmod(0o600)
    path.write_bytes(b"other")
    path.chmod(0o400)
    return "does not hold"


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_torn,
        spoil_index_half,
        spoil_index_rows("DELETE FROM places WHERE n = 2", "does not agree"),
        spoil_index_rows("INSERT INTO message_lines SELECT * FROM message_lines LIMIT 1", "does not agree"),
        spoil_index_rows("UPDATE meta SET version = 0", "another version"),
        spoil_index_rows("DROP TABLE call_lines CASCADE", "cannot be read"),
        spoil_set_aside,
        spoil_spare,
        spoil_generation,
        spoil_unfinished,
        spoil_mode("home", 0o755),
        spoil_mode("journals", 0o750),
        spoil_mode("journal", 0o644),
        spoil_mode("output", 0o444),
        spoil_part,
        spoil_content,
    ],
)
def test_each_fault_is_found_said_and_mended(home, spoil, capsys, using):
    expected = rows(home)
    text = spoil(home)
    before = snapshot(home)
    assert any(text in finding for finding in found(home)), found(home)
    assert cli(["doctor", str(home)]) == 1
    out = capsys.readouterr().out
    assert text in out
    assert "--fix mends it" in out
    assert snapshot(home) == before  # looking changes nothing
    assert cli(["doctor", "--fix", str(home)]) == 0
    assert "(mended)" in capsys.readouterr().out
    assert found(home) == []
    assert cli(["doctor", str(home)]) == 0
    assert rows(home) <= expected

    async def main(history):
        sessions = await history.list()
        assert sorted(session.name for session in sessions) == ["one", "two"]
        assert [len(await history.messages(session.id)) for session in sessions] == [6, 6]

    using(main)


def test_what_cannot_be_mended_is_said_and_stays(home, capsys, line):
    path = journal_of(home).path
    with path.open("ab") as out:
        out.write(b"garbage\nmore\n" + encode(line.created("s")))
    newer = home / "journals" / f"there-1-{'0' * 32}.g1.jsonl"
    newer.write_bytes(json.dumps({"v": 2, "t": "Unheard"}).encode() + b"\n")
    newer.chmod(0o600)
    assert cli(["doctor", "--fix", str(home)]) == 1
    out = capsys.readouterr().out
    assert "2 lines that are no lines" in out
    assert "newer version" in out
    assert "--fix" not in out
    assert path.read_bytes().count(b"garbage") == 1


def test_an_unreadable_journal_is_said(home):
    (home / "journals" / f"here-1-{'0' * 32}.g1.jsonl").mkdir(mode=0o700)
    assert any("cannot be read" in text for text in found(home))


def test_the_end_of_a_living_journal_is_not_touched(home, child):
    code = """
import sys
from pathlib import Path
import socket
from agent_kernel.store.journal import Journal
from agent_kernel.store.lines import SessionRenamed
journal = Journal(Path(sys.argv[1]), host=socket.gethostname())
journal.append([SessionRenamed(session_id="s", at=1.0, name="x")])
print("ready", flush=True)
sys.stdin.readline()
"""
    process = child(code, home / "journals")
    assert process.stdout.readline() == "ready\n"
    file = next(file for file in journals(home / "journals").values() if file.pid == process.pid)
    with file.path.open("ab") as out:
        out.write(b"half a li")
    assert found(home, fix=True) == []
    assert file.path.read_bytes().endswith(b"half a li")
    process.communicate("\n")
    assert found(home) == ["ends in 9 bytes of a line that was never finished"]
    assert found(home, fix=True) == []
    assert not file.path.read_bytes().endswith(b"half a li")


def test_missing_outputs_and_strangers_are_notes(home, line, capsys):
    from agent_kernel.protocol.messages import Artifact, Excerpt, ToolResult

    digest = hashlib.sha256(b"gone").hexdigest()
    result = ToolResult(call_id="c", name="t", status="ok", excerpt=Excerpt(text="", shown=0, total=4), artifact=Artifact(handle="r1", hash=f"sha256:{digest}", media_type="text/plain", size=4))  # fmt: skip
    journal = Journal(home / "journals", host=socket.gethostname())
    journal.append([line.created("s"), line.kept("s", "t", results=[result])])
    journal.close()
    (home / "artifacts" / "ab").mkdir(mode=0o700, exist_ok=True)
    (home / "artifacts" / "ab" / "notes.txt").write_text("x")
    young = home / "artifacts" / ".part-young"
    young.write_bytes(b"x")
    os.utime(young, (time.time(), time.time()))
    assert cli(["doctor", str(home)]) == 0
    out = capsys.readouterr().out
    assert "lacks 1 outputs" in out
    assert "no output of ours" in out
    assert out.count("note: ") == 2


def test_a_fault_that_resists_is_told(home, capsys):
    (home / "artifacts" / ".part-x").mkdir()
    os.utime(home / "artifacts" / ".part-x", (1, 1))
    assert cli(["doctor", "--fix", str(home)]) == 1
    assert "could not be mended" in capsys.readouterr().out


def test_as_a_program(home):
    spoil_torn(home)
    command = [sys.executable, "-m", "agent_kernel.notebook.cli", "doctor"]
    environment = {**os.environ, "AGENT_KERNEL_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (1, "")
    assert len(done.stdout.splitlines()) == 2
    assert subprocess.run([*command, "--fix"], capture_output=True, check=False, env=environment).returncode == 0

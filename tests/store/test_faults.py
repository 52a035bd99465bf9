"""Real faults: kills at random moments, many processes at once, a full disk. AGENT_KERNEL_FAULTS=full runs them at full size."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent_kernel.agent.session import Session
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.store.history import History
from agent_kernel.store.home import Home
from agent_kernel.store.index import Index

FULL = os.environ.get("AGENT_KERNEL_FAULTS") == "full"
ROUNDS = Path(__file__).parent / "rounds.py"
LENGTH = 2_000  # of an answer, as rounds.py has it


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def role(home):
    """Start a process that plays a role of rounds.py in the home."""
    started = []

    def start(name, *arguments, before=()):
        command = [*before, sys.executable, str(ROUNDS), name, str(home), *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": f"{ROUNDS.parents[2]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def check(home, acknowledged):
    """Every acknowledged round is there once and whole, in the index and in what a session loads; and a new index is the same."""
    sessions = {session_id for session_id, _, _ in acknowledged}

    async def main():
        async with History(Home(home)) as history:
            listed = {found.id for found in await history.list()}
            assert sessions <= listed, f"{len(sessions - listed)} sessions are not found"
            loaded = Counter()
            for session_id in sessions:
                for turn in (await history.load(session_id)).turns:
                    for round_ in turn.rounds:
                        said = round_.messages[-1].text
                        assert said == f"{turn.turn_id}:{round_.round}:".ljust(LENGTH, ".") + "end"
                        loaded[session_id, turn.turn_id, round_.round] += 1
            rows = await history.kept.query(
                "SELECT session_id, turn_id, round, count(*), min(length(text)) FROM message_lines WHERE role = 'assistant' GROUP BY ALL"
            )
            indexed = {row[:3]: row[3:] for row in rows}
            lines = await history.kept.query("SELECT journal, n FROM places ORDER BY ALL")
            return loaded, indexed, lines

    loaded, indexed, lines = asyncio.run(main())
    missing = [each for each in acknowledged if each not in loaded or each not in indexed]
    assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged rounds are lost"
    assert set(loaded.values()) == {1}
    assert {count for count, _ in indexed.values()} == {1}, "a round is in the index more than once"
    assert all(shortest == LENGTH + 3 for _, shortest in indexed.values()), "a round is there in part"
    assert len(set(lines)) == len(lines)
    index = Index(home / "index", home / "journals")
    index.rebuild()
    assert index.read(lambda connection: connection.execute("SELECT journal, n FROM places ORDER BY ALL").fetchall()) == lines
    index.close()


def acknowledgements(text):
    return [(session, turn, int(number)) for session, turn, number in (line.split() for line in text.splitlines() if line)]


@pytest.mark.timeout(600)
def test_kills_at_random_moments_lose_double_and_tear_nothing(home, role):
    count = 200 if FULL else 20
    out, _ = role("kills", count, 17).communicate()
    *said, last = out.splitlines()
    landed = json.loads(last)
    acknowledged = acknowledgements("\n".join(said))
    print(f"{count} kills, {len(acknowledged)} rounds acknowledged, landed: {landed}")
    assert len(acknowledged) >= count
    check(home, acknowledged)
    assert landed["append"] >= count / 10
    assert landed["drain"] >= count / 10


def test_the_disk_has_a_round_before_it_is_acknowledged(home, role, tmp_path):
    """Seen from outside: between the write of a round's line and its acknowledgement, fdatasync of that file has returned."""
    assert shutil.which("strace"), "this test needs strace"
    trace = tmp_path / "trace"
    process = role("steady", 0.5, 0.05, before=["strace", "-f", "-y", "-s", "64", "-e", "trace=write,fdatasync", "-o", trace])
    out, _ = process.communicate()
    assert process.returncode == 0
    rounds = len(acknowledgements(out))
    assert rounds >= 2
    written = synced = seen = 0
    for line in trace.read_text().splitlines():
        if re.search(r'\bwrite\(\d+<[^>]*journals/[^>]*>, "', line):
            written += 1
        elif re.search(r"fdatasync\(\d+<[^>]*journals/[^>]*>\) += 0|<\.\.\. fdatasync resumed>.* = 0", line):
            synced = written
        elif re.search(r'\bwrite\(1<[^>]*>, "[0-9a-f]{8}-', line):
            seen += 1
            assert synced == written, f"acknowledged before it was on disk: {line}"
    assert seen == rounds
    assert written > rounds


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pause", [1.0, 0.0], ids=["a turn a second", "full speed"])
def test_eight_processes_beside_readers(home, role, pause):
    seconds = 20 if FULL else 2
    writers = [role("steady", seconds, pause) for _ in range(8)]
    reads = Counter()

    async def read():
        async with History(Home(home)) as history:
            while any(writer.poll() is None for writer in writers):
                found = await history.list()
                reads["list"] += 1
                await history.search("ask", limit=5)
                for session in found[:2]:
                    await history.load(session.id)
                    reads["load"] += 1

    async def several():
        await asyncio.gather(read(), read())

    said = []
    import threading

    gather = [threading.Thread(target=lambda writer=writer: said.append(writer.stdout.read())) for writer in writers]
    for thread in gather:
        thread.start()
    asyncio.run(several())
    for thread in gather:
        thread.join()
    assert [writer.wait() for writer in writers] == [0] * 8
    acknowledged = acknowledgements("".join(said))
    print(f"8 processes, {seconds} s: {len(acknowledged)} rounds, beside {dict(reads)}")
    assert len({session for session, _, _ in acknowledged}) == 8
    assert reads["list"] > 2
    check(home, acknowledged)


@pytest.mark.timeout(300)
def test_two_processes_taking_turns_on_the_index_lose_no_commit(home, role):
    count = 2_000 if FULL else 200
    both = [role("by_turns", count // 2, who) for who in range(2)]
    for number in range(count):
        process = both[number % 2]
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{number + 1}\n"
    assert [process.wait() for process in both] == [0, 0]


def test_a_full_disk_stops_no_turn_and_what_it_said_is_written_when_there_is_room(small_disk, fill):
    disk = small_disk(6_000)
    home = disk / "home"

    def ping() -> str:
        """Answer."""
        return "pong"

    async def main():
        calls = [ToolCall(id=f"c{number}", name="ping", arguments="{}") for number in range(3)]
        async with (
            History.open(home) as history,
            Session(ScriptedModel(["one", calls[0], calls[1], "two", "three"]), tools=[ping], history=history, name="disk") as session,
        ):
            await session.run("before")
            assert history.problem is None
            filler = fill(disk)
            state = await session.run("while it is full")
            assert (state.status, state.text, state.rounds) == ("completed", "two", 3)
            assert "No space left" in history.problem
            assert [message.text for message in await history.messages(session.id)][-1] == "two"
            filler.unlink()
            await session.run("after")
            assert history.problem is None
            return session.id, session.messages

    session_id, messages = asyncio.run(main())

    async def again():
        async with History.open(home) as history:
            assert list(await history.messages(session_id)) == messages
            assert [found.turns for found in await history.list()] == [3]

    asyncio.run(again())

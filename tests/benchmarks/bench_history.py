"""What the stored history costs, as ratios of one run: appends beside SQLite, reads beside the plain DuckDB query, the loop's lag.

Run: ``python tests/benchmarks/bench_history.py [--size full]``. Full: 1k, 100k and 1M messages, rebuilt once; ci: a tenth of the larger two.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures import Figures, size

from agent_kernel.protocol.messages import AssistantMessage, Usage, UserMessage
from agent_kernel.store.database import attach, connect
from agent_kernel.store.history import History
from agent_kernel.store.home import Home
from agent_kernel.store.index import Index
from agent_kernel.store.lines import RoundKept, SessionCreated, TurnEnded, TurnHead, encode
from agent_kernel.store.records import RoundRecord, TurnEnd

SIZES = {
    "ci": {"messages": (1_000, 10_000, 100_000), "appends": 300, "repeats": 7},
    "full": {"messages": (1_000, 100_000, 1_000_000), "appends": 1_000, "repeats": 7},
}
ROUNDS = Path(__file__).parents[1] / "store" / "rounds.py"
ROOT = Path(__file__).parents[2]
ALLOWED = 0.02  # seconds above one and a half times the plain query
TICK = 0.001

# One process that does with SQLite what a kernel does with its journal: a row for a round, committed with full sync.
SQLITE = """
import json, sqlite3, sys, time
path, count, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = sqlite3.connect(path, timeout=60, isolation_level=None)
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("PRAGMA synchronous=FULL")
connection.execute("CREATE TABLE IF NOT EXISTS rounds (session TEXT, turn TEXT, number INTEGER, line TEXT)")
print("ready", flush=True)
sys.stdin.readline()
times = []
for number in range(count):
    line = json.dumps({"number": number, "text": "x" * length})
    began = time.perf_counter()
    connection.execute("INSERT INTO rounds VALUES ('s', 't', ?, ?)", (number, line))
    times.append(time.perf_counter() - began)
print(json.dumps(times), flush=True)
"""


def together(commands: list[list[str]]) -> list[float]:
    """Start processes, let them begin at once and return all the times that they print, sorted."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) for command in commands]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return sorted(itertools.chain.from_iterable(map(json.loads, outputs)))


def appends(figures: Figures, folder: Path, count: int) -> None:
    """Append of a round against SQLite in WAL mode with full sync."""
    for processes in (1, 8):
        each = max(50, count // processes)
        ours = together([[sys.executable, str(ROUNDS), "measured", str(folder / f"home{processes}"), str(each)] for _ in range(processes)])
        theirs = together([[sys.executable, "-c", SQLITE, str(folder / f"{processes}.sqlite"), str(each), "2300"] for _ in range(processes)])
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            mine, other = (times[int(len(times) * share)] for times in (ours, theirs))
            told = f"append of a round over SQLite's, {processes} processes, {name}"
            detail = f"{mine * 1e3:.2f} ms, SQLite {other * 1e3:.2f}"
            if (processes, name) == (8, "p99"):
                figures.show(told, mine / other, 1.0, detail)
            else:  # the two hops between loop and thread show where nobody else writes, and SQLite's one writer at a time has it good at p50
                print(f"{told}: {mine / other:.3f}; {detail}")


def fill(home: Path, messages: int) -> tuple[str, str]:
    """Write a journal with so many messages, two a turn; return a session of 100 messages and one of 10,000 (or of half of all)."""
    (home / "journals").mkdir(parents=True, mode=0o700)
    longest = min(10_000, messages // 2)
    sizes = [longest] + [100] * ((messages - longest) // 100)
    sessions = [str(uuid.UUID(int=number)) for number in range(len(sizes))]
    number = 0
    with (home / "journals" / f"bench-1-{'0' * 32}.g1.jsonl").open("wb") as out:
        for session_id, wanted in zip(sessions, sizes, strict=True):
            number += 1
            out.write(encode(SessionCreated(session_id=session_id, at=float(number), n=number, name=f"session {session_id[-4:]}")))
            for position in range(1, wanted // 2 + 1):
                number += 2
                turn_id = f"{session_id}-{position}"
                head = TurnHead(turn_id=turn_id, position=position, prompt=f"question {position}", model="m", started_at=float(number))
                said = AssistantMessage(
                    text=f"The answer to question {position} of the batch is {position * 7919 % 10_007}. " * 3, finish_reason="stop", model="m"
                )
                at = float(number)
                round_ = RoundRecord(turn_id=turn_id, round=1, messages=(UserMessage(text=f"question {position}"), said), at=at)
                out.write(encode(RoundKept(session_id=session_id, at=at, n=number - 1, turn=head, round=round_)))
                end = TurnEnd(turn_id=turn_id, status="completed", usage=Usage(input_tokens=10, output_tokens=20), at=at)
                out.write(encode(TurnEnded(session_id=session_id, at=at, n=number, turn=head, end=end)))
    return sessions[-1], sessions[0]


def best(work, repeats: int) -> float:
    """Return the median time of some runs, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


PLAIN = {
    "list": "SELECT session_id, name, created_at, updated_at, turns, first_prompt, notebook FROM sessions ORDER BY updated_at DESC",
    "load of 100": "SELECT role, text, reasoning, call_id, name, status, model, finish_reason FROM messages WHERE session_id = $small ORDER BY written_at, place",
    "load of the longest": "SELECT role, text, reasoning, call_id, name, status, model, finish_reason FROM messages WHERE session_id = $large ORDER BY written_at, place",
    "search": "SELECT session_id, turn_id, role, text FROM messages WHERE contains(lower(text), 'is 4242') ORDER BY written_at DESC LIMIT 50",
}


def plain(path: Path, small: str, large: str, repeats: int) -> dict[str, float]:
    """Time the plain queries on the same file, with a connection that is open already."""
    connection = connect()
    attach(connection, path, read_only=True)

    def ask(sql: str):
        wanted = {name: value for name, value in (("small", small), ("large", large)) if f"${name}" in sql}
        return lambda: connection.execute(sql, wanted).fetchall()

    times = {name: best(ask(sql), repeats) for name, sql in PLAIN.items()}
    connection.close()
    return times


async def ours(history: History, small: str, large: str, repeats: int) -> dict[str, tuple[float, float]]:
    """Time the reads of History; beside each the longest gap between two ticks of the loop."""
    reads = {
        "list": history.list,
        "load of 100": lambda: history.load(small),
        "load of the longest": lambda: history.load(large),
        "search": lambda: history.search("is 4242"),
    }
    found = {}
    for name, read in reads.items():
        await read()
        times, gaps = [], []
        for _ in range(repeats):
            began = time.perf_counter()
            gaps.append(await lag_during(read))
            times.append(time.perf_counter() - began - 10 * TICK)
        found[name] = (sorted(times)[len(times) // 2], sorted(gaps)[len(gaps) // 2])
    return found


async def lag_during(work) -> float:
    """Return the longest gap, in seconds, between two ticks of the loop while something is awaited."""
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(TICK)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(10 * TICK)
    await work()
    ticker.cancel()
    ticks.append(time.perf_counter())
    return max(b - a for a, b in itertools.pairwise(ticks))


def busy(seconds: float) -> float:
    """Return the same gap while a thread is merely busy."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1_000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        return asyncio.run(lag_during(lambda: asyncio.sleep(seconds)))
    finally:
        stop.set()
        thread.join()


def reads(figures: Figures, folder: Path, messages: int, repeats: int) -> None:
    """List, load, search and rebuild over so many messages."""
    home = folder / f"of{messages}"
    small, large = fill(home, messages)
    index = Index(home / "index", home / "journals")
    began = time.perf_counter()
    index.read(lambda _: None)
    first = time.perf_counter() - began
    began = time.perf_counter()
    index.rebuild()
    print(
        f"  {messages:,} messages: index made in {first:.2f} s, made again in {time.perf_counter() - began:.2f} s, {index.path.stat().st_size / 1e6:.0f} MB"
    )
    times = plain(index.path, small, large, repeats)
    index.close()

    async def whole() -> tuple[dict[str, tuple[float, float]], float]:
        async with History(Home(home)) as history:
            found = await ours(history, small, large, repeats)
            rebuilding = await lag_during(lambda: history.kept._reader.run(lambda: history.kept.index().rebuild()))
            return found, rebuilding

    found, rebuilding = asyncio.run(whole())
    idle = sorted(busy(0.3) for _ in range(5))[2]
    for name, (took, gap) in found.items():
        allowed = 1.5 * times[name] + ALLOWED
        detail = f"{took * 1e3:.1f} ms, plain {times[name] * 1e3:.1f}; longest gap of the loop {gap * 1e3:.1f} ms, busy thread {idle * 1e3:.1f}"
        figures.show(f"{name}, {messages:,} messages, over 1.5 x plain + 20 ms", took / allowed, 1.0, detail)
    worst = max(gap for _, gap in found.values())
    figures.show(f"event-loop lag during reads, {messages:,} messages, over a busy thread", worst / idle, 2.0, f"{worst * 1e3:.1f} ms")
    as_long = busy(min(first, 10.0))  # the longest gap of some seconds beside the longest gap of as many
    detail = f"{rebuilding * 1e3:.1f} ms, busy thread {as_long * 1e3:.1f}"
    figures.show(f"event-loop lag while the index is made again, {messages:,} messages, over a busy thread", rebuilding / as_long, 2.0, detail)


def main() -> int:
    """Print the figures."""
    chosen = SIZES[size(__doc__)]
    figures = Figures()
    print(f"DuckDB beside SQLite {sqlite3.sqlite_version}")
    with tempfile.TemporaryDirectory() as folder:
        appends(figures, Path(folder), chosen["appends"])
        for messages in chosen["messages"]:
            reads(figures, Path(folder), messages, chosen["repeats"])
    return figures.exit_code()


if __name__ == "__main__":
    sys.exit(main())

"""Processes that keep rounds, for the tests of faults and the benchmark: run as ``python rounds.py ROLE HOME ...``.

A round that is acknowledged is said on standard output (or down a pipe) after ``append_round`` has returned, as ``SESSION TURN NUMBER``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import random
import signal
import sys
import threading
import time
import uuid

from agent_kernel.protocol.messages import AssistantMessage, Usage, UserMessage
from agent_kernel.store.database import connect
from agent_kernel.store.history import History
from agent_kernel.store.index import Index
from agent_kernel.store.records import RoundRecord, TurnEnd, TurnRecord

APPENDING, DRAINING = 0, 1  # bytes of the shared map: whether a thread is inside that step
STEPS = {("journal.py", "_write"): APPENDING, ("index.py", "_drain_one"): DRAINING}
LENGTH = 2_000  # characters of an answer


def answer(turn_id: str, number: int) -> str:
    """What a whole round says: nothing of it may be missing."""
    return f"{turn_id}:{number}:".ljust(LENGTH, ".") + "end"


async def a_turn(history: History, session_id: str, acknowledge, *, rounds: int = 2) -> None:
    """Keep a turn and say of each round that it is kept."""
    turn_id = str(uuid.uuid4())
    await history.start_turn(session_id, TurnRecord(turn_id=turn_id, prompt=f"ask {turn_id}", model="m", started_at=time.time()))
    for number in range(1, rounds + 1):
        said = AssistantMessage(text=answer(turn_id, number))
        messages = (UserMessage(text=f"ask {turn_id}"), said) if number == 1 else (said,)
        await history.append_round(session_id, RoundRecord(turn_id=turn_id, round=number, messages=messages, at=time.time()))
        if history.problem is not None:
            raise RuntimeError(history.problem)
        acknowledge(f"{session_id} {turn_id} {number}\n")
    await history.end_turn(session_id, TurnEnd(turn_id=turn_id, status="completed", usage=Usage(), at=time.time()))


def say(text: str) -> None:
    """Acknowledge on standard output, in one write."""
    os.write(1, text.encode())


async def victim(home: str, pipe: int) -> None:
    """Append and drain without end, on two threads at once."""
    history = History.open(home)
    session = await history.create()

    async def drain() -> None:
        while True:
            await history.list()

    draining = asyncio.ensure_future(drain())
    while not draining.done():
        await a_turn(history, session.id, lambda text: os.write(pipe, text.encode()))
    await draining


def watch(shared: mmap.mmap) -> None:
    """Note in the shared map which step each thread is in."""

    def note(frame, event, _argument):
        if event in ("call", "return"):
            step = STEPS.get((frame.f_code.co_filename.rpartition("/")[2], frame.f_code.co_name))
            if step is not None:
                shared[step] = event == "call"

    threading.setprofile(note)


def aim(shared: mmap.mmap, chance: random.Random) -> None:
    """Wait for the beginning of a step, of any one in a third of the cases, and then for a moment that falls somewhere inside it."""
    step, longest = chance.choice([(APPENDING, 0.0005), (DRAINING, 0.006), (None, 0.01)])
    deadline = time.monotonic() + 2
    while step is not None and shared[step] and time.monotonic() < deadline:
        pass
    while step is not None and not shared[step] and time.monotonic() < deadline:
        pass
    time.sleep(chance.uniform(0, longest))


def kills(home: str, count: str, seed: str) -> None:
    """Kill victims at random moments; print where the kills landed, after all that was acknowledged."""
    connect().close()  # imported once, for all victims; no thread and no file of it is left
    chance = random.Random(int(seed))  # noqa: S311 - reproducible
    landed = {"append": 0, "drain": 0, "else": 0}
    for _ in range(int(count)):
        shared = mmap.mmap(-1, 2)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            with contextlib.suppress(BaseException):
                watch(shared)
                asyncio.run(victim(home, writing))
            os._exit(7)  # it never ends by itself
        os.close(writing)
        with os.fdopen(reading) as said:
            for _ in range(chance.randrange(1, 12)):
                say(said.readline())
            time.sleep(chance.uniform(0, 0.03))
            aim(shared, chance)
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
                raise RuntimeError("the victim ended by itself")
            say(said.read())
        landed["append"] += shared[APPENDING]
        landed["drain"] += shared[DRAINING]
        landed["else"] += not (shared[APPENDING] or shared[DRAINING])
        shared.close()
    print(json.dumps(landed), flush=True)


async def steady(home: str, seconds: str, pause: str) -> None:
    """Ask for some seconds, with a pause between two turns, and read what is there before the end."""
    async with History.open(home) as history:
        session = await history.create(name="steady")
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            await a_turn(history, session.id, say)
            await asyncio.sleep(float(pause))
        if not any(found.id == session.id for found in await history.list()):
            raise RuntimeError("a process does not find its own session")


async def measured(home: str, count: str) -> None:
    """Wait for the word, then keep rounds at full speed and print how long each took, in seconds."""
    async with History.open(home) as history:
        session = await history.create()
        await a_turn(history, session.id, lambda _: None)
        print("ready", flush=True)
        sys.stdin.readline()
        times = []
        for _ in range(int(count)):
            turn_id = str(uuid.uuid4())
            await history.start_turn(session.id, TurnRecord(turn_id=turn_id, prompt="q", model="m", started_at=time.time()))
            messages = (UserMessage(text="q"), AssistantMessage(text=answer(turn_id, 1)))
            round_ = RoundRecord(turn_id=turn_id, round=1, messages=messages, at=time.time())
            began = time.perf_counter()
            await history.append_round(session.id, round_)
            times.append(time.perf_counter() - began)
        print(json.dumps(times), flush=True)


def by_turns(home: str, count: str, offset: str) -> None:
    """Each time a line comes in: add a row to the index's table of tries, say how many there are."""
    from pathlib import Path

    index = Index(Path(home) / "index", Path(home) / "journals")
    for number in range(int(count)):
        if not sys.stdin.readline():
            return

        def add(connection, number=number):
            connection.execute("CREATE TABLE IF NOT EXISTS tries (who INTEGER, number INTEGER)")
            connection.execute("INSERT INTO tries VALUES (?, ?)", [int(offset), number])
            return connection.execute("SELECT count(*) FROM tries").fetchone()[0]

        say(f"{index.read(add)}\n")


def main() -> None:
    """Play a role."""
    role, *arguments = sys.argv[1:]
    if role in ("steady", "measured"):
        asyncio.run({"steady": steady, "measured": measured}[role](*arguments))
    else:
        {"kills": kills, "by_turns": by_turns}[role](*arguments)


if __name__ == "__main__":
    main()

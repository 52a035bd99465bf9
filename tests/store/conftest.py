"""What the tests of the store share: lines to keep, a history and an index of a folder, a small disk, other processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_kernel.protocol.messages import AssistantMessage, Usage, UserMessage
from agent_kernel.store.history import History
from agent_kernel.store.home import Home
from agent_kernel.store.index import Index
from agent_kernel.store.lines import RoundKept, SessionCreated, TurnEnded, TurnHead
from agent_kernel.store.records import RoundRecord, TurnEnd, TurnRecord

ROOT = Path(__file__).parents[2]


def head(turn_id, position=1, *, prompt="q", retries=None, started_at=1.0):
    return TurnHead(turn_id=turn_id, position=position, prompt=prompt, model="m", started_at=started_at, retries=retries)


def created(session_id, at=1.0, **more):
    return SessionCreated(session_id=session_id, at=at, **more)


def kept(session_id, turn_id, position=1, *, number=1, at=1.0, prompt="q", answer="a", results=()):
    messages = (UserMessage(text=prompt), AssistantMessage(text=answer)) if number == 1 else (AssistantMessage(text=answer),)
    round_ = RoundRecord(turn_id=turn_id, round=number, messages=messages, results=tuple(results), at=at)
    return RoundKept(session_id=session_id, at=at, turn=head(turn_id, position, prompt=prompt), round=round_)


def ended(session_id, turn_id, position=1, *, at=1.0, status="completed"):
    return TurnEnded(session_id=session_id, at=at, turn=head(turn_id, position), end=TurnEnd(turn_id=turn_id, status=status, usage=Usage(), at=at))


@pytest.fixture
def line():
    """Makers of lines."""
    return SimpleNamespace(head=head, created=created, kept=kept, ended=ended)


@pytest.fixture
def turn():
    """Put a turn with one round into a history, as a session does."""

    async def put(history, session_id, prompt="q", answer="a", *, end=True):
        turn_id = str(uuid.uuid4())
        await history.start_turn(session_id, TurnRecord(turn_id=turn_id, prompt=prompt, model="m", started_at=time.time()))
        messages = (UserMessage(text=prompt), AssistantMessage(text=answer))
        await history.append_round(session_id, RoundRecord(turn_id=turn_id, round=1, messages=messages, at=time.time()))
        if end:
            await history.end_turn(session_id, TurnEnd(turn_id=turn_id, status="completed", usage=Usage(), at=time.time()))
        return turn_id

    return put


@pytest.fixture
def using(tmp_path):
    """Run an async function with a history of a folder, which is closed afterwards."""

    def run(main, folder=None, **options):
        async def whole():
            async with History(Home(folder or tmp_path / "home", **options)) as history:
                return await main(history)

        return asyncio.run(whole())

    return run


@pytest.fixture
def index_of():
    """Make the index of a home, closed at the end."""
    made = []

    def make(home):
        made.append(Index(home / "index", home / "journals"))
        return made[-1]

    yield make
    for index in made:
        index.close()


@pytest.fixture
def small_disk(tmp_path):
    """Mount a tmpfs of a few kilobytes; this needs root, and fails where it cannot be done."""
    mounted = []

    def mount(kilobytes):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], check=True)  # noqa: S607
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607


@pytest.fixture
def fill():
    """Fill a disk to its last block with a file, and return that file."""

    def filler(disk):
        path = disk / "filler"
        with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 1_024)
        return path

    return filler


@pytest.fixture
def child():
    """Start Python code as another process; what it prints last must be ``ready`` before the test goes on, if it is asked to wait."""
    started = []

    def start(code, *arguments):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()

"""A model server on 127.0.0.1 that speaks Chat Completions as raw bytes: recorded dialects, bursts, cuts and stalls.

The first part of the URL's path names what is served, so that one process serves every test at once:

* ``/case-NAME/v1``: the case NAME of a streams file; a request that holds a tool message is answered with "final".
* ``/burst-N/v1``: N text deltas in few writes. ``/paced-N-SECONDS/v1``: N text deltas, SECONDS apart.
* any other name: what a test has given to ``serve``.

Run as a script it prints its base URL and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

DONE = b"data: [DONE]\n\n"


@dataclass
class Reply:
    """One answer: ``blocks`` are bytes to write, seconds to wait, or events to wait for.

    ``cut`` closes the connection without ending the body; ``drop`` closes it before a byte was sent.
    """

    blocks: list[Any] = field(default_factory=list)
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    drop: bool = False


@dataclass
class Request:
    """What was asked, and whether the asker left before the answer had ended."""

    path: str
    headers: dict[str, str]
    body: Any
    left: threading.Event = field(default_factory=threading.Event)


def chunk(delta=None, finish=None, **more) -> bytes:
    """One event of a stream; ``delta`` is the choice's delta."""
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


def text_reply(*texts: str, finish="stop", usage=None) -> Reply:
    """An ordinary streamed answer."""
    end = [] if usage is None else [chunk(choices=[], usage=usage)]
    return Reply([chunk({"content": text}) for text in texts] + [chunk(finish=finish), *end, DONE])


def json_reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """A whole JSON body."""
    return Reply([json.dumps(value).encode()], status=status, content_type="application/json", headers=headers or {})


def burst(count: int, pause: float = 0.0) -> Reply:
    """``count`` text deltas "w0 ", "w1 ", ...; all at once, or ``pause`` seconds apart."""
    events = [chunk({"content": f"w{n} "}) for n in range(count)]
    if pause:
        blocks: list[Any] = [block for event in events for block in (event, pause)]
    else:
        blocks = [b"".join(events[start : start + 200]) for start in range(0, count, 200)]
    usage = {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": count + 7}
    return Reply([*blocks, chunk(finish="stop"), chunk(choices=[], usage=usage), DONE])


def load_cases(path: Path) -> dict[str, dict[str, Any]]:
    """Read a streams file."""
    return {case["name"]: case for case in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def case_bytes(case: dict[str, Any]) -> list[bytes]:
    """Return a case's blocks as bytes."""
    return [block.encode() if isinstance(block, str) else base64.b64decode(block["base64"]) for block in case["blocks"]]


def case_reply(case: dict[str, Any]) -> Reply:
    """Return the answer of a case."""
    ok = case["http_status"] == 200
    return Reply(
        case_bytes(case),
        status=case["http_status"],
        content_type="text/event-stream" if ok else "application/json",
        cut=case["expect"].get("connection_cut", False),
    )


class Provider:
    """The server, on a loop in a thread of its own; ``requests`` holds what was asked under each name."""

    def __init__(self, cases: dict[str, dict[str, Any]] | None = None) -> None:
        self.requests: dict[str, list[Request]] = {}
        self.connections = 0
        self._cases = cases or {}
        self._replies: dict[str, list[Reply]] = {}
        self._port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="provider", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def url(self, name: str) -> str:
        """Return the base URL under which ``name`` is served."""
        return f"http://127.0.0.1:{self._port}/{name}/v1"

    def serve(self, name: str, *replies: Reply) -> str:
        """Answer requests under ``name`` with these replies in turn, the last one again and again; return the base URL."""
        self._replies[name] = list(replies)
        return self.url(name)

    def event(self) -> asyncio.Event:
        """An event to put between blocks; set it with ``release``."""
        return asyncio.Event()

    def release(self, event: asyncio.Event) -> None:
        """Let a waiting answer go on."""
        self._loop.call_soon_threadsafe(event.set)

    def open_connections(self, wait_for: int | None = None, seconds: float = 10) -> int:
        """How many connections are open; waits until there are ``wait_for`` of them, if given."""
        end = time.monotonic() + seconds
        while wait_for is not None and len(self._open) != wait_for and time.monotonic() < end:
            time.sleep(0.005)
        return len(self._open)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._open: set[asyncio.Task] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 26)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._open.add(task)
        self.connections += 1
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client went away, or the server stops
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await self._read(reader)
        name = request.path.split("/")[1]
        self.requests.setdefault(name, []).append(request)
        reply = self._reply(name, request)
        if reply.drop:
            return False
        writing = asyncio.ensure_future(self._write(writer, reply))
        leaving = asyncio.ensure_future(reader.read(1))  # clients do not pipeline: only the end of file comes here
        await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            request.left.set()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            return False
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        writing.result()
        return not reply.cut

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {key.lower(): value.strip() for key, value in (line.split(":", 1) for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(path=first.split()[1], headers=headers, body=json.loads(raw) if raw else None)

    def _reply(self, name: str, request: Request) -> Reply:
        kind, _, rest = name.partition("-")
        if kind == "case":
            asked_back = any(message["role"] == "tool" for message in request.body["messages"])
            return text_reply("final") if asked_back else case_reply(self._cases[rest])
        if kind == "burst":
            return burst(int(rest))
        if kind == "paced":
            count, pause = rest.split("-")
            return burst(int(count), float(pause))
        replies = self._replies[name]
        return replies.pop(0) if len(replies) > 1 else replies[0]

    async def _write(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        headers = {"Content-Type": reply.content_type, "Transfer-Encoding": "chunked", **reply.headers}
        head = f"HTTP/1.1 {reply.status} Reply\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        writer.write(head.encode() + b"\r\n")
        for block in reply.blocks:
            if isinstance(block, asyncio.Event):
                await block.wait()
            elif isinstance(block, int | float):
                await asyncio.sleep(block)
            elif block:
                writer.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        if not reply.cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=Path, default=Path(__file__).parent / "data" / "streams.jsonl")
    options = parser.parse_args()
    with Provider(load_cases(options.streams)) as provider:
        print(provider.url("NAME"), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

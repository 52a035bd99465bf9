"""CPU per text delta: OpenAIModel.stream against the openai client's own streaming loop, on one local server.

The server runs in another process. Both ways read the same burst in turns, several times; the figure is the ratio of the best
runs, which travels between machines where microseconds do not. Run: ``python tests/benchmarks/bench_stream.py [--size full]``.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path

import openai

from agent_kernel.model.openai_chat import OpenAIModel
from agent_kernel.protocol.events import TextDelta
from agent_kernel.protocol.messages import UserMessage
from agent_kernel.protocol.request import ModelRequest

SIZES = {"ci": (5_000, 3), "full": (20_000, 5)}
AIM = 0.2
PROVIDER = Path(__file__).parents[1] / "provider.py"


async def ours(url: str) -> str:
    """Read the burst through OpenAIModel."""
    async with OpenAIModel("m", base_url=url) as model:
        request = ModelRequest(messages=(UserMessage(text="go"),))
        return "".join([delta.text async for delta in model.stream(request) if isinstance(delta, TextDelta)])


async def theirs(url: str) -> str:
    """Read the burst through the client's typed stream."""
    async with openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:
        stream = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


def cpu_seconds(way, url: str, wanted: str) -> float:
    """Return the CPU seconds of one run, checked for its text."""
    start = time.process_time()
    text = asyncio.run(way(url))
    used = time.process_time() - start
    assert text == wanted, f"{way.__name__} lost text: {len(text)} of {len(wanted)} characters"
    return used


def main() -> None:
    """Print one line per figure; exit with 1 if a figure is four times its aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="ci")
    count, rounds = SIZES[parser.parse_args().size]
    wanted = "".join(f"w{n} " for n in range(count))
    with subprocess.Popen([sys.executable, PROVIDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip().replace("NAME", f"burst-{count}")
        warm = server_url_of(url, 10)
        for way in (ours, theirs):
            cpu_seconds(way, warm, "".join(f"w{n} " for n in range(10)))
        times = [(cpu_seconds(ours, url, wanted), cpu_seconds(theirs, url, wanted)) for _ in range(rounds)]
        server.stdin.close()
    our_best, their_best = (min(column) for column in zip(*times, strict=True))
    ratio = our_best / their_best
    print(f"CPU per text delta, burst of {count:,}: {1e6 * our_best / count:.1f} us, the client's own loop {1e6 * their_best / count:.1f} us")
    print(f"ratio {ratio:.3f} (aim <= {AIM})")
    sys.exit(ratio > 4 * AIM)


def server_url_of(url: str, count: int) -> str:
    """Return the same server's URL for a burst of another size."""
    head, _, tail = url.partition("/burst-")
    return f"{head}/burst-{count}/{tail.partition('/')[2]}"


if __name__ == "__main__":
    main()

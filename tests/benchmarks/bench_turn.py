"""What a turn costs: CPU per text delta, parallel tools over the ideal, and the event loop's lag while 100 MB are taken in.

Run: ``python tests/benchmarks/bench_turn.py [--size full]``. The model server runs in another process.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import openai
from figures import Figures, size

from agent_kernel import Artifacts, History, OpenAIModel, ScriptedModel, Session, tool
from agent_kernel.protocol.events import TextAppended
from agent_kernel.protocol.messages import ToolCall

SIZES = {"ci": {"deltas": 2_000, "rounds": 3, "megabytes": 10, "repeats": 2}, "full": {"deltas": 20_000, "rounds": 5, "megabytes": 100, "repeats": 3}}
PROVIDER = Path(__file__).parents[1] / "provider.py"
TICK = 0.001  # seconds between two looks at the loop


async def ours(url: str) -> list:
    """Read the burst through Session.ask, with history open."""
    async with OpenAIModel("m", base_url=url) as model, History.open(None) as history, Session(model, history=history) as session:
        return [event async for event in session.ask("go")]


async def theirs(url: str) -> str:
    """Read the burst through the client's own typed stream."""
    async with openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:
        stream = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


def cpu(way, url: str):
    """Return the CPU seconds of one run, and what it gave."""
    start = time.process_time()
    value = asyncio.run(way(url))
    return time.process_time() - start, value


def check(events: list, count: int) -> None:
    """Every delta is an event, no seq is missing, the text is the whole text."""
    texts = [event.text for event in events if isinstance(event, TextAppended)]
    assert len(texts) == count, f"{len(texts)} of {count} deltas"
    assert [event.seq for event in events] == list(range(len(events)))
    assert "".join(texts) == "".join(f"w{n} " for n in range(count))


def delta_cost(figures: Figures, deltas: int, rounds: int) -> None:
    """CPU per text delta against the client's loop."""
    with subprocess.Popen([sys.executable, PROVIDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        base = server.stdout.readline().strip()
        for way in (ours, theirs):
            cpu(way, base.replace("NAME", "burst-10"))
        url = base.replace("NAME", f"burst-{deltas}")
        mine, other = [], []
        for _ in range(rounds):
            used, events = cpu(ours, url)
            check(events, deltas)
            mine.append(used)
            used, text = cpu(theirs, url)
            assert text == "".join(f"w{n} " for n in range(deltas))
            other.append(used)
        server.stdin.close()
    detail = f"{1e6 * min(mine) / deltas:.1f} us of Session.ask, {1e6 * min(other) / deltas:.1f} us of the client's loop, burst of {deltas:,}"
    figures.show("CPU per text delta, Session.ask over openai's create(stream=True)", min(mine) / min(other), 0.25, detail)


@tool(timeout=None)
def nap(n: int) -> int:
    """Sleep in a thread."""
    time.sleep(0.2)
    return n


@tool(timeout=None)
async def nap_async(n: int) -> int:
    """Sleep on the loop."""
    await asyncio.sleep(0.2)
    return n


def parallel(figures: Figures, repeats: int) -> None:
    """Wall time of 8 and 64 tools of 0.2 s over 0.2 s."""

    async def wall(chosen, count: int) -> float:
        calls = [ToolCall(id=f"c{n}", name=chosen.name, arguments=f'{{"n": {n}}}') for n in range(count)]
        async with Session(ScriptedModel([calls, "done"]), tools=[chosen], max_parallel_tools=count) as session:
            began = time.perf_counter()
            state = await session.run("go")
            assert [entry.result.text for entry in state.tool_calls] == [str(n) for n in range(count)]
            return time.perf_counter() - began

    for count, aim in ((8, 1.15), (64, 1.35)):
        for chosen in (nap_async, nap):
            took = min(asyncio.run(wall(chosen, count)) for _ in range(repeats))
            figures.show(f"{count} parallel 0.2 s tools ({chosen.name}) over the ideal", took / 0.2, aim, f"{took:.3f} s")


async def lag_during(work) -> tuple[float, float]:
    """Return the longest and the 99th percentile gap, in seconds, between two ticks of the loop while something is awaited."""
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(TICK)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(10 * TICK)
    await work()
    gaps = sorted(b - a for a, b in itertools.pairwise(ticks))
    ticker.cancel()
    return gaps[-1], gaps[int(len(gaps) * 0.99)]


def intake_lag(figures: Figures, megabytes: int, repeats: int) -> None:
    """The loop's lag while a large result is serialised, masked, hashed, stored and cut, beside a thread that is merely busy."""
    text = "2026-11-30 12:00:00 INFO worker 17 took 0.25 s over request 4711 of the morning batch\n" * (megabytes * 1_000_000 // 86)

    @tool(timeout=None)
    def dump() -> str:
        """Return a long log."""
        return text

    async def take_in() -> tuple[float, float, float]:
        async with (
            Artifacts.open(None) as artifacts,
            Session(ScriptedModel([ToolCall(id="a", name="dump"), "done"]), tools=[dump], artifacts=artifacts) as session,
        ):
            began = time.perf_counter()
            longest, high = await lag_during(lambda: session.run("go"))
            took = time.perf_counter() - began
            assert session.state.tool_calls[0].result.artifact.size == len(text)
            return longest, high, took

    async def busy(seconds: float) -> tuple[float, float]:
        stop = threading.Event()

        def spin() -> None:
            while not stop.is_set():
                sum(range(1_000))

        thread = threading.Thread(target=spin)
        thread.start()
        try:
            return await lag_during(lambda: asyncio.sleep(seconds))
        finally:
            stop.set()
            thread.join()

    taken, idle = [], []
    for _ in range(repeats):
        longest, high, took = asyncio.run(take_in())
        taken.append((longest, high))
        idle.append(asyncio.run(busy(took)))
        print(
            f"  {megabytes} MB taken in within {took:.2f} s: longest gap {longest * 1e3:.1f} ms, p99 {high * 1e3:.1f}; busy thread {idle[-1][0] * 1e3:.1f}, p99 {idle[-1][1] * 1e3:.1f}"
        )
    for place, name in ((0, "longest gap"), (1, "99th percentile")):
        ratio = statistics.median(each[place] for each in taken) / statistics.median(each[place] for each in idle)
        figures.show(f"event-loop lag while {megabytes} MB are taken in, over a busy thread ({name})", ratio, 2.0)


def main() -> int:
    """Print the figures."""
    chosen = SIZES[size(__doc__)]
    figures = Figures()
    delta_cost(figures, chosen["deltas"], chosen["rounds"])
    parallel(figures, chosen["repeats"])
    intake_lag(figures, chosen["megabytes"], chosen["repeats"])
    return figures.exit_code()


if __name__ == "__main__":
    sys.exit(main())

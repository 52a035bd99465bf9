"""Dispatch: overlap, order, bounds, barriers, isolation. Overlap is proved by barriers that only parallel calls can pass."""

import asyncio
import contextvars
import itertools
import json
import threading
import time

import pytest

from agent_kernel.agent.limits import DEFAULT_MAX_PARALLEL_TOOLS
from agent_kernel.agent.schedule import Slot, startable
from agent_kernel.errors import ToolError
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import RoundFinished, ToolCallFinished, ToolCallProgressed, ToolCallStarted
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.tool import Tool, tool


def calls(name, *arguments):
    return [ToolCall(id=f"{name}{number}", name=name, arguments=json.dumps(each)) for number, each in enumerate(arguments)]


def finished(events):
    return [event.result for event in events if isinstance(event, ToolCallFinished)]


def meeting(parties, kind):
    """Return a tool that ends only once ``parties`` of it run at the same time."""
    if kind == "sync":
        barrier = threading.Barrier(parties, timeout=20)

        def meet(n: int) -> int:
            """Meet the others."""
            barrier.wait()
            return n

        return meet
    state = {"there": 0}
    all_there = asyncio.Event()

    async def meet_later(n: int) -> int:
        """Meet the others."""
        state["there"] += 1
        if state["there"] == parties:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), 20)
        return n

    return Tool(name="meet", call=meet_later)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("parties", [2, DEFAULT_MAX_PARALLEL_TOOLS])
def test_calls_overlap(run, make, gather, kind, parties):
    model = ScriptedModel([calls("meet", *({"n": n} for n in range(parties))), "done"])

    async def main():
        session = make(model, tools=[meeting(parties, kind)])
        events, error = await gather(session)
        assert error is None
        return finished(events)

    results = run(main)
    assert [result.status for result in results] == ["ok"] * parties


def test_two_short_calls_take_as_long_as_one(run, make):
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(0.2)
        return "x"

    session = make(ScriptedModel([calls("nap", {}, {}), "done"]), tools=[nap])
    began = time.monotonic()
    run(session.run, "go")
    elapsed = time.monotonic() - began
    print(f"2 x 0.2 s in parallel: {elapsed:.3f} s")
    assert elapsed < 4 * 0.36


@pytest.mark.parametrize("cap", [1, 4, 8])
def test_the_cap_bounds_what_runs_at_once(run, make, cap):
    running, peaks, order = [0], [], []

    async def work(n: int) -> int:
        """Count who runs."""
        running[0] += 1
        order.append(n)
        peaks.append(running[0])
        for _ in range(3):
            await asyncio.sleep(0)
        running[0] -= 1
        return n

    session = make(ScriptedModel([calls("work", *({"n": n} for n in range(18))), "done"]), tools=[work], max_parallel_tools=cap)
    run(session.run, "go")
    assert max(peaks) == cap
    assert order == list(range(18))
    assert [message.text for message in session.messages if message.role == "tool"] == [str(n) for n in range(18)]


def test_results_come_in_completion_order_and_are_kept_in_call_order(run, make, gather):
    """Reversed delays: each call waits for the one after it."""

    async def main():
        gates = [asyncio.Event() for _ in range(5)]
        gates[4].set()

        async def step(n: int) -> int:
            """Wait for the next one."""
            await gates[n].wait()
            if n:
                gates[n - 1].set()
            return n

        model = ScriptedModel([calls("step", *({"n": n} for n in range(5))), "done"])
        session = make(model, tools=[step])
        events, _ = await gather(session)
        return events, session, model

    events, session, model = run(main)
    assert [result.text for result in finished(events)] == ["4", "3", "2", "1", "0"]
    assert [entry.id for entry in session.state.tool_calls] == [f"step{n}" for n in range(5)]
    assert [message.text for message in model.requests[1].messages if message.role == "tool"] == ["0", "1", "2", "3", "4"]


def test_a_fast_result_is_delivered_before_its_slow_sibling_ends(run, make):
    async def main():
        gate = asyncio.Event()

        async def slow() -> str:
            """Wait."""
            await gate.wait()
            return "slow"

        def fast() -> str:
            """Return at once."""
            return "fast"

        model = ScriptedModel([[*calls("slow", {}), *calls("fast", {})], "done"])
        session = make(model, tools=[slow, fast])
        seen = []
        async for event in session.ask("go"):
            if isinstance(event, ToolCallFinished):
                seen.append(event.result.text)
                if event.result.text == "fast":
                    assert not gate.is_set()
                    gate.set()
        return seen

    assert run(main) == ["fast", "slow"]


def test_serial_tools_are_barriers(run, make):
    log = []

    async def free(n: int) -> int:
        """Run beside others."""
        log.append(("start", n))
        for _ in range(5):
            await asyncio.sleep(0)
        log.append(("end", n))
        return n

    @tool(serial=True)
    async def alone(n: int) -> int:
        """Run alone."""
        return await free.call(n) if isinstance(free, Tool) else await free(n)

    script = [
        calls("free", {"n": 0}, {"n": 1})[0],
        ToolCall(id="x1", name="free", arguments='{"n": 1}'),
        ToolCall(id="s2", name="alone", arguments='{"n": 2}'),
    ]
    script += [
        ToolCall(id="s3", name="alone", arguments='{"n": 3}'),
        ToolCall(id="x4", name="free", arguments='{"n": 4}'),
        ToolCall(id="x5", name="free", arguments='{"n": 5}'),
    ]
    run(make(ScriptedModel([script, "done"]), tools=[free, alone]).run, "go")
    place = {entry: index for index, entry in enumerate(log)}
    assert place["start", 1] < place["end", 0]
    assert max(place["end", 0], place["end", 1]) < place["start", 2]
    assert place["end", 2] < place["start", 3]
    assert place["end", 3] < min(place["start", 4], place["start", 5])
    assert max(place["start", 4], place["start", 5]) < min(place["end", 4], place["end", 5])


def test_keyed_tools_are_serial_per_key(run, make):
    running, overlaps = set(), []

    @tool(key=lambda path: path)
    async def write(path: str, n: int) -> int:
        """Write to a path."""
        assert path not in running
        overlaps.append(len(running))
        running.add(path)
        for _ in range(4):
            await asyncio.sleep(0)
        running.discard(path)
        return n

    script = calls("write", *({"path": path, "n": n} for n, path in enumerate("aabba")))
    session = make(ScriptedModel([script, "done"]), tools=[write])
    state = run(session.run, "go")
    assert [entry.status for entry in state.tool_calls] == ["ok"] * 5
    assert max(overlaps) == 1


def slot(text):
    """Return a slot from shorthand: r(eady) R(unning) a(sking) d(one), then s(erial) or a key in capitals."""
    phase = {"r": "ready", "R": "running", "a": "asking", "d": "done"}[text[0]]
    return Slot(phase=phase, serial=text[1:] == "s", key=text[1:] if text[1:].isupper() else None)


@pytest.mark.parametrize(
    ("slots", "cap", "expected"),
    [
        ("r r r", 2, [0, 1]),
        ("R r r", 2, [1]),
        ("R R r", 2, []),
        ("r rs r", 8, [0]),
        ("d rs r", 8, [1]),
        ("d Rs r", 8, []),
        ("a rs r", 8, []),
        ("as r", 8, []),
        ("a r r", 8, [1, 2]),
        ("rA rA rB", 8, [0, 2]),
        ("aA rA rB", 8, [2]),
        ("RA rA r", 8, [2]),
        ("r r", 0, []),
    ],
)
def test_the_schedule(slots, cap, expected):
    assert startable([slot(each) for each in slots.split()], cap) == expected


def test_one_failing_call_disturbs_no_other(run, make, gather):
    def bad(kind: str) -> str:
        """Fail in some way."""
        if kind == "raise":
            raise ValueError("broken")
        if kind == "exit":
            raise SystemExit(3)
        if kind == "cancel":
            raise asyncio.CancelledError
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "tell":
            raise ToolError("try again tomorrow")
        return kind

    async def bad_later(kind: str) -> str:
        """Fail in some way, on the loop."""
        return bad(kind)

    kinds = ["fine", "raise", "exit", "cancel", "interrupt", "tell"]
    for function in (bad, bad_later):
        model = ScriptedModel([calls(function.__name__, *({"kind": kind} for kind in kinds)), "done"])
        session = make(model, tools=[function])
        events, error = run(gather, session)
        assert error is None, function
        by_kind = dict(zip(kinds, (entry.result for entry in session.state.tool_calls), strict=True))
        assert {kind: result.status for kind, result in by_kind.items()} == {"fine": "ok", **dict.fromkeys(kinds[1:], "error")}
        assert by_kind["tell"].text == "try again tomorrow"
        assert "ValueError" in by_kind["raise"].text
        assert "broken" in by_kind["raise"].metadata["traceback"]
        assert events[-1].status == "completed"


def test_unknown_tool_bad_json_and_bad_arguments_are_results_and_call_nothing(run, make, gather, valid):
    ran = []

    def revenue(region: str) -> str:
        """Look up."""
        ran.append(region)
        return region

    script = [
        ToolCall(id="1", name="revenu", arguments="{}"),
        ToolCall(id="2", name="revenue", arguments='{"region": '),
        ToolCall(id="3", name="revenue", arguments="[1]"),
        ToolCall(id="4", name="revenue", arguments='{"regoin": "x", "region": 3, "more": 1}'),
        ToolCall(id="5", name="", arguments="{}"),
    ]
    model = ScriptedModel([script, "done"])
    session = make(model, tools=[revenue])
    _, error = run(gather, session)
    assert error is None
    assert ran == []
    texts = [entry.result.text for entry in session.state.tool_calls]
    assert [entry.status for entry in session.state.tool_calls] == ["error"] * 5
    assert "revenue" in texts[0]
    assert all(word in texts[3] for word in ("regoin", "more", "region"))
    valid(model.requests[1])


def test_a_type_error_inside_a_tool_is_a_tool_failure(run, make):
    def sums(a: int) -> int:
        """Add wrongly."""
        return a + "x"

    state = run(make(ScriptedModel([calls("sums", {"a": 1}), "done"]), tools=[sums]).run, "go")
    assert state.tool_calls[0].result.text.startswith("TypeError")


def test_the_same_failing_call_is_refused_after_three_failures(run, make):
    ran = []

    def flaky(n: int) -> int:
        """Fail on 1."""
        ran.append(n)
        if n == 1:
            raise ValueError("no")
        return n

    same = [
        [ToolCall(id=f"a{index}", name="flaky", arguments=text)]
        for index, text in enumerate(['{"n":1}', '{ "n": 1 }', '{"n":1}', '{"n": 1}', '{"n": 2}'])
    ]
    state = run(make(ScriptedModel([*same, "done"]), tools=[flaky]).run, "go")
    assert ran == [1, 1, 1, 2]
    assert "refused" in state.tool_calls[3].result.text
    succeeding = [[ToolCall(id=f"b{index}", name="flaky", arguments='{"n": 2}')] for index in range(5)]
    ran.clear()
    run(make(ScriptedModel([*succeeding, "done"]), tools=[flaky]).run, "go")
    assert ran == [2] * 5


@pytest.mark.parametrize("kind", ["sync", "async", "stubborn"])
def test_a_timeout_is_a_result_and_siblings_go_on(run, make, kind):
    release = threading.Event()

    @tool(name="hang", timeout=0.05)
    def hang_sync() -> str:
        """Hang in a thread."""
        release.wait(20)
        return "late"

    @tool(name="hang", timeout=0.05)
    async def hang_async() -> str:
        """Hang on the loop."""
        await asyncio.Event().wait()
        return "late"

    @tool(name="hang", timeout=0.05)
    async def hang_stubborn() -> str:
        """Swallow cancellation a few times."""
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                return "late"
        return "never"

    def quick() -> str:
        """Return."""
        return "quick"

    chosen = {"sync": hang_sync, "async": hang_async, "stubborn": hang_stubborn}[kind]
    session = make(ScriptedModel([[*calls("hang", {}), *calls("quick", {})], "done"]), tools=[chosen, quick])
    state = run(session.run, "go")
    release.set()
    assert [entry.status for entry in state.tool_calls] == ["timeout", "ok"]
    assert "timed out after 0.05 s" in state.tool_calls[0].result.text
    assert state.text == "done"


def test_the_loop_keeps_ticking_while_a_sync_tool_blocks(run, make):
    def block() -> str:
        """Block a thread."""
        time.sleep(0.3)
        return threading.current_thread().name

    async def main():
        ticks = []

        async def tick():
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.005)

        session = make(ScriptedModel([calls("block", {}), "done"]), tools=[block])
        ticker = asyncio.create_task(tick())
        state = await session.run("go")
        count = len(ticks)
        ticker.cancel()
        await asyncio.wait({ticker})
        lag = max(b - a for a, b in itertools.pairwise(ticks))
        print(f"longest gap of the loop during a 0.3 s sync tool: {lag * 1000:.1f} ms")
        return count, state

    count, state = run(main)
    assert count >= 10
    assert state.tool_calls[0].result.text != threading.main_thread().name


def test_contextvars_reach_the_tool_and_nothing_leaks_back(run, make):
    variable = contextvars.ContextVar("variable", default="unset")

    def read() -> str:
        """Read the caller's variable."""
        seen = variable.get()
        variable.set("leaked")
        return f"{seen} {ToolContext.current().index} {ToolContext.current().round}"

    async def read_later() -> str:
        """Read on the loop."""
        return read()

    async def main():
        variable.set("mine")
        session = make(ScriptedModel([[*calls("read", {}, {}), *calls("read_later", {}, {})], "done"]), tools=[read, read_later])
        state = await session.run("go")
        with pytest.raises(ToolError):
            ToolContext.current()
        return [entry.result.text for entry in state.tool_calls], variable.get()

    assert run(main) == (["mine 0 1", "mine 1 1", "mine 2 1", "mine 3 1"], "mine")


def test_progress_and_notes(run, make, gather):
    def long(context: ToolContext) -> str:
        """Report."""
        for done in range(1000):
            context.progress(done, 1000, f"step {done}")
        context.note(rows=3)
        return context.call_id

    session = make(ScriptedModel([calls("long", {}), "done"]), tools=[long])
    events, error = run(gather, session)
    assert error is None
    progressed = [event for event in events if isinstance(event, ToolCallProgressed)]
    assert len(progressed) < 100
    assert all(event.call_id == "long0" and event.total == 1000 for event in progressed)
    assert session.state.tool_calls[0].result.metadata == {"rows": 3}
    assert session.state.tool_calls[0].result.text == "long0"
    assert "context" not in json.dumps([spec.parameters for spec in session.tools.specs()])


def test_repeated_provider_ids_are_made_unique_before_any_event(run, make, gather, valid):
    def ping() -> str:
        """Answer."""
        return "pong"

    same = ToolCall(id="call_0", name="ping", arguments="{}")
    model = ScriptedModel([same, same, "done", same, "done"])
    session = make(model, tools=[ping])
    events, _ = run(gather, session)
    ids = [event.call.id for event in events if isinstance(event, ToolCallStarted)]
    assert len(set(ids)) == 2
    run(gather, session, "again")
    for request in model.requests:
        valid(request)


def test_an_executor_runs_sync_tools(run, make):
    from concurrent.futures import ThreadPoolExecutor

    def where() -> str:
        """Tell the thread."""
        return threading.current_thread().name

    with ThreadPoolExecutor(2, thread_name_prefix="mine") as pool:
        state = run(make(ScriptedModel([calls("where", {}), "done"]), tools=[where], executor=pool).run, "go")
    assert state.tool_calls[0].result.text.startswith("mine")


def test_places_run_tools_where_they_say(run, make):
    seen = []

    async def somewhere(thunk):
        seen.append("main")
        return thunk()

    @tool(runs_on="main")
    def touches() -> str:
        """Touch the namespace."""
        return threading.current_thread().name

    state = run(make(ScriptedModel([calls("touches", {}), "done"]), tools=[touches], places={"main": somewhere}).run, "go")
    assert seen == ["main"]
    assert state.tool_calls[0].result.text == threading.main_thread().name


def test_a_hundred_calls_stay_within_the_cap(run, make, gather):
    lock, state = threading.Lock(), {"now": 0, "peak": 0}

    def work(n: int) -> int:
        """Count who runs."""
        with lock:
            state["now"] += 1
            state["peak"] = max(state["peak"], state["now"])
        time.sleep(0.002)
        with lock:
            state["now"] -= 1
        return n

    session = make(ScriptedModel([calls("work", *({"n": n} for n in range(100))), "done"]), tools=[work])
    events, _ = run(gather, session)
    assert state["peak"] <= DEFAULT_MAX_PARALLEL_TOOLS
    assert len(finished(events)) == 100
    assert [type(event) for event in events].count(RoundFinished) == 2


def test_a_long_error_of_an_async_tool_is_prepared_off_the_loop(run, make):
    threads = []

    class Long(Exception):
        """An error whose text is made when it is asked for."""

        def __str__(self):
            threads.append(threading.current_thread())
            return "x" * 100_000

    async def fail() -> str:
        """Fail at length."""
        raise Long

    state = run(make(ScriptedModel([calls("fail", {}), "done"]), tools=[fail]).run, "go")
    assert state.tool_calls[0].status == "error"
    assert threads
    assert threading.main_thread() not in threads

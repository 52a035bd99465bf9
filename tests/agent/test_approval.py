"""Approval: who may run a tool, and what a no means."""

import asyncio
import threading

import pytest

from agent_kernel.agent.approval import ALWAYS, effective_policy
from agent_kernel.errors import AgentKernelError
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import ApprovalGiven, ApprovalRequested, ToolCallFinished
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.tools.tool import tool


@tool(approve="ask")
def risky(n: int) -> str:
    """Do something that asks."""
    return f"did {n}"


@tool(approve="deny")
def forbidden() -> str:
    """Never run."""
    raise AssertionError("ran")


def safe() -> str:
    """Run freely."""
    return "safe"


def asks(count=1):
    return [ToolCall(id=f"k{n}", name="risky", arguments=f'{{"n": {n}}}') for n in range(count)]


@pytest.mark.parametrize(
    ("own", "turn", "expected"),
    [
        ("allow", None, "allow"),
        ("ask", None, "ask"),
        ("deny", None, "deny"),
        ("allow", "ask", "ask"),
        ("allow", "deny", "deny"),
        ("ask", "allow", "allow"),
        ("ask", "deny", "deny"),
        ("deny", "allow", "deny"),
        ("deny", "ask", "deny"),
    ],
)
def test_the_stricter_policy_wins(own, turn, expected):
    assert effective_policy(own, turn) == expected


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [(True, "ok", "did 0"), (False, "denied", "no"), ("use the test table", "denied", "use the test table"), (None, "denied", "no")],
)
def test_the_hooks_answer_decides_and_a_comment_reaches_the_model(run, make, gather, kind, answer, status, said):
    asked = []

    def decide(call, reason):
        asked.append((call.name, reason))
        return answer

    async def decide_later(call, reason):
        return decide(call, reason)

    model = ScriptedModel([asks(), "done"])
    session = make(model, tools=[risky], approve=decide if kind == "sync" else decide_later)
    events, error = run(gather, session)
    assert error is None
    [entry] = session.state.tool_calls
    assert entry.status == status
    assert said in model.requests[1].messages[-1].text
    assert asked[0][0] == "risky"
    assert asked[0][1]
    kinds = [type(event) for event in events]
    assert kinds.index(ApprovalRequested) < kinds.index(ApprovalGiven) < kinds.index(ToolCallFinished)
    assert events[-1].status == "completed"


def test_nobody_to_ask_means_denied(run, make):
    state = run(make(ScriptedModel([asks(), "done"]), tools=[risky]).run, "go")
    assert state.tool_calls[0].status == "denied"
    assert "nobody" in state.tool_calls[0].result.text


def test_policies_of_a_turn(run, make):
    async def main():
        script = [*asks(), ToolCall(id="f", name="forbidden", arguments="{}"), ToolCall(id="s", name="safe", arguments="{}")]
        session = make(ScriptedModel([script, "a", script, "b", script, "c"]), tools=[risky, forbidden, safe], approve=lambda call, reason: "asked")
        outcomes = []
        for policy in ("allow", "ask", "deny"):
            state = await session.run("go", policy=policy)
            outcomes.append([entry.status for entry in state.tool_calls])
        with pytest.raises(ValueError, match="policy"):
            await session.run("go", policy="perhaps")
        return outcomes

    assert run(main) == [["ok", "denied", "ok"], ["denied"] * 3, ["denied"] * 3]


def test_questions_never_overlap_and_never_mix(run, make):
    inside, peak = [0], [0]

    async def decide(call, reason):
        inside[0] += 1
        peak[0] = max(peak[0], inside[0])
        for _ in range(3):
            await asyncio.sleep(0)
        inside[0] -= 1
        return True if call.id in ("k1", "k3") else f"no to {call.id}"

    session = make(ScriptedModel([asks(5), "done"]), tools=[risky], approve=decide)
    state = run(session.run, "go")
    assert peak == [1]
    assert [entry.status for entry in state.tool_calls] == ["denied", "ok", "denied", "ok", "denied"]
    assert "no to k4" in state.tool_calls[4].result.text


def test_waiting_for_an_answer_uses_up_no_timeout_and_blocks_no_sibling(run, make):
    @tool(name="risky", approve="ask", timeout=0.05)
    def quick(n: int) -> str:
        """Return at once."""
        return "ok"

    async def main():
        siblings = asyncio.Event()

        async def decide(call, reason):
            await siblings.wait()
            await asyncio.sleep(0.1)
            return True

        session = make(
            ScriptedModel([[*asks(2), ToolCall(id="s", name="safe", arguments="{}")], "done"]),
            tools=[quick, safe],
            approve=decide,
            max_parallel_tools=2,
        )
        async for event in session.ask("go"):
            if isinstance(event, ToolCallFinished) and event.result.name == "safe":
                siblings.set()
        return [entry.status for entry in session.state.tool_calls]

    assert run(main) == ["ok", "ok", "ok"]


def test_a_failing_hook_ends_the_turn_and_leaves_no_call_open(run, make, gather):
    def broken(call, reason):
        raise RuntimeError("no screen")

    session = make(ScriptedModel([asks(2), "done"]), tools=[risky], approve=broken)
    events, error = run(gather, session)
    assert type(error) is AgentKernelError
    assert "no screen" in str(error)
    assert events[-1].status == "failed"
    assert session.messages == []


def test_cancel_while_a_person_is_asked(run, make, valid):
    release = threading.Event()

    def decide(call, reason):
        release.wait(20)
        return True

    model = ScriptedModel([asks(), "next"])
    session = make(model, tools=[risky], approve=decide)

    async def main():
        async for event in session.ask("go"):
            if isinstance(event, ApprovalRequested):
                session.cancel()
        assert session.state.status == "cancelled"
        await session.run("more")

    run(main)
    release.set()
    valid(model.requests[1])
    assert session.state.text == "next"


def test_a_turns_own_hook_stands_before_the_sessions(run, make):
    session = make(ScriptedModel([asks(), "done"]), tools=[risky], approve=lambda call, reason: False)

    async def main():
        return await session.run("go", approve=lambda call, reason: True)

    assert run(main).tool_calls[0].status == "ok"


def test_always_holds_for_this_tool_in_this_session(run, make):
    asked = []

    def decide(call, reason):
        asked.append(call.id)
        return ALWAYS

    @tool(name="risky", approve="ask")
    def redefined(n: int) -> str:
        """Another tool of that name."""
        return "new"

    async def main():
        session = make(ScriptedModel([asks(3), "a", asks(), "b", asks(), "c"]), tools=[risky], approve=decide)
        await session.run("go")
        await session.run("go")
        assert len(asked) == 1
        session.tools = type(session.tools)([redefined])
        state = await session.run("go")
        assert len(asked) == 2
        assert state.tool_calls[0].result.text == "new"
        return (await session.fork())._allowed  # a fork is another session: it asks anew

    assert run(main) == set()

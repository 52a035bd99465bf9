"""What is sent: budgets, dropped turns, pairs kept together."""

import pytest

from agent_kernel.agent.context import Outgoing, build_request, estimated_tokens
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage


def turn(number, size=400):
    call = ToolCall(id=f"c{number}", name="t", arguments='{"x": "' + "y" * size + '"}')
    return [
        UserMessage(text=f"q{number}"),
        AssistantMessage(tool_calls=(call,)),
        ToolMessage(call_id=call.id, name="t", text="r" * size),
        AssistantMessage(text=f"a{number}"),
    ]


def conversation(turns):
    return [message for number in range(turns) for message in turn(number)]


def test_without_a_budget_everything_is_sent():
    request, trimmed = build_request(Outgoing().take(conversation(5)))
    assert len(request.messages) == 20
    assert not trimmed


@pytest.mark.parametrize("budget", [300, 500, 1_000])
def test_the_oldest_turns_go_whole(budget, valid):
    messages = conversation(10)
    request, trimmed = build_request(Outgoing().take(messages), system_prompt="rules", max_input_tokens=budget)
    valid(request)
    assert trimmed
    assert request.messages[0].role == "system"
    assert request.messages[1].role == "user"
    assert request.messages[-1].text == "a9"
    assert sum(map(estimated_tokens, request.messages)) <= budget
    assert len(messages) == 40


def test_arguments_of_calls_count():
    short, long = turn(0, 10), turn(0, 4_000)
    assert sum(map(estimated_tokens, long)) - sum(map(estimated_tokens, short)) > 1_900


def test_what_cannot_shrink_is_sent_whole_and_flagged(run, make):
    model = ScriptedModel(["ok"])
    session = make(model, max_input_tokens=10)
    state = run(session.run, "x" * 4_000)
    assert state.input_trimmed
    assert model.requests[0].messages[-1].text == "x" * 4_000


def test_the_flag_reaches_the_state_and_history_stays_whole(run, make):
    async def main():
        session = make(ScriptedModel(["a" * 400] * 6), max_input_tokens=300)
        flags = [(await session.run("q" * 200)).input_trimmed for _ in range(6)]
        return flags, session.messages

    flags, messages = run(main)
    assert flags == sorted(flags)
    assert (flags[0], flags[-1]) == (False, True)
    assert len(messages) == 12


def test_a_message_is_made_ready_once():
    outgoing, messages = Outgoing(), conversation(3)
    first = list(outgoing.take(messages))
    messages += turn(3)
    second = outgoing.take(messages)
    assert all(before is after for before, after in zip(first, second, strict=False))
    assert [message.role for message in second] == ["user", "assistant", "tool", "assistant"] * 4


def test_a_later_round_sends_the_very_messages_of_the_one_before(run, make):
    def f() -> str:
        """Return."""
        return "x"

    model = ScriptedModel([[ToolCall(id="z", name="f")], "end"])
    session = make(model, messages=conversation(1_000), tools=[f])
    run(session.run, "go")
    first, second = (request.messages for request in model.requests)
    assert len(second) == len(first) + 2
    assert all(before is after for before, after in zip(first, second, strict=False))

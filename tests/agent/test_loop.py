"""The loop of a turn: streaming, rounds, limits, refusals, empties, retries."""

import asyncio

import pytest

from agent_kernel.agent.limits import DEFAULT_MAX_ROUNDS
from agent_kernel.agent.session import Session
from agent_kernel.errors import (
    AgentKernelError,
    EmptyAnswer,
    LimitHookFailed,
    ModelConnectionError,
    ModelRateLimited,
    ModelRefused,
    ModelRejected,
    NothingToRetry,
    SessionBusy,
)
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import (
    FinishDelta,
    MessageCompleted,
    ModelRetried,
    ReasoningDelta,
    RoundFinished,
    RoundLimitReached,
    TextAppended,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    UsageDelta,
    UsageReported,
)
from agent_kernel.protocol.fold import fold
from agent_kernel.protocol.messages import ToolCall, Usage


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call(number=1, **arguments):
    import json

    return ToolCall(id=f"c{number}", name="add", arguments=json.dumps(arguments or {"a": number, "b": 1}))


def texts(events):
    return [event.text for event in events if isinstance(event, TextAppended)]


def test_one_event_per_delta_in_order(run, make, gather):
    session = make(ScriptedModel([["Hel", "lo ", "world"]]))
    events, error = run(gather, session)
    assert error is None
    assert texts(events) == ["Hel", "lo ", "world"]
    assert session.messages[-1].text == "Hello world" == session.state.text
    assert [message.role for message in session.messages] == ["user", "assistant"]


def test_a_delta_arrives_while_the_producer_is_blocked_before_the_next(run, make):
    gate = asyncio.Event()
    session = make(ScriptedModel([["first", gate, "second"]]))

    async def main():
        stream = session.ask("go")
        while not isinstance(event := await anext(stream), TextAppended):
            pass
        assert event.text == "first"
        assert not gate.is_set()
        gate.set()
        return [event async for event in stream]

    assert texts(run(main)) == ["second"]


def test_usage_and_the_end_come_after_the_message(run, make, gather):
    usage = Usage(input_tokens=5, output_tokens=2)
    session = make(ScriptedModel([["all at once", UsageDelta(usage=usage)]]))
    events, _ = run(gather, session)
    kinds = [type(event) for event in events]
    assert kinds.index(MessageCompleted) < kinds.index(UsageReported) < kinds.index(TurnFinished)
    assert session.state.usage == usage


def test_a_tool_round_sends_the_result_with_its_id(run, make, gather, valid):
    model = ScriptedModel([call(1), "two"])
    session = make(model, tools=[add])
    events, error = run(gather, session)
    assert error is None
    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallStarted) < kinds.index(ToolCallFinished) < kinds.index(RoundFinished)
    asked = model.requests[1].messages
    assert [message.role for message in asked] == ["user", "assistant", "tool"]
    assert asked[2].call_id == asked[1].tool_calls[0].id == "c1"
    assert asked[2].text == "2"
    valid(model.requests[1])
    model.assert_done()


def test_the_round_limit_makes_exactly_so_many_model_calls(run, make, gather):
    model = ScriptedModel([call(number) for number in range(5)])
    session = make(model, tools=[add], max_rounds=3)
    events, error = run(gather, session)
    assert error is None
    assert len(model.requests) == 3
    [limit] = [event for event in events if isinstance(event, RoundLimitReached)]
    assert (limit.rounds, limit.continued) == (3, False)
    assert session.state.status == "limit"
    assert session.pending_prompt == "go"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_on_limit_is_asked_once_per_limit_and_allows_more(run, make, gather, kind):
    asked = []

    def decide(reason):
        asked.append(reason)
        return len(asked) < 2

    async def decide_later(reason):
        return decide(reason)

    model = ScriptedModel([call(number) for number in range(9)])
    session = make(model, tools=[add], max_rounds=2, on_limit=decide if kind == "sync" else decide_later)
    events, error = run(gather, session)
    assert error is None
    limits = [(event.rounds, event.continued) for event in events if isinstance(event, RoundLimitReached)]
    assert limits == [(2, True), (4, False)]
    assert len(asked) == 2
    assert all(isinstance(reason, str) and reason for reason in asked)
    assert len(model.requests) == 4


def test_a_failing_limit_hook_ends_the_turn_with_a_typed_error(run, make, gather):
    def broken(reason):
        raise KeyError("no")

    session = make(ScriptedModel([call(1), call(2)]), tools=[add], max_rounds=1, on_limit=broken)
    events, error = run(gather, session)
    assert isinstance(error, LimitHookFailed)
    assert isinstance(error.__cause__, KeyError)
    assert events[-1].status == "failed"
    assert error.state is session.state


def test_the_default_limit_is_generous():
    assert DEFAULT_MAX_ROUNDS == 32


def test_an_answer_on_the_last_allowed_round_is_a_normal_end(run, make, gather):
    session = make(ScriptedModel([call(1), "done"]), tools=[add], max_rounds=2)
    events, _ = run(gather, session)
    assert events[-1].status == "completed"
    assert not [event for event in events if isinstance(event, RoundLimitReached)]


def test_answer_at_limit_asks_once_more_with_tools_off(run, make, gather, valid):
    model = ScriptedModel([call(1), "what I have"])
    session = make(model, tools=[add], max_rounds=1, answer_at_limit=True)
    _events, error = run(gather, session)
    assert error is None
    assert session.state.status == "limit"
    assert session.state.answer == "what I have"
    last = model.requests[-1]
    assert last.tool_choice == "none"
    assert [message.role for message in last.messages] == ["system", "user", "assistant", "tool"]
    valid(last)
    assert "system" not in [message.role for message in session.messages]


def test_a_failing_last_answer_keeps_its_partial_text(run, make, gather):
    model = ScriptedModel([call(1), ["par", ModelConnectionError("gone")]])
    session = make(model, tools=[add], max_rounds=1, answer_at_limit=True)
    _events, error = run(gather, session)
    assert isinstance(error, ModelConnectionError)
    assert "par" in session.state.text
    assert session.state.limit == 1


def test_length_keeps_the_text_as_partial_and_runs_no_call(run, make, gather, valid):
    ran = []

    def spy() -> str:
        """Note the call."""
        ran.append(1)
        return "x"

    model = ScriptedModel([["cut ", ToolCallDelta(index=0, id="c1", name="spy", arguments="{}"), FinishDelta(reason="length")], "next"])
    session = make(model, tools=[spy])
    events, error = run(gather, session)
    assert error is None
    assert not ran
    assert events[-1].status == "length"
    assert session.messages[1].partial
    assert session.messages[1].text == "cut "
    assert [entry.status for entry in session.state.tool_calls] == ["not_run"]
    assert session.pending_prompt == "go"
    run(gather, session, "more")
    valid(model.requests[1])


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
def test_a_refusal_is_typed_shows_its_text_and_is_not_repeated(run, make, gather, reason):
    model = ScriptedModel([["I can", "not", call(1), FinishDelta(reason=reason)], "never"])
    session = make(model, tools=[add])
    events, error = run(gather, session)
    assert isinstance(error, ModelRefused)
    assert error.kind == reason
    assert session.state.text == "I cannot"
    assert len(model.requests) == 1
    assert not [event for event in events if isinstance(event, ToolCallStarted)]


@pytest.mark.parametrize("empty", ["", "  \n\t ", [ReasoningDelta(text="hm")]], ids=["nothing", "blank", "reasoning alone"])
def test_an_empty_answer_is_asked_again_once(run, make, gather, empty):
    model = ScriptedModel([empty, "there"])
    session = make(model)
    events, error = run(gather, session)
    assert error is None
    assert session.state.text == "there"
    assert [event.attempt for event in events if isinstance(event, ModelRetried)] == [1]
    model = ScriptedModel([empty, empty, "never"])
    session = make(model)
    events, error = run(gather, session)
    assert isinstance(error, EmptyAnswer)
    assert len(model.requests) == 2
    assert session.state.reasoning == ("hm" if isinstance(empty, list) else "")


class Patient(ScriptedModel):
    """A scripted model that allows retries."""

    max_retries = 2


def test_what_helps_is_repeated_with_growing_delays(run, make, gather, clock):
    model = Patient([ModelConnectionError("down"), ModelRateLimited("slow", retry_after=7.0), "up"])
    session = make(model)
    events, error = run(gather, session)
    assert error is None
    assert clock.slept == [0.5, 7.0]
    retried = [event for event in events if isinstance(event, ModelRetried)]
    assert [(event.attempt, event.delay) for event in retried] == [(1, 0.5), (2, 7.0)]
    assert len(model.requests) == 3
    assert [message.role for message in model.requests[2].messages] == ["user"]


def test_a_rejection_is_not_repeated(run, make, gather, clock):
    model = Patient([ModelRejected("bad key", kind="auth"), "never"])
    _events, error = run(gather, make(model))
    assert isinstance(error, ModelRejected)
    assert len(model.requests) == 1
    assert clock.slept == []


def test_retries_end(run, make, gather):
    model = Patient([ModelConnectionError("down")] * 5)
    _, error = run(gather, make(model))
    assert isinstance(error, ModelConnectionError)
    assert len(model.requests) == 3


def test_nothing_is_repeated_after_visible_text(run, make, gather):
    model = Patient([["seen", ModelConnectionError("cut")], "never"])
    session = make(model)
    _events, error = run(gather, session)
    assert isinstance(error, ModelConnectionError)
    assert session.state.text == "seen"
    assert len(model.requests) == 1
    assert session.messages == []


def test_a_retry_drops_drafts_and_reasoning_of_the_open_round(run, make, gather):
    draft = ToolCallDelta(index=0, id="c1", name="add", arguments='{"a":')
    model = Patient([[ReasoningDelta(text="hm"), draft, ModelConnectionError("cut")], "fine"])
    session = make(model, tools=[add])
    events, error = run(gather, session)
    assert error is None
    at = next(index for index, event in enumerate(events) if isinstance(event, ModelRetried))
    state = fold(events[: at + 1])
    assert (state.text, state.reasoning, state.tool_calls) == ("", "", [])
    assert session.state.tool_calls == []


def test_required_holds_for_the_first_round_only(run, make, gather):
    model = ScriptedModel([call(1), call(2), "done"])
    session = make(model, tools=[add])
    run(lambda: gather(session, tool_choice="required"))
    assert [request.tool_choice for request in model.requests] == ["required", "auto", "auto"]
    model = ScriptedModel([call(1), "done"])
    session = make(model, tools=[add])
    run(lambda: gather(session, tool_choice="add"))
    assert [request.tool_choice for request in model.requests] == ["add", "auto"]


@pytest.mark.parametrize(
    "options",
    [
        {"max_rounds": 0},
        {"max_rounds": 1001},
        {"max_parallel_tools": 0},
        {"max_parallel_tools": 257},
        {"max_result_chars": 0},
        {"max_rounds": -1},
        {"max_input_tokens": 0},
        {"max_rounds": True},
    ],
)
def test_limits_out_of_range_are_refused_at_construction(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Session(ScriptedModel([]), **options)


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="max_round"):
        Session(ScriptedModel([]), max_round=3)


def test_what_a_model_of_the_user_raises_ends_the_turn_by_name(run, make, gather):
    model = ScriptedModel([["a", ZeroDivisionError("oops")]])
    session = make(model)
    _, error = run(gather, session)
    assert type(error) is AgentKernelError
    assert "oops" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert session.pending_prompt == "go"


def test_one_turn_at_a_time(run, make, gather):
    gate = asyncio.Event()
    session = make(ScriptedModel([["a", gate, "b"], "c"]))

    async def main():
        first = session.ask("one")
        await anext(first)
        with pytest.raises(SessionBusy, match="running"):
            await session.run("two")
        with pytest.raises(SessionBusy):
            await session.fork()
        gate.set()
        rest = [event async for event in first]
        assert rest[-1].status == "completed"
        return await session.run("three")

    assert run(main).text == "c"


def test_nothing_to_retry(run, make):
    session = make(ScriptedModel(["fine"]))

    async def main():
        await session.run("go")
        with pytest.raises(NothingToRetry, match="Nothing to retry"):
            await anext(session.retry())

    run(main)


@pytest.mark.parametrize("model", ["gpt-5-mini", ScriptedModel, None])
def test_what_is_no_model_is_refused(run, make, model):
    session = make(model)

    async def main():
        with pytest.raises(ValueError, match=r"object with stream\(request\)"):
            await session.run("hi")
        assert not session.running

    run(main)


@pytest.mark.parametrize("prompt", ["", "   \n"])
def test_an_empty_prompt_is_refused(run, make, prompt):
    session = make(ScriptedModel([]))

    async def main():
        with pytest.raises(ValueError, match="empty"):
            await session.run(prompt)

    run(main)


def test_a_prompt_of_ten_megabytes_arrives_whole(run, make):
    model = ScriptedModel(["ok"])
    prompt = "0123456789" * 1_000_000
    run(make(model).run, prompt)
    assert model.requests[0].messages[0].text == prompt


def test_usage_sums_over_rounds_and_failed_attempts(run, make, gather):
    first = UsageDelta(usage=Usage(input_tokens=10, output_tokens=1, cached_tokens=4))
    second = UsageDelta(usage=Usage(input_tokens=20, output_tokens=None, reasoning_tokens=3))
    lost = [UsageDelta(usage=Usage(input_tokens=100)), ModelConnectionError("cut")]
    session = make(Patient([[call(1), first], lost, ["done", second]]), tools=[add])
    events, error = run(gather, session)
    assert error is None
    assert session.state.usage == Usage(input_tokens=130, output_tokens=1, cached_tokens=4, reasoning_tokens=3)
    assert sum(isinstance(event, UsageReported) for event in events) == 3
    assert session.usage == session.state.usage


def test_an_estimate_is_marked(run, make):
    state = run(make(ScriptedModel(["some words of an answer"])).run, "a question of some length")
    assert state.usage.estimated
    assert state.usage.output_tokens > 0


def test_the_model_that_answered_is_named(run, make):
    session = make(ScriptedModel([["hi", FinishDelta(reason="stop", model="gpt-x-2026")]]))
    run(session.run, "go")
    assert session.messages[-1].model == "gpt-x-2026"


def test_a_delta_that_is_none_is_an_error_not_a_hang(run, make, gather):
    class Odd:
        name = "odd"

        async def stream(self, request):
            yield TextDelta(text="a")
            yield "b"

    _, error = run(gather, make(Odd()))
    assert isinstance(error, AgentKernelError)
    assert "no Delta" in str(error)

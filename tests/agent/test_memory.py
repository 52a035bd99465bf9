"""What a session keeps: retry, resume, fork, replace; in memory and in a home on disk alike."""

import asyncio

import pytest

from agent_kernel.agent.session import Session
from agent_kernel.errors import ModelConnectionError, SessionBusy, StoreError
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import FinishDelta, RoundFinished
from agent_kernel.protocol.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from agent_kernel.store.history import History


@pytest.fixture(params=["memory", "home"])
def opened(request, tmp_path):
    """Open a history: in memory, or in a folder."""
    return lambda: History.open(None if request.param == "memory" else tmp_path / "home")


@pytest.fixture
def make(clock, opened):
    """Make a session on a fake clock, its history in either place."""

    def maker(model, **options):
        return Session(model, clock=clock, **{"history": opened(), **options})

    return maker


def call(name, number=1):
    return ToolCall(id=f"{name}{number}", name=name, arguments="{}")


def roles(messages):
    return [message.role for message in messages]


def test_a_turn_is_two_messages_also_for_a_second_session(run, make, opened):
    async def main():
        history = opened()
        record = await history.create(name="demo")
        first = make(ScriptedModel(["hi"]), history=history)
        await first.resume(record.id)
        assert first.name == "demo"
        await first.run("hello")
        assert roles(await history.messages(record.id)) == ["user", "assistant"]
        second = make(ScriptedModel(["again"]), history=history)
        await second.resume(record.id)
        assert second.messages == first.messages
        await second.run("more")
        return await history.messages(record.id)

    assert [message.text for message in run(main)] == ["hello", "hi", "more", "again"]


def test_a_failed_first_round_leaves_no_message_and_a_pending_prompt(run, make, gather, opened):
    session = make(ScriptedModel([["par", ModelConnectionError("gone")], "answer"]))

    async def main():
        with pytest.raises(ModelConnectionError) as caught:
            await session.run("ask me")
        assert caught.value.state.text == "par"
        assert session.messages == []
        assert list(await session.history.messages(session.id)) == []
        assert session.pending_prompt == "ask me"
        assert session.turns[-1].end.partial_text == "par"
        events, error = await gather(session, None)
        assert error is None
        assert events[0].prompt == "ask me"
        assert len(await session.history.messages(session.id)) == 2
        assert session.pending_prompt is None

    run(main)


def test_a_failure_in_round_two_keeps_round_one_and_retry_goes_on_from_it(run, make, valid, opened):
    ran = []

    def effect() -> str:
        """Have a side effect."""
        ran.append(1)
        return "done"

    model = ScriptedModel([call("effect"), ModelConnectionError("gone"), "answer"])
    session = make(model, tools=[effect])

    async def main():
        with pytest.raises(ModelConnectionError):
            await session.run("go")
        assert roles(session.messages) == ["user", "assistant", "tool"]
        old = session.turns[-1].turn_id
        events = [event async for event in session.retry()]
        assert events[0].turn_id != old
        assert session.turns[-1].retries == old
        assert len(session.turns) == 2

    run(main)
    assert ran == [1]
    assert roles(session.messages) == ["user", "assistant", "tool", "assistant"]
    assert roles(model.requests[-1].messages) == ["user", "assistant", "tool"]
    valid(model.requests[-1])


def test_retry_after_a_cancel_drops_the_partial_answer(run, make, valid, opened):
    model = ScriptedModel([["half", asyncio.Event()], "whole", "next"])
    session = make(model)

    async def main():
        async for event in session.ask("go"):
            if type(event).__name__ == "TextAppended":
                session.cancel()
        assert roles(session.messages) == ["user", "assistant"]
        [_ async for _ in session.retry()]
        assert [message.text for message in session.messages] == ["go", "whole"]
        assert roles(model.requests[1].messages) == ["user"]
        assert await session.history.messages(session.id) == session.messages
        await session.run("more")

    run(main)
    valid(model.requests[2])


def test_retry_after_a_limit_and_after_length(run, make, opened):
    def ping() -> str:
        """Answer."""
        return "pong"

    async def main():
        session = make(ScriptedModel([call("ping"), "end"]), tools=[ping], max_rounds=1)
        await session.run("go")
        assert session.pending_prompt == "go"
        events = [event async for event in session.retry()]
        assert [event.round for event in events if isinstance(event, RoundFinished)] == [1]
        assert roles(session.messages) == ["user", "assistant", "tool", "assistant"]
        session = make(ScriptedModel([["cut", FinishDelta(reason="length")], "whole"]))
        await session.run("go")
        [_ async for _ in session.retry()]
        assert [message.text for message in session.messages] == ["go", "whole"]

    run(main)


def test_a_new_question_drops_the_pending_prompt(run, make, opened):
    session = make(ScriptedModel([ModelConnectionError("gone"), "fine"]))

    async def main():
        with pytest.raises(ModelConnectionError):
            await session.run("first")
        await session.run("second")
        assert session.pending_prompt is None
        assert [message.text for message in session.messages] == ["second", "fine"]
        assert [turn.end.status for turn in session.turns] == ["failed", "completed"]

    run(main)


def test_the_system_prompt_is_first_and_never_stored(run, make, opened):
    async def main():
        history = opened()
        model = ScriptedModel(["a", "b"])
        session = make(model, history=history, system_prompt="be brief")
        await session.run("one")
        other = make(model, history=history, system_prompt="be brief")
        await other.resume(session.id)
        await other.run("two")
        assert [roles(request.messages)[0] for request in model.requests] == ["system", "system"]
        assert roles(model.requests[1].messages).count("system") == 1
        assert roles(other.messages) == ["system", "user", "assistant", "user", "assistant"]
        assert "system" not in roles(await history.messages(session.id))

    run(main)


def test_a_finished_round_is_on_record_before_the_next_request_leaves(run, make, opened):
    def ping() -> str:
        """Answer."""
        return "pong"

    class Looks(ScriptedModel):
        async def stream(self, request):
            seen.append(len(await session.history.messages(session.id)) if self.requests else 0)
            async for delta in super().stream(request):
                yield delta

    seen = []
    session = make(Looks([call("ping"), call("ping", 2), "end"]), tools=[ping])
    run(session.run, "go")
    assert seen == [0, 3, 5]


def test_fork_shares_the_first_turns_and_is_independent(run, make, opened):
    async def main():
        session = make(ScriptedModel(["1", "2", "3", "fork's", "own"]))
        for prompt in "abc":
            await session.run(prompt)
        other = await session.fork(at=2)
        assert other.id != session.id
        assert [message.text for message in other.messages] == ["a", "1", "b", "2"]
        await other.run("d")
        assert [message.text for message in session.messages] == ["a", "1", "b", "2", "c", "3"]
        assert [message.text for message in await session.history.messages(other.id)] == ["a", "1", "b", "2", "d", "fork's"]
        everything = await session.fork()
        assert len(everything.messages) == 6
        assert len((await session.fork(at=0)).messages) == 0
        with pytest.raises(StoreError, match="3 turns"):
            await session.fork(at=4)

    run(main)


def test_the_last_turn_can_be_replaced_and_stays_on_record(run, make, opened):
    async def main():
        session = make(ScriptedModel(["1", "2", "3"]))
        first = await session.run("a")
        second = await session.run("b")
        assert not await session.drop_last_turn(first.turn_id)
        assert await session.drop_last_turn(second.turn_id)
        assert not await session.drop_last_turn("nonsense")
        await session.run("c")
        assert [message.text for message in session.messages] == ["a", "1", "c", "3"]
        assert list(await session.history.messages(session.id)) == session.messages
        kept = await session.history.load(session.id)
        assert [turn.replaced for turn in kept.turns] == [False, True, False]

    run(main)


def test_two_writers_on_one_session_are_refused_not_mixed(run, make, opened):
    session = make(ScriptedModel([str(number) for number in range(8)]))

    async def main():
        outcomes = await asyncio.gather(*(session.run(f"q{number}") for number in range(8)), return_exceptions=True)
        assert sum(isinstance(outcome, SessionBusy) for outcome in outcomes) == 7
        assert len(session.messages) == 2

    run(main)


def test_given_messages_are_mended(run, valid):
    model = ScriptedModel(["fine"])
    asked = ToolCall(id="x", name="t", arguments='{"broken')
    given = [
        SystemMessage(text="rules"),
        ToolMessage(call_id="stray", name="t", text="?"),
        UserMessage(text="hi \ud800"),
        AssistantMessage(tool_calls=(asked, ToolCall(id="y", name="t"))),
        UserMessage(text="and?"),
        ToolMessage(call_id="y", name="t", text="late"),
        AssistantMessage(tool_calls=(ToolCall(id="y", name="t"),)),
        AssistantMessage(text="  "),
    ]
    session = Session(model, messages=given)
    run(session.run, "go")
    [request] = model.requests
    valid(request)
    assert roles(request.messages) == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool", "user"]
    assert request.messages[4].text == "late"
    assert "not run" in request.messages[3].text


def test_history_lists_renames_and_deletes(run, opened):
    async def main():
        history = opened()
        one, two = await history.create(name="one"), await history.create(name="two")
        assert {record.id for record in await history.list()} == {one.id, two.id}
        assert (await history.rename(one.id, "  new ")).name == "new"
        for bad in ("", "  ", "x" * 201):
            with pytest.raises(StoreError):
                await history.rename(one.id, bad)
        await history.delete(two.id)
        assert [record.name for record in await history.list()] == ["new"]
        for operation in (history.load, history.delete, history.messages, history.fork):
            with pytest.raises(StoreError, match="no session"):
                await operation("missing")

    run(main)

"""Every recorded provider dialect through the public face: a Session with OpenAIModel against a real HTTP server."""

import asyncio
import json
from pathlib import Path

import pytest

from agent_kernel import OpenAIModel, Session, tool
from agent_kernel.errors import ModelConnectionError, ModelError, ModelRejected
from agent_kernel.protocol.events import ModelRetried, TextAppended, ToolCallStarted

NAMES = [json.loads(line)["name"] for line in (Path(__file__).parents[1] / "data" / "streams.jsonl").read_text().splitlines()]


def key(value):
    return json.dumps(value, sort_keys=True)


async def through_session(url, clock, *, max_retries=0):
    """Run a turn on the tools that the streams speak of; return the calls that ran, the state and the error."""
    ran = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        assert type(a) is int
        assert type(b) is int
        ran.append({"name": "add", "arguments": {"a": a, "b": b}})
        return a + b

    @tool
    def ping() -> str:
        """Answer."""
        ran.append({"name": "ping", "arguments": {}})
        return "pong"

    @tool
    def echo(s: str) -> str:
        """Repeat."""
        ran.append({"name": "echo", "arguments": {"s": s}})
        return s

    error = None
    async with OpenAIModel("m", base_url=url, max_retries=max_retries) as model, Session(model, tools=[add, ping, echo], clock=clock) as session:
        try:
            state = await session.run("go")
        except ModelError as raised:
            error, state = raised, raised.state
        return ran, state, error, session


def check_wire(body):
    """The next request as the server got it: each call answered once by id, arguments JSON objects, no lone surrogates."""
    json.dumps(body, ensure_ascii=False).encode()
    waiting, ids = [], set()
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        for call in message.get("tool_calls") or ():
            assert call["id"]
            assert call["id"] not in ids
            ids.add(call["id"])
            waiting.append(call["id"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect(name, provider, cases, clock):
    expect = cases[name]["expect"]
    ran, state, error, session = asyncio.run(through_session(provider.url(f"case-{name}"), clock))
    assert sorted(map(key, ran)) == sorted(map(key, expect["calls"]))
    assert (error is not None) == expect["error"]
    assert expect["text"] is None or expect["text"] in state.text
    assert state.reasoning == expect.get("reasoning", "")
    requests = [request.body for request in provider.requests[f"case-{name}"]]
    for body in requests:
        check_wire(body)
    if expect["error"]:
        assert state.status == "failed"
        assert session.pending_prompt == "go"
    elif state.status == "completed":
        assert state.answer == "final" or not state.tool_calls
        assert len(requests) == 1 + bool(state.tool_calls)
        assert expect.get("next_request_contains", "") in json.dumps(requests[-1])


def test_a_wrong_key_is_one_request_and_one_clear_line(provider, provider_module, clock):
    reply = provider_module.json_reply({"error": {"message": "Incorrect API key provided: sk-wrongwrongwrongwrongwrong"}}, status=401)
    url = provider.serve("locked", reply)
    _, state, error, _ = asyncio.run(through_session(url, clock, max_retries=2))
    assert isinstance(error, ModelRejected)
    assert error.kind == "auth"
    assert len(provider.requests["locked"]) == 1
    assert "\n" not in str(error)
    assert "sk-wrong" not in str(error) + str(state.error)


def test_no_server_is_retried_and_said_clearly(clock):
    _, _, error, session = asyncio.run(through_session("http://127.0.0.1:9/v1", clock, max_retries=2))
    assert isinstance(error, ModelConnectionError)
    assert "127.0.0.1:9" in str(error)
    assert len(clock.slept) == 2
    assert session.pending_prompt == "go"


def test_a_server_that_dies_in_the_middle_keeps_the_text_and_can_be_asked_again(provider, provider_module, clock):
    cut = provider_module.Reply([provider_module.chunk({"content": "so far"})], cut=True)
    url = provider.serve("dies", cut, provider_module.text_reply("whole"))

    async def main():
        async with OpenAIModel("m", base_url=url) as model, Session(model, clock=clock) as session:
            with pytest.raises(ModelConnectionError) as caught:
                await session.run("go")
            assert caught.value.state.text == "so far"
            events = [event async for event in session.retry()]
            return events, session.messages

    events, messages = asyncio.run(main())
    assert "".join(event.text for event in events if isinstance(event, TextAppended)) == "whole"
    assert [message.text for message in messages] == ["go", "whole"]


def test_overload_is_retried_within_the_turn(provider, provider_module, clock):
    busy = provider_module.json_reply({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "3"})
    url = provider.serve("busy", busy, busy, provider_module.text_reply("here"))

    async def main():
        async with OpenAIModel("m", base_url=url, max_retries=2) as model, Session(model, clock=clock) as session:
            return [event async for event in session.ask("go")]

    events = asyncio.run(main())
    assert [event.delay for event in events if isinstance(event, ModelRetried)] == [3.0, 3.0]
    assert clock.slept == [3.0, 3.0]
    assert len(provider.requests["busy"]) == 3


def test_leaving_the_stream_closes_the_connection(provider, provider_module):
    gate = provider.event()
    url = provider.serve("slow", provider_module.Reply([provider_module.chunk({"content": "a"}), gate]))

    async def main():
        async with OpenAIModel("m", base_url=url) as model, Session(model) as session:
            stream = session.ask("go")
            async for event in stream:
                if isinstance(event, TextAppended):
                    break
            await stream.aclose()
            return await asyncio.to_thread(provider.requests["slow"][0].left.wait, 10)

    assert asyncio.run(main())
    provider.release(gate)


def test_without_streaming_the_text_comes_whole(provider, provider_module):
    body = {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "all of it"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    url = provider.serve("whole", provider_module.json_reply(body))

    async def main():
        async with OpenAIModel("m", base_url=url, stream=False) as model, Session(model) as session:
            return [event async for event in session.ask("go")]

    events = asyncio.run(main())
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["TurnStarted", "RoundStarted", "TextAppended", "MessageCompleted", "UsageReported", "RoundFinished", "TurnFinished"]
    assert events[2].text == "all of it"
    assert not [event for event in events if isinstance(event, ToolCallStarted)]

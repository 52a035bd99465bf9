from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from agent_kernel.errors import ModelConnectionError, ModelError, ModelProtocolError, ModelRateLimited, ModelRefused, ModelRejected
from agent_kernel.model.openai_chat import OpenAIModel
from agent_kernel.protocol.events import FinishDelta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from agent_kernel.protocol.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, Usage, UserMessage
from agent_kernel.protocol.request import ModelRequest, ToolSpec

ASK = ModelRequest(messages=(UserMessage(text="hi"),))
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
KEY = "sk-test-0123456789abcdef"


def deltas_of(url, request=ASK, **options):
    """Ask once on a loop of its own; the model is closed."""

    async def main():
        async with OpenAIModel("m", base_url=url, **options) as model:
            return [delta async for delta in model.stream(request)]

    return asyncio.run(main())


def error_of(url, request=ASK, **options) -> ModelError:
    with pytest.raises(ModelError) as caught:
        deltas_of(url, request, **options)
    return caught.value


def text_of(deltas) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


class TestStream:
    def test_one_delta_each_then_usage_then_the_end(self, provider, provider_module):
        usage = {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
            "cost": 0.25,
        }
        url = provider.serve("a", provider_module.text_reply("Hel", "lo", usage=usage))
        assert deltas_of(url) == [
            TextDelta(text="Hel"),
            TextDelta(text="lo"),
            UsageDelta(usage=Usage(input_tokens=5, output_tokens=3, cached_tokens=2, reasoning_tokens=1, cost=0.25)),
            FinishDelta(reason="stop", model="m"),
        ]

    def test_the_first_delta_arrives_while_the_second_is_held_back(self, provider, provider_module):
        async def main():
            gate = provider.event()
            url = provider.serve(
                "a", provider_module.Reply([provider_module.chunk({"content": "one"}), gate, *provider_module.text_reply("two").blocks])
            )
            async with OpenAIModel("m", base_url=url) as model, aclosing(model.stream(ASK)) as stream:
                first = await anext(stream)
                provider.release(gate)
                return [first, *[delta async for delta in stream]]

        assert text_of(asyncio.run(main())) == "onetwo"

    def test_a_whole_answer_is_taken_asked_for_or_not(self, provider, provider_module):
        call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
        message = {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "tool_calls": [call]}
        answer = {
            "model": "m2",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        }
        url = provider.serve("a", provider_module.json_reply(answer))
        wanted = [
            ReasoningDelta(text="hm"),
            TextDelta(text="Hello"),
            ToolCallDelta(id="x", name="add", arguments='{"a":1}'),
            UsageDelta(usage=Usage(input_tokens=1, output_tokens=2)),
            FinishDelta(reason="tool_calls", model="m2"),
        ]
        assert deltas_of(url, stream=False) == wanted
        assert deltas_of(url, stream=True) == wanted
        plain, streamed = (request.body for request in provider.requests["a"])
        assert (plain["stream"], streamed["stream"]) == (False, True)
        assert "stream_options" not in plain
        assert streamed["stream_options"] == {"include_usage": True}

    def test_leaving_early_closes_the_connection_and_leaves_no_task(self, provider, provider_module):
        async def main():
            url = provider.serve("a", provider_module.Reply([provider_module.chunk({"content": "one"}), provider.event()]))
            async with OpenAIModel("m", base_url=url) as model:
                stream = model.stream(ASK)
                await anext(stream)
                await stream.aclose()
                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert await asyncio.to_thread(provider.requests["a"][0].left.wait, 10)

        asyncio.run(main())

    def test_a_cancelled_task_closes_the_connection_and_leaves_no_task(self, provider, provider_module):
        async def main():
            url = provider.serve("a", provider_module.Reply([provider_module.chunk({"content": "one"}), provider.event()]))
            async with OpenAIModel("m", base_url=url) as model:
                begun = asyncio.Event()

                async def ask():
                    async with aclosing(model.stream(ASK)) as stream:
                        async for _ in stream:
                            begun.set()

                task = asyncio.create_task(ask())
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert await asyncio.to_thread(provider.requests["a"][0].left.wait, 10)

        asyncio.run(main())

    def test_a_finished_stream_leaves_its_connection_for_the_next(self, provider, provider_module):
        async def main():
            url = provider.serve("a", provider_module.text_reply("x"))
            async with OpenAIModel("m", base_url=url) as model:
                for _ in range(3):
                    assert text_of([delta async for delta in model.stream(ASK)]) == "x"

        asyncio.run(main())
        assert len(provider.requests["a"]) == 3
        assert provider.connections == 1

    def test_a_server_that_never_closes_after_its_end_mark_holds_nobody_up(self, provider, provider_module):
        blocks = provider_module.text_reply("x").blocks
        url = provider.serve("a", provider_module.Reply([*blocks, provider.event()]))
        start = time.monotonic()
        assert text_of(deltas_of(url)) == "x"
        assert time.monotonic() - start < 5


class TestRequest:
    def test_messages_tools_and_options_reach_the_server(self, provider, provider_module):
        url = provider.serve("a", provider_module.text_reply("x"))
        request = ModelRequest(
            messages=(
                SystemMessage(text="Be brief."),
                UserMessage(text="a \ud83d b"),
                AssistantMessage(
                    reasoning="not sent",
                    tool_calls=(
                        ToolCall(id="1", name="add", arguments='{"a": 1}', extra={"extra_content": {"sig": "S"}, "id": "hidden"}),
                        ToolCall(id="2", name="add", arguments='{"a": '),
                    ),
                ),
                ToolMessage(call_id="1", name="add", text="2"),
                ToolMessage(call_id="2", name="add", status="error", text="bad"),
                AssistantMessage(text="Two."),
            ),
            tools=(ADD,),
            tool_choice="add",
        )
        options = {
            "max_tokens": 9,
            "temperature": 0,
            "stop": ["END"],
            "seed": 1,
            "reasoning_effort": "low",
            "verbosity": "high",
            "extra_body": {"top_k": 4},
        }
        deltas_of(url, request, api_key=KEY, **options)
        sent = provider.requests["a"][0]
        assert sent.headers["authorization"] == f"Bearer {KEY}"
        assert sent.body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a \ufffd b"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"extra_content": {"sig": "S"}, "id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
                    {"id": "2", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "2"},
            {"role": "tool", "tool_call_id": "2", "content": "bad"},
            {"role": "assistant", "content": "Two."},
        ]
        assert sent.body["tools"] == [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": ADD.parameters}}]
        assert sent.body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
        wanted = {
            "model": "m",
            "max_tokens": 9,
            "temperature": 0,
            "stop": ["END"],
            "seed": 1,
            "reasoning_effort": "low",
            "verbosity": "high",
            "top_k": 4,
        }
        assert {name: sent.body[name] for name in wanted} == wanted

    def test_without_tools_nothing_is_said_of_them(self, provider, provider_module):
        url = provider.serve("a", provider_module.text_reply("x"))
        deltas_of(url)
        assert set(provider.requests["a"][0].body) == {"messages", "model", "stream", "stream_options"}

    def test_ten_megabytes_of_prompt_arrive(self, provider, provider_module):
        url = provider.serve("a", provider_module.text_reply("x"))
        prompt = "word " * (2 << 20)
        deltas_of(url, ModelRequest(messages=(UserMessage(text=prompt),)))
        assert provider.requests["a"][0].body["messages"][0]["content"] == prompt

    @pytest.mark.parametrize(
        ("options", "refusal", "before", "after"),
        [
            ({}, "Unknown parameter: stream_options", "stream_options", None),
            ({"max_tokens": 5}, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens", "max_completion_tokens"),
        ],
    )
    def test_a_field_that_the_server_refuses_is_asked_without_and_remembered(self, options, refusal, before, after, provider, provider_module):
        async def main():
            refused = provider_module.json_reply({"error": {"message": refusal, "type": "invalid_request_error"}}, status=400)
            url = provider.serve("a", refused, provider_module.text_reply("x"))
            async with OpenAIModel("m", base_url=url, **options) as model:
                return [text_of([delta async for delta in model.stream(ASK)]) for _ in range(2)]

        assert asyncio.run(main()) == ["x", "x"]
        first, second, third = (request.body for request in provider.requests["a"])
        assert before in first
        for body in (second, third):
            assert before not in body
            assert after is None or body[after] == 5

    def test_a_refused_value_is_not_taken_for_an_unknown_field(self, provider, provider_module):
        refused = provider_module.json_reply({"error": {"message": "max_tokens is too large: 9"}}, status=400)
        with pytest.raises(ModelRejected, match="too large"):
            deltas_of(provider.serve("a", refused), max_tokens=9)
        assert len(provider.requests["a"]) == 1

    def test_models_are_listed(self, provider, provider_module):
        async def main(url):
            async with OpenAIModel("m", base_url=url) as model:
                return await model.list_models()

        assert asyncio.run(main(provider.serve("a", provider_module.json_reply({"object": "list", "data": [{"id": "m1"}, {"id": "m2"}]})))) == [
            "m1",
            "m2",
        ]
        assert provider.requests["a"][0].path == "/a/v1/models"
        with pytest.raises(ModelRejected) as caught:
            asyncio.run(main(provider.serve("b", provider_module.json_reply({"error": {"message": "no"}}, status=404))))
        assert caught.value.kind == "not_found"
        with pytest.raises(ModelProtocolError):
            asyncio.run(main(provider.serve("c", provider_module.Reply([b"<html>hello</html>"], content_type="text/html"))))


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "error", "kind", "retryable"),
        [
            (400, ModelRejected, "bad_request", False),
            (401, ModelRejected, "auth", False),
            (403, ModelRejected, "auth", False),
            (404, ModelRejected, "not_found", False),
            (408, ModelConnectionError, "server", True),
            (409, ModelConnectionError, "server", True),
            (413, ModelRejected, "too_large", False),
            (422, ModelRejected, "bad_request", False),
            (425, ModelConnectionError, "server", True),
            (429, ModelRateLimited, "rate_limit", True),
            (500, ModelConnectionError, "server", True),
            (502, ModelConnectionError, "server", True),
            (503, ModelRateLimited, "overloaded", True),
            (529, ModelRateLimited, "overloaded", True),
        ],
    )
    def test_statuses_have_their_kinds_and_are_asked_once(self, status, error, kind, retryable, provider, provider_module):
        url = provider.serve("a", provider_module.json_reply({"error": {"message": "the reason"}}, status=status))
        raised = error_of(url, api_key=KEY)
        assert (type(raised), raised.kind, raised.retryable, raised.status) == (error, kind, retryable, status)
        assert "the reason" in str(raised)
        assert str(status) in str(raised)
        assert "\n" not in str(raised)
        assert raised.__cause__ is not None
        assert len(provider.requests["a"]) == 1

    @pytest.mark.parametrize(
        ("status", "body", "error", "kind"),
        [
            (429, {"error": {"message": "x", "code": "insufficient_quota"}}, ModelRateLimited, "quota"),
            (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, ModelRejected, "too_large"),
            (400, {"error": {"message": "x", "code": "content_filter"}}, ModelRefused, "content_filter"),
            (400, [{"error": {"message": "in a list", "code": 400}}], ModelRejected, "bad_request"),
            (500, "plain words", ModelConnectionError, "server"),
            (402, {"detail": "pay"}, ModelRateLimited, "quota"),
        ],
    )
    def test_words_sharpen_a_status(self, status, body, error, kind, provider, provider_module):
        raised = error_of(provider.serve("a", provider_module.json_reply(body, status=status)))
        assert (type(raised), raised.kind) == (error, kind)
        assert kind != "quota" or not raised.retryable

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"Retry-After": "7"}, 7),
            ({"Retry-After-Ms": "250", "Retry-After": "7"}, 0.25),
            ({"Retry-After": "soon"}, None),
            ({}, None),
            ({"Retry-After": "-3"}, None),
        ],
    )
    def test_the_wait_that_the_server_asks_for_is_kept(self, headers, seconds, provider, provider_module):
        url = provider.serve("a", provider_module.json_reply({"error": {"message": "slow"}}, status=429, headers=headers))
        assert error_of(url).retry_after == seconds

    def test_the_wait_may_be_a_date(self, provider, provider_module):
        date = (datetime.now(UTC) + timedelta(seconds=100)).strftime("%a, %d %b %Y %H:%M:%S GMT")
        url = provider.serve("a", provider_module.json_reply({}, status=503, headers={"Retry-After": date}))
        assert 60 < error_of(url).retry_after <= 100

    @pytest.mark.parametrize(
        ("event", "error", "kind"),
        [
            ({"error": {"message": "no", "type": "server_error", "code": 503}}, ModelRateLimited, "overloaded"),
            ({"error": {"message": "no", "code": "rate_limit_exceeded"}}, ModelRateLimited, "rate_limit"),
            ({"error": {"message": "no", "type": "insufficient_quota"}}, ModelRateLimited, "quota"),
            ({"error": "just words"}, ModelConnectionError, "server"),
            ({"error": {"message": "no", "type": "invalid_request_error", "code": None}}, ModelRejected, "bad_request"),
            ({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, ModelRejected, "bad_request"),
            ({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "no"}}]}, ModelConnectionError, "server"),
            ({"choices": [{"delta": {}, "finish_reason": "error"}]}, ModelConnectionError, "server"),
            ({"choices": [{"delta": {"refusal": "I will not"}, "finish_reason": "stop"}]}, ModelRefused, "refusal"),
        ],
    )
    def test_an_error_inside_a_stream_comes_after_its_text_and_keeps_the_usage(self, event, error, kind, provider, provider_module):
        usage = {"prompt_tokens": 5}

        async def main():
            blocks = [provider_module.chunk({"content": "par"}, usage=usage), b"data: " + json.dumps(event).encode() + b"\n\n", provider_module.DONE]
            seen = []
            async with OpenAIModel("m", base_url=provider.serve("a", provider_module.Reply(blocks))) as model:
                try:
                    async for delta in model.stream(ASK):
                        seen.append(delta)  # what came before the error is the point
                except ModelError as raised:
                    return seen, raised
            return seen, None

        seen, raised = asyncio.run(main())
        assert text_of(seen).startswith("par")
        assert not any(isinstance(delta, FinishDelta) for delta in seen)
        assert (type(raised), raised.kind, raised.usage) == (error, kind, Usage(input_tokens=5))

    @pytest.mark.parametrize(
        ("content_type", "body", "error"),
        [
            ("text/html", b"<!doctype html><title>Sign in</title>", ModelProtocolError),
            ("text/plain", b"upstream connect error", ModelProtocolError),
            ("application/json", b'{"hello": "world"}', ModelProtocolError),
            ("application/json", b'{"choices": [', ModelProtocolError),
            ("application/json", b'{"detail": "Not Found"}', ModelConnectionError),
            ("application/json", b'{"error": {"message": "no", "code": 429}}', ModelRateLimited),
            ("text/event-stream", b"", ModelConnectionError),
            ("text/event-stream", b": ping\n\n: ping\n\n", ModelConnectionError),
            ("text/event-stream", b"data: not json\n\n", ModelProtocolError),
            ("text/event-stream", b'data: {"choices": [\n\n', ModelProtocolError),
            ("text/event-stream", b'data: {"choices": [', ModelConnectionError),
        ],
    )
    def test_what_is_no_answer_is_said_clearly(self, content_type, body, error, provider, provider_module):
        raised = error_of(provider.serve("a", provider_module.Reply([body], content_type=content_type)))
        assert type(raised) is error
        assert "m at 127.0.0.1" in str(raised)

    def test_no_server(self, provider):
        url = provider.url("x").replace(provider.url("x").split(":")[2].split("/")[0], "1")
        raised = error_of(url)
        assert (type(raised), raised.kind, raised.retryable) == (ModelConnectionError, "connection", True)
        assert "127.0.0.1:1" in str(raised)
        assert "running" in str(raised)

    def test_a_server_that_hangs_up_before_a_word(self, provider, provider_module):
        raised = error_of(provider.serve("a", provider_module.Reply(drop=True)))
        assert (type(raised), raised.retryable) == (ModelConnectionError, True)

    def test_no_key_appears_in_any_message(self, provider, provider_module):
        words = f"Incorrect API key provided: {KEY}. Header was 'Bearer other-secret-99'. Or sk-proj-ABCDEF123456?"
        replies = [
            provider_module.json_reply({"error": {"message": words}}, status=401),
            provider_module.Reply([b"data: " + json.dumps({"error": words}).encode() + b"\n\n"]),
            provider_module.Reply([words.encode()], content_type="text/plain"),
        ]
        for number, reply in enumerate(replies):
            raised = error_of(provider.serve(f"a{number}", reply), api_key=KEY)
            told = f"{raised} {raised!r} {raised.__cause__}"
            assert all(secret not in told for secret in (KEY, "other-secret-99", "ABCDEF123456"))
            assert "***" in told

    def test_without_key_and_server_one_line_says_what_to_do(self):
        model = OpenAIModel("m")

        async def main():
            return [delta async for delta in model.stream(ASK)]

        with pytest.raises(ModelRejected, match="OPENAI_API_KEY") as caught:
            asyncio.run(main())
        assert caught.value.kind == "auth"

    def test_a_local_server_needs_no_key_and_the_environment_names_one(self, provider, provider_module, monkeypatch):
        url = provider.serve("a", provider_module.text_reply("x"))
        assert text_of(deltas_of(url)) == "x"
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert text_of(deltas_of(None)) == "x"
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert text_of(deltas_of(None)) == "x"
        assert [request.headers["authorization"] for request in provider.requests["a"]] == ["Bearer none", "Bearer none", f"Bearer {KEY}"]

    def test_a_server_named_by_the_environment_that_is_no_url_is_our_error(self, monkeypatch):
        monkeypatch.setenv("OPENAI_BASE_URL", "http://[")
        with pytest.raises(ModelError, match="OPENAI_BASE_URL"):
            deltas_of(None)

    @pytest.mark.parametrize("key", ["k\u00e9y", "line\nbreak"])
    def test_a_key_that_fits_no_header_is_our_error(self, key, provider, provider_module):
        raised = error_of(provider.serve("a", provider_module.text_reply("x")), api_key=key)
        assert not raised.retryable or isinstance(raised, ModelConnectionError)
        assert key not in str(raised)


class TestTimeouts:
    def timed_out(self, url, **options):
        start = time.monotonic()
        raised = error_of(url, **options)
        assert time.monotonic() - start < 5
        assert (type(raised), raised.kind, raised.retryable) == (ModelConnectionError, "timeout", True)
        return str(raised)

    def test_first_byte(self, provider, provider_module):
        url = provider.serve("a", provider_module.Reply([provider.event()]))
        assert "first_byte_timeout (0.1 s)" in self.timed_out(url, first_byte_timeout=0.1)

    def test_first_byte_covers_a_slow_whole_answer(self, provider, provider_module):
        url = provider.serve("a", provider_module.Reply([provider.event()], content_type="application/json"))
        assert "first_byte_timeout" in self.timed_out(url, first_byte_timeout=0.1, stream=False)

    def test_idle(self, provider, provider_module):
        url = provider.serve("a", provider_module.Reply([provider_module.chunk({"content": "x"}), provider.event()]))
        assert "idle_timeout (0.1 s)" in self.timed_out(url, idle_timeout=0.1)

    def test_total(self, provider):
        assert "total_timeout (0.3 s)" in self.timed_out(provider.url("paced-1000-0.02"), total_timeout=0.3, idle_timeout=10)

    def test_a_consumer_that_takes_its_time_is_no_timeout(self, provider, provider_module):
        async def main():
            url = provider.serve("a", provider_module.text_reply("a", "b"))
            async with OpenAIModel("m", base_url=url, idle_timeout=0.05) as model:
                seen = []
                async for delta in model.stream(ASK):
                    await asyncio.sleep(0.1)
                    seen.append(delta)
                return seen

        assert text_of(asyncio.run(main())) == "ab"


class TestLoops:
    def test_one_object_serves_one_loop_after_another_and_several_at_once(self, provider, provider_module):
        url = provider.serve("a", provider_module.text_reply("x"))
        model = OpenAIModel("m", base_url=url)

        async def ask():
            return text_of([delta async for delta in model.stream(ASK)])

        assert [asyncio.run(ask()) for _ in range(3)] == ["x"] * 3  # not closed in between: each loop closes its own client
        got = []
        threads = [threading.Thread(target=lambda: got.append(asyncio.run(ask()))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == ["x"] * 4
        asyncio.run(model.close())

    def test_many_requests_at_once_share_a_client(self, provider):
        async def main():
            async with OpenAIModel("m", base_url=provider.url("burst-50")) as model:

                async def ask():
                    return text_of([delta async for delta in model.stream(ASK)])

                return await asyncio.gather(*(ask() for _ in range(20)))

        assert set(asyncio.run(main())) == {"".join(f"w{n} " for n in range(50))}

    def test_close_from_another_loop_closes_the_connection(self, provider, provider_module):
        url = provider.serve("a", provider_module.text_reply("x"))
        model = OpenAIModel("m", base_url=url)
        asked, closed = threading.Event(), threading.Event()

        async def ask():
            assert text_of([delta async for delta in model.stream(ASK)]) == "x"
            asked.set()
            await asyncio.to_thread(closed.wait, 10)

        thread = threading.Thread(target=lambda: asyncio.run(ask()))
        thread.start()
        assert asked.wait(10)
        assert provider.open_connections() == 1
        asyncio.run(model.close())
        assert provider.open_connections(wait_for=0) == 0
        closed.set()
        thread.join(10)


class TestConstruction:
    @pytest.mark.parametrize(
        "options",
        [
            {"api": "responses"},
            {"max_retries": -1},
            {"max_retries": 1.5},
            {"max_tokens": 0},
            {"max_tokens": True},
            {"temperature": -1},
            {"temperature": float("nan")},
            {"stop": [1]},
            {"stop": 3},
            {"seed": 1.5},
            {"reasoning_effort": ""},
            {"base_url": "localhost:8000"},
            {"base_url": "ftp://x"},
            {"base_url": "http://["},
            {"connect_timeout": 0},
            {"idle_timeout": -1},
            {"total_timeout": float("inf")},
            {"first_byte_timeout": "5"},
        ],
    )
    def test_a_bad_value_fails_where_it_is_written(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
            OpenAIModel("m", **options)

    def test_an_unknown_option_is_a_type_error(self):
        with pytest.raises(TypeError, match="temprature"):
            OpenAIModel("m", temprature=1)

    def test_a_name_is_needed(self):
        with pytest.raises(ValueError, match="model"):
            OpenAIModel(" ")

    def test_nothing_heavy_is_loaded_before_the_first_request(self):
        code = "import sys; from agent_kernel.model.openai_chat import OpenAIModel; OpenAIModel('m'); print(sorted({'openai', 'httpx2', 'pydantic'} & set(sys.modules)))"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


class TestFactsThatTheDesignStandsOn:
    """Each would let the code be simpler if it stopped being true."""

    def test_the_client_refuses_to_be_made_without_a_key(self):
        import openai

        with pytest.raises(openai.OpenAIError):
            openai.AsyncOpenAI(base_url="http://127.0.0.1:1/v1")

    def test_the_raw_path_lets_transport_errors_through_unmapped(self, provider, provider_module):
        import httpx2
        import openai

        async def main(url):
            async with openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0) as client:
                create = client.chat.completions.with_streaming_response.create
                async with create(model="m", messages=[{"role": "user", "content": "x"}], stream=True) as response:
                    async for _ in response.iter_bytes():
                        pass

        url = provider.serve("a", provider_module.Reply([provider_module.chunk({"content": "x"})], cut=True))
        with pytest.raises(httpx2.HTTPError) as caught:
            asyncio.run(main(url))
        assert not isinstance(caught.value, openai.OpenAIError)

    def test_the_client_asks_again_by_itself_unless_told_not_to(self, provider, provider_module):
        import openai

        async def main(url):
            async with openai.AsyncOpenAI(api_key="x", base_url=url) as client:
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])

        headers = {"retry-after-ms": "1"}
        url = provider.serve("a", provider_module.json_reply({"error": {"message": "no"}}, status=500, headers=headers))
        with pytest.raises(openai.InternalServerError):
            asyncio.run(main(url))
        assert len(provider.requests["a"]) > 1

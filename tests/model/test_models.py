"""The models that need no server: scripted, fallback, offline."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent_kernel.errors import EmptyAnswer, ModelConnectionError, ModelError, ModelRateLimited, ModelRejected
from agent_kernel.model.assemble import CallAssembler, parse_arguments
from agent_kernel.model.base import Model
from agent_kernel.model.fallback import FallbackModel
from agent_kernel.model.offline import OfflineModel
from agent_kernel.model.openai_chat import OpenAIModel
from agent_kernel.model.scripted import ScriptedModel
from agent_kernel.protocol.events import FinishDelta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from agent_kernel.protocol.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, Usage, UserMessage
from agent_kernel.protocol.request import ModelRequest, ToolSpec


def request(*messages, tools=(), choice="auto") -> ModelRequest:
    if len(messages) == 1 and isinstance(messages[0], str):
        messages = (UserMessage(text=messages[0]),)
    return ModelRequest(messages=messages, tools=tuple(tools), tool_choice=choice)


def ask(model, asked=None) -> list:
    async def main():
        return [delta async for delta in model.stream(asked or request("hi"))]

    return asyncio.run(main())


def test_all_are_models():
    scripted = ScriptedModel([])
    for model in (scripted, OfflineModel(), FallbackModel([scripted]), OpenAIModel("m")):
        assert isinstance(model, Model)


class TestScripted:
    def test_each_request_gets_the_next_reply(self):
        call = ToolCall(id="x", name="f", arguments='{"a":1}', extra={"s": 1})
        usage = UsageDelta(usage=Usage(input_tokens=1))
        model = ScriptedModel(
            ["Hello", "", call, ["a", "b", ReasoningDelta(text="t"), call, call, usage], [], FinishDelta(reason="length", model="other")]
        )
        assert ask(model) == [TextDelta(text="Hello"), FinishDelta(reason="stop", model="scripted")]
        assert ask(model) == [FinishDelta(reason="stop", model="scripted")]
        as_delta = [ToolCallDelta(index=n, id="x", name="f", arguments='{"a":1}', extra={"s": 1}) for n in (0, 1)]
        assert ask(model) == [as_delta[0], FinishDelta(reason="tool_calls", model="scripted")]
        assert ask(model) == [
            TextDelta(text="a"),
            TextDelta(text="b"),
            ReasoningDelta(text="t"),
            *as_delta,
            usage,
            FinishDelta(reason="tool_calls", model="scripted"),
        ]
        assert ask(model) == [FinishDelta(reason="stop", model="scripted")]
        assert ask(model) == [FinishDelta(reason="length", model="other")]
        model.assert_done()

    def test_it_waits_and_fails_where_the_script_says(self):
        async def main():
            gate, seen = asyncio.Event(), []
            model = ScriptedModel([["a", gate, "b", 0, EmptyAnswer("enough")]])
            try:
                async for delta in model.stream(request("hi")):
                    seen.append(delta.text)
                    gate.set()
            except EmptyAnswer as error:
                return seen, str(error)
            return seen, None

        assert asyncio.run(main()) == (["a", "b"], "enough")

    def test_a_pause_is_in_seconds(self):
        start = time.monotonic()
        ask(ScriptedModel([[0.05, "a"]]))
        assert time.monotonic() - start >= 0.05

    def test_what_was_asked_can_be_read(self):
        model = ScriptedModel(["a", "b"], name="s")
        first, second = request("one"), request("two")
        ask(model, first)
        ask(model, second)
        assert model.requests == [first, second]
        assert repr(model) == "ScriptedModel('s', 2 of 2 replies used)"

    def test_a_script_that_does_not_fit_fails_loudly(self):
        model = ScriptedModel(["a", "b"])
        ask(model)
        with pytest.raises(AssertionError, match="1 of 2"):
            model.assert_done()
        ask(model)
        model.assert_done()
        with pytest.raises(ModelError, match="2 replies, and this is request 3"):
            ask(model)

    @pytest.mark.parametrize("step", [None, True, -1, {"text": "a"}, b"a", [["a"]]])
    def test_a_step_of_another_kind_is_refused_when_written(self, step):
        with pytest.raises(TypeError, match="Reply 2"):
            ScriptedModel(["a", [step]])

    def test_one_text_is_no_list_of_replies(self):
        with pytest.raises(TypeError, match="one entry per request"):
            ScriptedModel("hello")


class TestFallback:
    def test_the_next_answers_at_the_first_refusal_and_is_named(self):
        refusing, answering, unused = (
            ScriptedModel([ModelRateLimited("busy")], name="a"),
            ScriptedModel([["x"]], name="b"),
            ScriptedModel([], name="c"),
        )
        model = FallbackModel([refusing, answering, unused])
        assert ask(model) == [TextDelta(text="x"), FinishDelta(reason="stop", model="b")]
        assert (len(refusing.requests), len(answering.requests), len(unused.requests)) == (1, 1, 0)
        assert model.name == "a / b / c"

    def test_a_model_without_a_finish_or_a_name_in_it_is_named_too(self):
        class Bare:
            name = "bare"

            async def stream(self, request):
                yield TextDelta(text="x")

        assert ask(FallbackModel([Bare()])) == [TextDelta(text="x"), FinishDelta(model="bare")]
        assert ask(FallbackModel([ScriptedModel([FinishDelta(reason="stop")], name="n")])) == [FinishDelta(reason="stop", model="n")]

    def test_the_next_round_begins_with_the_first_again(self):
        first, second = ScriptedModel([ModelRateLimited("busy"), "back"], name="a"), ScriptedModel(["x"], name="b")
        model, asked = FallbackModel([first, second]), request("same")
        assert ask(model, asked)[-1].model == "b"
        assert ask(model, asked)[-1].model == "a"

    def test_a_retry_of_the_round_never_asks_again_who_refused(self):
        first = ScriptedModel([ModelRateLimited("busy")], name="a")
        second = ScriptedModel([ModelConnectionError("broke"), "x"], name="b")
        model = FallbackModel([first, second])
        with pytest.raises(ModelConnectionError) as caught:
            ask(model, request("same"))
        assert caught.value.retryable
        assert ask(model, request("same"))[0] == TextDelta(text="x")
        assert len(first.requests) == 1

    def test_nothing_shown_is_replaced(self):
        first, second = ScriptedModel([["par", ModelRateLimited("busy")]]), ScriptedModel(["x"])
        with pytest.raises(ModelRateLimited, match="busy"):
            ask(FallbackModel([first, second]))
        assert second.requests == []

    def test_other_errors_are_not_its_business(self):
        second = ScriptedModel(["x"])
        with pytest.raises(ModelRejected):
            ask(FallbackModel([ScriptedModel([ModelRejected("no key", kind="auth")]), second]))
        assert second.requests == []

    def test_when_all_refuse_the_last_refusal_is_final(self):
        model = FallbackModel(
            [ScriptedModel([ModelRateLimited("one"), "a"]), ScriptedModel([ModelRateLimited("two", kind="overloaded", retry_after=3)])]
        )
        with pytest.raises(ModelRateLimited, match="two") as caught:
            ask(model)
        assert (caught.value.retryable, caught.value.kind, caught.value.retry_after) == (False, "overloaded", 3)
        assert ask(model)[0] == TextDelta(text="a")

    def test_retries_are_those_of_the_first_and_all_are_closed(self):
        closed = []

        class Closing(ScriptedModel):
            max_retries = 5

            async def close(self):
                closed.append(self.name)

        async def main():
            async with FallbackModel([Closing([], name="a"), ScriptedModel([], name="b"), Closing([], name="c")], name="both") as model:
                return model.name, model.max_retries

        assert asyncio.run(main()) == ("both", 5)
        assert closed == ["a", "c"]
        assert FallbackModel([ScriptedModel([])]).max_retries == 0
        with pytest.raises(ValueError, match="at least one"):
            FallbackModel([])

    def test_leaving_early_closes_the_model_that_answers(self):
        ended = []

        class Endless:
            name = "endless"

            async def stream(self, request):
                try:
                    while True:
                        yield TextDelta(text="x")
                finally:
                    ended.append(True)

        async def main():
            stream = FallbackModel([Endless()]).stream(request("hi"))
            await anext(stream)
            await stream.aclose()
            assert ended

        asyncio.run(main())

    def test_a_real_429_falls_back(self, provider, provider_module):
        async def main():
            busy = provider.serve("busy", provider_module.json_reply({"error": {"message": "slow"}}, status=429))
            free = provider.serve("free", provider_module.Reply(provider_module.text_reply("x").blocks))
            async with FallbackModel([OpenAIModel("one", base_url=busy), OpenAIModel("two", base_url=free)]) as model:
                return [delta async for delta in model.stream(request("hi"))]

        assert asyncio.run(main()) == [TextDelta(text="x"), FinishDelta(reason="stop", model="m")]
        assert [len(provider.requests[name]) for name in ("busy", "free")] == [1, 1]


REVENUE = ToolSpec(
    name="revenue",
    description="Revenue of a region.\nIn thousands.",
    parameters={"type": "object", "properties": {"region": {"type": "string"}, "year": {"type": "integer", "default": 2026}}, "required": ["region"]},
)
SHAPES = ToolSpec(
    name="shapes",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", "slow"]},
            "ids": {"type": "array", "items": {"type": "integer", "minimum": 5}},
            "day": {"type": "string", "format": "date"},
            "limit": {"anyOf": [{"type": "null"}, {"type": "number"}]},
            "point": {"$ref": "#/$defs/Point"},
        },
        "required": ["mode", "ids", "day", "limit", "point"],
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "boolean"}, "y": {}}, "required": ["x"]}},
    },
)


class TestOffline:
    def answer(self, asked):
        """Return the text and the assembled calls."""
        deltas = ask(OfflineModel(delay=0), asked)
        calls = CallAssembler(lambda provider_id: provider_id)
        for delta in deltas:
            if isinstance(delta, ToolCallDelta):
                calls.feed(delta)
        assert deltas[-1] == FinishDelta(reason="tool_calls" if calls.calls() else "stop", model="offline")
        assert deltas == ask(OfflineModel(delay=0), asked)  # deterministic
        return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)), [
            (call.name, parse_arguments(call.arguments)) for call in calls.calls()
        ]

    @pytest.mark.parametrize(
        ("prompt", "calls"),
        [
            ('revenue(region="north")', [{"region": "north"}]),
            ("Compare revenue('north') and revenue(\"south\", 2025), please (both).", [{"region": "north"}, {"region": "south", "year": 2025}]),
            ("revenue(\n  region='a)b(',\n  year=-1,\n)", [{"region": "a)b(", "year": -1}]),
            ("revenue(region='''x\ny''')", [{"region": "x\ny"}]),
            ("revenue(region=[1, (2, 3), {'a': {None: True}}])", [{"region": [1, [2, 3], {"a": {"null": True}}]}]),
            ("revenue(**{'region': 'x'}, odd=1.5)", [{"region": "x", "odd": 1.5}]),
            ("don't revenue(region='it\\'s') won't", [{"region": "it's"}]),
            ("revenue()", [{}]),
            ("outer(revenue('x'))", [{"region": "x"}]),
        ],
    )
    def test_the_calls_that_the_prompt_writes_are_made(self, prompt, calls):
        text, made = self.answer(request(prompt, tools=[REVENUE]))
        assert made == [("revenue", arguments) for arguments in calls]
        assert "ffline model" in text

    @pytest.mark.parametrize(
        ("prompt", "note"),
        [
            ("revenue(region=x)", "literals"),
            ("revenue(region=__import__('os').getcwd())", "literals"),
            ("revenue('a', 1, 2)", "at most 2"),
            ("revenue(region='a'", "not closed"),
            ("revenue(for x)", "no Python call"),
            ("revenue(region=1e999)", "literals"),
            ("revenue(1" + "+1" * 5000 + ")", "`revenue`"),
            ("revenue(" + "(" * 5000 + ")" * 5001, "`revenue`"),
            ("lookup(x=1)", "no tool `lookup`"),
        ],
    )
    def test_what_is_no_call_is_said_and_not_made(self, prompt, note):
        text, made = self.answer(request(prompt, tools=[REVENUE]))
        assert made == []
        assert note in text

    def test_prose_and_programs_are_no_calls(self):
        text, made = self.answer(request("print(x) if obj.revenue(1) else revenue_total(y); revenue (1)", tools=[REVENUE]))
        assert made == []
        assert "I cannot" not in text

    def test_a_huge_prompt_takes_no_time(self):
        start = time.monotonic()
        self.answer(request("f(x) ((((" * 200_000, tools=[REVENUE]))
        assert time.monotonic() - start < 8  # two runs; the aim is two seconds

    def test_without_a_call_it_says_what_it_is_and_shows_an_example_of_each_tool(self):
        text, made = self.answer(request("How are you?", tools=[REVENUE, SHAPES]))
        assert made == []
        assert all(word in text for word in ("no language model", "OPENAI_API_KEY", "OPENAI_BASE_URL", "%agent model NAME"))
        assert "`revenue(region='text')`: Revenue of a region.\n" in text
        line = next(line for line in text.splitlines() if "shapes(" in line)
        _, again = self.answer(request(line.split("`")[1], tools=[REVENUE, SHAPES]))
        assert again == [("shapes", {"mode": "fast", "ids": [5], "day": "2026-01-31", "limit": 1.5, "point": {"x": True}})]

    def test_without_tools_it_says_so(self):
        text, _ = self.answer(request("How are you?"))
        assert "No tools" in text

    def test_the_results_are_reported_and_nothing_is_called_twice(self):
        prompt = "revenue('north') revenue('south')"
        calls = tuple(ToolCall(id=str(n), name="revenue", arguments=f'{{"region": "{region}"}}') for n, region in enumerate(("north", "south")))
        long = "\n".join(f"line {n} ```" for n in range(100))
        asked = request(
            UserMessage(text="revenue('earlier')"),
            AssistantMessage(text="done"),
            UserMessage(text=prompt),
            AssistantMessage(tool_calls=calls),
            ToolMessage(call_id="0", name="revenue", text="42"),
            ToolMessage(call_id="1", name="revenue", status="error", text=long),
            tools=[REVENUE],
        )
        text, made = self.answer(asked)
        assert made == []
        assert "**`revenue(region='north')`**: ok\n\n```text\n42\n```" in text
        assert "**`revenue(region='south')`**: error\n\n````text\nline 0 ```" in text
        assert "line 50" not in text
        assert f"{len(long):,} characters" in text

    def test_only_the_latest_prompt_counts(self):
        asked = request(
            SystemMessage(text="revenue('s')"),
            UserMessage(text="revenue('old')"),
            AssistantMessage(text="ok"),
            UserMessage(text="thanks"),
            tools=[REVENUE],
        )
        assert self.answer(asked)[1] == []

    def test_the_tool_choice_is_respected(self):
        two = [REVENUE, SHAPES]
        text, made = self.answer(request("revenue('x')", tools=two, choice="none"))
        assert made == []
        assert "switched off" in text
        assert self.answer(request("hi", tools=two, choice="required"))[1] == [("revenue", {"region": "text"})]
        assert self.answer(request("revenue('x') shapes('fast')", tools=two, choice="shapes"))[1] == [("shapes", {"mode": "fast"})]
        assert self.answer(request("revenue('x')", tools=two, choice="shapes"))[1][0][0] == "shapes"

    def test_calls_come_in_fragments_one_after_another(self):
        deltas = ask(OfflineModel(delay=0, chunk=5), request("revenue('north') revenue('south')", tools=[REVENUE]))
        fragments = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
        assert [delta.index for delta in fragments] == sorted(delta.index for delta in fragments)
        assert {delta.index for delta in fragments} == {0, 1}
        assert len(fragments) > 6
        assert all(len(delta.text) <= 5 for delta in deltas if isinstance(delta, TextDelta))

    def test_other_tasks_run_between_the_fragments(self):
        async def main():
            ticks, done = 0, False

            async def ticker():
                nonlocal ticks
                while not done:
                    ticks += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(ticker())
            count = len([delta async for delta in OfflineModel(delay=0).stream(request("hi"))])
            seen, done = ticks, True
            await task
            return seen, count

        seen, count = asyncio.run(main())
        assert seen >= count - 2

    @pytest.mark.parametrize("options", [{"chunk": 0}, {"delay": -1}])
    def test_bad_options_fail_at_once(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
            OfflineModel(**options)

"""Every recorded dialect: over HTTP, cut at each byte, ended at each byte, and with other ids, names and arguments."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.errors import InvalidArguments, ModelError
from agent_kernel.model.assemble import CallAssembler, parse_arguments
from agent_kernel.model.chat_decoder import ChatDecoder
from agent_kernel.model.chat_messages import encoded
from agent_kernel.model.classify import Source
from agent_kernel.model.openai_chat import OpenAIModel
from agent_kernel.protocol.events import FinishDelta, ReasoningDelta, TextDelta, ToolCallDelta
from agent_kernel.protocol.messages import AssistantMessage, UserMessage
from agent_kernel.protocol.request import ModelRequest

ASK = ModelRequest(messages=(UserMessage(text="go"),))
TOOLS = {"add": {"a", "b"}, "ping": set(), "echo": {"s"}}
NAMES = [json.loads(line)["name"] for line in (Path(__file__).parents[1] / "data" / "streams.jsonl").read_text().splitlines()]


class Outcome:
    """What a turn would make of a stream of Deltas: text, calls that would run, error."""

    def __init__(self):
        numbers = itertools.count()
        self.assembler = CallAssembler(lambda provider_id: provider_id or f"made-{next(numbers)}")
        self.text = self.reasoning = ""
        self.finish = self.error = None

    def take(self, delta):
        match delta:
            case TextDelta():
                self.text += delta.text
            case ReasoningDelta():
                self.reasoning += delta.text
            case ToolCallDelta():
                self.assembler.feed(delta)
            case FinishDelta():
                self.finish = delta

    @property
    def calls(self):
        return self.assembler.calls()

    @property
    def failed(self):
        empty = not self.text.strip() and not self.calls
        return self.error is not None or self.finish.reason == "content_filter" or empty

    def runs(self, tools=TOOLS):
        """Calls that would reach a tool, arguments with numbers in text made numbers as the tools' own conversion does."""
        if self.failed or self.finish.reason == "length":
            return []
        ran = []
        for call in self.calls:
            try:
                arguments = parse_arguments(call.arguments)
            except InvalidArguments:
                continue
            if call.name in tools and set(arguments) == tools[call.name]:
                ran.append((call.name, {key: int(value) if str(value).isdecimal() else value for key, value in arguments.items()}))
        return ran


def decoded(pieces, status=200) -> Outcome:
    """Decode bytes in this process, as the model would."""
    outcome, decoder = Outcome(), ChatDecoder(Source("m at test"), "m")
    assert status == 200
    try:
        for piece in pieces:
            for delta in decoder.feed(piece):
                outcome.take(delta)
        for delta in decoder.finish():
            outcome.take(delta)
    except ModelError as error:
        outcome.error = error
    return outcome


async def asked(model) -> Outcome:
    outcome = Outcome()
    async with model, aclosing(model.stream(ASK)) as stream:
        try:
            async for delta in stream:
                outcome.take(delta)
        except ModelError as error:
            outcome.error = error
    return outcome


def check(outcome: Outcome, expect: dict) -> None:
    key = lambda call: json.dumps(call, sort_keys=True)  # noqa: E731
    assert sorted(map(key, outcome.runs())) == sorted(key((call["name"], call["arguments"])) for call in expect["calls"])
    assert outcome.failed == expect["error"]
    assert expect["text"] is None or outcome.text == expect["text"]
    assert outcome.reasoning == expect.get("reasoning", "")
    sent = encoded(AssistantMessage(text=outcome.text, tool_calls=outcome.calls))
    ids = [call["id"] for call in sent.get("tool_calls", [])]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in sent.get("tool_calls", []))
    assert expect.get("next_request_contains", "") in json.dumps(sent)
    json.dumps(sent, ensure_ascii=False).encode()


@pytest.mark.parametrize("name", NAMES)
def test_over_http(name, provider, cases):
    outcome = asyncio.run(asked(OpenAIModel("m", base_url=provider.url(f"case-{name}"))))
    check(outcome, cases[name]["expect"])


def test_there_are_as_many_as_were_recorded(cases):
    assert len(cases) == len(NAMES) == 44


def streamed(cases, provider_module):
    return {name: (b"".join(provider_module.case_bytes(case)), case["expect"]) for name, case in cases.items() if case["http_status"] == 200}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "http_429_json"])
def test_cut_at_each_byte(name, cases, provider_module):
    body, expect = streamed(cases, provider_module)[name]
    for cut in range(len(body) + 1):
        check(decoded([body[:cut], body[cut:]]), expect)
    check(decoded([bytes([byte]) for byte in body]), expect)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "http_429_json"])
def test_ended_at_each_byte(name, cases, provider_module):
    """The stream stops at any byte without a word: nothing that was not asked for runs, and every error is ours."""
    body, expect = streamed(cases, provider_module)[name]
    wanted = [(call["name"], call["arguments"]) for call in expect["calls"]]
    whole = decoded([body])
    for end in range(len(body)):
        outcome = decoded([body[:end]])
        assert all(call in wanted for call in outcome.runs()), body[:end]
        # No call that was cut is taken for a whole one, whatever its tool would say to its arguments.
        if outcome.error is None and not whole.failed:
            for cut_call, whole_call in zip(outcome.calls, whole.calls, strict=False):
                assert (cut_call.name, cut_call.arguments) == (whole_call.name, whole_call.arguments), body[:end]


@pytest.mark.parametrize("name", ["control_two_parallel", "utf8_split_over_writes", "crlf_lines", "error_object_in_stream"])
def test_cut_at_some_bytes_over_http(name, provider, provider_module, cases):
    body, expect = streamed(cases, provider_module)[name]
    for step in (1, 7, 61):
        blocks = [body[start : start + step] for start in range(0, len(body), step)]
        url = provider.serve(f"cut-{step}", provider_module.Reply(blocks))
        check(asyncio.run(asked(OpenAIModel("m", base_url=url))), expect)


@pytest.mark.parametrize("end", [0, 1, 100, 400, 900])
def test_a_connection_cut_in_mid_stream_is_our_error(end, provider, provider_module, cases):
    body, _ = streamed(cases, provider_module)["control_two_parallel"]
    url = provider.serve("cut", provider_module.Reply([body[:end]], cut=True))
    outcome = asyncio.run(asked(OpenAIModel("m", base_url=url)))
    assert (type(outcome.error).__name__, outcome.error.retryable) == ("ModelConnectionError", True)
    assert outcome.runs() == []


RENAMED = {"add": "z\u00fcrich_7", "ping": "p", "echo": "get_echo_of_"}
VALUES = ['"}{', "\\", "\U0001f600", "a" * 300, "null", "[DONE]", "data: x\n\n"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "http_429_json"])
@pytest.mark.parametrize("seed", range(3))
def test_with_other_ids_names_and_arguments(name, seed, cases, provider_module):
    """Nothing in the decoder or the assembler knows a recorded word: all of them are replaced, cut and framing stay."""
    body, expect = streamed(cases, provider_module)[name]
    value = VALUES[(seed * 3 + len(name)) % len(VALUES)]
    inline = b'\\"a\\":1,' in body  # the others write their numbers as texts or as an object, and keep them
    escaped = json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)[1:-1].encode()
    words = [
        (b'"x1"', f'"call_{seed}-{len(name)}"'.encode()),
        (b'"x2"', f'"{seed * 7919 + len(name)}"'.encode()),
        *((f'"name": "{old}"'.encode(), f'"name": "{new}"'.encode()) for old, new in RENAMED.items()),
        (b'\\"a\\":1,', b'\\"a\\":' + escaped + b","),
        (b'\\"b\\":2', b'\\"b\\":[2,{\\"c\\":' + escaped + b"}]"),
    ]
    for old, new in words:
        body = body.replace(old, new)
    touched = {"a": (1, value), "b": (2, [2, {"c": value}])}
    wanted = []
    for call in expect["calls"]:
        arguments = {
            key: touched[key][1] if inline and key in touched and number == touched[key][0] else number for key, number in call["arguments"].items()
        }
        wanted.append((RENAMED[call["name"]], arguments))
    outcome = decoded([body[start : start + 5] for start in range(0, len(body), 5)])
    tools = {RENAMED[tool]: names for tool, names in TOOLS.items()}
    key = lambda call: json.dumps(call, sort_keys=True)  # noqa: E731
    assert sorted(map(key, outcome.runs(tools))) == sorted(map(key, wanted))
    assert outcome.failed == expect["error"]

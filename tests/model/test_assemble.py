from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.errors import InvalidArguments, ModelProtocolError
from agent_kernel.model.assemble import MAX_CALL_CHARS, MAX_CALLS, MAX_RESPONSE_CHARS, CallAssembler, parse_arguments, valid_arguments
from agent_kernel.protocol.events import ToolCallDelta


def assembler(asked: list | None = None) -> CallAssembler:
    numbers = itertools.count(1)

    def fresh_id(provider_id):
        if asked is not None:
            asked.append(provider_id)
        return provider_id or f"made-{next(numbers)}"

    return CallAssembler(fresh_id)


def assembled(*fragments: dict) -> list[tuple[str, str, str]]:
    calls = assembler()
    for fragment in fragments:
        calls.feed(ToolCallDelta(**fragment))
    return [(call.id, call.name, call.arguments) for call in calls.calls()]


A, B = '{"a":1}', '{"b":2}'


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        # by index, interleaved
        (
            [
                {"index": 0, "id": "x", "name": "f"},
                {"index": 1, "id": "y", "name": "g"},
                {"index": 1, "arguments": '{"b"'},
                {"index": 0, "arguments": '{"a"'},
                {"index": 1, "arguments": ":2}"},
                {"index": 0, "arguments": ":1}"},
            ],
            [("x", "f", A), ("y", "g", B)],
        ),
        # order is that of first appearance, not of the index
        (
            [{"index": 3, "id": "y", "name": "g", "arguments": B}, {"index": 0, "id": "x", "name": "f", "arguments": A}],
            [("y", "g", B), ("x", "f", A)],
        ),
        # by id, without any index
        (
            [{"id": "x", "name": "f"}, {"id": "y", "name": "g"}, {"id": "x", "arguments": A}, {"id": "y", "arguments": B}],
            [("x", "f", A), ("y", "g", B)],
        ),
        # fragments with neither go on with the newest
        (
            [{"id": "x", "name": "f"}, {"arguments": '{"a"'}, {"arguments": ":1}"}, {"id": "y", "name": "g"}, {"arguments": B}],
            [("x", "f", A), ("y", "g", B)],
        ),
        # whole calls, nothing to tell them apart but the name
        (
            [{"name": "f", "arguments": A}, {"name": "f", "arguments": A}, {"name": "g", "arguments": B}],
            [("made-1", "f", A), ("made-2", "f", A), ("made-3", "g", B)],
        ),
        # the same index for all
        ([{"index": 0, "name": "f", "arguments": A}, {"index": 0, "name": "g", "arguments": B}], [("made-1", "f", A), ("made-2", "g", B)]),
        (
            [{"index": 0, "id": "x", "name": "f", "arguments": A}, {"index": 0, "id": "y", "name": "f", "arguments": A}],
            [("x", "f", A), ("y", "f", A)],
        ),
        # the id comes late, and changes nothing
        ([{"index": 0, "name": "f"}, {"index": 0, "id": "x", "arguments": '{"a"'}, {"id": "x", "arguments": ":1}"}], [("made-1", "f", A)]),
        ([{"index": 0, "name": "f"}, {"index": 0, "id": "x", "name": "f", "arguments": A}], [("made-1", "f", A)]),
        # the name comes late, or in pieces, or again
        ([{"index": 0, "id": "x"}, {"index": 0, "name": "f", "arguments": A}], [("x", "f", A)]),
        ([{"index": 0, "arguments": A}, {"index": 0, "id": "x"}, {"index": 0, "name": ""}], [("made-1", "", A)]),
        ([{"index": 0, "id": "x", "name": "get_"}, {"index": 0, "name": "rows", "arguments": A}], [("x", "get_rows", A)]),
        (
            [{"index": 0, "id": "x", "name": "f", "arguments": '{"a"'}, {"index": 0, "name": "f", "arguments": ":1}"}, {"index": 0, "name": "f"}],
            [("x", "f", A)],
        ),
        # the index drifts, the id does not
        ([{"index": 0, "id": "x", "name": "f", "arguments": '{"a"'}, {"index": 1, "id": "x", "arguments": ":1}"}], [("x", "f", A)]),
        # the head has no index, the rest has
        ([{"id": "x", "name": "f"}, {"index": 0, "arguments": A}], [("x", "f", A)]),
        # an id made up for each fragment
        ([{"id": "x", "name": "f"}, {"id": "y", "arguments": '{"a"'}, {"id": "z", "arguments": ":1}"}], [("x", "f", A)]),
        ([{"index": 0, "id": "x", "name": "f"}, {"index": 0, "id": "y", "arguments": A}], [("x", "f", A)]),
        # one id for several whole calls; and a whole call said again at the end
        (
            [{"index": 0, "id": "x", "name": "f", "arguments": A}, {"index": 1, "id": "x", "name": "g", "arguments": B}],
            [("x", "f", A), ("x", "g", B)],
        ),
        ([{"index": 0, "id": "x", "name": "f", "arguments": A}, {"index": 0, "id": "x", "name": "f", "arguments": A}], [("x", "f", A)]),
        # padding of every kind
        ([{"index": 0, "id": "x", "name": "f", "arguments": A}, {"index": 0}, {"index": 1}, {}], [("x", "f", A)]),
        # no arguments at all
        ([{"index": 0, "id": "x", "name": "f"}, {"index": 1, "id": "y", "name": "g", "arguments": " "}], [("x", "f", "{}"), ("y", "g", "{}")]),
        # nobody says what it is called: kept for an error result
        ([{"arguments": A}], [("made-1", "", A)]),
        # brackets and quotes inside strings do not close anything
        (
            [
                {"index": 0, "name": "f", "arguments": '{"a":"}\\"{\\'},
                {"index": 0, "name": "f", "arguments": '"x"}'},
                {"index": 0, "name": "f", "arguments": ""},
            ],
            [("made-1", "f", '{"a":"}\\"{\\"x"}')],
        ),
        # an object encoded twice is closed by its last quote
        (
            [{"index": 0, "name": "f", "arguments": '"{\\"a\\":1}"'}, {"index": 0, "name": "g", "arguments": B}],
            [("made-1", "f", '"{\\"a\\":1}"'), ("made-2", "g", B)],
        ),
    ],
)
def test_fragments_become_the_calls_that_were_meant(fragments, calls):
    assert assembled(*fragments) == calls


def test_the_public_id_is_asked_for_once_and_never_changes():
    asked = []
    calls = assembler(asked)
    drafts = [
        calls.feed(ToolCallDelta(index=0, name="f")),
        calls.feed(ToolCallDelta(index=0, id="late", arguments="{}")),
        calls.feed(ToolCallDelta(id="late")),
        calls.feed(ToolCallDelta(index=1, id="y", name="g")),
    ]
    assert asked == [None, "y"]
    assert [(draft.call_id, draft.name, draft.arguments) for draft in drafts] == [
        ("made-1", "f", ""),
        ("made-1", "f", "{}"),
        ("made-1", "f", ""),
        ("y", "g", ""),
    ]


def test_what_the_provider_attached_is_merged_and_kept():
    calls = assembler()
    calls.feed(ToolCallDelta(index=0, name="f", extra={"extra_content": {"google": {"a": 1}}}))
    calls.feed(ToolCallDelta(index=0, extra={"extra_content": {"google": {"b": 2}}, "more": True}))
    assert calls.calls()[0].extra == {"extra_content": {"google": {"a": 1, "b": 2}}, "more": True}


def test_a_response_has_bounds():
    calls = assembler()
    for index in range(MAX_CALLS):
        calls.feed(ToolCallDelta(index=index, id=f"x{index}", name="f"))
    with pytest.raises(ModelProtocolError, match="256 tool calls") as caught:
        calls.feed(ToolCallDelta(index=MAX_CALLS, id="one more", name="f"))
    assert caught.value.kind == "bounds"

    calls = assembler()
    calls.feed(ToolCallDelta(index=0, name="f", arguments="x" * MAX_CALL_CHARS))
    with pytest.raises(ModelProtocolError) as caught:
        calls.feed(ToolCallDelta(index=0, arguments="x"))
    assert caught.value.kind == "bounds"

    calls = assembler()
    for index in range(MAX_RESPONSE_CHARS // MAX_CALL_CHARS):
        calls.feed(ToolCallDelta(index=index, id=f"x{index}", name="f", arguments="x" * MAX_CALL_CHARS))
    with pytest.raises(ModelProtocolError) as caught:
        calls.feed(ToolCallDelta(id="one more", name="f", arguments="x"))
    assert caught.value.kind == "bounds"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=3)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=8), OBJECTS), min_size=1, max_size=5), st.data())
def test_parallel_calls_cut_anywhere_and_interleaved_never_mix(wanted, data):
    streams = []
    for index, (name, arguments) in enumerate(wanted):
        text = json.dumps(arguments)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        streams.append([{"index": index, "id": f"id-{index}", "name": name}] + [{"index": index, "arguments": piece} for piece in pieces])
    heads = [stream.pop(0) for stream in streams]
    order = data.draw(st.permutations([index for index, stream in enumerate(streams) for _ in stream]))
    got = assembled(*heads, *(streams[index].pop(0) for index in order))
    assert [(name, parse_arguments(arguments)) for _, name, arguments in got] == wanted


FRAGMENTS = st.fixed_dictionaries(
    {},
    optional={
        "index": st.none() | st.integers(0, 2),
        "id": st.none() | st.sampled_from(["", "x", "y"]),
        "name": st.none() | st.sampled_from(["", "f", "g"]),
        "arguments": st.sampled_from(["", "{}", '{"a"', ":1}", "null", '"', "\\"]),
    },
)


@given(st.lists(FRAGMENTS, max_size=12))
def test_no_argument_text_is_ever_lost(fragments):
    calls = assembler()
    drafts = [calls.feed(ToolCallDelta(**fragment)) for fragment in fragments]
    for number, call in enumerate(calls.calls()):
        mine = "".join(draft.arguments for draft in drafts if draft.call_id == call.id)
        if [other.id for other in calls.calls()].count(call.id) == 1:
            assert call.arguments == mine or (not mine.strip() and call.arguments == "{}"), number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('""', {}),
        ('"null"', {}),
        ('{"a": "line\nbreak\ttab"}', {"a": "line\nbreak\ttab"}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\ud83d"}', {"a": "\ufffd"}),
        ('{"\\ud83d": "\\ud83d\\ude00"}', {"\ufffd": "\U0001f600"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": "\\u0000"}', {"a": "\x00"}),
    ],
)
def test_arguments_are_read(text, value):
    assert parse_arguments(text) == value
    assert json.loads(valid_arguments(text)) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1, 2]", "an array"),
        ("3", "a number"),
        ("true", "a boolean"),
        ('"text"', "a string"),
        ('"[1]"', "a string"),
        ('{"a": 1', "at character 7"),
        ('{"a": 1}}', "Extra data"),
        ("{'a': 1}", "double quotes"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": ' + "9" * 5000 + "}", "no valid JSON"),
        ("[" * 100_000, "too deeply"),
        ('{"a":' * 100_000, "too deeply"),
        ("\ud83d", "no valid JSON"),
    ],
)
def test_anything_else_is_refused_with_the_problem_named(text, problem):
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(text)
    message = str(caught.value)
    assert problem in message
    assert text[:20].encode("utf-8", "replace").decode()[:5] in message or "\ufffd" in message
    assert len(message) < 400
    assert valid_arguments(text) == "{}"

"""A turn's end: transcript, answer and provenance of golden turns and of odd ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from agent_kernel.protocol.events import Event, RoundFinished, TurnFinished
from agent_kernel.protocol.fold import fold
from agent_kernel.views.cards import MAX_PREVIEW, seconds
from agent_kernel.views.ending import answer, provenance, transcript

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def test_every_golden_turn_has_a_transcript_that_reads_well(golden, judged):
    state = fold(golden)
    bundle = transcript(state)
    text = judged(bundle["text/html"])
    assert sorted(bundle) == ["text/html", "text/plain"]
    first, *rest = bundle["text/plain"].split("\n")
    assert first.startswith(f"agent: {'completed' if state.status == 'completed' else ''}")
    assert state.model in first
    for entry in state.tool_calls:
        assert entry.name in text
        lines = [line for line in rest if f" {entry.name}(" in line]
        assert lines
        if entry.result.error:
            assert entry.result.error[:20] in text
    assert ("%agent retry" in bundle["text/plain"]) == (state.status != "completed")
    assert ("%agent retry" in text) == (state.status != "completed")


def test_the_answer_stands_once_below_the_transcript(golden):
    state = fold(golden)
    data = answer(state)
    said_last = bool(state.texts) and bool(state.round_text(len(state.texts)).strip())
    announced = any(entry.round == len(state.texts) for entry in state.tool_calls)
    assert (data is None) == (not said_last or announced)
    if data is None:
        assert state.answer in transcript(state)["text/plain"]
    else:
        assert sorted(data) == ["text/markdown", "text/plain"]
        assert data["text/plain"] == state.answer
        assert state.answer not in transcript(state)["text/plain"]


def test_text_that_announces_calls_stays_above_them():
    recorded = json.loads((GOLDEN / "parallel_tools.json").read_text())["events"]
    events = msgspec.convert(recorded, list[Event])
    first_round = [event for event in events if event.seq <= next(event.seq for event in events if isinstance(event, RoundFinished))]
    state = fold([*first_round, TurnFinished(turn_id="turn-1", seq=len(first_round), at=0.0, status="cancelled")])
    assert answer(state) is None
    shown = transcript(state)["text/plain"]
    assert shown.index("Looking.") < shown.index("revenue(")


def test_failures_are_opened_and_successes_folded(folded):
    good = transcript(folded("a", call=("look", '{"x": 1}'), result="fine\nsecond line"))["text/html"]
    bad = transcript(folded("a", call=("look", '{"x": 1}'), result="KeyError: 'x'", error="KeyError: 'x'"))["text/html"]
    assert "<details style" in good
    assert "<details open" not in good
    assert "<details open" in bad
    assert "KeyError: &#x27;x&#x27;" in bad
    thought = transcript(folded("a", call=("look", "{}"), reasoning="I should look."))["text/html"]
    assert "I should look." in thought
    assert "<details open" not in thought


def test_text_grows_with_the_readers_font(folded):
    html = transcript(folded("a", call=("look", "{}"), result="KeyError: 'x'", error="KeyError: 'x'"))["text/html"]
    assert re.findall(r"font-size:([^;\"]+)", html)
    assert not re.findall(r"(?:font-size|max-height):\d+px", html)


def test_a_denial_says_its_reason_once(folded, judged):
    state = folded("a", call=("look", "{}"), result="[denied] The call was not run: not today", error="[denied] The call was not run: not today")
    [entry] = state.tool_calls
    entry.status, entry.comment = "denied", "not today"
    assert judged(transcript(state)["text/html"]).count("not today") == 1


def test_a_short_result_stands_in_the_first_line_and_a_long_one_is_clipped(folded, judged):
    short = transcript(folded("a", call=("add", '{"a": 1, "b": [2, 3]}'), result="5"))
    assert "add(a=1, b=[2, 3])" in judged(short["text/html"])
    assert "\u2192 5" in judged(short["text/html"])
    assert "add(a=1, b=[2, 3]): ok, 0.5 s: 5" in short["text/plain"]
    long = transcript(folded("a", call=("read", "{}"), result="x" * 50_000, artifact=True))
    assert len(long["text/html"]) < MAX_PREVIEW + 3_000
    assert f"{50_000 - MAX_PREVIEW:,} more characters" in long["text/html"]
    assert 'agent.result("r1")' in judged(long["text/html"])
    assert "kept whole as r1" in long["text/plain"]


def test_arguments_of_any_shape_are_shown(folded, judged):
    for raw in ("", "{", "[1]", "null", '{"a": ' * 3_000, '{"a": "' + "y" * 9_000 + '"}', json.dumps({"k" * 300: {"b": [None, True]}})):
        bundle = transcript(folded("a", call=("f", raw)))
        assert "f(" in judged(bundle["text/html"])
        assert len(bundle["text/html"]) < 10_000
    nameless = transcript(folded("a", call=("", "{}")))
    assert "(no name)({})" in nameless["text/plain"] or "(no name)()" in nameless["text/plain"]


def test_a_failed_turn_says_why_and_how_to_go_on(folded):
    state = folded("", status="failed", turn_error="The server is <down>.")
    bundle = transcript(state)
    assert "The server is &lt;down&gt;." in bundle["text/html"]
    assert "The server is <down>." in bundle["text/plain"]
    assert answer(state) is None


def test_a_cancelled_turn_keeps_its_partial_text(folded):
    state = folded("So far", status="cancelled")
    assert answer(state)["text/plain"] == "So far"
    assert "cancelled" in transcript(state)["text/plain"]


def test_provenance_is_json(folded):
    found = provenance(folded("a"), "1.2.3")
    assert msgspec.json.decode(msgspec.json.encode(found)) == {
        "agent_kernel": {"session": "s", "turn": "t", "model": "scripted", "status": "completed", "version": "1.2.3"}
    }


def test_spans_of_time():
    assert [seconds(value) for value in (-1, 0.04, 9.94, 42.3, 119, 300)] == ["0.0 s", "0.0 s", "9.9 s", "42 s", "119 s", "5 min"]

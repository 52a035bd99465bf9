"""The fold: prefixes, snapshots, golden files."""

import json
import pathlib

import msgspec
import pytest

from agent_kernel.protocol.events import Event, TextAppended, TurnStarted
from agent_kernel.protocol.fold import TurnState, fold

GOLDEN = sorted((pathlib.Path(__file__).parent.parent / "data" / "golden").glob("*.json"))


def plain(value):
    return json.loads(msgspec.json.encode(value))


def load(path):
    recorded = json.loads(path.read_text())
    return msgspec.convert(recorded["events"], list[Event]), recorded


def test_there_are_golden_files_of_every_event():
    kinds = {event["type"] for path in GOLDEN for event in json.loads(path.read_text())["events"]}
    assert kinds == {kind.__name__ for kind in Event.__args__}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_fold_gives_the_recorded_state(path):
    events, recorded = load(path)
    assert plain(fold(events).snapshot()) == recorded["state"]
    assert plain(events) == recorded["events"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_cut_gives_the_same(path):
    events, _ = load(path)
    whole = fold(events).snapshot()
    for cut in range(len(events) + 1):
        state = fold(events[:cut])
        snapshot = state.snapshot()
        text = state.text
        assert fold(events[cut:], snapshot).snapshot() == whole
        assert fold(events[max(0, cut - 3) :], state).snapshot() == whole
        assert whole.text.startswith(text) or state.status == "running"


def test_a_snapshot_is_independent():
    started = TurnStarted(turn_id="t", seq=0, at=0.0, session_id="s", prompt="p", model="m")
    state = fold([started])
    copy = state.snapshot()
    state.messages.clear()
    assert len(copy.messages) == 1


def test_a_gap_is_an_error():
    with pytest.raises(ValueError, match="missing in between"):
        TurnState().apply(TextAppended(turn_id="t", seq=1, at=0.0, text="x"))


def test_json_of_events_leaves_no_field_out():
    for path in GOLDEN:
        events, recorded = load(path)
        for event, raw in zip(events, recorded["events"], strict=True):
            assert set(raw) == {"type", *event.__struct_fields__}


def test_its_repr_is_a_status_line():
    for path in GOLDEN:
        events, _ = load(path)
        state = fold(events)
        assert repr(state).startswith(f"<TurnState {state.status}: {state.rounds} rounds")
        assert len(repr(state)) < 140
        for call in state.tool_calls:
            assert repr(call).startswith(f"<ToolCallState {call.name}(")
            assert call.status in repr(call)
            assert len(repr(call)) < 240

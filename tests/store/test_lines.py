"""Lines: what they decode to, and how a session is put together from them, whatever their order."""

import json
import random

import pytest

from agent_kernel.errors import SchemaTooNew
from agent_kernel.protocol.messages import UserMessage
from agent_kernel.store.lines import VERSION, SessionDeleted, SessionRenamed, TurnsReplaced, assemble, decode, encode
from agent_kernel.store.records import thread


def numbered(lines):
    from msgspec import structs

    return [structs.replace(line, n=number) for number, line in enumerate(lines, start=1)]


def texts(record):
    return [message.text for message in thread(record.turns)]


def test_order_and_repetition_do_not_matter(line):
    lines = numbered(
        [
            line.created("s", 1.0, name="first"),
            line.kept("s", "t1", 1, number=1, at=2.0, prompt="one", answer="1a"),
            line.kept("s", "t1", 1, number=2, at=3.0, answer="1b"),
            line.ended("s", "t1", 1, at=3.5),
            SessionRenamed(session_id="s", at=4.0, name="second"),
            line.kept("s", "t2", 2, at=5.0, prompt="two", answer="2"),
            line.ended("s", "t2", 2, at=6.0),
        ]
    )
    expected = assemble("s", lines)
    assert texts(expected.record) == ["one", "1a", "1b", "two", "2"]
    assert (expected.record.name, expected.record.created_at, expected.record.updated_at, expected.positions) == ("second", 1.0, 6.0, 2)
    shuffler = random.Random(7)  # noqa: S311 - reproducible
    for _ in range(50):
        mixed = lines + shuffler.sample(lines, shuffler.randrange(len(lines)))
        shuffler.shuffle(mixed)
        assert assemble("s", mixed) == expected


def test_a_name_counts_by_number_where_the_clock_stood_still(line):
    lines = numbered(
        [line.created("s", 5.0, name="a"), SessionRenamed(session_id="s", at=5.0, name="b"), SessionRenamed(session_id="s", at=5.0, name="c")]
    )
    assert assemble("s", reversed(lines)).record.name == "c"


def test_turns_keep_their_order_when_the_clock_steps_back(line):
    lines = [line.created("s", 100.0), line.kept("s", "t1", 1, at=200.0, prompt="one"), line.kept("s", "t2", 2, at=50.0, prompt="two")]
    assert [turn.turn_id for turn in assemble("s", lines).record.turns] == ["t1", "t2"]
    assert assemble("s", lines).positions == 2


def test_a_fork_shows_shared_turns_in_its_order_and_its_own_after_them(line):
    of_source = [line.kept("s", "t2", 2, at=3.0, prompt="two"), line.kept("s", "t1", 1, at=2.0, prompt="one"), line.kept("s", "t3", 3, at=4.0)]
    own = [line.created("f", 10.0, forked_from="s", forked_at=2, shared=("t1", "t2")), line.kept("f", "t9", 3, at=11.0, prompt="mine")]
    found = assemble("f", own, of_source)
    assert [turn.turn_id for turn in found.record.turns] == ["t1", "t2", "t9"]
    assert (found.record.forked_from, found.record.forked_at, found.positions) == ("s", 2, 3)
    assert assemble("f", own[:1], of_source).positions == 2


def test_replaced_turns_leave_the_thread_of_that_session_only(line):
    of_source = [line.kept("s", "t1", 1, prompt="one")]
    fork = [
        line.created("f", 5.0, shared=("t1",)),
        line.kept("f", "t2", 2, at=6.0, prompt="two"),
        TurnsReplaced(session_id="f", at=7.0, turn_ids=("t1",)),
    ]
    assert texts(assemble("f", fork, of_source).record) == ["two", "a"]
    assert texts(assemble("s", [line.created("s"), *of_source]).record) == ["one", "a"]


def test_a_deletion_and_a_session_of_which_only_turns_are_known(line):
    assert assemble("s", [line.created("s"), SessionDeleted(session_id="s", at=2.0)]).deleted
    orphan = assemble("s", [line.kept("s", "t1", at=4.0)])
    assert (orphan.created, orphan.deleted, orphan.record.created_at, len(orphan.record.turns)) == (False, False, 4.0, 1)
    nothing = assemble("s", [])
    assert (nothing.created, nothing.record.turns) == (False, ())


def test_there_and_back(line):
    for each in (
        line.created("s", name="é\u2028\n", shared=("a", "b")),
        line.kept("s", "t", answer="\x00 😀"),
        line.ended("s", "t", status="failed"),
    ):
        raw = encode(each)
        assert raw.endswith(b"\n")
        assert raw.count(b"\n") == 1
        assert decode(raw) == decode(raw.rstrip(b"\n")) == each


@pytest.mark.parametrize(
    "raw",
    [b"x", b"{", b"[]", b"null", b"1", b"{}", b'{"t":"Nonsense","session_id":"s","at":1}', b'{"t":"SessionRenamed","session_id":"s"}', b"\xff\xfe", b"\x00" * 40,
     b'{"v":1,"t":"SessionRenamed","session_id":"s","at":"soon","name":"x"}', b'{"v":"1"}'],
)  # fmt: skip
def test_what_is_no_line_is_none(raw):
    assert decode(raw) is None


def test_a_line_torn_anywhere_is_none(line):
    raw = encode(line.kept("s", "t", answer="é" * 20)).rstrip(b"\n")
    assert all(decode(raw[:cut]) is None for cut in range(len(raw)))


def test_what_a_newer_version_wrote_is_refused_and_what_it_added_to_ours_is_not(line):
    known = json.loads(encode(line.kept("s", "t")))
    with pytest.raises(SchemaTooNew, match="update"):
        decode(json.dumps({**known, "v": VERSION + 1}).encode())
    with pytest.raises(SchemaTooNew):
        decode(json.dumps({"v": VERSION + 1, "t": "Unheard", "what": [1]}).encode())
    assert decode(json.dumps({**known, "more": 1}).encode()) == line.kept("s", "t")
    assert isinstance(line.kept("s", "t").round.messages[0], UserMessage)

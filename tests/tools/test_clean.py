"""Clean text: no lone surrogates, no escape sequences, everything else as it was."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.tools import clean
from agent_kernel.tools.clean import clean_text

PIECE = clean._PIECE  # what crosses the border between two pieces is the point of these tests


@pytest.mark.parametrize(
    ("dirty", "cleaned"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;5;1;48;2;1;2;3mx\x1b[?25l\x1b[2J\x1b[1;1H", "x"),
        ("\x1b]8;;http://a/b\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1bPq#0;1\n2\x1b\\after", "after"),
        ("\x1b(Bx\x1b7\x1bM\x1b=", "x"),
        ("\x1b]0;never ends\nkept", "0;never ends\nkept"),
        ("\x1bPnever ends\nkept", "never ends\nkept"),
        ("end\x1b", "end"),
        ("\x1b\x1b[0m[31m", "[31m"),
        ("a\x00b\x07c\x08\t\r\n", "a\x00b\x07c\x08\t\r\n"),
        ("lone \ud800 and \udfff", "lone � and �"),
        ("pair \ud83d\ude00", "pair 😀"),
        ("é日本😀", "é日本😀"),
        ("", ""),
    ],
)
def test_what_goes_and_what_stays(dirty, cleaned):
    assert clean_text(dirty) == cleaned


@pytest.mark.parametrize("back", range(1, 12))
@pytest.mark.parametrize("sequence", ["\x1b[38;5;1m", "\x1b]8;;u\x1b\\", "\x1b]0;t\x07", "\ud83d\ude00", "\x1b\x1b[1m"])
def test_no_sequence_is_cut_between_two_pieces(sequence, back):
    lead = "x" * (PIECE - back)
    assert clean_text(f"{lead}{sequence}é") == lead + ("😀é" if sequence == "\ud83d\ude00" else "é")


@given(st.text(st.characters(), max_size=60).map(lambda text: text.replace("[", "\x1b[").replace("0", "\ud800")))
def test_the_result_is_clean_whatever_comes_in(text):
    result = clean_text(text)
    result.encode()
    assert "\x1b" not in result
    assert clean_text(result) == result


@given(st.text(st.characters(exclude_characters="\x1b", exclude_categories=["Cs"])))
def test_clean_text_is_left_alone(text):
    assert clean_text(text) == text


def test_clean_text_is_not_copied():
    text = "é" * (PIECE + 1)
    assert clean_text(text) is text


@pytest.mark.parametrize("unit", ["\ud800", "\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b[0m"])
def test_hostile_repetition_takes_linear_time(unit):
    result = clean_text(unit * (2 * PIECE // len(unit) + 1) + "é")
    assert re.search("\x1b", result) is None
    assert result.endswith("é")

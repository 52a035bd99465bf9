"""Excerpts: the short text that stands for an output over its budget. Pure.

Law: shown + omitted = total, exactly; the marker is never counted; an excerpt is used only where it is shorter than the original.
Below a budget of 1,000 the excerpt is the first characters and a marker; from 1,000 on it is a head and a tail, cut at line ends where
one is near and never inside a grapheme cluster's combining marks or a CRLF.
"""

from __future__ import annotations

import re
import unicodedata

from agent_kernel.protocol.messages import Excerpt

HEAD_AND_TAIL_FROM = 1_000  # below this a tail would be too short to help
HEAD_SHARE = 0.65
LINE_REACH = 0.2  # a cut moves back at most this share of its part to end at a line
_IMITATION = re.compile(r"\[(?=truncated:)")
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f", "\u20e3"}


def excerpt(text: str, budget: int, *, handle: str | None = None, note: str = "") -> Excerpt:
    """Return what fits the budget.

    Args:
        text: The whole output.
        budget: Characters of the output that may be shown, at least 1.
        handle: Under which the whole output is kept; None if it is not.
        note: A short remark for the marker, such as why there is no handle.
    """
    total = len(text)
    if total <= budget:
        return Excerpt(text=text, shown=total, total=total)
    cut = _head_only(text, budget, handle) if budget < HEAD_AND_TAIL_FROM else _head_and_tail(text, budget, handle, note)
    return cut if len(cut.text) < total else Excerpt(text=text, shown=total, total=total)


def _head_only(text: str, budget: int, handle: str | None) -> Excerpt:
    total = len(text)
    where = f"; whole: {handle}" if handle else ""
    marker = f"\n[truncated: {total - budget} characters left out{where}]"
    return Excerpt(text=defused(text[:budget]) + marker, shown=budget, total=total)


def _head_and_tail(text: str, budget: int, handle: str | None, note: str) -> Excerpt:
    total = len(text)
    head = _head_end(text, int(budget * HEAD_SHARE))
    tail = _tail_start(text, total - (budget - int(budget * HEAD_SHARE)))
    shown, omitted = head + total - tail, tail - head
    where = f"whole output: {handle}" if handle else "the rest is not kept"
    about = f"; {note}" if note else ""
    marker = f"[truncated: shown {shown:,} of {total:,} characters (first {head:,}, last {total - tail:,}), omitted {omitted:,}; {where}{about}]"
    before = "" if text[head - 1] == "\n" else "\n"
    return Excerpt(text=f"{defused(text[:head])}{before}{marker}\n{defused(text[tail:])}", shown=shown, total=total)


def defused(text: str) -> str:
    """Return the text with imitations of the marker made visible as such, at the same length."""
    return _IMITATION.sub("(", text) if "[truncated:" in text else text


def _head_end(text: str, end: int) -> int:
    line = text.rfind("\n", end - int(end * LINE_REACH), end)
    return line + 1 if line >= 0 else _before_cluster(text, end)


def _tail_start(text: str, start: int) -> int:
    line = text.find("\n", start - 1, start + int((len(text) - start) * LINE_REACH))
    return line + 1 if line >= 0 else _after_cluster(text, start)


def _joins(text: str, index: int) -> bool:
    """Tell whether a cut before ``index`` would divide what a reader sees as one character."""
    if not 0 < index < len(text):
        return False
    before, after = text[index - 1], text[index]
    if before == "\r" and after == "\n":
        return True
    in_flag = _is_flag_half(after) and _flag_halves_before(text, index) % 2 == 1
    skin_tone = "\U0001f3fb" <= after <= "\U0001f3ff"
    return bool(unicodedata.combining(after)) or after in _JOINERS or before == "\u200d" or in_flag or skin_tone


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, index: int) -> int:
    start = index
    while start > max(0, index - 4_000) and _is_flag_half(text[start - 1]):
        start -= 1
    return index - start


def _before_cluster(text: str, index: int) -> int:
    floor = max(1, index - 32)
    while index > floor and _joins(text, index):
        index -= 1
    return index


def _after_cluster(text: str, index: int) -> int:
    ceiling = min(len(text) - 1, index + 32)
    while index < ceiling and _joins(text, index):
        index += 1
    return index

"""Parameter descriptions out of docstrings: Google, NumPy and reST styles, told apart by their own marks.

Pure text in, pure text out; a docstring in no known style is a description and nothing else.
"""

from __future__ import annotations

import re
from inspect import cleandoc

from msgspec import Struct

_GOOGLE_HEAD = re.compile(r"(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Attributes):\s*")
_GOOGLE_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_NUMPY_HEAD = re.compile(r"(?:Parameters|Other Parameters|Attributes)\s*")
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST_ENTRY = re.compile(r":(?:param|parameter|arg|argument|key|keyword|ivar|var)\s+(?:[^:]*\s)?(\*{0,2}\w+)\s*:\s*(.*)$")
_REST_TYPE = re.compile(r":(?:type|vartype)\s+\w+\s*:")


class Docs(Struct, frozen=True, kw_only=True):
    """A docstring taken apart: the text without its parameter sections, and one line of text per parameter."""

    text: str = ""
    parameters: dict[str, str] = {}


def parse_docstring(doc: str | None) -> Docs:
    """Take parameter descriptions out of a docstring."""
    if not doc:
        return Docs()
    lines = cleandoc(doc).split("\n")
    kept: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        taken = _section(lines, at, found)
        if taken == at:
            kept.append(lines[at])
            taken += 1
        at = taken
    return Docs(text=re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters=found)


def _section(lines: list[str], at: int, found: dict[str, str]) -> int:
    """Read the parameter section that starts at this line, if one does; return the line after it."""
    line = lines[at]
    if _GOOGLE_HEAD.fullmatch(line) and at + 1 < len(lines) and _indent(lines[at + 1]) > 0:
        return _google(lines, at + 1, found)
    if _NUMPY_HEAD.fullmatch(line) and at + 1 < len(lines) and _NUMPY_RULE.fullmatch(lines[at + 1]):
        return _numpy(lines, at + 2, found)
    if match := _REST_ENTRY.match(line):
        end = _block_end(lines, at + 1)
        _keep(found, match[1], [match[2], *lines[at + 1 : end]])
        return end
    return _block_end(lines, at + 1) if _REST_TYPE.match(line) else at


def _google(lines: list[str], at: int, found: dict[str, str]) -> int:
    end = _block_end(lines, at)
    base = _indent(lines[at])
    name, text = "", list[str]()
    for line in lines[at:end]:
        entry = _GOOGLE_ENTRY.match(line.strip()) if _indent(line) == base else None
        if entry:
            _keep(found, name, text)
            name, text = entry[1], [entry[2] or ""]
        else:
            text.append(line)
    _keep(found, name, text)
    return end


def _numpy(lines: list[str], at: int, found: dict[str, str]) -> int:
    names, text = "", list[str]()
    while at < len(lines):
        line = lines[at]
        starts = bool(line.strip()) and _indent(line) == 0
        entry = _NUMPY_ENTRY.match(line) if starts else None
        heads_next = at + 1 < len(lines) and _NUMPY_RULE.fullmatch(lines[at + 1])
        if starts and (heads_next or entry is None):
            break
        if entry:
            _keep(found, names, text)
            names, text = entry[1], []
        else:
            text.append(line)
        at += 1
    _keep(found, names, text)
    return at


def _keep(found: dict[str, str], names: str, text: list[str]) -> None:
    joined = " ".join(part.strip() for part in text if part.strip())
    if joined:
        for name in filter(None, (part.strip().lstrip("*") for part in names.split(","))):
            found.setdefault(name, joined)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0


def _block_end(lines: list[str], at: int) -> int:
    """Return the line after an indented block, blank lines inside it included."""
    end = at
    for number in range(at, len(lines)):
        if lines[number].strip():
            if _indent(lines[number]) == 0:
                break
            end = number + 1
    return end

"""JSON text of any value, and it never fails: NaN and the infinities as text, cycles and depths named, foreign values made plain.

Written in one pass and in small steps, so that the interpreter lock is never held for long. Python's spacing, insertion order, no ASCII
escapes; escape sequences and lone surrogates are cleaned out of every string.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from agent_kernel.tools.clean import clean_text
from agent_kernel.tools.pictures import Attachment, picture
from agent_kernel.tools.plainly import MAX_ITEMS, simplify

_MAX_DEPTH = 100
_PIECE = 1 << 20
_ROWS = 500  # items that go to the C encoder at once
_PLAIN_LEVELS = 6
_PLAIN_NODES = 50_000
_TEXT = frozenset({str})
_SCALARS = frozenset({str, int, bool, float, type(None)})
_JSON_KINDS = _SCALARS | {list, dict}


class JsonWriter:
    """Writes one value; ``text`` is the JSON, ``attachments`` the images found on the way."""

    def __init__(self, max_items: int = MAX_ITEMS) -> None:
        self.attachments: list[Attachment] = []
        self._max_items = max_items
        self._parts: list[str] = []
        self._open: set[int] = set()
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode

    def text(self, value: Any) -> str:
        """Return a value's JSON text."""
        self._write(value, 0)
        return "".join(self._parts)

    def _write(self, value: Any, depth: int) -> None:
        mark = len(self._parts)
        try:
            self._write_node(value, depth)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # foreign code below; SystemExit and RecursionError included
            del self._parts[mark:]
            self._string(f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>")

    def _write_node(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind is str:
            self._string(value)
        elif value is None or kind is bool:
            self._parts.append({None: "null", True: "true", False: "false"}[value])
        elif kind is int:
            self._parts.append(_integer(value))
        elif kind is float:
            self._parts.append(float.__repr__(value) if math.isfinite(value) else f'"{_not_finite(value)}"')
        elif depth >= _MAX_DEPTH:
            self._string(f"<{kind.__name__}, too deep to be shown>")
        elif id(value) in self._open:
            self._string(f"<cycle: the {kind.__name__} that this is part of>")
        else:
            self._open.add(id(value))
            try:
                self._compound(value, depth)
            finally:
                self._open.discard(id(value))

    def _compound(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind is list or kind is tuple:
            self._list(value, depth)
        elif kind is dict:
            self._dict(value, depth)
        else:
            shown = picture(value)
            if shown is not None:
                self.attachments.append(shown[1])
            self._write(simplify(value, self._max_items) if shown is None else shown[0], depth + 1)

    def _list(self, items: Sequence[Any], depth: int) -> None:
        self._parts.append("[")
        for start in range(0, len(items), _ROWS):
            if start:
                self._parts.append(", ")
            rows = items[start : start + _ROWS]
            if not self._rows(rows):
                for number, item in enumerate(rows):
                    if number:
                        self._parts.append(", ")
                    self._write(item, depth + 1)
        self._parts.append("]")

    def _rows(self, rows: Sequence[Any]) -> bool:
        """Write rows through the C encoder, if they hold nothing but JSON and are short; say whether."""
        if not _is_plain(rows):
            return False
        try:
            text = self._encode(list(rows))
        except ValueError:  # NaN, or an int of more digits than Python prints
            return False
        if "\\u001b" in text:
            return False
        self._parts.append(clean_text(text)[1:-1])
        return True

    def _dict(self, value: dict[Any, Any], depth: int) -> None:
        self._parts.append("{")
        used: set[str] = set()
        for number, (key, item) in enumerate(list(value.items())):
            if number:
                self._parts.append(", ")
            text = _key(key)
            while text in used:  # 1 and "1" are two keys here and one in JSON
                text = f"{text} ({type(key).__name__})"
            used.add(text)
            self._string(text)
            self._parts.append(": ")
            self._write(item, depth + 1)
        self._parts.append("}")

    def _string(self, text: str) -> None:
        text = clean_text(text)
        if len(text) <= _PIECE:
            self._parts.append(self._encode(text))
            return
        self._parts.append('"')
        self._parts.extend(self._encode(text[at : at + _PIECE])[1:-1] for at in range(0, len(text), _PIECE))
        self._parts.append('"')


def _is_plain(rows: Sequence[Any]) -> bool:
    """Whether rows hold nothing but scalars, lists and dicts with text keys, a few levels deep, and little text."""
    level: list[Any] = list(rows)
    for _ in range(_PLAIN_LEVELS):
        kinds = set(map(type, level))
        if not kinds <= _JSON_KINDS:
            return False
        if str in kinds and sum(len(leaf) for leaf in level if type(leaf) is str) > _PIECE:
            return False
        if kinds <= _SCALARS:
            return True
        dicts = [item for item in level if type(item) is dict]
        if not set(map(type, chain.from_iterable(dicts))) <= _TEXT:
            return False
        lists = [item for item in level if type(item) is list]
        if sum(map(len, lists)) + sum(map(len, dicts)) > _PLAIN_NODES:
            return False
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]
    return False


def plain(value: Any) -> Any:
    """Return a value as what JSON holds: the text of the JsonWriter, read back."""
    return json.loads(JsonWriter().text(value))


def _key(key: Any) -> str:
    """Return a dict's key as text; JSON has no other keys."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    plainer = key if type(key) in {int, float, tuple, frozenset} else simplify(key)
    return plainer if isinstance(plainer, str) else _integer(plainer) if type(plainer) is int else str(plainer)


def _integer(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:  # more digits than Python prints
        return f'"{value:#x}"'


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

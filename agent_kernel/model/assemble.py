"""Assembles fragments of tool calls into calls, and reads their arguments; the one place with rules for both.

The rules look at ids, indexes, names and JSON balance alone and branch on no provider. Nothing is run, repaired or guessed
here: arguments that are no JSON object stay what they are, and ``parse_arguments`` says what is wrong with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from agent_kernel.errors import InvalidArguments, ModelProtocolError
from agent_kernel.model import loose_json
from agent_kernel.protocol.events import ToolCallDelta
from agent_kernel.protocol.messages import ToolCall

MAX_CALLS = 256
MAX_CALL_CHARS = 256 * 1024
MAX_RESPONSE_CHARS = 1024 * 1024
MAX_NAME_CHARS = 256
KINDS = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
MARKS = re.compile(r'\\.|\\\Z|["{}\[\]]', re.DOTALL)


class Drafted(Struct, frozen=True, kw_only=True):
    """What one fragment added: the public id of its call, all that is known of the name, and the new piece of arguments."""

    call_id: str
    name: str
    arguments: str


class _Balance:
    """Follows JSON text in pieces and knows whether its first object, array or string is closed."""

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._in_string = False
        self._cut_escape = ""

    def feed(self, piece: str) -> None:
        if self._cut_escape:
            piece, self._cut_escape = self._cut_escape + piece, ""
        for match in MARKS.finditer(piece):
            mark = match.group()
            if mark[0] == "\\":
                if self._in_string and len(mark) == 1:
                    self._cut_escape = mark
            elif mark == '"':
                self._in_string = not self._in_string
                self.closed = self._depth == 0 and not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self.closed = self._depth == 0


class _Slot:
    """One call while it grows."""

    def __init__(self, public_id: str, provider_id: str | None, index: int | None) -> None:
        self.public_id = public_id
        self.provider_id = provider_id
        self.index = index
        self.name = ""
        self.parts: list[str] = []
        self.chars = 0
        self.extra: dict[str, Any] | None = None
        self._balance = _Balance()

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete JSON as far as brackets and quotes tell."""
        return self._balance.closed or (0 < self.chars <= 16 and self.text.strip() == "null")

    @property
    def blank(self) -> bool:
        return not self.chars or (self.chars <= 64 and not self.text.strip())

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def takes(self, arguments: str) -> bool:
        """Whether this piece can go on here: nothing but blanks follows a complete value."""
        return not (self.whole and arguments.strip())

    def add_name(self, name: str) -> None:
        if not self.name:
            self.name = name
        elif name != self.name and self.blank:
            self.name += name
        if len(self.name) > MAX_NAME_CHARS:
            raise ModelProtocolError(f"The model wrote a tool name of more than {MAX_NAME_CHARS} characters.", kind="bounds")

    def add_arguments(self, piece: str) -> None:
        self.parts.append(piece)
        self.chars += len(piece)
        self._balance.feed(piece)

    def add_extra(self, extra: dict[str, Any]) -> None:
        self.extra = _merged(self.extra or {}, extra)


class CallAssembler:
    """Collects one response's tool calls from fragments of any dialect.

    Args:
        fresh_id: Gets the provider's id (None: it gave none) and returns the id that the session uses. Asked once per call.
    """

    def __init__(self, fresh_id: Callable[[str | None], str]) -> None:
        self._fresh_id = fresh_id
        self._slots: list[_Slot] = []
        self._by_id: dict[str, _Slot] = {}
        self._by_index: dict[int, _Slot] = {}
        self._chars = 0

    @property
    def whole(self) -> bool:
        """Whether every call so far has complete arguments; none at all may be a cut and counts as incomplete."""
        return all(slot.whole for slot in self._slots)

    def feed(self, delta: ToolCallDelta) -> Drafted:
        """Add one fragment.

        Raises:
            ModelProtocolError: Too many calls, or arguments too long (kind ``bounds``).
        """
        slot = self._slot_for(delta)
        if delta.name:
            slot.add_name(delta.name)
        if delta.extra:
            slot.add_extra(delta.extra)
        piece = delta.arguments
        if piece and slot.whole and delta.id and piece == slot.text:
            piece = ""  # a server that ends by repeating the whole call
        if piece:
            self._count(slot, len(piece))
            slot.add_arguments(piece)
        return Drafted(call_id=slot.public_id, name=slot.name, arguments=piece)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls in order of first appearance, arguments as the model wrote them (``{}`` if it wrote none)."""
        return tuple(
            ToolCall(id=slot.public_id, name=slot.name, arguments="{}" if slot.blank else slot.text, extra=slot.extra) for slot in self._slots
        )

    def _slot_for(self, delta: ToolCallDelta) -> _Slot:
        known = self._by_id.get(delta.id) if delta.id else None
        if known is not None:
            slot = self._known(known, delta)
        elif delta.index is not None and delta.index in self._by_index:
            slot = self._indexed(self._by_index[delta.index], delta)
        else:
            slot = self._newest(delta)
        if slot is None:
            return self._opened(delta)
        if delta.id:
            self._by_id[delta.id] = slot
            slot.provider_id = slot.provider_id or delta.id
        return slot

    def _known(self, slot: _Slot, delta: ToolCallDelta) -> _Slot | None:
        """A known id finds its call, unless the server uses one id for several whole calls."""
        other = self._by_index.get(delta.index) if delta.index is not None else None
        if other is not None and other.provider_id == delta.id:
            slot = other
        repeated_id = delta.name and delta.index not in {None, slot.index} and not slot.takes(delta.arguments) and delta.arguments != slot.text
        return None if repeated_id else slot

    def _indexed(self, slot: _Slot, delta: ToolCallDelta) -> _Slot | None:
        """A known index finds its call, unless a new name shows that the index is used again."""
        if not delta.name:
            return slot
        if not delta.id:
            return None if _begins_another(slot, delta) else slot
        # A new id with a name is a new call, unless the call still waits for its id.
        waits = slot.provider_id is None and not slot.whole and slot.name in {"", delta.name}
        return slot if waits else None

    def _newest(self, delta: ToolCallDelta) -> _Slot | None:
        """Neither id nor index is known: a name or a new id begins a call, anything else goes on with the newest."""
        if not self._slots:
            return None
        slot = self._slots[-1]
        if delta.index is not None:
            return None if delta.name or delta.id or not slot.takes(delta.arguments) else slot
        if delta.id:
            # Some servers make up an id for each fragment: a nameless one with arguments for a call still open goes on with it.
            goes_on = not delta.name and delta.arguments.strip() and not slot.whole
            return slot if goes_on else None
        if delta.name:
            return None if _begins_another(slot, delta) else slot
        return slot if slot.takes(delta.arguments) else None

    def _opened(self, delta: ToolCallDelta) -> _Slot:
        if len(self._slots) >= MAX_CALLS:
            raise ModelProtocolError(f"The model asked for more than {MAX_CALLS} tool calls in one answer.", kind="bounds")
        slot = _Slot(self._fresh_id(delta.id or None), delta.id or None, delta.index)
        self._slots.append(slot)
        if delta.id:
            self._by_id[delta.id] = slot
        if delta.index is not None:
            self._by_index[delta.index] = slot
        return slot

    def _count(self, slot: _Slot, chars: int) -> None:
        self._chars += chars
        if slot.chars + chars > MAX_CALL_CHARS:
            raise ModelProtocolError(f"The model wrote a tool call with more than {MAX_CALL_CHARS:,} characters of arguments.", kind="bounds")
        if self._chars > MAX_RESPONSE_CHARS:
            raise ModelProtocolError(f"The model wrote more than {MAX_RESPONSE_CHARS:,} characters of arguments in one answer.", kind="bounds")


def _begins_another(slot: _Slot, delta: ToolCallDelta) -> bool:
    """A name without an id after complete arguments begins a call; the same name without arguments only repeats itself."""
    return slot.whole and (delta.name != slot.name or bool(delta.arguments.strip()))


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    both = dict(old)
    for key, value in new.items():
        before = both.get(key)
        both[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return both


def parse_arguments(text: str) -> dict[str, Any]:
    """Read a call's arguments: nothing, ``null`` and an object, also one that is wrapped in a JSON string.

    Raises:
        InvalidArguments: The text is anything else; the message names the problem.
    """
    value = inner = _decoded(text)
    if isinstance(value, str):  # perhaps the object was encoded twice
        with suppress(InvalidArguments):
            inner = _decoded(value)
    if isinstance(inner, dict):
        return inner
    raise InvalidArguments(f"The arguments must be a JSON object, but are {KINDS[type(value)]}: {_clipped(text)}")


def valid_arguments(text: str) -> str:
    """Return a call's arguments as the compact JSON object that goes back to a provider; ``{}`` if they are malformed."""
    try:
        return msgspec.json.encode(parse_arguments(text)).decode()
    except (InvalidArguments, RecursionError):
        return "{}"


def _decoded(text: str) -> Any:
    stripped = text.strip()
    if stripped in {"", "null"}:
        return {}
    try:
        return loose_json.decode(stripped)
    except json.JSONDecodeError as error:
        raise InvalidArguments(
            f"The arguments are no valid JSON: {error.msg} at character {error.pos} of {len(stripped)}: {_clipped(text)}"
        ) from error
    except ValueError as error:
        raise InvalidArguments(f"The arguments are no valid JSON: {error}: {_clipped(text)}") from error
    except RecursionError as error:
        raise InvalidArguments(f"The arguments are nested too deeply: {_clipped(text)}") from error


def _clipped(text: str, limit: int = 200) -> str:
    return loose_json.mended(text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)")

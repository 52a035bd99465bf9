"""The Chat Completions wire as values: what a chunk holds, and the reader of chunks, strict first and tolerant after.

Bytes in, WireChunk out; what the fields mean is chat_decoder's business. Nearly every field is Any, so that an odd one cannot
spoil the rest of its chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from agent_kernel.errors import ModelProtocolError
from agent_kernel.model import loose_json
from agent_kernel.model.classify import Source


class WireDelta(Struct, gc=False):
    """A choice's ``delta`` or ``message``."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class WireChoice(Struct, gc=False):
    """One of the chunk's choices. We never ask for alternatives, so several choices are parts of one answer."""

    delta: WireDelta | None = None
    message: WireDelta | None = None
    text: Any = None
    finish_reason: Any = None
    error: Any = None
    usage: Any = None


class WireChunk(Struct, gc=False):
    """A ``chat.completion.chunk``, a ``chat.completion``, or an error in their place."""

    choices: list[WireChoice] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None
    object: Any = None
    type: Any = None
    code: Any = None
    message: Any = None


CHUNKS = msgspec.json.Decoder(WireChunk)
NOTHING = WireDelta()
CHUNK_FIELDS = tuple(field for field in WireChunk.__struct_fields__ if field != "choices")
CHOICE_FIELDS = tuple(field for field in WireChoice.__struct_fields__ if field not in {"delta", "message"})


class ChunkReader:
    """Reads the data of events; remembers half a surrogate pair and whether the end mark came.

    Attributes:
        done: The end mark came.
        half: A high surrogate at a text's end, whose other half may come with the next text.
    """

    def __init__(self, source: Source) -> None:
        self.done = False
        self.half = ""
        self._source = source

    def read(self, name: bytes, data: bytes) -> Sequence[WireChunk]:
        """Return what an event holds: one chunk, nothing, or several where a server forgets the blank lines.

        Raises:
            ModelProtocolError: The data is no JSON.
        """
        try:
            chunk = CHUNKS.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._hard(name, data)
        if name == b"error" and not chunk.error:
            return self._hard(name, data)
        if self.half:
            self._give_up_half(chunk)
        return (chunk,)

    def _hard(self, name: bytes, data: bytes) -> list[WireChunk]:
        """Read what msgspec refuses: the end mark, lone surrogates, raw line breaks, NaN, fields of a wrong shape."""
        text = data.strip()
        if text == b"[DONE]":
            self.done = True
        if not text or text == b"[DONE]":
            return []
        try:
            value = loose_json.decode_raw(text)
        except (ValueError, RecursionError) as error:
            return self._no_json(name, text, error)
        if name == b"error" and not (isinstance(value, dict) and value.get("error")):
            return [WireChunk(error=loose_json.mended_value(value))]
        if isinstance(value, list):
            value = value[0] if value else None
        return [self._shaped(value)] if isinstance(value, dict) else []

    def _no_json(self, name: bytes, text: bytes, error: Exception) -> list[WireChunk]:
        if name == b"error":
            return [WireChunk(error=text.decode("utf-8", "replace"))]
        if name not in {b"", b"message"}:  # a heartbeat by another name
            return []
        lines = text.split(b"\n")
        if len(lines) > 1:
            return [chunk for line in lines for chunk in self.read(name, line)]
        shown = self._source.say(text[:200].decode("utf-8", "replace"))
        raise ModelProtocolError(f"{self._source.label} sent an event that is no JSON: {shown!r}.") from error

    def _give_up_half(self, chunk: WireChunk) -> None:
        """Put the mark for a lost character before the next text: its other half did not come."""
        for choice in chunk.choices or ():
            if choice.delta is not None and isinstance(choice.delta.content, str) and choice.delta.content:
                choice.delta.content = "\ufffd" + choice.delta.content
                self.half = ""
                return

    def _shaped(self, value: dict[str, Any]) -> WireChunk:
        """Bring a tolerantly decoded chunk into the shape that the mapping reads."""
        choices = value.get("choices")
        rest = {key: loose_json.mended_value(value.get(key)) for key in CHUNK_FIELDS}
        if not isinstance(choices, list):
            return WireChunk(**rest)
        return WireChunk(choices=[self._shaped_choice(choice) for choice in choices if isinstance(choice, dict)], **rest)

    def _shaped_choice(self, choice: dict[str, Any]) -> WireChoice:
        fields = {key: loose_json.mended_value(choice.get(key)) for key in CHOICE_FIELDS}
        for key in ("delta", "message"):
            part = choice.get(key)
            if isinstance(part, dict):
                if isinstance(part.get("content"), str):
                    part = part | {"content": self._joined(part["content"])}
                fields[key] = msgspec.convert(loose_json.mended_value(part), WireDelta)
        return WireChoice(**fields)

    def _joined(self, text: str) -> str:
        """Join a surrogate pair that was cut between two texts."""
        text, self.half = self.half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self.half = text[:-1], text[-1]
        return loose_json.mended(text)

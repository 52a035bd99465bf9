"""Decodes one Chat Completions response, streamed or whole, into Deltas; bytes in, Deltas out, no I/O.

Tolerant of every dialect that was seen: a missing or null field is nothing, a field of another shape is read where it makes
sense. What is said with status 200 and is still no answer (an error object, a page, a cut) becomes a ModelError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_kernel.errors import ModelError, ModelProtocolError, ModelRefused
from agent_kernel.model import loose_json
from agent_kernel.model.assemble import CallAssembler
from agent_kernel.model.chat_fields import call_deltas, content_deltas, finish_word, reasoning_text, usage_of
from agent_kernel.model.chat_wire import NOTHING, ChunkReader, WireChoice, WireChunk, WireDelta
from agent_kernel.model.classify import Source, from_object, incomplete, no_stream
from agent_kernel.model.sse import SSESplitter
from agent_kernel.protocol.events import Delta, FinishDelta, ReasoningDelta, TextDelta, UsageDelta
from agent_kernel.protocol.messages import Usage

MAX_BODY = 64 << 20
"""Bytes of an answer that comes as one JSON body."""
COMPLAINTS = ("detail", "message", "msg", "code", "status_msg")
"""Fields of which an error without the usual form has at least one."""


class ChatDecoder:
    """One response's decoding: ``feed`` the bytes as they come, then ``finish``.

    Attributes:
        usage: The last usage that the response reported.
    """

    def __init__(self, source: Source, model: str) -> None:
        self.usage: Usage | None = None
        self._source = source
        self._model = model
        self._splitter = SSESplitter()
        self._body: bytearray | None = None  # collects an answer that is one JSON object
        self._sniffed = False
        self._reason: str | None = None
        self._refused = False
        self._payload = False
        self._streamed = False
        self._reader = ChunkReader(source)
        self._calls = CallAssembler(lambda provider_id: provider_id or "")

    @property
    def done(self) -> bool:
        """Whether the response said that it is over; more bytes carry nothing."""
        return self._reader.done

    def feed(self, piece: bytes) -> Iterator[Delta]:
        """Yield what the next bytes hold.

        Raises:
            ModelError: The response carries an error, or is no answer of a model.
        """
        if not self._sniffed:
            self._sniff(piece)
        if self._body is not None:
            self._body += piece
            if len(self._body) > MAX_BODY:
                raise ModelProtocolError(f"{self._source.label} sent a body of more than {MAX_BODY:,} bytes.", kind="bounds")
            return
        for name, data in self._splitter.feed(piece):
            for chunk in self._reader.read(name, data):
                yield from self._deltas(chunk)

    def finish(self) -> Iterator[Delta]:
        """Yield what is left when the bytes have ended, then usage and the finish.

        Raises:
            ModelError: The answer is incomplete, was refused, or was none.
        """
        yield from self._rest()
        if self._reader.half:
            self._reader.half = ""
            yield TextDelta(text="\ufffd")
        self._judge()
        if self.usage is not None:
            yield UsageDelta(usage=self.usage)
        yield FinishDelta(reason=self._reason, model=self._model)

    def _sniff(self, piece: bytes) -> None:
        """Tell a JSON body from an event stream by its first byte; the content type is often wrong."""
        first = piece.lstrip()[:1]
        if first:
            self._sniffed = True
            if first in {b"{", b"["}:
                self._body = bytearray()

    def _rest(self) -> Iterator[Delta]:
        if self._body is not None:
            self._reader.done = True
            yield from self._deltas(self._whole(bytes(self._body)))
            return
        for name, data in self._splitter.close():
            try:
                chunks = self._reader.read(name, data)
            except ModelProtocolError as error:
                if self._reason is None and not self.done:
                    raise incomplete(self._source, "in the middle of an event") from error
                continue
            for chunk in chunks:
                yield from self._deltas(chunk)

    def _judge(self) -> None:
        if self._refused:
            raise ModelRefused(f"{self._source.label} refused to answer. Put the request in other words.", kind="refusal")
        if self._reason == "error":
            raise from_object(self._source, "the answer ended with finish_reason error", status=None)
        if self._reason is not None:
            return
        if self._splitter.foreign:
            self._judge_foreign(self._splitter.foreign)
        if self.done:
            return
        if not self._payload:
            raise incomplete(self._source, "before it began")
        if not self._calls.whole:
            raise incomplete(self._source, "inside a tool call")

    def _judge_foreign(self, foreign: bytes) -> None:
        """Raise for lines outside the event stream where they stand for the answer, or say why it broke off."""
        error = self._foreign_value(foreign).get("error")
        if error:
            raise from_object(self._source, error)
        if not self._payload:
            raise no_stream(self._source, foreign)

    def _whole(self, body: bytes) -> WireChunk:
        try:
            chunks = self._reader.read(b"", body)
        except ModelProtocolError as error:
            raise no_stream(self._source, body) from error
        if len(chunks) != 1:
            raise no_stream(self._source, body)
        chunk = chunks[0]
        if chunk.choices is None and not chunk.error:
            value = self._foreign_value(body)
            raise no_stream(self._source, body) if value.keys().isdisjoint(COMPLAINTS) else from_object(self._source, value)
        return chunk

    def _foreign_value(self, data: bytes) -> dict[str, Any]:
        """Read JSON that has not the form of an answer; empty where it is no object."""
        try:
            value = loose_json.mended_value(loose_json.decode_raw(data))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def _deltas(self, chunk: WireChunk) -> Iterator[Delta]:
        try:
            for choice in chunk.choices or ():
                yield from self._choice(choice)
        except RecursionError as error:
            raise ModelProtocolError(f"{self._source.label} sent an answer that is nested too deeply.") from error
        if chunk.usage:
            self.usage = usage_of(chunk.usage) or self.usage
        if chunk.model and type(chunk.model) is str:
            self._model = chunk.model
        if chunk.error:
            raise from_object(self._source, chunk.error)
        if chunk.message and not chunk.choices and (chunk.code or "error" in (chunk.object, chunk.type)):
            raise self._bare_error(chunk)

    def _choice(self, choice: WireChoice) -> Iterator[Delta]:
        part = choice.delta
        if part is not None:
            content = part.content
            if content and type(content) is str and part.reasoning_content is None and part.reasoning is None:
                self._payload = self._streamed = True
                yield TextDelta(text=content)
                part.content = None
            if part != NOTHING:
                yield from self._parts(part)
        elif choice.message is not None and not self._streamed:  # after deltas it only repeats them
            yield from self._parts(choice.message)
        elif choice.text:
            yield from self._parts(WireDelta(content=choice.text))
        if choice.finish_reason:
            self._reason = finish_word(choice.finish_reason) or self._reason
        if choice.usage:
            self.usage = usage_of(choice.usage) or self.usage
        if choice.error:
            raise from_object(self._source, choice.error)

    def _bare_error(self, chunk: WireChunk) -> ModelError:
        return from_object(self._source, {"message": chunk.message, "code": chunk.code, "type": chunk.type})

    def _parts(self, part: WireDelta) -> Iterator[Delta]:
        """Map everything that is not plain text."""
        reasoning = reasoning_text(part.reasoning_content, part.reasoning, part.thinking, part.reasoning_details)
        if reasoning:
            self._payload = True
            yield ReasoningDelta(text=reasoning)
        if part.content:
            for delta in content_deltas(part.content):
                self._payload = True
                yield delta
        if part.refusal and isinstance(part.refusal, str):
            self._payload = self._refused = True
            yield TextDelta(text=part.refusal)
        if part.tool_calls or part.function_call:
            for fragment in call_deltas(part.tool_calls, part.function_call):
                self._payload = self._streamed = True
                self._calls.feed(fragment)
                yield fragment

"""Splits the bytes of a server-sent event stream into events, incrementally and in linear time.

Knows the framing alone (lines, fields, blank lines), never what the data means. Format: HTML standard, section 9.2. One
departure: an event that the end of the stream cuts off is handed over too, since many servers forget the last blank line.
"""

from __future__ import annotations

from agent_kernel.errors import ModelProtocolError

BOM = b"\xef\xbb\xbf"
FIELDS = frozenset({b"data", b"event", b"id", b"retry"})
MAX_EVENT = 16 << 20
"""Bytes that one event may have; the largest honest ones hold a whole answer with an inlined picture."""
KEPT_FOREIGN = 2000
"""Bytes kept of what is no event stream, for the error message."""


class SSESplitter:
    """Turns byte pieces, cut anywhere, into (event name, data) pairs; the name is empty unless the server gave one.

    Attributes:
        foreign: The beginning of lines that belong to no event stream, such as an HTML page.
    """

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self.foreign = b""
        self._max_event = max_event
        self._buffer = bytearray()
        self._searched = 0  # no blank line ends before this offset of the buffer
        self._after_cr = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """Take the next bytes and return the events that they complete.

        Raises:
            ModelProtocolError: An event is larger than ``max_event`` bytes.
        """
        buffer = self._buffer
        buffer += self._unix(piece)
        end = buffer.rfind(b"\n\n", max(0, self._searched - 1))
        if end < 0:
            self._searched = len(buffer)
            self._check(len(buffer))
            return []
        whole = bytes(buffer[:end])
        del buffer[: end + 2]
        self._searched = len(buffer)
        self._check(len(buffer))
        return self._events(whole)

    def close(self) -> list[tuple[bytes, bytes]]:
        """Return the event that the end of the stream cut off, if there is one."""
        whole = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return self._events(whole)

    def _unix(self, piece: bytes) -> bytes:
        """Make all line ends LF; a CRLF may be cut in its middle."""
        if self._after_cr and piece:
            self._after_cr = False
            if piece[0] == 0x0A:
                piece = piece[1:]
        if b"\r" not in piece:
            return piece
        self._after_cr = piece[-1] == 0x0D
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check(self, size: int) -> None:
        if size > self._max_event:
            raise ModelProtocolError(f"The model's stream holds an event of more than {self._max_event:,} bytes.", kind="bounds")

    def _events(self, whole: bytes) -> list[tuple[bytes, bytes]]:
        if self._at_start and whole:
            self._at_start = False
            whole = whole.removeprefix(BOM)
        events: list[tuple[bytes, bytes]] = []
        for block in whole.split(b"\n\n"):
            if block.startswith(b"data: ") and b"\n" not in block:  # nearly every event of nearly every server
                events.append((b"", block[6:]))
            elif (event := self._parsed(block)) is not None:
                events.append(event)
        return events

    def _parsed(self, block: bytes) -> tuple[bytes, bytes] | None:
        name, data = b"", []
        for line in block.split(b"\n"):
            field, colon, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field not in FIELDS and not (colon and not field):  # a line that begins with a colon is a comment
                self._note(line)
        return (name, b"\n".join(data)) if data else None

    def _note(self, line: bytes) -> None:
        if line.strip() and len(self.foreign) < KEPT_FOREIGN:
            self.foreign = (self.foreign + b" " + line).strip()[:KEPT_FOREIGN]

"""Plain text of a turn for a terminal, a log or a script: text as it arrives, one line at a call's start and one at its end.

Writes to one stream and keeps nothing but whether the line is open. Control characters of model and tools are shown, not obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from agent_kernel.protocol.events import Event, ModelRetried, RoundLimitReached, TextAppended, ToolCallFinished, ToolCallStarted
from agent_kernel.protocol.fold import TurnState
from agent_kernel.protocol.messages import ToolResult

PREVIEW = 100  # characters of arguments and results on a call's lines

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # what a terminal obeys; tab and newline are text


class Stream(Protocol):
    """Where text goes."""

    def write(self, text: str, /) -> object:
        """Take a piece of text."""
        ...

    def flush(self) -> None:
        """Show what was taken."""
        ...


class PlainView:
    """A turn as lines of text."""

    def __init__(self, stream: Stream) -> None:
        """Write to a stream, which is not closed."""
        self._stream = stream
        self._open = False  # whether the last line has no end yet

    def start(self, state: TurnState) -> None:
        """Show nothing: the text is the first sign."""

    def apply(self, events: Sequence[Event]) -> None:
        """Write the events' text in one piece."""
        for event in events:
            match event:
                case TextAppended(text=text):
                    self._write(_safe(text))
                case ToolCallStarted(call=call):
                    self._line(f"> {_short(call.name)}({_short(call.arguments)})")
                case ToolCallFinished(result=result):
                    self._line(_ended(result))
                case ModelRetried(attempt=attempt, error=error):
                    self._line(f"[asking again, attempt {attempt}: {_short(error)}]")
                case RoundLimitReached(rounds=rounds, continued=False):
                    self._line(f"[stopped after {rounds} rounds]")
                case _:
                    pass
        self._stream.flush()

    def finish(self, state: TurnState) -> None:
        """End the last line."""
        if state.status == "length":
            self._line("[cut: the model's answer reached its length limit]")
        self._end_line()
        self._stream.flush()

    def _write(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open:
            self._write("\n")

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(text + "\n")


class AnswerView:
    """The answer alone, at the end."""

    def __init__(self, stream: Stream) -> None:
        """Write to a stream, which is not closed."""
        self._stream = stream

    def start(self, state: TurnState) -> None:
        """Show nothing."""

    def apply(self, events: Sequence[Event]) -> None:
        """Show nothing."""

    def finish(self, state: TurnState) -> None:
        """Write the answer, if there is one."""
        if state.answer:
            self._stream.write(_safe(state.answer) + "\n")
            self._stream.flush()


def _ended(result: ToolResult) -> str:
    kept = f" [{result.artifact.handle}]" if result.artifact else ""
    shown = result.error if result.status != "ok" and result.error else result.text
    return f"< {_short(result.name)} {result.status}, {result.elapsed:.1f} s{kept}: {_short(shown)}"


def _short(text: str) -> str:
    line = " ".join(_safe(text[: 4 * PREVIEW]).split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 3] + "..."


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"\\x{ord(found.group()):02x}", text)

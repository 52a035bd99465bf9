"""What a running tool knows of its call, and how it speaks to whoever watches.

One ``ToolContext`` per call, never shared: the same tool called twice in one round has two. It holds no loop and no queue; progress
goes to the ``report`` callable it was made with. Safe to use from any thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from agent_kernel.errors import ToolError
from agent_kernel.tools.clean import clean_text, text_of
from agent_kernel.tools.jsontext import plain

Report = Callable[[float | None, float | None, str | None], None]


class ToolContext:
    """One tool call as the tool sees it.

    Attributes:
        session_id: The session that asked.
        turn_id: The turn that asked.
        round: The round, counted from 1.
        index: The call's place among the calls of its round, from 0.
        call_id: Unique in its session.
        name: The tool's name.
        metadata: What ``note`` has gathered; kept on the call's ToolResult.
    """

    _running: ClassVar[ContextVar[ToolContext]] = ContextVar("agent_kernel_tool_context")

    def __init__(self, *, session_id: str, turn_id: str, round: int, index: int, call_id: str, name: str, report: Report | None = None) -> None:  # noqa: A002 - the house's word
        self.session_id = session_id
        self.turn_id = turn_id
        self.round = round
        self.index = index
        self.call_id = call_id
        self.name = name
        self.metadata: dict[str, Any] = {}
        self._report = report
        self._cancelled = threading.Event()
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or timed out: a long sync tool looks here now and then and returns."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Ask the tool to stop."""
        self._cancelled.set()

    def progress(self, done: float | None = None, total: float | None = None, text: str | None = None) -> None:
        """Report ``done`` of ``total`` in the tool's own unit, a line of text, or both."""
        if self._report is not None:
            self._report(_number(done), _number(total), None if text is None else _line(text))

    def note(self, **metadata: Any) -> None:
        """Keep facts about this call on its ToolResult; what is no JSON is kept as text."""
        kept = {key: plain(value) for key, value in metadata.items()}
        with self._lock:
            self.metadata.update(kept)

    @contextmanager
    def active(self) -> Iterator[ToolContext]:
        """Make this the current context within the block, for ``ToolContext.current()``."""
        token = self._running.set(self)
        try:
            yield self
        finally:
            self._running.reset(token)

    @classmethod
    def current(cls) -> ToolContext:
        """Return the context of the call that is running here.

        Raises:
            ToolError: No tool call is running in this thread or task.
        """
        try:
            return cls._running.get()
        except LookupError:
            raise ToolError("ToolContext.current() works in a tool's body and in what the body awaits; no tool call is running here.") from None

    def __repr__(self) -> str:
        state = ", cancelled" if self.cancelled else ""
        return f"<ToolContext {self.name} {self.call_id}, round {self.round}, index {self.index}{state}>"


def _number(value: Any) -> float | None:
    """Return a count as a number that JSON holds, numpy's included; None for what is none."""
    if type(value) is int:
        return value
    try:
        number = float(value)
    except Exception:  # foreign code; a report must not end the tool
        return None
    return number if math.isfinite(number) else None


def _line(text: Any) -> str:
    return clean_text(text) if isinstance(text, str) else text_of(text)

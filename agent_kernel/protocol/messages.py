"""Messages and the values they are made of: calls, results, excerpts, artifacts, usage.

Values only: frozen, keyword-only, without identity of their own and without I/O. JSON names are the field names; a message's
kind is its ``role``. Nothing here knows a provider's wire format.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from msgspec import Struct, field

N = TypeVar("N", int, float)

ResultStatus = Literal["ok", "error", "cancelled", "timeout", "denied", "not_run"]
TurnStatus = Literal["completed", "limit", "length", "cancelled", "failed"]


class Artifact(Struct, frozen=True, kw_only=True, gc=False):
    """The reference to a whole output in the side store.

    Attributes:
        handle: Short name within a session, as the excerpt shows it (``r12``).
        hash: ``sha256:`` and the hexadecimal digest of the stored bytes.
        media_type: IANA media type of the stored bytes.
        size: Bytes.
    """

    handle: str
    hash: str
    media_type: str
    size: int


class Excerpt(Struct, frozen=True, kw_only=True, gc=False):
    """The short text that model and cell see instead of an output.

    Attributes:
        text: What is shown, the marker included where something was left out.
        shown: Characters of the output in ``text`` (the marker not counted).
        total: Characters of the whole output.
    """

    text: str
    shown: int
    total: int

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Tokens and cost of one or more requests; None where the provider said nothing.

    ``cached_tokens`` and ``cache_write_tokens`` are parts of ``input_tokens``, ``reasoning_tokens`` of ``output_tokens``.
    ``cost`` is in US dollars. ``estimated`` marks sums that hold an estimate.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """Add field by field; None plus a number is the number."""
        return Usage(
            input_tokens=_plus(self.input_tokens, other.input_tokens),
            output_tokens=_plus(self.output_tokens, other.output_tokens),
            cached_tokens=_plus(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=_plus(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_plus(self.reasoning_tokens, other.reasoning_tokens),
            cost=_plus(self.cost, other.cost),
            estimated=self.estimated or other.estimated,
        )


def _plus(a: N | None, b: N | None) -> N | None:
    if a is None:
        return b
    return a if b is None else a + b


class ToolCall(Struct, frozen=True, kw_only=True, gc=False):
    """The model's request to run a tool.

    Attributes:
        id: Unique in its session.
        name: As the model wrote it; empty if it never gave one.
        arguments: Raw JSON text as the model wrote it; may be malformed.
        extra: What the provider wants back with the call (signatures), or None.
    """

    id: str
    name: str
    arguments: str = "{}"
    extra: dict[str, Any] | None = None


class ToolResult(Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of one tool call; ``elapsed`` in seconds, ``error`` one line or None."""

    call_id: str
    name: str
    status: ResultStatus
    excerpt: Excerpt
    artifact: Artifact | None = None
    attachments: tuple[Artifact, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    elapsed: float = 0.0
    error: str | None = None

    @property
    def text(self) -> str:
        """What the model reads."""
        return self.excerpt.text


class _Message(Struct, frozen=True, kw_only=True, tag_field="role", gc=False):
    @property
    def role(self) -> str:
        """One of system, user, assistant, tool."""
        return str(self.__struct_config__.tag)


class SystemMessage(_Message, frozen=True, kw_only=True, tag="system"):
    """Instructions that stand before the conversation."""

    text: str


class UserMessage(_Message, frozen=True, kw_only=True, tag="user"):
    """What the person asked."""

    text: str


class AssistantMessage(_Message, frozen=True, kw_only=True, tag="assistant"):
    """What the model answered in one round; ``partial`` if it was cut by a cancel or by the length limit."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    usage: Usage | None = None
    partial: bool = False


class ToolMessage(_Message, frozen=True, kw_only=True, tag="tool"):
    """A tool call's outcome as the model reads it."""

    call_id: str
    name: str
    status: ResultStatus = "ok"
    text: str = ""
    artifact: Artifact | None = None


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage

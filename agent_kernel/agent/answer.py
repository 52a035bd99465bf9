"""Answer: what one model request has said so far, gathered from its Deltas into an AssistantMessage."""

from __future__ import annotations

from collections.abc import Callable

from agent_kernel.agent.context import BYTES_PER_TOKEN, estimated_tokens
from agent_kernel.agent.redact import StreamRedactor
from agent_kernel.errors import EmptyAnswer, ModelRefused
from agent_kernel.model.assemble import CallAssembler
from agent_kernel.protocol.messages import AssistantMessage, ToolCall, Usage
from agent_kernel.protocol.request import ModelRequest


class Answer:
    """One attempt's text, reasoning, calls and usage."""

    def __init__(self, fresh_id: Callable[[str | None], str]) -> None:
        """Start empty."""
        self.texts: list[str] = []
        self.reasonings: list[str] = []
        self.assembler = CallAssembler(fresh_id)
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.calls: tuple[ToolCall, ...] = ()
        self.shown = False
        self.redacting: StreamRedactor | None = None
        self.redacting_reasoning: StreamRedactor | None = None

    def flush(self) -> str:
        """Return text that was held back because it might have begun a secret."""
        held = self.redacting.flush() if self.redacting else ""
        if held:
            self.texts.append(held)
        return held

    def flush_reasoning(self) -> str:
        """Return reasoning that was held back for the same reason."""
        held = self.redacting_reasoning.flush() if self.redacting_reasoning else ""
        if held:
            self.reasonings.append(held)
        return held

    def check(self) -> None:
        """Raise what makes this answer none.

        Raises:
            ModelRefused: A content filter or the model itself refused.
            EmptyAnswer: There is neither text nor a call.
        """
        if self.finish_reason in ("content_filter", "refusal"):
            raise ModelRefused(f"The answer was stopped by the provider ({self.finish_reason}). Ask in another way.", kind=self.finish_reason)
        self.calls = self.assembler.calls()
        if self.finish_reason != "length" and not self.calls and not any(text.strip() for text in self.texts):
            raise EmptyAnswer("The model ended without text and without a tool call.")

    def message(self, model: str, request: ModelRequest) -> AssistantMessage:
        """Return the whole message; ``partial`` if the length limit cut it."""
        return AssistantMessage(
            text="".join(self.texts),
            reasoning="".join(self.reasonings),
            tool_calls=self.calls,
            finish_reason=self.finish_reason,
            model=self.model or model,
            usage=self.usage or self._estimate(request),
            partial=self.finish_reason == "length",
        )

    def partial(self, model: str) -> AssistantMessage:
        """Return what was said before the turn was broken off; calls that were still being written are no calls."""
        return AssistantMessage(
            text="".join(self.texts), reasoning="".join(self.reasonings), model=self.model or model, usage=self.usage, partial=True
        )

    def _estimate(self, request: ModelRequest) -> Usage:
        written = sum(map(len, self.texts)) + sum(map(len, self.reasonings)) + sum(len(call.arguments) + len(call.name) for call in self.calls)
        return Usage(input_tokens=sum(map(estimated_tokens, request.messages)), output_tokens=max(1, written // BYTES_PER_TOKEN), estimated=True)

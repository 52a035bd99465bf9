"""ScriptedModel: answers from a list, for tests, demonstrations and lessons; no network, no chance.

What is asked of it stays readable in ``requests``. A script that does not fit what happens fails loudly: too short at the
request, too long in ``assert_done``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from agent_kernel.errors import ModelError
from agent_kernel.protocol.events import Delta, FinishDelta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from agent_kernel.protocol.messages import ToolCall
from agent_kernel.protocol.request import ModelRequest

DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta, UsageDelta, FinishDelta)


class ScriptedModel:
    """A model that plays one reply per request.

    Args:
        replies: One entry per request: a text, a Delta, a ToolCall, a pause in seconds, an ``asyncio.Event`` to wait for, an
            exception to raise, or a list of these in order. An empty text is an empty answer.
        name: What the model is called.

    Attributes:
        requests: What was asked, in order.
    """

    def __init__(self, replies: Iterable[Any], *, name: str = "scripted") -> None:
        if isinstance(replies, str):
            raise TypeError(f"replies is a list with one entry per request, not the text {replies!r}.")
        self.name = name
        self.requests: list[ModelRequest] = []
        self._replies = [_steps(number, reply) for number, reply in enumerate(replies, 1)]

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {len(self.requests)} of {len(self._replies)} replies used)"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Play the next reply.

        Raises:
            ModelError: The script has no reply left.
        """
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._replies):
            raise ModelError(f"The script of model {self.name!r} has {len(self._replies)} replies, and this is request {number}. Add a reply.")
        calls, finished = 0, False
        for step in self._replies[number - 1]:
            delta = await _played(step, calls)
            if delta is None:
                continue
            calls += isinstance(step, ToolCall)
            finished = finished or isinstance(delta, FinishDelta)
            yield delta
        if not finished:
            called = calls or any(isinstance(step, ToolCallDelta) for step in self._replies[number - 1])
            yield FinishDelta(reason="tool_calls" if called else "stop", model=self.name)

    def assert_done(self) -> None:
        """Check that every reply was asked for.

        Raises:
            AssertionError: Replies are left over.
        """
        left = len(self._replies) - len(self.requests)
        if left > 0:
            raise AssertionError(f"{left} of {len(self._replies)} replies of model {self.name!r} were never asked for.")


def _steps(number: int, reply: Any) -> tuple[Any, ...]:
    steps = tuple(reply) if isinstance(reply, list | tuple) else (reply,)
    for step in steps:
        pause = isinstance(step, int | float) and not isinstance(step, bool) and step >= 0
        if not pause and not isinstance(step, (str, ToolCall, asyncio.Event, BaseException, *DELTAS)):
            raise TypeError(f"Reply {number} holds {step!r}: a step is a text, a Delta, a ToolCall, seconds, an asyncio.Event or an exception.")
    return steps


async def _played(step: Any, calls: int) -> Delta | None:
    """Do one step and return the Delta that it gives, if it gives one; ``calls`` came before it."""
    match step:
        case str():
            return TextDelta(text=step) if step else None
        case ToolCall():
            return ToolCallDelta(index=calls, id=step.id, name=step.name, arguments=step.arguments, extra=step.extra)
        case BaseException():
            raise step
        case asyncio.Event():
            await step.wait()
        case int() | float():
            await asyncio.sleep(step)
        case TextDelta() | ReasoningDelta() | ToolCallDelta() | UsageDelta() | FinishDelta():
            return step
    return None

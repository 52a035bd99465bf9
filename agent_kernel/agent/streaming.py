"""From a Model's Deltas to the facts of an answer, while they arrive.

The model is read by a task of its own, so that a cancel ends the wait at once and a slow consumer does not stall the socket; the task
never runs more than a few hundred deltas ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import structs

from agent_kernel.agent.answer import Answer
from agent_kernel.agent.cancellation import Cancellation, Inbox
from agent_kernel.agent.dispatch import Fact
from agent_kernel.agent.foreign import tamed
from agent_kernel.agent.redact import Redactor
from agent_kernel.model.base import Model
from agent_kernel.protocol.events import (
    FinishDelta,
    ReasoningAppended,
    ReasoningDelta,
    TextAppended,
    TextDelta,
    ToolCallDelta,
    ToolCallDrafted,
    UsageDelta,
)
from agent_kernel.protocol.messages import Usage
from agent_kernel.protocol.request import ModelRequest
from agent_kernel.protocol.text import well_formed

AHEAD = 512  # deltas that the reading task may be ahead of the consumer
CLOSE_GRACE = 0.5  # seconds that a model gets to close its stream


_OPTIONAL = (str, type(None))
_FIELDS: dict[type, dict[str, type | tuple[type, ...]]] = {
    TextDelta: {"text": str},
    ReasoningDelta: {"text": str},
    ToolCallDelta: {"index": (int, type(None)), "id": _OPTIONAL, "name": _OPTIONAL, "arguments": str, "extra": (dict, type(None))},
    UsageDelta: {"usage": Usage},
    FinishDelta: {"reason": _OPTIONAL, "model": _OPTIONAL},
}


class _End:
    """The stream is over; ``error`` is what broke it, or None."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


async def stream_answer(
    model: Model, request: ModelRequest, answer: Answer, redactor: Redactor, cancellation: Cancellation
) -> AsyncGenerator[Fact, None]:
    """Read one answer into ``answer`` and yield what can be shown of it.

    Raises:
        ModelError: The model could not answer.
        TurnCancelled: The turn was asked to stop.
    """
    inbox: Inbox[Any] = Inbox(cancellation)
    answer.redacting, answer.redacting_reasoning = redactor.stream(), redactor.stream()
    reader = asyncio.create_task(_read(model, request, inbox))
    try:
        while True:
            delta = inbox.take()
            if delta is None:
                delta = await inbox.get()
            if type(delta) is TextDelta and type(delta.text) is str:
                text = delta.text if delta.text.isascii() else well_formed(delta.text)
                text = answer.redacting.feed(text)
                if text:
                    answer.texts.append(text)
                    answer.shown = answer.shown or not text.isspace()
                    yield TextAppended, {"text": text}
            elif type(delta) is _End:
                for held in _held_back(answer):
                    yield held
                if delta.error is not None:
                    raise delta.error
                return
            else:
                fact = _gathered(answer, delta)
                if fact is not None:
                    yield fact
    finally:
        inbox.close()
        if not reader.done():
            reader.cancel()
            await asyncio.wait({reader}, timeout=CLOSE_GRACE)


def _held_back(answer: Answer) -> list[Fact]:
    """Return what was held back because it might have begun a secret, now that the stream is over."""
    thought, text = answer.flush_reasoning(), answer.flush()
    answer.shown = answer.shown or bool(text.strip())
    facts: list[Fact] = [(ReasoningAppended, {"text": thought})] if thought else []
    return [*facts, (TextAppended, {"text": text})] if text else facts


def _gathered(answer: Answer, delta: Any) -> Fact | None:
    wrong = _misfit(delta)
    if wrong is not None:
        raise TypeError(wrong)
    if type(delta) is ToolCallDelta:
        drafted = answer.assembler.feed(delta)
        return ToolCallDrafted, {"call_id": drafted.call_id, "name": drafted.name, "arguments": drafted.arguments}
    if type(delta) is ReasoningDelta:
        text = well_formed(delta.text)
        text = answer.redacting_reasoning.feed(text) if answer.redacting_reasoning else text
        if text:
            answer.reasonings.append(text)
            return ReasoningAppended, {"text": text}
    if type(delta) is UsageDelta:
        answer.usage = delta.usage
    elif type(delta) is FinishDelta:
        answer.finish_reason = delta.reason or answer.finish_reason
        answer.model = delta.model or answer.model
    return None


def _misfit(delta: Any) -> str | None:
    """Say what is wrong with what a user's Model yielded.

    A Struct's constructor does not look at types, and what does not fit must not get as far as history.
    """
    fields = _FIELDS.get(type(delta))
    if fields is None:
        return f"a model yielded {type(delta).__name__}, which is no Delta"
    for name, kinds in fields.items():
        value = getattr(delta, name)
        if not isinstance(value, kinds):
            return f"a model yielded a {type(delta).__name__} whose {name} is {type(value).__name__}"
    if isinstance(delta, UsageDelta):
        numbers = (value for value in structs.astuple(delta.usage) if value is not None)
        if not all(isinstance(value, int | float) for value in numbers):
            return "a model yielded a UsageDelta that holds other things than numbers"
    return None


async def _read(model: Model, request: ModelRequest, inbox: Inbox[Any]) -> None:
    """Move a model's deltas to the inbox, an error or the end last."""
    error: Exception | None = None
    try:
        await _moved(model.stream(request), inbox)
    except BaseException as raised:  # a user's Model may raise anything; the turn decides what it means
        error = tamed(raised)
    inbox.put(_End(error))


async def _moved(stream: Any, inbox: Inbox[Any]) -> None:
    if inspect.iscoroutine(stream):
        stream.close()
    if not hasattr(stream, "__aiter__"):
        raise TypeError(f"its stream() must be an async generator of Deltas, and gave {type(stream).__name__}")
    try:
        async for delta in stream:
            if delta is None:  # the inbox's word for empty
                raise TypeError("a model yielded None, which is no Delta")
            inbox.put(delta)
            if len(inbox) >= AHEAD:
                await inbox.room()
            if inbox.closed:  # the turn is over, and this model has swallowed its cancellation
                return
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            with contextlib.suppress(Exception):  # the stream is over; what its closing says changes nothing
                await close()

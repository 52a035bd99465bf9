"""What is sent to the model. Pure: messages in, one valid request out (law 9).

Each call is answered once, right after its message and in call order; arguments are JSON objects; text has no lone surrogates. Under a
token budget the oldest turns are left out whole; stored history is never touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import structs

from agent_kernel.model.assemble import valid_arguments
from agent_kernel.protocol.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from agent_kernel.protocol.request import ModelRequest, ToolSpec
from agent_kernel.protocol.text import well_formed

BYTES_PER_TOKEN = 4  # a usual mean for English text and JSON with the tokenizers of 2024-26; an estimate, marked as such
MESSAGE_TOKENS = 4  # what a message costs beside its text
NOT_ANSWERED = "[not run] The call was never carried out."
LAST_ANSWER = "All tool rounds of this turn are used up. Answer now, from what you have, without calling tools."


def mended(messages: Iterable[Message]) -> list[Message]:
    """Return messages that a provider accepts: results paired with their calls, stray ones dropped, missing ones said to be missing."""
    items = list(messages)
    answers: dict[str, deque[ToolMessage]] = {}
    for item in items:
        if isinstance(item, ToolMessage):
            answers.setdefault(item.call_id, deque()).append(item)
    kept: list[Message] = []
    taken: set[str] = set()
    for item in items:
        if isinstance(item, AssistantMessage):
            if item.tool_calls:
                pairs = [_paired(call, answers.get(call.id), taken) for call in item.tool_calls]
                kept.append(structs.replace(item, tool_calls=tuple(call for call, _ in pairs)))
                kept += [answer for _, answer in pairs]
            elif item.text.strip():
                kept.append(item)
        elif not isinstance(item, ToolMessage):
            kept.append(item)
    return kept


def _paired(call: ToolCall, answers: deque[ToolMessage] | None, taken: set[str]) -> tuple[ToolCall, ToolMessage]:
    """Pair a call with the next answer to its id; an id that came before is made unique."""
    answer = answers.popleft() if answers else _unanswered(call)
    public, count = call.id or "call", 1
    while public in taken or not call.id:
        count += 1
        public = f"{call.id or 'call'}_{count}"
        if public not in taken:
            break
    taken.add(public)
    if public == call.id:
        return call, answer
    return structs.replace(call, id=public), structs.replace(answer, call_id=public)


def _unanswered(call: ToolCall) -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, status="not_run", text=NOT_ANSWERED)


class Outgoing:
    """A growing list of messages made ready to be sent, each message once: a long session is not gone through anew at each round."""

    def __init__(self) -> None:
        """Start with none."""
        self._ready: list[Message] = []
        self._read = 0

    def take(self, messages: Sequence[Message]) -> list[Message]:
        """Return all of them, ready; since the last time messages were only added, calls together with their results."""
        if len(messages) > self._read:
            self._ready += [_sendable(message) for message in mended(messages[self._read :])]
            self._read = len(messages)
        return self._ready


def build_request(
    messages: Sequence[Message],
    *,
    system_prompt: str | None = None,
    tools: tuple[ToolSpec, ...] = (),
    tool_choice: str = "auto",
    max_input_tokens: int | None = None,
) -> tuple[ModelRequest, bool]:
    """Return the request of a round, and whether it was trimmed or is over its budget.

    Args:
        messages: The session's, the running turn's included, without the system message; made ready by ``Outgoing``.
        system_prompt: Instructions that stand first.
        tools: Tools on offer.
        tool_choice: auto, none, required or a name.
        max_input_tokens: Budget for the whole input, by estimate; None for no limit.
    """
    system: list[Message] = [SystemMessage(text=system_prompt)] if system_prompt else []
    sent, trimmed = list(messages), False
    if max_input_tokens is not None:
        fixed = sum(map(estimated_tokens, system)) + sum(len(str(tool.parameters)) // BYTES_PER_TOKEN + MESSAGE_TOKENS for tool in tools)
        sent, trimmed = _fitting(sent, max_input_tokens - fixed)
    return ModelRequest(messages=(*map(_sendable, system), *sent), tools=tools, tool_choice=tool_choice), trimmed


def _sendable(message: Message) -> Message:
    if isinstance(message, AssistantMessage):
        calls = tuple(structs.replace(call, arguments=valid_arguments(call.arguments), name=well_formed(call.name)) for call in message.tool_calls)
        return structs.replace(message, text=well_formed(message.text), tool_calls=calls)
    text = well_formed(message.text)
    return message if text is message.text else structs.replace(message, text=text)


def estimated_tokens(message: Message) -> int:
    """Estimate what a message costs, call names and arguments included."""
    size = _bytes(message.text)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            size += len(call.name) + _bytes(call.arguments)
    return size // BYTES_PER_TOKEN + MESSAGE_TOKENS


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _fitting(messages: list[Message], budget: int) -> tuple[list[Message], bool]:
    """Drop whole turns from the oldest on until the rest fits; the last turn stays in any case."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)] or [0]
    costs = [estimated_tokens(message) for message in messages]
    total, first = sum(costs), 0
    for start in starts[1:]:
        if total <= budget:
            break
        total -= sum(costs[first:start])
        first = start
    return messages[first:], first > 0 or total > budget

"""Encodes a ModelRequest as the fields of a Chat Completions request.

The messages arrive paired and in order; what is ensured here is the form: arguments are a JSON object, no lone surrogates,
nothing that an empty list or a null would make invalid. Reasoning is not sent back.
"""

from __future__ import annotations

from typing import Any

from agent_kernel.model.assemble import valid_arguments
from agent_kernel.model.loose_json import mended, mended_value
from agent_kernel.protocol.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage
from agent_kernel.protocol.request import ModelRequest

CHOICE_WORDS = frozenset({"auto", "none", "required"})


def request_fields(request: ModelRequest) -> dict[str, Any]:
    """Return ``messages`` and, where tools are on offer, ``tools`` and ``tool_choice``."""
    fields: dict[str, Any] = {"messages": [encoded(message) for message in request.messages]}
    if request.tools:
        fields["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": mended(tool.description), "parameters": mended_value(tool.parameters)},
            }
            for tool in request.tools
        ]
        choice = request.tool_choice
        fields["tool_choice"] = choice if choice in CHOICE_WORDS else {"type": "function", "function": {"name": choice}}
    return fields


def encoded(message: Message) -> dict[str, Any]:
    """Return one message in the wire's form."""
    match message:
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": mended(message.text)}
        case SystemMessage():
            return {"role": "system", "content": mended(message.text)}
        case _:
            return {"role": "user", "content": mended(message.text)}


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    # beside calls the text may be empty, and stays a text: some servers refuse null there, others a missing field
    fields: dict[str, Any] = {"role": "assistant", "content": mended(message.text)}
    if message.tool_calls:
        fields["tool_calls"] = [_call(call) for call in message.tool_calls]
    return fields


def _call(call: ToolCall) -> dict[str, Any]:
    # What the provider attached comes first: its keys cannot hide ours.
    return {
        **mended_value(call.extra or {}),
        "id": mended(call.id),
        "type": "function",
        "function": {"name": mended(call.name), "arguments": valid_arguments(call.arguments)},
    }

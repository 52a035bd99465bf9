"""Reads single fields of the Chat Completions wire, whatever shape they come in: content, reasoning, calls, usage, finish.

Pure functions over decoded JSON; nothing here keeps state or knows whether the answer is streamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent_kernel.protocol.events import ReasoningDelta, TextDelta, ToolCallDelta
from agent_kernel.protocol.messages import Usage

CALL_FIELDS = frozenset({"index", "id", "type", "function", "name", "arguments"})
FINISH_WORDS = {
    "function_call": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "eos": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "network_error": "error",
}
"""Words that servers use for the five of the API."""


def finish_word(value: Any) -> str | None:
    """Return the finish reason in the API's own words; None where the server said nothing."""
    if not isinstance(value, str) or not value:
        return None
    return FINISH_WORDS.get(value.lower(), value)


def content_deltas(content: Any) -> Iterator[TextDelta | ReasoningDelta]:
    """Map content that is a text, a part or a list of parts."""
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, dict) and (part.get("thinking") or part.get("reasoning")):
            text, thought = _text(part.get("thinking") or part.get("reasoning")), True
        else:
            text, thought = _text(part), isinstance(part, dict) and part.get("type") in ("thinking", "reasoning")
        if text:
            yield ReasoningDelta(text=text) if thought else TextDelta(text=text)


def reasoning_text(*fields: Any) -> str:
    """Return the first of several reasoning fields that holds text: servers that fill two say the same in both."""
    for value in fields:
        if value and (text := _text(value)):
            return text
    return ""


def _text(value: Any) -> str:
    """Collect the text of a string, a part, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(item) for item in value)
    if isinstance(value, dict):
        return next((text for key in ("text", "value", "content", "refusal", "summary") if (text := _text(value.get(key)))), "")
    return ""


def call_deltas(tool_calls: Any, function_call: Any) -> Iterator[ToolCallDelta]:
    """Map ``tool_calls``, or the ``function_call`` of older servers."""
    if isinstance(tool_calls, dict):
        tool_calls = [tool_calls]
    if not tool_calls and isinstance(function_call, dict):
        tool_calls = [{"function": function_call}]
    for item in tool_calls if isinstance(tool_calls, list) else ():
        if isinstance(item, dict):
            yield _call_delta(item)


def _call_delta(item: dict[str, Any]) -> ToolCallDelta:
    function = item.get("function")
    where = function if isinstance(function, dict) else item
    name = where.get("name")
    extra = {key: value for key, value in item.items() if key not in CALL_FIELDS and value is not None}
    return ToolCallDelta(
        index=_index(item.get("index")),
        id=_identity(item.get("id")),
        name=name if isinstance(name, str) and name else None,
        arguments=_arguments(where.get("arguments")),
        extra=extra or None,
    )


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _identity(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _arguments(value: Any) -> str:
    """Return arguments as text; an object that was never encoded is encoded now, so that the assembler sees one form."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)  # keeps a NaN, which parse_arguments refuses


def usage_of(value: Any) -> Usage | None:
    """Map a usage object; None if it holds no number that we know."""
    if not isinstance(value, dict):
        return None
    prompt = _details(value, "prompt_tokens_details", "input_tokens_details")
    completion = _details(value, "completion_tokens_details", "output_tokens_details")
    usage = Usage(
        input_tokens=_count(value, "prompt_tokens", "input_tokens"),
        output_tokens=_count(value, "completion_tokens", "output_tokens"),
        cached_tokens=_first(_count(prompt, "cached_tokens"), _count(value, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")),
        cache_write_tokens=_first(_count(prompt, "cache_write_tokens", "cache_creation_tokens"), _count(value, "cache_creation_input_tokens")),
        reasoning_tokens=_first(_count(completion, "reasoning_tokens"), _count(value, "reasoning_tokens")),
        cost=_number(value.get("cost")),
    )
    return None if usage == Usage() else usage


def _details(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return next((value[key] for key in keys if isinstance(value.get(key), dict)), {})


def _first(a: int | None, b: int | None) -> int | None:
    return b if a is None else a


def _count(value: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        number = _number(value.get(key))
        if number is not None:
            return int(number)
    return None


def _number(value: Any) -> float | None:
    # The upper bound leaves infinity out, too.
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63 else None

"""Finds the tool calls that a prompt writes in Python call syntax, and writes example calls from a tool's schema.

Text is read with ``ast``, never run: arguments are literals or the call is no call. Pure functions for offline.py.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from agent_kernel.protocol.request import ToolSpec

HEADS = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")
TOKENS = re.compile(
    r"'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|[()\[\]{}]",
    re.DOTALL,
)
MAX_CALL_CHARS = 100_000
MAX_FOREIGN = 5
"""Calls of names not on offer that are looked at: enough to mention, not enough to slow a pasted program down."""


class Written(Struct, frozen=True, kw_only=True):
    """One call that the prompt writes."""

    name: str
    arguments: dict[str, Any]


class Found(Struct, frozen=True, kw_only=True):
    """All calls of tools on offer, and one line for each call that could not be made."""

    calls: list[Written]
    notes: list[str]


class _NotACall(Exception):
    """The text after a name is no call with literal arguments; the message says why."""


def written_calls(prompt: str, tools: Sequence[ToolSpec]) -> Found:
    """Find ``name(arg=literal, ...)`` in the prompt, calls of unknown names as notes."""
    offered = {tool.name: tool for tool in tools}
    found = Found(calls=[], notes=[])
    position, foreign = 0, 0
    while (head := HEADS.search(prompt, position)) is not None:
        position = head.end()
        name, tool = head.group(1), offered.get(head.group(1))
        if tool is None and (foreign := foreign + 1) > MAX_FOREIGN:
            continue
        end = _closing(prompt, head.end() - 1)
        try:
            arguments = _read(prompt[head.start() : end], tool) if end else _unclosed()
        except _NotACall as problem:
            if tool is not None:
                found.notes.append(f"I cannot call `{name}`: {problem}.")
            continue
        position = end
        if tool is None:
            found.notes.append(f"There is no tool `{name}` on offer.")
        else:
            found.calls.append(Written(name=name, arguments=arguments))
    return found


def _closing(text: str, start: int) -> int:
    """Return the offset after the bracket that closes the one at ``start``; 0 if none does."""
    depth = 0
    for token in TOKENS.finditer(text, start, start + MAX_CALL_CHARS):
        if token.group() in "([{":
            depth += 1
        elif token.group() in ")]}":
            depth -= 1
            if depth == 0:
                return token.end()
    return 0


def _unclosed() -> dict[str, Any]:
    raise _NotACall("its parenthesis is not closed")


def _read(source: str, tool: ToolSpec | None) -> dict[str, Any]:
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _NotACall("this is no Python call") from error
    if not isinstance(node, ast.Call):
        raise _NotACall("this is no Python call")
    names = list(tool.parameters.get("properties", {})) if tool is not None else [f"arg{n}" for n in range(len(node.args))]
    if len(node.args) > len(names):
        raise _NotACall(f"it takes at most {len(names)} arguments")
    arguments = {name: _literal(value) for name, value in zip(names, node.args, strict=False)}
    for keyword in node.keywords:
        value = _literal(keyword.value)
        if keyword.arg is not None:
            arguments[keyword.arg] = value
        elif isinstance(value, dict):
            arguments |= value
    return arguments


def _literal(node: ast.expr) -> Any:
    """Return a literal as a JSON value: tuples and sets are arrays."""
    try:
        return json.loads(json.dumps(msgspec.to_builtins(ast.literal_eval(node)), allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise _NotACall("its arguments must be literals, such as 3, 'text' or [1, 2]") from error


def shown_call(name: str, arguments: Mapping[str, Any], limit: int = 120) -> str:
    """Write a call as Python, clipped, on one line, without backticks (it stands in a code span)."""
    shown = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})".replace("`", "'")
    return shown if len(shown) <= limit else shown[: limit - 4] + "...)"


def example_call(tool: ToolSpec) -> str:
    """Write a call of the tool that is ready to be copied."""
    return shown_call(tool.name, example_arguments(tool), limit=400)


def example_arguments(tool: ToolSpec) -> dict[str, Any]:
    """Make up arguments for what the tool requires."""
    schema = tool.parameters
    properties: dict[str, Any] = schema.get("properties", {})
    return {name: _example(properties[name], schema, 0) for name in schema.get("required", ()) if name in properties}


BY_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00",
    "time": "12:00:00",
    "path": "notes.txt",
    "binary": "aGVsbG8=",
    "byte": "aGVsbG8=",
}
BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None, "object": {}}


def _example(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """Make up a value that fits a schema, from what it says itself where it says something."""
    if not isinstance(schema, dict) or depth > 8:
        return "text"
    given = itertools.chain(schema.get("examples") or (), schema.get("enum") or (), *([schema[key]] for key in ("const", "default") if key in schema))
    for value in given:
        return value
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _example(root.get("$defs", {}).get(name), root, depth + 1)
    options = [option for option in schema.get("anyOf") or schema.get("oneOf") or () if option != {"type": "null"}]
    if options:
        return _example(options[0], root, depth + 1)
    return _typed_example(schema, root, depth)


def _typed_example(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((word for word in kind if word != "null"), "null")
    if kind == "array":
        prefix = schema.get("prefixItems")
        return [_example(item, root, depth + 1) for item in prefix or [schema.get("items", {})]]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _example(properties[name], root, depth + 1) for name in schema.get("required", ()) if name in properties}
    if kind in {"integer", "number"} and "minimum" in schema:
        return schema["minimum"]
    if kind == "string" and schema.get("format") in BY_FORMAT:
        return BY_FORMAT[schema["format"]]
    return BY_TYPE.get(str(kind), "text")

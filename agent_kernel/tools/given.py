"""A tool whose JSON Schema was given ready: arguments are checked lightly and passed as keywords as they are.

Checked are names (``properties``, ``required``, ``additionalProperties``) and, at the top level, ``type``, ``enum`` and ``const``;
what the schema says beyond that is the callable's own business.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.errors import ToolError
from agent_kernel.tools.convert import json_type, shown
from agent_kernel.tools.signature import CONTEXT, accepted_names, context_names, invalid


class GivenSchema:
    """The given schema of one callable."""

    def __init__(self, call: Callable[..., Any], name: str, schema: Mapping[str, Any]) -> None:
        """Take a copy of the schema.

        Raises:
            ToolError: It is no JSON Schema of an object.
        """
        try:
            self._schema: dict[str, Any] = json.loads(json.dumps(dict(schema), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ToolError(f"The tool {name!r} cannot be described: parameters is no JSON Schema ({error}).") from error
        kind = self._schema.setdefault("type", "object")
        properties = self._schema.setdefault("properties", {})
        required = self._schema.get("required", [])
        if kind != "object" or not isinstance(properties, dict) or not isinstance(required, list):
            raise ToolError(f"The tool {name!r} cannot be described: parameters must be the JSON Schema of an object with properties and required.")
        self.contexts = context_names(call)
        self._accepted = accepted_names(call)

    def schema(self) -> dict[str, Any]:
        """Return the schema."""
        return copy.deepcopy(self._schema)

    def read(self, tool_name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments as they are.

        Raises:
            InvalidArguments: Names everything that is unknown, missing or of another type.
        """
        properties = self._schema["properties"]
        problems = [f"{key}: unknown{self._hint(key)}" for key in arguments if key not in properties and not self._takes(key)]
        problems += [f"{key}: missing" for key in self._schema.get("required", []) if key not in arguments]
        for key, value in arguments.items():
            problem = _misfit(properties.get(key), value)
            if problem is not None:
                problems.append(f"{key}: {problem}")
        if problems:
            raise invalid(tool_name, problems)
        return dict(arguments), {}

    def defaults(self) -> dict[str, Any]:
        """Return the defaults that the schema names."""
        properties = self._schema["properties"].items()
        return {key: copy.deepcopy(spec["default"]) for key, spec in properties if isinstance(spec, dict) and "default" in spec}

    def arrange(self, named: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call's arguments: keywords only."""
        return (), {**extra, **named, **dict.fromkeys(self.contexts, CONTEXT)}

    def _takes(self, key: str) -> bool:
        """Whether a name beyond the properties is allowed by the schema and taken by the callable."""
        allowed = self._schema.get("additionalProperties", True) is not False or "patternProperties" in self._schema
        return allowed and key not in self.contexts and (self._accepted is None or key in self._accepted)

    def _hint(self, key: str) -> str:
        close = difflib.get_close_matches(key, list(self._schema["properties"]), n=1)
        return f" (did you mean {close[0]}?)" if close else ""

    def __str__(self) -> str:
        return ", ".join(self._schema["properties"])


def _misfit(spec: Any, value: Any) -> str | None:
    """Say how a value breaks ``type``, ``enum`` or ``const``, if it does."""
    if not isinstance(spec, dict):
        return None
    allowed = spec.get("type", [])
    allowed = [allowed] if isinstance(allowed, str) else allowed
    kind = json_type(value)
    is_whole = kind == "integer" or (isinstance(value, float) and value.is_integer())
    if allowed and kind not in allowed and not (is_whole and {"integer", "number"} & set(allowed)):
        return f"expected {' or '.join(allowed)}, got {shown(value)}"
    choices = [spec["const"]] if "const" in spec else spec.get("enum")
    if isinstance(choices, list) and not any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in choices):
        return f"expected one of {', '.join(json.dumps(choice, ensure_ascii=False) for choice in choices)}, got {shown(value)}"
    return None

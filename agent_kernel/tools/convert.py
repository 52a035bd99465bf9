"""From JSON values to annotated Python values: the closed table of conversions, as a tree of Shapes built once per tool.

A Shape knows its JSON Schema and how to read a value. It never does I/O and never guesses: "3" and 3.0 read as int, "3.5" and 3
as float, "true" and "false" as bool, ISO text as date and datetime, text as Path, base64 text as bytes, arrays as list, tuple or
set, a value as its Enum member, objects as dict or record; a bool is never a number. Nothing else is converted.

A union reads in two passes: first strictly, taking the first member whose own JSON form the value has already ("3" for
``int | str`` stays text), then with the table, again in order ("3" for ``int | None`` is 3).
"""

from __future__ import annotations

import enum
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

from agent_kernel.tools.leaves import read_int

FAILED: Final = object()
"""What ``Shape.read`` returns when the value did not fit; the reading holds the problem."""

Definitions = dict[str, dict[str, Any]]
_PLAIN_KEY = re.compile(r"[^\W\d]\w*")


class Reading:
    """One pass over arguments: the problems so far, and whether values must have their own JSON form already."""

    __slots__ = ("problems", "strict")

    def __init__(self, *, strict: bool = False) -> None:
        self.problems: list[str] = []
        self.strict = strict

    def fail(self, path: str, problem: str) -> Any:
        """Note a problem and return FAILED."""
        self.problems.append(f"{path}: {problem}" if path else problem)
        return FAILED


class Shape(ABC):
    """What one annotation accepts.

    Attributes:
        words: What is expected, as an error says it.
        kinds: JSON types that the shape's values have (string, integer, number, boolean, null, array, object).
        described: Whether the schema says in words what the value means, better than a docstring could.
    """

    words: str = "a value"
    kinds: frozenset[str] = frozenset()
    described: bool = False

    @abstractmethod
    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """Return the JSON Schema; named parts go into ``definitions``."""

    @abstractmethod
    def read(self, value: Any, path: str, reading: Reading) -> Any:
        """Return the converted value, or FAILED with the problem in ``reading``."""


class AnyShape(Shape):
    """Whatever JSON holds, as it is."""

    kinds = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: ARG002, D102
        return {}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: ARG002, D102
        return value


class Leaf(Shape):
    """A scalar: ``convert(value, strict)`` returns the Python value or raises ValueError."""

    def __init__(self, words: str, schema: dict[str, Any], convert: Callable[[Any, bool], Any]) -> None:
        self.words = words
        self.kinds = frozenset({schema["type"]})
        self._schema = schema
        self._convert = convert

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: ARG002, D102
        return dict(self._schema)

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        try:
            return self._convert(value, reading.strict)
        except (ValueError, OverflowError):
            return reading.fail(path, f"expected {self.words}, got {shown(value)}")


class Choice(Shape):
    """Literal or Enum: one of some JSON scalars, each standing for a Python value."""

    def __init__(self, members: Sequence[tuple[Any, Any]]) -> None:
        self._members: dict[tuple[str, Any], Any] = {}
        self._values: list[Any] = []
        for json_value, member in members:
            if _choice_key(json_value) not in self._members:
                self._members[_choice_key(json_value)] = member
                self._values.append(json_value)
        self.kinds = frozenset(json_type(value) for value in self._values)
        self.words = "one of " + ", ".join(_dumps(value) for value in self._values)

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: ARG002, D102
        kinds = sorted(self.kinds)
        typed: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        return {**typed, "enum": list(self._values)}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        if isinstance(value, str | int | float | None):
            member = self._members.get(_choice_key(value), FAILED)
            if member is not FAILED:
                return member
        return reading.fail(path, f"expected {self.words}, got {shown(value)}")


class FlagChoice(Leaf):
    """An enum.Flag: an integer of set bits."""

    def __init__(self, cls: type[enum.Flag]) -> None:
        bits = ", ".join(f"{member.value} {member.name}" for member in cls)
        words = f"an integer of set bits ({bits})"
        self.described = True
        super().__init__(words, {"type": "integer", "description": f"Set bits: {bits}"}, lambda value, strict: cls(read_int(value, strict)))


class ArrayShape(Shape):
    """A list, tuple or set of any length."""

    words = "an array"
    kinds = frozenset({"array"})

    def __init__(self, item: Shape, make: Callable[[Iterable[Any]], Any], *, unique: bool = False) -> None:
        self._item = item
        self._make = make
        self._unique = unique

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        items = self._item.schema(definitions)
        return {"type": "array"} | ({"items": items} if items else {}) | ({"uniqueItems": True} if self._unique else {})

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        if not isinstance(value, list | tuple):
            return reading.fail(path, f"expected an array, got {shown(value)}")
        before = len(reading.problems)
        items = [self._item.read(item, f"{path}[{number}]", reading) for number, item in enumerate(value)]
        if len(reading.problems) > before:
            return FAILED
        try:
            return self._make(items)
        except TypeError as error:  # a set of what cannot be hashed
            return reading.fail(path, str(error))


class TupleShape(Shape):
    """A tuple with one shape per place."""

    kinds = frozenset({"array"})

    def __init__(self, items: Sequence[Shape]) -> None:
        self._items = tuple(items)
        self.words = f"an array of {len(self._items)}"

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        count = len(self._items)
        places = {"prefixItems": [item.schema(definitions) for item in self._items]} if count else {}
        return {"type": "array", **places, "minItems": count, "maxItems": count}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        if not isinstance(value, list | tuple):
            return reading.fail(path, f"expected {self.words}, got {shown(value)}")
        if len(value) != len(self._items):
            return reading.fail(path, f"expected {self.words}, got {len(value)} items")
        before = len(reading.problems)
        items = tuple(shape.read(item, f"{path}[{number}]", reading) for number, (shape, item) in enumerate(zip(self._items, value, strict=True)))
        return items if len(reading.problems) == before else FAILED


class MappingShape(Shape):
    """A dict; keys, which JSON has as text only, are read like text values."""

    words = "an object"
    kinds = frozenset({"object"})

    def __init__(self, key: Shape, value: Shape) -> None:
        self._key = key
        self._value = value

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        values = self._value.schema(definitions)
        return {"type": "object"} | ({"additionalProperties": values} if values else {})

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        if not isinstance(value, dict):
            return reading.fail(path, f"expected an object, got {shown(value)}")
        before = len(reading.problems)
        result: dict[Any, Any] = {}
        keys = Reading()
        for text, item in value.items():
            key = self._key.read(text, f"{path}, key {text!r}", keys)
            if key is not FAILED and key in result:
                keys.fail(path, f"the keys hold {key!r} twice")
            result[key] = self._value.read(item, join_path(path, text), reading)
        reading.problems += keys.problems
        return result if len(reading.problems) == before else FAILED


class UnionShape(Shape):
    """One of several shapes; the module's docstring has the rule."""

    _strictness: ClassVar = (True, False)

    def __init__(self, members: Sequence[Shape]) -> None:
        self.members = tuple(members)
        self.kinds = frozenset().union(*(member.kinds for member in members))
        self.words = " or ".join(dict.fromkeys(member.words for member in members))

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        return {"anyOf": [member.schema(definitions) for member in self.members]}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        for strict in self._strictness[: 1 if reading.strict else 2]:
            for member in self.members:
                trial = Reading(strict=strict)
                result = member.read(value, path, trial)
                if result is not FAILED:
                    return result
        return self._fail(value, path, reading)

    def _fail(self, value: Any, path: str, reading: Reading) -> Any:
        """Say why: with the nested problems where only one member has the value's JSON type."""
        kind = json_type(value)
        fitting = [member for member in self.members if kind in member.kinds]
        if len(fitting) == 1:
            trial = Reading(strict=reading.strict)
            fitting[0].read(value, path, trial)
            nested = [problem for problem in trial.problems if not problem.startswith(f"{path}: expected")]
            if nested:
                reading.problems += trial.problems
                return FAILED
        return reading.fail(path, f"expected {self.words}, got {shown(value)}")


def json_type(value: Any) -> str:
    """Return the JSON type of a JSON value; 3.0 is a number, 3 an integer."""
    if value is None:
        return "null"
    for types, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (dict, "object")):
        if isinstance(value, types):
            return name
    return "array"


def join_path(path: str, key: str) -> str:
    """Return the path of a key inside ``path``: ``a.b``, or ``a["b c"]`` for what is no name."""
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{_dumps(key)}]"


def shown(value: Any) -> str:
    """Return a value as an error shows it: its JSON type, and its text if that is short."""
    kind = json_type(value)
    if kind in {"object", "array"}:
        return f"an {kind}"
    if kind == "null":
        return kind
    text = _dumps(value[:61] if isinstance(value, str) else value)
    return f"{kind} {text if len(text) <= 64 else text[:60] + '…'}"


def _choice_key(value: Any) -> tuple[str, Any]:
    """Tell true from 1, as JSON does and a dict does not."""
    return ("boolean" if isinstance(value, bool) else "", value)


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except ValueError:  # an int of more digits than Python prints
        return "(a very long number)"

"""Objects with named fields: dataclass, TypedDict, Struct, NamedTuple, pydantic model, and a tool's own parameters.

Unknown and missing names are all reported, at every depth. A class is built by calling it, so that ``__post_init__`` and validators
run; what they raise becomes a problem at the object's path. pydantic models are validated by pydantic itself.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from agent_kernel.tools.convert import FAILED, Definitions, Reading, Shape, join_path, shown

_JSON_KINDS = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})


class Field(Struct, frozen=True, kw_only=True):
    """One named place of an object.

    Attributes:
        name: What the Python side calls it.
        key: What JSON calls it.
        shape: What it accepts.
        required: Whether it must be given.
        description: What a docstring says of it, or None.
        notes: Schema words beside the shape's own (the default).
    """

    name: str
    key: str
    shape: Shape
    required: bool
    description: str | None = None
    notes: dict[str, Any] = {}

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """Return the field's JSON Schema."""
        told = self.description is not None and not self.shape.described
        return {**self.shape.schema(definitions), **({"description": self.description} if told else {}), **self.notes}


class Fields:
    """Named fields of one object; ``extra`` is the shape of names beyond them, None if there may be none."""

    def __init__(self, fields: Sequence[Field], *, extra: Shape | None = None, tag: tuple[str, str | int] | None = None) -> None:
        self.fields = tuple(fields)
        self._keys = {field.key for field in fields}
        self._extra = extra
        self._tag = tag

    def schema(self, definitions: Definitions) -> dict[str, Any]:
        """Return the object's JSON Schema."""
        properties = {} if self._tag is None else {self._tag[0]: {"const": self._tag[1]}}
        properties |= {field.key: field.schema(definitions) for field in self.fields}
        required = ([] if self._tag is None else [self._tag[0]]) + [field.key for field in self.fields if field.required]
        extra: Any = False if self._extra is None else self._extra.schema(definitions) or True
        return {"type": "object", "properties": properties} | ({"required": required} if required else {}) | {"additionalProperties": extra}

    def read(self, value: dict[str, Any], path: str, reading: Reading) -> Any:
        """Return converted values by Python name, names beyond the fields after them; FAILED if anything did not fit."""
        before = len(reading.problems)
        extra: dict[str, Any] = {}
        for key, item in value.items():
            if key in self._keys:
                continue
            if self._tag is not None and key == self._tag[0]:
                if item != self._tag[1]:
                    reading.fail(join_path(path, key), f"expected {self._tag[1]!r}, got {shown(item)}")
            elif self._extra is None:
                reading.fail(join_path(path, str(key)), f"unknown{self._hint(str(key))}")
            else:
                extra[key] = self._extra.read(item, join_path(path, str(key)), reading)
        result: dict[str, Any] = {}
        for field in self.fields:
            if field.key in value:
                result[field.name] = field.shape.read(value[field.key], join_path(path, field.key), reading)
            elif field.required:
                reading.fail(join_path(path, field.key), "missing")
        return (result, extra) if len(reading.problems) == before else FAILED

    def _hint(self, key: str) -> str:
        close = difflib.get_close_matches(key, self._keys, n=1)
        return f" (did you mean {close[0]}?)" if close else ""


class Record(Shape):
    """A class with fields."""

    kinds = frozenset({"object"})

    def __init__(self, make: Callable[..., Any], fields: Fields, *, words: str, description: str | None = None) -> None:
        self._make = make
        self._fields = fields
        self._description = description
        self.words = words

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        described = {"description": self._description} if self._description else {}
        return {**self._fields.schema(definitions), **described}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        if not isinstance(value, dict):
            return reading.fail(path, f"expected {self.words}, got {shown(value)}")
        result = self._fields.read(value, path, reading)
        if result is FAILED:
            return FAILED
        try:
            return self._make(**result[0], **result[1])
        except Exception as error:  # the user's own __post_init__ or validator
            return reading.fail(path, f"{type(error).__name__}: {error}")


class PydanticModel(Shape):
    """A pydantic model; schema and validation are pydantic's own, by the same JSON rules that it has for a request body."""

    kinds = frozenset({"object"})

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self.words = f"a {cls.__name__} object"
        self._schema = cls.model_json_schema(ref_template=f"#/$defs/{cls.__name__}.{{model}}")
        names = ((field, spec.alias, spec.validation_alias) for field, spec in cls.model_fields.items())
        self._keys = {name for three in names for name in three if isinstance(name, str)}
        self.kinds = _JSON_KINDS if getattr(cls, "__pydantic_root_model__", False) else self.kinds
        self._closed = cls.model_config.get("extra") != "allow" and not getattr(cls, "__pydantic_root_model__", False)

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        schema = dict(self._schema)
        for name, part in schema.pop("$defs", {}).items():
            definitions[f"{self._cls.__name__}.{name}"] = part
        return schema

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        if reading.strict and self._closed and not (isinstance(value, dict) and self._keys.issuperset(value)):
            return reading.fail(path, f"expected {self.words}, got {shown(value)}")
        try:
            return self._cls.model_validate_json(json.dumps(value))
        except Exception as error:  # pydantic's ValidationError, or what the user's validators raise
            details: Any = error.errors() if hasattr(error, "errors") else [{"loc": (), "msg": f"{type(error).__name__}: {error}"}]
            for detail in details:
                reading.fail(_deep_path(path, detail["loc"]), detail["msg"])
            return FAILED


def _deep_path(path: str, places: Sequence[Any]) -> str:
    for place in places:
        path = f"{path}[{place}]" if isinstance(place, int) else join_path(path, str(place))
    return path


class Named(Shape):
    """A shape that is known by name, so that it may contain itself; it is inlined where it does not."""

    kinds = frozenset({"object"})

    def __init__(self, name: str) -> None:
        self.name = name
        self.words = f"a {name}"
        self.recursive = False
        self._inner: Shape | None = None

    def close(self, inner: Shape) -> None:
        """Say what the name stands for."""
        self._inner = inner
        self.words = inner.words
        self.kinds = inner.kinds

    @property
    def inner(self) -> Shape:
        """What the name stands for."""
        if self._inner is None:
            raise ValueError(f"{self.name} is defined by nothing but itself")
        return self._inner

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        if not self.recursive:
            return self.inner.schema(definitions)
        if self.name not in definitions:
            definitions[self.name] = {}  # holds the place while the definition refers to itself
            definitions[self.name].update(self.inner.schema(definitions))
        return {"$ref": f"#/$defs/{self.name}"}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        return self.inner.read(value, path, reading)

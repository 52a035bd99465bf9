"""What a user's class is made of: its kind, its fields in order, and the JSON form of constants in annotations and defaults."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import json
import math
import sys
import typing
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import msgspec

REQUIRED: Final[Any] = object()
HIDDEN: Final[Any] = object()
_MAX_DEFAULT_CHARS = 1_000
_QUALIFIERS = ("NotRequired", "Required")


class Member(NamedTuple):
    """One field of a class: Python name, JSON key, raw annotation, the class that carries it, and its default.

    The default is REQUIRED, HIDDEN (optional, but no value to show) or the value itself.
    """

    name: str
    key: str
    annotation: Any
    owner: type
    default: Any


def is_record(cls: Any) -> bool:
    """Whether a class is one of the kinds with fields, pydantic models apart."""
    if dataclasses.is_dataclass(cls) or is_typeddict(cls) or is_namedtuple(cls):
        return True
    return issubclass(cls, msgspec.Struct)


def is_typeddict(cls: Any) -> bool:
    """Whether a class is a TypedDict, of typing or of typing_extensions."""
    return typing.is_typeddict(cls) or (issubclass(cls, dict) and hasattr(cls, "__required_keys__"))


def is_namedtuple(cls: Any) -> bool:
    """Whether a class is a named tuple."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_pydantic(cls: Any) -> bool:
    """Whether a class is a pydantic model; if pydantic was never imported, none is."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def own_doc(cls: Any) -> str | None:
    """Return the docstring that a class's author wrote: none for inherited and generated ones."""
    doc = vars(cls).get("__doc__")
    generated = doc is None or doc.startswith((f"{cls.__name__}(", "dict() -> new"))
    return None if generated else doc


def members(cls: Any) -> Iterator[Member]:
    """Yield the fields that building an object of a class takes."""
    owners = _annotations(cls)
    if issubclass(cls, msgspec.Struct):
        found = _struct_members(cls)
    elif is_typeddict(cls):
        found = ((name, name, _typeddict_default(cls, name, owners[name][0])) for name in cls.__annotations__)
    else:
        found = ((name, name, _parameter_default(parameter)) for name, parameter in inspect.signature(cls).parameters.items())
    for name, key, default in found:
        annotation, owner = owners.get(name, (Any, cls))
        yield Member(name, key, annotation, owner, default)


def _annotations(cls: Any) -> dict[str, tuple[Any, type]]:
    bases = [cls] if is_typeddict(cls) else reversed(cls.__mro__)  # a TypedDict carries its bases' annotations
    return {name: (annotation, base) for base in bases for name, annotation in inspect.get_annotations(base).items()}


def _struct_members(cls: Any) -> Iterator[tuple[str, str, Any]]:
    names, keys, defaults = cls.__struct_fields__, cls.__struct_encode_fields__, cls.__struct_defaults__
    optional = len(names) - len(defaults)  # defaults stand for the last fields, NODEFAULT among them
    for number, (name, key) in enumerate(zip(names, keys, strict=True)):
        default = defaults[number - optional] if number >= optional else msgspec.NODEFAULT
        if default is msgspec.NODEFAULT:
            yield name, key, REQUIRED
        else:
            factory = type(default).__name__ == "Factory" or default is msgspec.UNSET
            yield name, key, HIDDEN if factory else default


def _typeddict_default(cls: Any, name: str, annotation: Any) -> Any:
    """Read requiredness; a qualifier that stands as text was not seen by the class itself."""
    text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else str(annotation)
    head = text.split("[", 1)[0].rsplit(".", 1)[-1]
    required = head == "Required" if head in _QUALIFIERS else name in cls.__required_keys__
    return REQUIRED if required else HIDDEN


def _parameter_default(parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return REQUIRED
    made_per_call = type(parameter.default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"  # dataclasses' own mark
    return HIDDEN if made_per_call else parameter.default


def constant(value: Any) -> Any:
    """Return the JSON form of a Literal's or an Enum's value: a scalar as it is, else a member's name.

    Raises:
        ValueError: There is none.
    """
    inner = value.value if isinstance(value, enum.Enum) else value
    if inner is None or isinstance(inner, bool | int | str) or (isinstance(inner, float) and math.isfinite(inner)):
        return inner
    if isinstance(value, enum.Enum):
        return value.name
    raise ValueError(f"Literal[{value!r}] has no JSON form")


def json_default(value: Any) -> dict[str, Any]:
    """Return ``{"default": ...}`` for a default that JSON can show in short, else nothing."""
    try:
        shown = _json_value(value)
        text = json.dumps(shown, allow_nan=False)
        text.encode()
        json.dumps(shown, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return {}
    return {"default": shown} if len(text) <= _MAX_DEFAULT_CHARS else {}


def _json_value(value: Any) -> Any:
    """Return the JSON form of a default; TypeError where there is none."""
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, enum.Flag) else constant(value)
    if isinstance(value, dt.date | PurePath):  # datetime is a date
        return str(value) if isinstance(value, PurePath) else value.isoformat()
    if type(value) in {list, tuple}:
        return [_json_value(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _json_value(item) for key, item in value.items()}
    raise TypeError

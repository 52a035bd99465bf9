"""Constraints and descriptions out of ``Annotated``: shown in the schema and checked after conversion.

Metadata is read by what it offers (``ge``, ``pattern``, ``min_length``, ``description``, ...), so msgspec.Meta, annotated-types,
pydantic's Field and typing's Doc are understood alike and none of them is imported. As in JSON Schema, a bound speaks of numbers, a pattern of text,
a length of what has one: a value of another kind (the None of an optional) passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from numbers import Number
from typing import Any

from msgspec import Struct

from agent_kernel.tools.convert import FAILED, Definitions, Reading, Shape, shown

_LENGTH_WORDS = {"string": "Length", "array": "Items", "object": "Properties"}
_BOUNDS: dict[str, tuple[str, str, Callable[[Any, Any], bool]]] = {
    "ge": ("minimum", ">=", lambda value, bound: value >= bound),
    "gt": ("exclusiveMinimum", ">", lambda value, bound: value > bound),
    "le": ("maximum", "<=", lambda value, bound: value <= bound),
    "lt": ("exclusiveMaximum", "<", lambda value, bound: value < bound),
}


class Notes(Struct, frozen=True, kw_only=True):
    """What ``Annotated`` says about one value."""

    description: str | None = None
    extra: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    multiple_of: Any = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    checks: tuple[tuple[str, Callable[[Any], Any]], ...] = ()

    @property
    def constrains(self) -> bool:
        """Whether a value can break any of it."""
        lengths = self.min_length is not None or self.max_length is not None
        return bool(self.bounds or self.checks or lengths or self.multiple_of is not None or self.pattern is not None)


def read_notes(metadata: Iterable[Any]) -> Notes:
    """Gather what the metadata of one ``Annotated`` says; the last word on a subject wins."""
    found: dict[str, Any] = {"extra": {}, "bounds": {}, "checks": ()}
    for item in _flat(metadata):
        if isinstance(item, str):
            found["description"] = item
            continue
        for name in ("multiple_of", "pattern", "min_length", "max_length", "description"):
            _take(found, name, getattr(item, name, None))
        _take(found, "description", getattr(item, "documentation", None))
        for name in _BOUNDS:
            _take(found["bounds"], name, getattr(item, name, None))
        for name in ("title", "examples"):
            _take(found["extra"], name, getattr(item, name, None))
        extra = getattr(item, "extra_json_schema", None)
        found["extra"].update(extra if isinstance(extra, dict) else {})
        check = getattr(item, "func", None)  # annotated_types.Predicate
        if callable(check):
            found["checks"] += ((f"must satisfy {getattr(check, '__name__', check)}", check),)
    pattern = found.get("pattern")
    if pattern is not None:
        found["pattern"] = re.compile(getattr(pattern, "pattern", pattern)).pattern
    return Notes(**found)


def _take(found: dict[str, Any], name: str, value: Any) -> None:
    if value is not None and not callable(value):
        found[name] = value


def _flat(metadata: Iterable[Any]) -> Iterable[Any]:
    """Unfold pydantic's Field, whose constraints sit in a list of their own."""
    for item in metadata:
        yield item
        inner = getattr(item, "metadata", None)
        if isinstance(inner, list):
            yield from inner


class Constrained(Shape):
    """A shape whose values must also keep some constraints."""

    def __init__(self, inner: Shape, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes
        self.words = inner.words
        self.kinds = inner.kinds
        self.described = notes.description is not None or inner.described

    def schema(self, definitions: Definitions) -> dict[str, Any]:  # noqa: D102
        notes = self._notes
        words: dict[str, Any] = {_BOUNDS[name][0]: bound for name, bound in notes.bounds.items() if isinstance(bound, Number)}
        if isinstance(notes.multiple_of, Number):
            words["multipleOf"] = notes.multiple_of
        if notes.pattern is not None:
            words["pattern"] = notes.pattern
        for kind in sorted(self.kinds & _LENGTH_WORDS.keys()):
            if notes.min_length:
                words[f"min{_LENGTH_WORDS[kind]}"] = notes.min_length
            if notes.max_length is not None:
                words[f"max{_LENGTH_WORDS[kind]}"] = notes.max_length
        described = {} if notes.description is None else {"description": notes.description}
        return {**self._inner.schema(definitions), **words, **notes.extra, **described}

    def read(self, value: Any, path: str, reading: Reading) -> Any:  # noqa: D102
        result = self._inner.read(value, path, reading)
        if result is FAILED:
            return FAILED
        broken = self._broken(result)
        return result if broken is None else reading.fail(path, f"{broken}, got {shown(value)}")

    def _broken(self, value: Any) -> str | None:
        """Name the first constraint that the converted value breaks."""
        return self._broken_bound(value) or self._broken_form(value)

    def _broken_bound(self, value: Any) -> str | None:
        if value is None or isinstance(value, str | bytes | bool | list | tuple | set | frozenset | dict):
            return None
        for name, bound in self._notes.bounds.items():
            _, sign, holds = _BOUNDS[name]
            try:
                held = holds(value, bound)
            except TypeError as error:
                return f"must be {sign} {bound}, which cannot be checked ({error})"
            if not held:
                return f"must be {sign} {bound}"
        step = self._notes.multiple_of
        if step is not None and isinstance(value, int | float) and not _is_multiple(value, step):
            return f"must be a multiple of {step}"
        return None

    def _broken_form(self, value: Any) -> str | None:
        notes = self._notes
        if isinstance(value, str) and notes.pattern is not None and not re.search(notes.pattern, value):
            return f"must match the pattern {notes.pattern}"
        if hasattr(value, "__len__"):
            if notes.min_length is not None and len(value) < notes.min_length:
                return f"must have a length of at least {notes.min_length}"
            if notes.max_length is not None and len(value) > notes.max_length:
                return f"must have a length of at most {notes.max_length}"
        for words, check in notes.checks:
            try:
                held = check(value)
            except Exception as error:  # the user's own predicate
                return f"{words} ({type(error).__name__}: {error})"
            if not held:
                return words
        return None


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    quotient = value / step
    return abs(quotient - round(quotient)) < 1e-9  # 0.3 is a multiple of 0.1, whatever floats say

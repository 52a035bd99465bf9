"""From an annotation to the Shape that describes and reads it.

Built once, at decoration; what has no description raises ``Undescribable`` here and never later. Records and alias types are known by
name, so they may contain themselves. pydantic is only looked at if the user has imported it.
"""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Sequence
from dataclasses import InitVar
from itertools import count
from pathlib import PurePath
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin

import msgspec

from agent_kernel.tools import leaves
from agent_kernel.tools.constraints import Constrained, read_notes
from agent_kernel.tools.convert import AnyShape, ArrayShape, Choice, FlagChoice, Leaf, MappingShape, Shape, TupleShape, UnionShape
from agent_kernel.tools.docstrings import parse_docstring
from agent_kernel.tools.members import HIDDEN, REQUIRED, constant, is_pydantic, is_record, json_default, members, own_doc
from agent_kernel.tools.namespaces import Namespace, Undescribable
from agent_kernel.tools.records import Field, Fields, Named, PydanticModel, Record

_LISTS = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Reversible, abc.Container})
_SETS: dict[Any, Callable[[Any], Any]] = {set: set, abc.MutableSet: set, abc.Set: set, frozenset: frozenset}
_DICTS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_REFUSED = "cannot be described to a model; use str, int, float, bool, list, dict, an Enum, a dataclass or the like"
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})  # by name: typing_extensions has its own of some

Vars = dict[Any, Any]


def _leaves() -> dict[Any, Leaf]:
    text = {"type": "string"}
    return {
        str: Leaf("a string", text, leaves.read_str),
        int: Leaf("an integer", {"type": "integer"}, leaves.read_int),
        float: Leaf("a number", {"type": "number"}, leaves.read_float),
        bool: Leaf("true or false", {"type": "boolean"}, leaves.read_bool),
        type(None): Leaf("null", {"type": "null"}, leaves.read_none),
        bytes: Leaf("base64 text", {**text, "contentEncoding": "base64"}, leaves.read_bytes),
        dt.datetime: Leaf("an ISO 8601 date and time", {**text, "format": "date-time"}, leaves.read_datetime),
        dt.date: Leaf("an ISO 8601 date", {**text, "format": "date"}, leaves.read_date),
    }


class Describer:
    """Makes shapes for the annotations of one tool."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._leaves = _leaves()
        self._named: dict[Any, Named] = {}
        self._open: set[Any] = set()

    def shape(self, annotation: Any, variables: Vars | None = None) -> Shape:  # noqa: PLR0911 - one return per kind of annotation
        """Return the shape of a resolved annotation.

        Args:
            annotation: What ``Namespace.resolve`` returned, or a part of it.
            variables: What type variables stand for here.

        Raises:
            Undescribable: No schema of ours describes it.
        """
        variables = variables or {}
        if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
            return AnyShape()
        if isinstance(annotation, str | typing.ForwardRef):
            return self._forward(annotation if isinstance(annotation, str) else annotation.__forward_arg__)
        if isinstance(annotation, NewType):
            return self.shape(annotation.__supertype__, variables)
        if isinstance(annotation, TypeVar):
            return self._variable(annotation, variables)
        if type(annotation).__name__ == "TypeAliasType":  # from typing (3.12) or typing_extensions
            return self._by_name(annotation, annotation.__name__, lambda: self.shape(annotation.__value__, variables))
        if get_origin(annotation) is not None:
            return self._generic(annotation, variables)
        if annotation is None:
            return self._leaves[type(None)]
        return self._class(annotation, (), variables)

    def _generic(self, annotation: Any, variables: Vars) -> Shape:
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is typing.Annotated:
            return self._annotated(annotation, variables)
        if origin is Union or origin is types.UnionType:
            return _union([self.shape(arg, variables) for arg in args])
        if origin is Literal:
            return _literal(args)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.shape(args[0], variables)
        if type(origin).__name__ == "TypeAliasType":
            known = dict(zip(origin.__type_params__, args, strict=False))
            return self._by_name(annotation, origin.__name__, lambda: self.shape(origin.__value__, known))
        return self._class(origin, args, variables)

    def _annotated(self, annotation: Any, variables: Vars) -> Shape:
        try:
            notes = read_notes(annotation.__metadata__)
        except Exception as error:  # a pattern that does not compile, or foreign metadata that raises
            raise Undescribable(f"its constraints cannot be read ({type(error).__name__}: {error})") from error
        inner = self.shape(annotation.__origin__, variables)
        return Constrained(inner, notes) if notes.constrains or notes.description or notes.extra else inner

    def _class(self, cls: Any, args: tuple[Any, ...], variables: Vars) -> Shape:
        if not isinstance(cls, abc.Hashable):
            raise Undescribable(f"{cls!r} {_REFUSED}")
        if cls in self._leaves:
            return self._leaves[cls]
        if cls in _LISTS or cls in _SETS or cls in _DICTS or cls is tuple:
            return self._container(cls, args, [self.shape(arg, variables) for arg in args if arg is not Ellipsis])
        if isinstance(cls, type):
            return self._own_class(cls, args, variables)
        raise Undescribable(f"{_name(cls)} {_REFUSED}")

    def _container(self, cls: Any, args: tuple[Any, ...], items: list[Shape]) -> Shape:
        first = items[0] if items else AnyShape()
        if cls in _LISTS:
            return ArrayShape(first, list)
        if cls in _SETS:
            return ArrayShape(first, _SETS[cls], unique=True)
        if cls in _DICTS:
            return MappingShape(first, items[1] if items else first)
        if Ellipsis in args or not items:
            return ArrayShape(first, tuple)
        return TupleShape(items)

    def _own_class(self, cls: type, args: tuple[Any, ...], variables: Vars) -> Shape:
        if issubclass(cls, PurePath):
            return Leaf("a path", {"type": "string", "format": "path"}, leaves.path_reader(cls))
        if issubclass(cls, enum.Flag):
            return FlagChoice(cls)
        if issubclass(cls, enum.Enum):
            return Choice([(constant(member), member) for member in cls])
        if is_pydantic(cls):
            return self._pydantic(cls, args)
        if is_record(cls):
            known = {name: variables.get(arg, arg) for name, arg in zip(getattr(cls, "__parameters__", ()), args, strict=False)}
            return self._by_name((cls, tuple(known.items())), cls.__name__, lambda: self._record(cls, known))
        raise Undescribable(f"{_name(cls)} {_REFUSED}")

    def _pydantic(self, cls: Any, args: tuple[Any, ...]) -> Shape:
        try:
            return PydanticModel(cls[args] if args else cls)  # a generic model makes a class per argument
        except Exception as error:  # pydantic has several of its own for what it cannot describe
            raise Undescribable(f"pydantic cannot describe {cls.__name__} ({error})") from error

    def _by_name(self, key: Any, name: str, build: Callable[[], Shape]) -> Shape:
        """Build a named shape once; meeting it again while it is being built makes it recursive."""
        known = self._named.get(key)
        if known is not None:
            known.recursive |= key in self._open
            return known
        taken = {named.name for named in self._named.values()}
        unique = next(candidate for number in count(1) if (candidate := name if number == 1 else f"{name}{number}") not in taken)
        named = self._named[key] = Named(unique)
        self._open.add(key)
        named.close(build())
        self._open.discard(key)
        return named

    def _forward(self, text: str) -> Shape:
        return self._by_name(("forward", text), text, lambda: self.shape(self._namespace.resolve(text)))

    def _variable(self, variable: TypeVar, variables: Vars) -> Shape:
        if variable in variables:
            return self.shape(variables[variable])
        if variable.__constraints__:
            return _union([self.shape(item) for item in variable.__constraints__])
        return AnyShape() if variable.__bound__ is None else self.shape(self._namespace.resolve(variable.__bound__))

    def _record(self, cls: Any, variables: Vars) -> Record:
        docs = parse_docstring(own_doc(cls))
        fields = []
        for member in members(cls):
            try:
                annotation = self._namespace.resolve(member.annotation, member.owner)
                annotation = annotation.type if isinstance(annotation, InitVar) else annotation
                shape = self.shape(annotation, variables)
            except Undescribable as error:
                raise Undescribable(f"field {member.name!r} of {cls.__name__}: {error}") from error
            fields.append(self.field(member.name, shape, member.default, docs.parameters.get(member.name), key=member.key))
        tag = _tag(cls)
        return Record(cls, Fields(fields, tag=tag), words=f"a {cls.__name__} object", description=docs.text or None)

    def field(self, name: str, shape: Shape, default: Any, description: str | None, *, key: str | None = None) -> Field:
        """Return one named place of an object.

        Args:
            name: The Python name.
            shape: What it accepts; null too, if that is the default.
            default: REQUIRED, HIDDEN (optional, not shown) or the value.
            description: What a docstring says of it; the annotation's own word goes first.
            key: The JSON name, if it is another.
        """
        if default is None and "null" not in shape.kinds:
            shape = UnionShape([shape, self._leaves[type(None)]])
        notes = {} if default is REQUIRED or default is HIDDEN else json_default(default)
        return Field(name=name, key=key or name, shape=shape, required=default is REQUIRED, description=description, notes=notes)


def _union(members_of_union: Sequence[Shape]) -> Shape:
    return members_of_union[0] if len(members_of_union) == 1 else UnionShape(members_of_union)


def _literal(values: Sequence[Any]) -> Choice:
    try:
        return Choice([(constant(value), value) for value in values])
    except ValueError as error:
        raise Undescribable(str(error)) from error


def _tag(cls: Any) -> tuple[str, str | int] | None:
    """Return a tagged Struct's tag field and tag."""
    config = cls.__struct_config__ if issubclass(cls, msgspec.Struct) else None
    return None if config is None or config.tag_field is None else (config.tag_field, config.tag)


def _name(cls: Any) -> str:
    return getattr(cls, "__name__", None) or repr(cls)

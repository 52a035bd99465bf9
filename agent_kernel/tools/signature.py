"""A callable's signature as a tool has it: described parameters, injected contexts, and how converted values become a Python call.

Everything is worked out once, at decoration. What the callable is made of (partial, method, object, decorated function) is taken apart here
and nowhere else.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Annotated, Any, Final, Union, get_args, get_origin

from agent_kernel.errors import InvalidArguments, ToolError
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.convert import FAILED, ArrayShape, Reading, Shape
from agent_kernel.tools.docstrings import Docs, parse_docstring
from agent_kernel.tools.members import HIDDEN, REQUIRED
from agent_kernel.tools.namespaces import Namespace, Undescribable
from agent_kernel.tools.records import Field, Fields
from agent_kernel.tools.schema import Describer

CONTEXT: Final[Any] = object()
"""Stands in a bound call where the ToolContext goes."""
_MAX_PROBLEMS = 30
_SPREAD = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def inner_function(call: Any) -> Any:
    """Return the function at the core of a callable: behind partials, methods, decorators and ``__call__``."""
    while True:
        if isinstance(call, functools.partial):
            call = call.func
        elif isinstance(call, types.MethodType | staticmethod | classmethod):
            call = call.__func__
        elif hasattr(call, "__wrapped__"):
            call = call.__wrapped__
        elif inspect.isroutine(call) or isinstance(call, type):
            return call
        else:
            call = type(call).__call__


def runs_on_loop(call: Any) -> bool:
    """Whether calling it gives a coroutine or an async generator."""
    while isinstance(call, functools.partial):
        call = call.func
    known = getattr(call, "is_async", None)
    if isinstance(known, bool):  # a partial of a Tool
        return known
    if not (inspect.isroutine(call) or isinstance(call, type)):
        call = getattr(type(call), "__call__", call)  # noqa: B004 - the method itself is wanted
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def documentation(call: Any) -> Docs:
    """Return the docstring of a callable, taken apart."""
    while isinstance(call, functools.partial):
        call = call.func
    own = getattr(call, "__doc__", None)
    if not (inspect.isroutine(call) or isinstance(call, type)):
        own = getattr(type(call).__call__, "__doc__", None) or own
    return parse_docstring(own if isinstance(own, str) else None)


class Signature:
    """The parameters of one callable, described."""

    def __init__(self, call: Callable[..., Any], name: str, docs: Docs) -> None:
        """Describe each parameter.

        Raises:
            ToolError: One of them cannot be described; the text names it.
        """
        self._parameters = _parameters(call, name)
        self.contexts: frozenset[str] = frozenset()
        self._defaults: dict[str, Any] = {}
        fields: list[Field] = []
        extra: Shape | None = None
        namespace = Namespace(inner_function(call), last={"ToolContext": ToolContext})
        describer = Describer(namespace)
        for parameter in self._parameters:
            try:
                annotation = namespace.resolve(parameter.annotation)
                if _is_context(annotation) and parameter.kind not in _SPREAD:
                    self.contexts |= {parameter.name}
                    continue
                shape = describer.shape(annotation)
            except Exception as error:  # annotations are the user's code; most often an Undescribable of our own
                why = str(error) if isinstance(error, Undescribable) else f"{type(error).__name__}: {error}"
                raise ToolError(f"The tool {name!r} cannot be described: parameter {parameter.name!r}: {why}") from error
            if parameter.kind is Parameter.VAR_KEYWORD:
                extra = shape
                continue
            fields.append(self._field(describer, parameter, shape, docs))
        self.fields = Fields(fields, extra=extra)

    def _field(self, describer: Describer, parameter: Parameter, shape: Shape, docs: Docs) -> Field:
        name, default = parameter.name, parameter.default
        if parameter.kind is Parameter.VAR_POSITIONAL:
            shape, default = ArrayShape(shape, tuple), HIDDEN
        elif default is Parameter.empty:
            default = REQUIRED
        else:
            self._defaults[name] = default
        return describer.field(name, shape, default, docs.parameters.get(name))

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments object."""
        definitions: dict[str, dict[str, Any]] = {}
        schema = self.fields.schema(definitions)
        return {**schema, "$defs": definitions} if definitions else schema

    def read(self, tool_name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return converted values by parameter name, and those for ``**kwargs``.

        Raises:
            InvalidArguments: Names everything that is unknown, missing or does not fit.
        """
        reading = Reading()
        try:
            result = self.fields.read(dict(arguments), "", reading)
        except RecursionError:
            reading.fail("", "they are nested too deeply")
            result = FAILED
        if result is FAILED:
            raise invalid(tool_name, reading.problems)
        named, extra = result
        return named, extra

    def defaults(self) -> dict[str, Any]:
        """Return the default values by parameter name."""
        return dict(self._defaults)

    def arrange(self, named: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of the call, with CONTEXT where the context goes."""
        given = {**named, **dict.fromkeys(self.contexts, CONTEXT)}
        rest = next((parameter.name for parameter in self._parameters if parameter.kind is Parameter.VAR_POSITIONAL), None)
        spread = tuple(given.get(rest, ())) if rest is not None else ()
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        last = self._last_by_place(given, spread=bool(spread))
        for number, parameter in enumerate(self._parameters):
            if parameter.kind in _BY_PLACE and number <= last:
                args.append(given.get(parameter.name, parameter.default))
            elif parameter.name in given and parameter.name != rest:
                keywords[parameter.name] = given[parameter.name]
        return (*args, *spread), {**keywords, **extra}

    def _last_by_place(self, given: Mapping[str, Any], *, spread: bool) -> int:
        """Return the index of the last parameter that must be passed by place."""
        kinds = _BY_PLACE if spread else (Parameter.POSITIONAL_ONLY,)
        wanted = [number for number, item in enumerate(self._parameters) if item.kind in kinds and (spread or item.name in given)]
        return wanted[-1] if wanted else -1

    def __str__(self) -> str:
        return ", ".join(str(parameter) for parameter in self._parameters)


def invalid(tool_name: str, problems: list[str]) -> InvalidArguments:
    """Return the one error that names all problems of a call's arguments."""
    shown = "; ".join(problems[:_MAX_PROBLEMS])
    more = len(problems) - _MAX_PROBLEMS
    return InvalidArguments(f"The arguments of {tool_name} do not fit: {shown}{f'; and {more} more' if more > 0 else ''}.")


def _parameters(call: Callable[..., Any], name: str) -> list[Parameter]:
    """Return the parameters that a model may give; what a partial has bound by keyword is not among them."""
    try:
        signature = inspect.signature(call)
    except (ValueError, TypeError, NameError) as error:
        raise ToolError(f"The tool {name!r} cannot be described: its signature cannot be read ({error}); give parameters=, a JSON Schema.") from error
    bound: set[str] = set()
    inner: Any = call
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = inner.func
    return [parameter for parameter in signature.parameters.values() if parameter.name not in bound]


def _is_context(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(annotation.__origin__)
    if origin is Union or origin is types.UnionType:
        return any(_is_context(arg) for arg in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def context_names(call: Callable[..., Any]) -> frozenset[str]:
    """Return which parameters of a callable are annotated ToolContext; what cannot be read is none."""
    try:
        parameters = _parameters(call, "")
        namespace = Namespace(inner_function(call), last={"ToolContext": ToolContext})
    except ToolError:
        return frozenset()
    found = set()
    for parameter in parameters:
        try:
            if _is_context(namespace.resolve(parameter.annotation)):
                found.add(parameter.name)
        except Undescribable:
            continue
    return frozenset(found)


def accepted_names(call: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that a callable takes as keywords; None if any."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (ValueError, TypeError, NameError):
        return None
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)

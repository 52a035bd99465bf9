"""What a tool is: a callable, the words that a model reads about it, and the rules by which it may run.

A Tool never runs anything by itself: ``bind`` turns a model's arguments into a BoundCall without any effect, and agent/ decides where
and when that runs. A decorated function stays the function that it was.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args, overload

from agent_kernel.errors import InvalidArguments, ToolError
from agent_kernel.protocol.request import ToolSpec
from agent_kernel.tools.clean import clean_text
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.given import GivenSchema
from agent_kernel.tools.serialise import collect
from agent_kernel.tools.signature import CONTEXT, Signature, documentation, runs_on_loop

Approve = Literal["allow", "ask", "deny"]
RunsOn = Literal["auto", "main", "kernel_loop"]
Key = str | Callable[..., Any] | None
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what the Chat Completions API takes
DEFAULT_TOOL_TIMEOUT = 60.0


class Tool:
    """A described callable.

    Attributes:
        name: Letters, digits, ``_`` and ``-``, at most 64.
        description: What a model reads: the docstring without its parameter sections.
        parameters: JSON Schema (2020-12) of the arguments object.
        call: The callable itself.
        serial: Runs alone: later calls of a round wait for it, it waits for earlier ones.
        key: Calls of one key run one after another; a string, or a function of converted arguments by name (it is given those it takes).
        timeout: Seconds, or None for no limit.
        approve: Whether a person is asked before it runs.
        runs_on: ``auto`` (a thread; the turn's loop if async), ``main`` (the kernel's main thread) or ``kernel_loop``.
        is_async: Whether calling it gives a coroutine or an async generator.
    """

    def __init__(
        self,
        *,
        call: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        serial: bool = False,
        key: Key = None,
        timeout: float | None = DEFAULT_TOOL_TIMEOUT,
        approve: Approve = "allow",
        runs_on: RunsOn = "auto",
    ) -> None:
        """Describe a callable.

        Args:
            call: Sync or async.
            name: None: the callable's own.
            description: None: its docstring.
            parameters: A ready JSON Schema, whose arguments are passed as keywords as they are; None: described by its annotations.
            serial: See the class.
            key: See the class.
            timeout: See the class.
            approve: See the class.
            runs_on: See the class.

        Raises:
            ToolError: It cannot be described; the text names the parameter.
            ValueError: An option has no such value.
        """
        self._options: dict[str, Any] = {"serial": serial, "key": key, "timeout": timeout, "approve": approve, "runs_on": runs_on}
        _check_options(self._options)
        if isinstance(call, Tool):  # described anew, under other options
            parameters, call = call._given if parameters is None else parameters, call.call  # noqa: SLF001 - another Tool
        self._given: Mapping[str, Any] | None = parameters
        self._bindable = call if parameters is None else None  # what __get__ binds, as for a plain function
        call = call.__func__ if isinstance(call, staticmethod | classmethod) else call
        if not callable(call):
            raise ToolError(f"A tool is made of a function or another callable; {call!r} is none.")
        docs = documentation(call)
        self.call: Callable[..., Any] = call
        self.name = _checked_name(name, call)
        self._described = description
        self.description = clean_text(docs.text if description is None else description)
        self._signature = Signature(call, self.name, docs) if parameters is None else GivenSchema(call, self.name, parameters)
        self.parameters = self._signature.schema()
        self.serial = serial
        self.key = key
        self.timeout = timeout
        self.approve: Approve = approve
        self.runs_on: RunsOn = runs_on
        self.is_async = runs_on_loop(call)
        functools.update_wrapper(cast("Callable[..., Any]", self), call, updated=())

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    def bind(self, arguments: Mapping[str, Any]) -> BoundCall:
        """Convert a model's arguments, without any effect.

        Raises:
            InvalidArguments: Names all that is unknown, missing or does not fit, each with its path.
        """
        named, extra = self._signature.read(self.name, arguments)
        return BoundCall(self, named, extra, self._signature)

    def same_as(self, other: Tool) -> bool:
        """Whether both are the same callable under the same options."""
        mine = (self.call, self.name, self.description, self.parameters, self._options)
        return self is other or mine == (other.call, other.name, other.description, other.parameters, other._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it is: nothing is converted or injected."""
        return self.call(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Tool:
        """Bind a tool that was defined as a method; its first parameter is then not the model's business."""
        call: Any = self._bindable
        binds_class = isinstance(call, classmethod)
        if (instance is None and not binds_class) or isinstance(call, staticmethod) or not hasattr(call, "__get__"):
            return self
        bound = call.__get__(instance, owner)
        if bound is call:
            return self
        return Tool(call=bound, name=self.name, description=self._described, **self._options)

    def __repr__(self) -> str:
        return f"<Tool {self.name}({self._signature})>"


class BoundCall:
    """A tool with converted arguments, ready to run.

    Attributes:
        tool: The tool.
        values: The given arguments, converted, by parameter name; those for ``**kwargs`` by their own names.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call.
    """

    def __init__(self, bound_tool: Tool, named: dict[str, Any], extra: dict[str, Any], signature: Signature | GivenSchema) -> None:
        self.tool = bound_tool
        self.values = {**extra, **named}
        self.args, self.kwargs = signature.arrange(named, extra)
        self._defaults = signature.defaults()

    @functools.cached_property
    def key(self) -> str | None:
        """The key under which the call is serial, or None.

        Raises:
            InvalidArguments: The tool's key function raised.
        """
        key = self.tool.key
        if key is None or isinstance(key, str):
            return key
        try:
            return str(key(**_taken(key, {**self._defaults, **self.values})))
        except Exception as error:  # the user's own function
            raise InvalidArguments(f"The key function of {self.tool.name} failed: {type(error).__name__}: {error}") from error

    def run(self, context: ToolContext) -> Any:
        """Call the callable, with the context where it is asked for; return its value, coroutine or async generator as it is.

        A sync generator is drained here, so that its body is the call: ``collect`` has the rule.
        """
        args = [context if arg is CONTEXT else arg for arg in self.args]
        kwargs = {name: context if value is CONTEXT else value for name, value in self.kwargs.items()}
        value = self.tool.call(*args, **kwargs)
        return collect(value, context) if isinstance(value, types.GeneratorType) else value


@overload
def tool(f: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    f: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    serial: bool = False,
    key: Key = None,
    timeout: float | None = DEFAULT_TOOL_TIMEOUT,
    approve: Approve = "allow",
    runs_on: RunsOn = "auto",
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    f: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    serial: bool = False,
    key: Key = None,
    timeout: float | None = DEFAULT_TOOL_TIMEOUT,
    approve: Approve = "allow",
    runs_on: RunsOn = "auto",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, method, partial or callable object; with or without options. ``Tool`` explains them.

    Raises:
        ToolError: It cannot be described; the text names the parameter.
        ValueError: An option has no such value.
    """
    options: dict[str, Any] = {"serial": serial, "key": key, "timeout": timeout, "approve": approve, "runs_on": runs_on}
    _check_options(options)

    def decorate(call: Callable[..., Any]) -> Tool:
        return Tool(call=call, name=name, description=description, **options)

    return decorate if f is None else decorate(f)


def as_tool(item: Any) -> Tool:
    """Return a Tool as it is, and any other callable as a Tool.

    Raises:
        ToolError: It is no callable, or cannot be described.
    """
    if isinstance(item, Tool):
        return item
    if isinstance(item, types.MethodType) and isinstance(item.__func__, Tool):  # a classmethod around a tool, from Python 3.13 on
        return item.__func__.__get__(item.__self__)
    return Tool(call=item)


def _check_options(options: Mapping[str, Any]) -> None:
    timeout, key = options["timeout"], options["key"]
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout is a number of seconds above 0, or None; not {timeout!r}")
    if key is not None and not isinstance(key, str) and not callable(key):
        raise ValueError(f"key is a string, a function of the arguments, or None; not {key!r}")
    if not isinstance(options["serial"], bool):
        raise ValueError(f"serial is True or False; not {options['serial']!r}")  # noqa: TRY004 - all options speak alike
    for option, allowed in (("approve", get_args(Approve)), ("runs_on", get_args(RunsOn))):
        if options[option] not in allowed:
            raise ValueError(f"{option} is one of {', '.join(allowed)}; not {options[option]!r}")


def _checked_name(name: Any, call: Any) -> str:
    if name is not None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"A tool's name has 1 to 64 letters, digits, _ or -; not {name!r}")
        return name
    inner = call
    while isinstance(inner, functools.partial):
        inner = inner.func
    own = str(getattr(inner, "__name__", type(inner).__name__))
    if not _NAME.fullmatch(own):
        raise ToolError(f"{own!r} is no name for a tool (letters, digits, _ or -); give name=.")
    return own


def _taken(key: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a key function takes by name."""
    try:
        parameters = inspect.signature(key).parameters.values()
    except (ValueError, TypeError):
        return values
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return values
    return {parameter.name: values[parameter.name] for parameter in parameters if parameter.name in values}

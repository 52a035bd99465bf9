"""Where the names in an annotation are looked up, annotations as text included.

A name is sought in the class that carries it, its module, the function's closure, the locals of the frame that makes the tool (local
classes under ``from __future__ import annotations``), and the function's globals, in this order. Frames are read, never kept.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any


class Undescribable(Exception):
    """An annotation that no JSON Schema of ours describes; the text says which and why. Never leaves tools/."""


class Namespace:
    """The names that a function's annotations may use."""

    def __init__(self, function: Callable[..., Any], *, last: Mapping[str, Any]) -> None:
        self._globals: dict[str, Any] = getattr(function, "__globals__", None) or _module_names(getattr(function, "__module__", None))
        self._scopes: list[Mapping[str, Any]] = [_closure(function), *_caller_scopes(), self._globals, last]

    def resolve(self, annotation: Any, owner: type | None = None) -> Any:
        """Return an annotation with all its text evaluated.

        Raises:
            Undescribable: A name cannot be found, or the text is no expression.
        """

        def carrier() -> None: ...

        carrier.__annotations__ = {"it": annotation}
        scopes: list[Mapping[str, Any]] = list(self._scopes)
        if owner is not None:
            scopes = [{owner.__name__: owner}, _module_names(owner.__module__), *scopes]
        try:
            return typing.get_type_hints(carrier, self._globals, ChainMap(*map(_as_dict, scopes)), include_extras=True)["it"]
        except NameError as error:
            raise Undescribable(f"its annotation uses a name that cannot be found here: {error}") from error
        except Exception as error:  # evaluating a user's expression can raise anything
            raise Undescribable(f"its annotation {annotation!r} cannot be evaluated ({type(error).__name__}: {error})") from error


def _as_dict(scope: Mapping[str, Any]) -> dict[str, Any]:
    return scope if isinstance(scope, dict) else dict(scope)


def _module_names(name: str | None) -> dict[str, Any]:
    return vars(sys.modules[name]) if name in sys.modules else {}


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    if not inspect.isfunction(function):
        return {}
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable that gets its value later
            found[name] = cell.cell_contents
    return found


def _caller_scopes() -> list[Mapping[str, Any]]:
    """Return the locals of the functions around the code that makes the tool, innermost first."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the only way to a local class that an annotation names as text
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("agent_kernel."):
        frame = frame.f_back
    scopes: list[Mapping[str, Any]] = []
    while frame is not None and frame.f_locals is not frame.f_globals and len(scopes) < 3:  # a class body in a function in a function
        scopes.append(frame.f_locals)
        frame = frame.f_back
    return scopes

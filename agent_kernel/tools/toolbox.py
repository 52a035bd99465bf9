"""A named set of tools, in the order they were added."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from agent_kernel.errors import ToolError, UnknownTool
from agent_kernel.protocol.request import ToolSpec
from agent_kernel.tools.tool import Tool, as_tool


class Toolbox:
    """Tools by name; made of functions, Tools and other Toolboxes."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        """Add each item.

        Raises:
            ToolError: An item is no tool, cannot be described, or shares its name with another.
        """
        self._tools: dict[str, Tool] = {}
        if not isinstance(items, Iterable):
            raise ToolError(f"tools= takes a list: [{getattr(items, '__name__', items)}], not the tool alone.")
        for item in items:
            self.add(item)

    def add(self, item: Any, *, replace: bool = False) -> Toolbox:
        """Add a function, a Tool or all tools of a Toolbox, and return this Toolbox; the same tool twice is one.

        Args:
            item: What to add.
            replace: Whether a tool of the same name gives way.

        Raises:
            ToolError: Another tool has the name already and ``replace`` is False; nothing was added then.
        """
        new = list(item) if isinstance(item, Toolbox) else [as_tool(item)]
        for tool in new:
            known = self._tools.get(tool.name)
            if known is not None and not replace and not known.same_as(tool):
                raise ToolError(f"There is another tool named {tool.name!r} already; add(..., replace=True) replaces it, tool(name=...) renames.")
        for tool in new:
            if replace or tool.name not in self._tools:
                self._tools[tool.name] = tool
        return self

    def get(self, name: str) -> Tool:
        """Return a tool.

        Raises:
            UnknownTool: There is none of this name; the error lists close ones.
        """
        found = self._tools.get(name)
        if found is not None:
            return found
        lowered = {known.lower(): known for known in self._tools}
        close = [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=3)]
        raise UnknownTool(name, close=close, known=self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in order."""
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools as a model sees them."""
        return tuple(tool.spec for tool in self)

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Tool):
            known = self._tools.get(item.name)
            return known is not None and known.same_as(item)
        return item in self._tools

    def __repr__(self) -> str:
        return f"<Toolbox {', '.join(self._tools) or '(empty)'}>"

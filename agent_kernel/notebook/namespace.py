"""The user's namespace: the tools it offers, the models it holds, and the `agent` object that we put there.

Tools are taken by identity at each turn: rebinding a name replaces its tool, ``del`` removes it. Names that begin with an underscore
are private and never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent_kernel.errors import SettingsError
from agent_kernel.model.base import Model
from agent_kernel.notebook.settings import Settings, close
from agent_kernel.tools.tool import Tool
from agent_kernel.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from agent_kernel.agent.session import Session
    from agent_kernel.notebook.history import NotebookHistory

AGENT = "agent"


def offered(namespace: Mapping[str, Any]) -> list[Tool]:
    """Return the Tool objects bound to public names, each once.

    Of two tools of one name the one that is bound to this name counts: the other is an older version under another name.

    Raises:
        SettingsError: Two tools of one name, and neither is bound to it.
    """
    found: dict[str, tuple[str, Tool]] = {}
    for bound, tool in _public(namespace):
        earlier = found.get(tool.name)
        if earlier is None or earlier[1] is tool or bound == tool.name:
            found[tool.name] = (bound, tool)
        elif earlier[0] != tool.name:
            raise SettingsError(f"{earlier[0]} and {bound} are different tools that are both named {tool.name!r}. Give one of them another name.")
    return [tool for _, tool in found.values()]


def _public(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Tool]]:
    for name, value in list(namespace.items()):
        if isinstance(value, Tool) and not name.startswith("_"):
            yield name, value


def chosen(tools: list[Tool], names: tuple[str, ...] | None) -> Toolbox:
    """Return the tools of these names (None: all) as a Toolbox.

    Raises:
        SettingsError: A name that is not on offer.
    """
    if names is None:
        return Toolbox(tools)
    known = {tool.name: tool for tool in tools}
    for name in names:
        if name not in known:
            raise SettingsError(f"There is no tool named {name!r}.{close(name, known)} A tool is a function decorated with @tool.")
    return Toolbox([known[name] for name in names])


def model_named(namespace: Mapping[str, Any], name: str) -> Model | None:
    """Return the Model that a public name is bound to, or None."""
    value = namespace.get(name) if not name.startswith("_") else None
    return value if isinstance(value, Model) and not isinstance(value, type) else None


class Agent:
    """What a notebook's code sees of its agent.

    Attributes:
        settings: What is set, and from where; ``%agent set`` changes it.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        history: Callable[[], NotebookHistory],
        session: Callable[[], Session],
        tools: Callable[[], Toolbox],
        result: Callable[[str], Any],
    ) -> None:
        """Take what the attributes give."""
        self.settings = settings
        self._history = history
        self._session = session
        self._tools = tools
        self._result = result

    @property
    def history(self) -> NotebookHistory:
        """All sessions of this home, those of other kernels included; its methods are coroutines."""
        return self._history()

    @property
    def session(self) -> Session:
        """The current session: ``await agent.session.run("...")`` asks it from code."""
        return self._session()

    @property
    def tools(self) -> Toolbox:
        """The tools on offer: those bound to names of the notebook."""
        return self._tools()

    def result(self, handle: str) -> Any:
        """Return the whole output behind a handle such as ``r1``: a value, not a coroutine."""
        return self._result(handle)

    def __repr__(self) -> str:
        session, tools = self.session, [tool.name for tool in self.tools]
        return f"<agent: session {session.name or session.id[:8]}, model {session.model.name}, tools: {', '.join(tools) or 'none'}>"

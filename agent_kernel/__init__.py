"""Agent turns in Jupyter: streamed answers, parallel tools, kept results.

The public names. All of them load on first use, so that importing this costs next to nothing; inside the package nothing imports from
here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_kernel.agent.limits import DEFAULT_MAX_PARALLEL_TOOLS, DEFAULT_MAX_ROUNDS
    from agent_kernel.agent.session import Session
    from agent_kernel.errors import AgentKernelError, ToolError
    from agent_kernel.model.base import Model
    from agent_kernel.model.fallback import FallbackModel
    from agent_kernel.model.offline import OfflineModel
    from agent_kernel.model.openai_chat import OpenAIModel
    from agent_kernel.model.scripted import ScriptedModel
    from agent_kernel.notebook.running import run_sync
    from agent_kernel.protocol import events, messages
    from agent_kernel.store.artifacts import Artifacts
    from agent_kernel.store.history import History
    from agent_kernel.tools.context import ToolContext
    from agent_kernel.tools.tool import Tool, tool
    from agent_kernel.tools.toolbox import Toolbox

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_MAX_PARALLEL_TOOLS",
    "DEFAULT_MAX_ROUNDS",
    "AgentKernelError",
    "Artifacts",
    "FallbackModel",
    "History",
    "Model",
    "OfflineModel",
    "OpenAIModel",
    "ScriptedModel",
    "Session",
    "Tool",
    "ToolContext",
    "ToolError",
    "Toolbox",
    "events",
    "messages",
    "run_sync",
    "tool",
]

_HOMES = {
    "agent.limits": ("DEFAULT_MAX_PARALLEL_TOOLS", "DEFAULT_MAX_ROUNDS"),
    "agent.session": ("Session",),
    "errors": ("AgentKernelError", "ToolError"),
    "model.base": ("Model",),
    "model.fallback": ("FallbackModel",),
    "model.offline": ("OfflineModel",),
    "model.openai_chat": ("OpenAIModel",),
    "model.scripted": ("ScriptedModel",),
    "notebook.running": ("run_sync",),
    "protocol.events": ("events",),
    "protocol.messages": ("messages",),
    "store.artifacts": ("Artifacts",),
    "store.history": ("History",),
    "tools.context": ("ToolContext",),
    "tools.tool": ("Tool", "tool"),
    "tools.toolbox": ("Toolbox",),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    for home, names in _HOMES.items():
        if name in names:
            module = importlib.import_module(f"{__name__}.{home}")
            value = module if home.startswith("protocol.") else getattr(module, name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def load_ipython_extension(shell: Any) -> None:
    """Answer to ``%load_ext agent_kernel``."""
    from agent_kernel.notebook.extension import load  # noqa: PLC0415  # a script that imports the package needs no notebook side

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Answer to ``%unload_ext agent_kernel``."""
    from agent_kernel.notebook.extension import unload  # noqa: PLC0415  # as above

    unload(shell)

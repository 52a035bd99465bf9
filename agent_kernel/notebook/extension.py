"""Loading into an IPython shell and leaving it as it was: magics, transformers, hooks, the `agent` object.

Repeatable and silent. All that must be undone is on the Loaded object, which the shell's magics registry keeps.
"""

from __future__ import annotations

import atexit
import warnings
from typing import Any

from agent_kernel.notebook.app import App
from agent_kernel.notebook.magics import NAME, SPARE_NAME, AgentMagics
from agent_kernel.notebook.namespace import AGENT
from agent_kernel.notebook.transformer import AWAITED, CallRewrite, CellPrompt, agent_line

_KEY = "AgentKernelMagics"  # in shell.magics_manager.registry, where IPython keeps one object per extension's magics
_KINDS = ("line", "cell")


class _Loaded:
    """What was put into one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.app = App(shell)
        self._magics = AgentMagics(self.app)
        self._registered: list[str] = []
        self._replaced: dict[tuple[str, str], Any] = {}
        self._prompts = CellPrompt(self._owns)
        self._line = agent_line(self._owns)
        self._rewrite = CallRewrite(self._owns, self._may_await)

    def load(self) -> None:
        """Put everything in; the engine imports the heavy parts afterwards."""
        shell = self._shell
        for name in self._names():
            self._register(name, self._magics.agent)
            self._register(name + AWAITED, self._magics.agent_awaited)
        manager = shell.input_transformer_manager
        manager.cleanup_transforms.insert(0, self._prompts)
        manager.token_transformers.insert(0, self._line)
        shell.input_transformers_post.append(self._rewrite)
        self.app.cells.watch()
        shell.user_ns.setdefault(AGENT, self.app.agent)
        atexit.register(self.app.close)
        self.app.warm()

    def unload(self) -> None:
        """Take everything out and stop the engine."""
        shell = self._shell
        manager = shell.input_transformer_manager
        for place, item in (
            (manager.cleanup_transforms, self._prompts),
            (manager.token_transformers, self._line),
            (shell.input_transformers_post, self._rewrite),
        ):
            if item in place:
                place.remove(item)
        for name in self._registered:
            self._unregister(name)
        self.app.cells.unwatch()
        if shell.user_ns.get(AGENT) is self.app.agent:
            del shell.user_ns[AGENT]
        atexit.unregister(self.app.close)
        self.app.close()

    def _names(self) -> list[str]:
        """Return the names to register; a name that another extension has is taken, with a spare one beside it."""
        if all(NAME not in self._shell.magics_manager.magics[kind] for kind in _KINDS):
            return [NAME]
        warnings.warn(
            f"%%{NAME} belonged to another extension and is agent_kernel's now; %%{SPARE_NAME} is the same. Unloading agent_kernel gives it back.",
            stacklevel=4,
        )
        return [NAME, SPARE_NAME]

    def _register(self, name: str, magic: Any) -> None:
        self._registered.append(name)
        for kind in _KINDS:
            earlier = self._shell.magics_manager.magics[kind].get(name)
            if earlier is not None:
                self._replaced[kind, name] = earlier
            self._shell.register_magic_function(magic, kind, name)

    def _unregister(self, name: str) -> None:
        for kind in _KINDS:
            table = self._shell.magics_manager.magics[kind]
            if self._is_ours(table.get(name)):
                del table[name]
                if (kind, name) in self._replaced:
                    table[name] = self._replaced[kind, name]

    def _owns(self, name: str) -> bool:
        """Tell whether a magic's name is ours now: another extension may have taken it since."""
        return name in self._registered and self._is_ours(self._shell.magics_manager.magics["cell"].get(name))

    def _may_await(self) -> bool:
        if not self.app.cells.may_await():
            return False
        self.app.bridge.places.brace()  # the kernel keeps the handler that stands now for the time after the awaited cell
        return True

    def _is_ours(self, magic: Any) -> bool:
        return getattr(magic, "__self__", None) is self._magics


def load(shell: Any) -> None:
    """Load into a shell; an older load of ours is taken out first."""
    unload(shell)
    loaded = _Loaded(shell)
    loaded.load()
    shell.magics_manager.registry[_KEY] = loaded


def unload(shell: Any) -> None:
    """Take out what ``load`` put in; nothing, if it is out already."""
    loaded = shell.magics_manager.registry.pop(_KEY, None)
    if loaded is not None:
        loaded.unload()

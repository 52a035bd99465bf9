"""What a kernel keeps on disk, opened at the first use: one Home, with its history and its side store; and what has to be said of it.

One folder, one Home, one object per kernel: a second one in this process would be a stranger to the first. Opening does no I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_kernel.errors import StoreError
from agent_kernel.notebook.history import NotebookHistory
from agent_kernel.notebook.settings import Settings
from agent_kernel.store.artifacts import Artifacts
from agent_kernel.store.home import Home, default_home
from agent_kernel.store.kept import SessionSummary

NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"  # set by Jupyter's server: the notebook's path
HOST_NAMES = ("__vsc_ipynb_file__",)  # names that other hosts put into the namespace: VS Code
OFFER_BUDGET = 2.0  # seconds that a turn's end waits for the list of earlier sessions


class KeptHere:
    """One kernel's home."""

    def __init__(self, settings: Settings, namespace: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> None:
        """Take where the home and the notebook are named.

        Args:
            settings: Names the home, if anybody does.
            namespace: The user's, in which some hosts name the notebook.
            environ: None: the process's own.
        """
        self._settings = settings
        self._namespace = namespace
        self._environ = os.environ if environ is None else environ
        self._lock = threading.Lock()
        self._opened: tuple[Path, NotebookHistory, Artifacts] | None = None
        self._said: str | None = None  # the problem that was told
        self._offered = False
        self._tidying: asyncio.Task[None] | None = None

    @property
    def folder(self) -> Path:
        """The home's folder."""
        return self._open()[0]

    @property
    def history(self) -> NotebookHistory:
        """All sessions of the home."""
        return self._open()[1]

    @property
    def artifacts(self) -> Artifacts:
        """The side store of the home."""
        return self._open()[2]

    @property
    def opened(self) -> bool:
        """Whether the home is settled: what is set from now on counts for the next kernel."""
        return self._opened is not None

    def notebook(self) -> str | None:
        """Return the notebook's path as far as anybody has told it."""
        named = [self._environ.get(NOTEBOOK_VARIABLE), *(self._namespace.get(name) for name in HOST_NAMES)]
        return next((name for name in named if isinstance(name, str) and name), None)

    def note(self) -> str | None:
        """Return what there is to say, once each time, of turns that cannot be kept, or can be again."""
        problem = self.history.problem
        if (problem is None) == (self._said is None):
            return None
        self._said = problem
        if problem is None:
            return "This session is kept again, with everything since it was not."
        return f"This session is not being kept: {problem} It goes on in memory, and is written once it can be."

    async def offer(self, session_id: str) -> str | None:
        """Return, once in a kernel's life, what offers the last session of this notebook."""
        if self._offered or self.history.notebook is None:
            return None
        self._offered = True
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(OFFER_BUDGET):
                earlier = [each for each in await self.history.list() if each.notebook == self.history.notebook and each.id != session_id]
            return _offer(earlier[0]) if earlier else None
        return None

    def tidy(self) -> None:
        """Have ended kernels' journals rewritten, once, beside everything else; on the engine."""
        if self._tidying is None:
            self._tidying = asyncio.ensure_future(self._tidy())

    async def close(self) -> None:
        """Write what waits and release the home."""
        if self._opened is None:
            return
        _, history, artifacts = self._opened
        await artifacts.close()
        await history.close()

    async def _tidy(self) -> None:
        home = self.history.kept
        if isinstance(home, Home):
            with contextlib.suppress(StoreError):  # another kernel's start does it
                await home.tidy()

    def _open(self) -> tuple[Path, NotebookHistory, Artifacts]:
        with self._lock:
            if self._opened is None:
                named = self._settings.values().home
                folder = Path(named).expanduser().absolute() if named else default_home()
                artifacts = Artifacts.open(folder)
                self._opened = (folder, NotebookHistory(Home(folder), artifacts=artifacts, notebook=self.notebook()), artifacts)
            return self._opened


def _offer(session: SessionSummary) -> str:
    turns = "1 turn" if session.turns == 1 else f"{session.turns} turns"
    return f"This is a new session. The last one of this notebook ({session.name or session.id[:8]}, {turns}): %agent use {session.id[:8]}"

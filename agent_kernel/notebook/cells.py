"""The cell that is asking: its identity, whether a front end started it, and which turns its earlier run left behind.

Reads the request that the kernel is answering; in a terminal there is none, and every question has the quiet answer.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from IPython.core.async_helpers import _asyncio_runner
from msgspec import Struct

from agent_kernel.protocol.fold import TurnState


class Request(Struct, frozen=True, kw_only=True):
    """The request that runs a cell; None where the front end gives no id."""

    id: str | None = None
    cell_id: str | None = None


class Droppable(Protocol):
    """A session whose last turn may be replaced."""

    id: str

    async def drop_last_turn(self, turn_id: str) -> bool:
        """Drop the turn if it is the last one; False if it is not."""
        ...


class _Run(Struct):
    request: str | None
    session: str
    turns: list[str]


class Cells:
    """What one shell's cells have asked."""

    def __init__(self, shell: Any) -> None:
        """Watch a shell; the cell that runs now has begun already."""
        self._shell = shell
        self._begun: deque[str | None] = deque([None, self.request().id], maxlen=64)  # more than run at once, in all subshells
        self._runs: dict[str, _Run] = {}

    def watch(self) -> None:
        """Hear of every cell's start."""
        self._shell.events.register("pre_execute", self._begin)

    def unwatch(self) -> None:
        """Hear no more."""
        self._shell.events.unregister("pre_execute", self._begin)

    def request(self) -> Request:
        """Return the request that is being answered in this context."""
        parent = self._shell.get_parent() if hasattr(self._shell, "get_parent") else None
        if not parent:
            return Request()
        return Request(id=parent.get("header", {}).get("msg_id"), cell_id=parent.get("metadata", {}).get("cellId"))

    def may_await(self) -> bool:
        """Tell whether text that is being transformed is a cell of a front end, run on asyncio.

        Not so below another cell (`%%time`, `%%capture`, run_cell in code): its request has begun by then.
        """
        shell = self._shell
        return bool(hasattr(shell, "kernel") and shell.autoawait and shell.loop_runner is _asyncio_runner and self.request().id not in self._begun)

    def note(self, request: Request, session_id: str, state: TurnState) -> None:
        """Remember that a cell's run has made a turn."""
        if request.cell_id is None:
            return
        run = self._runs.get(request.cell_id)
        if run is None or run.request != request.id or run.session != session_id:
            run = self._runs[request.cell_id] = _Run(request.id, session_id, [])
        run.turns.append(state.turn_id)

    async def replace(self, request: Request, session: Droppable) -> str | None:
        """Drop the turns of this cell's earlier run; return a line to show where they must stay."""
        run = self._runs.get(request.cell_id) if request.cell_id is not None else None
        if run is None or run.request == request.id or run.session != session.id:
            return None
        while run.turns:
            if not await session.drop_last_turn(run.turns[-1]):
                return "Added as a new turn: the session has gone on since this cell's last run."
            run.turns.pop()
        return None

    def _begin(self) -> None:
        self._begun.append(self.request().id)

"""What a view is: it turns a turn's events into something in a cell.

Views are called on the engine's thread with the cell's context, and never pull: whoever runs the turn calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_kernel.protocol.events import Event
from agent_kernel.protocol.fold import TurnState


class View(Protocol):
    """One turn's face; ``state`` is the turn's own fold, which has taken in all events given so far."""

    def start(self, state: TurnState) -> None:
        """Show that the turn has begun."""
        ...

    def apply(self, events: Sequence[Event]) -> None:
        """Show what has happened since the last call."""
        ...

    def finish(self, state: TurnState) -> None:
        """Show the turn's end; the last call, however the turn ended."""
        ...

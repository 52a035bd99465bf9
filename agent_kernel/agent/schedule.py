"""Which calls of a round may start now. Pure.

Serial tools are barriers: they run alone, in order; later calls wait for them and they wait for earlier ones. Keyed tools with one key
run one after another. At most ``cap`` run at once, the first asked first; a cap of 1 keeps the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Phase = Literal["asking", "ready", "running", "done"]


class Slot(Struct, frozen=True, kw_only=True):
    """A call as the schedule sees it; ``asking`` waits for a person's approval."""

    phase: Phase
    serial: bool = False
    key: str | None = None


def startable(slots: Sequence[Slot], cap: int) -> list[int]:
    """Return the indexes of the calls to start now, in call order."""
    free = cap - sum(slot.phase == "running" for slot in slots)
    chosen: list[int] = []
    keys: set[str] = set()
    earlier_open = False
    for index, slot in enumerate(slots):
        if slot.phase == "done":
            continue
        if slot.serial:
            if slot.phase == "ready" and not earlier_open and free > 0:
                chosen.append(index)
            break
        if slot.phase == "ready" and free > 0 and slot.key not in keys:
            chosen.append(index)
            free -= 1
        if slot.key is not None:
            keys.add(slot.key)
        earlier_open = True
        if cap == 1:  # one after another in call order: what waits for a person is waited for
            break
    return chosen

"""Approval in a cell without clicks: the question goes to the front end's input line, where there is one.

Questions run on the main thread, one at a time, so that they never mix. Where nobody can answer, the call is denied, and the reason
says how to allow it.
"""

from __future__ import annotations

import builtins
import sys
from typing import Any

from agent_kernel.agent.approval import ALWAYS, Always
from agent_kernel.notebook.places import Places
from agent_kernel.protocol.messages import ToolCall

NOBODY = "this front end takes no input to ask on; use --approve allow"

SHOWN = 500  # characters of the arguments in a question


class Asker:
    """Asks the person at the front end of one shell."""

    def __init__(self, shell: Any, places: Places) -> None:
        """Take the shell, and the main thread as a place."""
        self._shell = shell
        self._places = places

    async def approve(self, call: ToolCall, reason: str) -> bool | str | Always:
        """Return True for yes, ALWAYS for this tool and session, False for no, or the person's comment on a no."""
        if not self._takes_input():
            return NOBODY
        arguments = call.arguments if len(call.arguments) <= SHOWN else call.arguments[:SHOWN] + "..."
        question = f"Run {call.name}({arguments})? {reason} [y, n, a = always in this session, or say why not] "
        answer: str | None = await self._places.run_main(lambda: self._read(question))
        if answer is None:
            return NOBODY
        word = answer.strip()
        if word.lower() in {"y", "yes"}:
            return True
        if word.lower() in {"a", "always"}:
            return ALWAYS
        return word if word.lower() not in {"", "n", "no"} else False

    def _takes_input(self) -> bool:
        kernel = getattr(self._shell, "kernel", None)
        if kernel is None:
            return sys.stdin is not None and sys.stdin.isatty()
        return bool(getattr(kernel, "_allow_stdin", False))

    def _read(self, question: str) -> str | None:
        """Return a line from the front end; None if it has no input line after all (a turn that outlived its cell)."""
        kernel = getattr(self._shell, "kernel", None)
        if kernel is not None and getattr(builtins.input, "__self__", None) is not kernel:
            return None  # no cell is running: input() would read the kernel's own standard input
        try:
            return input(question)
        except (EOFError, OSError, NotImplementedError):
            return None

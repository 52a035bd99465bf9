"""What foreign code raises, made fit for a turn: a user's Model or hook may raise anything, SystemExit and a CancelledError of its own included.

On an event loop a SystemExit ends the loop, and an unasked-for CancelledError looks like the turn's own; here both become plain errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from agent_kernel.errors import AgentKernelError
from agent_kernel.tools.clean import clean_text
from agent_kernel.tools.plainly import exception_text

T = TypeVar("T")


class Raised(AgentKernelError):
    """Carries what is no Exception, as its cause."""


def described(error: BaseException) -> str:
    """Return an error's own words, whatever its ``__str__`` does; another's with its type."""
    text = clean_text(exception_text(error))
    return text if isinstance(error, AgentKernelError) else f"{type(error).__name__}: {text}" if text else type(error).__name__


def tamed(error: BaseException) -> Exception:
    """Return an Exception for what foreign code raised in this task; what cancels the task itself is raised."""
    if isinstance(error, Exception):
        carried = error.__cause__ if isinstance(error, RuntimeError) else None
        return tamed(carried) if isinstance(carried, (SystemExit, KeyboardInterrupt)) else error
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    carrier = Raised(described(error))
    carrier.__cause__ = error
    return carrier


async def tame(work: Awaitable[T]) -> T:
    """Await a hook's work in a task of its own; what it raises is an Exception or cancels the task."""
    try:
        return await work
    except BaseException as raised:
        error = tamed(raised)
        if error is raised:
            raise
        raise error from raised

"""Times a request's steps: connection and headers, first byte, pauses, the whole; and maps what a step raises.

Part of the door to openai and httpx2: whatever the client or its transport raises while it is awaited leaves here as ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from agent_kernel.errors import ModelConnectionError, ModelError
from agent_kernel.model.classify import Source
from agent_kernel.model.openai_errors import from_foreign
from agent_kernel.model.openai_options import Limits


class Clock:
    """Waits for the server within the limits; every wait starts and ends inside one pull of the stream, never across a yield."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._start = time.monotonic()
        self._first = True

    async def wait(self, coming: Any) -> Any:
        """Await one step of the client.

        Raises:
            ModelError: A limit passed, or the client failed.
        """
        seconds, limit = self._left()
        try:
            async with asyncio.timeout(seconds) as guard:
                return await coming
        except ModelError:
            raise
        except Exception as error:  # all that the client and its transport may raise is theirs
            if isinstance(error, TimeoutError) and guard.expired():
                raise self._late(limit) from error
            raise from_foreign(self._source, error) from error

    async def next(self, pieces: AsyncGenerator[bytes]) -> bytes | None:
        """Return the next piece of the body, None at its end."""
        piece: bytes | None = await self.wait(anext(pieces, None))
        self._first = False
        return piece

    def _left(self) -> tuple[float | None, str]:
        gone = time.monotonic() - self._start
        first = self._limits.first_byte
        step, name = (None if first is None else first - gone, "first_byte_timeout") if self._first else (self._limits.idle, "idle_timeout")
        total = self._limits.total
        if total is not None and (step is None or total - gone < step):
            return max(0.0, total - gone), "total_timeout"
        return (None if step is None else max(0.0, step)), name

    def _late(self, limit: str) -> ModelConnectionError:
        seconds = {"first_byte_timeout": self._limits.first_byte, "idle_timeout": self._limits.idle, "total_timeout": self._limits.total}[limit]
        return ModelConnectionError(
            f"{self._source.label} ran out of time: {limit} ({seconds:g} s) passed. Try again or raise the limit.", kind="timeout"
        )

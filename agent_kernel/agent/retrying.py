"""When a model request is made again. The decision is pure; time comes from a Clock that tests replace."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from agent_kernel.errors import EmptyAnswer, ModelError

FIRST_DELAY = 0.5  # seconds; doubles with each attempt
LONGEST_DELAY = 20.0
LONGEST_RETRY_AFTER = 60.0  # a provider that asks for more is not waited for any longer than this


class Clock(Protocol):
    """Where waiting and chance come from."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self) -> float:
        """Return a number from 0 to 1."""
        ...


class SystemClock:
    """The real clock."""

    async def sleep(self, seconds: float) -> None:
        """Wait for real."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Return a random number; it spreads retries, nothing secret hangs on it."""
        return random.random()  # noqa: S311 - spreads retries, guards nothing


def retry_delay(attempt: int, retry_after: float | None, jitter: float) -> float:
    """Return the seconds to wait before an attempt's repetition; attempts count from 1, ``jitter`` is from 0 to 1."""
    if retry_after is not None:
        return min(max(0.0, retry_after), LONGEST_RETRY_AFTER)
    longest = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt - 1, 10))
    return longest * (0.5 + 0.5 * jitter)


class Attempts:
    """Counts the attempts of one round and decides on the next."""

    def __init__(self, *, retries: int, clock: Clock) -> None:
        """Keep how many retries the model allows."""
        self._retries, self._clock = retries, clock
        self._empties = self._failures = 0

    @property
    def made(self) -> int:
        """Repetitions decided so far."""
        return self._empties + self._failures

    def delay(self, error: ModelError, *, shown: bool) -> float | None:
        """Return the seconds to wait before the next attempt; None: give up.

        Args:
            error: Why the attempt failed.
            shown: Whether visible text has gone out: then nothing is repeated.
        """
        if shown:
            return None
        if isinstance(error, EmptyAnswer):
            self._empties += 1
            return 0.0 if self._empties == 1 else None
        if not error.retryable or self._failures >= self._retries:
            return None
        self._failures += 1
        return retry_delay(self._failures, error.retry_after, self._clock.jitter())

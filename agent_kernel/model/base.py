"""What a language model is to the rest of the house: a name and one stream of Deltas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

from agent_kernel.protocol.events import Delta
from agent_kernel.protocol.request import ModelRequest


@runtime_checkable
class Model(Protocol):
    """Anything with a ``name`` and an async generator ``stream``.

    A turn retries a retryable ModelError, before any visible text, ``getattr(model, "max_retries", 0)`` times.
    """

    name: str

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Yield the answer's fragments as they arrive.

        Raises:
            ModelError: The answer could not be had; its class and ``retryable`` say why.
        """
        ...

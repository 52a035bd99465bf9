"""FallbackModel: several models in order, the next one where the one before is overloaded or limits the rate.

Decides between models only; what each does is its own business. Nothing that was shown is ever replaced: once a Delta came,
the model that gave it answers or fails.
"""

from __future__ import annotations

import collections
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from msgspec import structs

from agent_kernel.errors import ModelRateLimited
from agent_kernel.model.base import Model
from agent_kernel.protocol.events import Delta, FinishDelta
from agent_kernel.protocol.request import ModelRequest

REMEMBERED = 16
"""Requests whose refusals are remembered: one per session that shares the model is enough."""


class FallbackModel:
    """Asks the first model, and the next at the first sign of overload, without asking again the one that refused.

    Args:
        models: In order of preference.
        name: What the model is called; None: the names of all.
    """

    def __init__(self, models: Sequence[Model], *, name: str | None = None) -> None:
        self.models = tuple(models)
        if not self.models:
            raise ValueError("FallbackModel needs at least one model")
        self.name = name or " / ".join(model.name for model in self.models)
        self.max_retries: int = getattr(self.models[0], "max_retries", 0)
        # A round's retry is the same request again: who refused it before is not asked in this round.
        self._refused: collections.deque[tuple[ModelRequest, dict[int, ModelRateLimited]]] = collections.deque(maxlen=REMEMBERED)

    def __repr__(self) -> str:
        return f"FallbackModel({list(self.models)!r})"

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets of all models, for a session to mask."""
        return frozenset().union(*(getattr(model, "secrets", ()) for model in self.models))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Yield the answer of the first model that gives one; the FinishDelta names it.

        Raises:
            ModelError: What the answering model raised, or, with every model refusing, the last refusal, not retryable.
        """
        refused = self._refusals(request)
        for position, model in enumerate(self.models):
            if position in refused:
                continue
            begun = False
            answer = _signed(model, request)
            try:
                async for delta in answer:
                    begun = True
                    yield delta
            except ModelRateLimited as error:
                if begun:
                    raise
                refused[position] = error
            else:
                self._forget(request)
                return
            finally:
                await answer.aclose()
        self._forget(request)
        raise _last(refused)

    async def close(self) -> None:
        """Close every model that can be closed."""
        for model in self.models:
            close: Any = getattr(model, "close", None)
            if close is not None:
                await close()

    def _refusals(self, request: ModelRequest) -> dict[int, ModelRateLimited]:
        for known, refused in self._refused:
            if known is request or known == request:
                return refused
        refused = {}
        self._refused.append((request, refused))
        return refused

    def _forget(self, request: ModelRequest) -> None:
        kept = [entry for entry in self._refused if not (entry[0] is request or entry[0] == request)]
        self._refused.clear()
        self._refused.extend(kept)


def _last(refused: dict[int, ModelRateLimited]) -> ModelRateLimited:
    error = refused[max(refused)]
    error.retryable = False
    return error


async def _signed(model: Model, request: ModelRequest) -> AsyncGenerator[Delta]:
    """Pass a model's stream on and see to it that its end names the model."""
    finished = False
    inner: Any = model.stream(request)
    try:
        async for delta in inner:
            if isinstance(delta, FinishDelta):
                finished = True
                yield structs.replace(delta, model=delta.model or model.name)
            else:
                yield delta
        if not finished:
            yield FinishDelta(model=model.name)
    finally:
        if hasattr(inner, "aclose"):
            await inner.aclose()

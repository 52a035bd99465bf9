"""What bounds a turn: the limits, their defaults and their ranges."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_MAX_ROUNDS = 32
DEFAULT_MAX_PARALLEL_TOOLS = 8
DEFAULT_MAX_RESULT_CHARS = 32_000
LEAST_BUDGET = 1_000  # characters of a result that are shown even under a small token budget


class Limits(Struct, frozen=True, kw_only=True):
    """Checked limits; ``Session`` says what each means.

    Raises:
        ValueError: A limit is out of its range.
    """

    max_rounds: int = DEFAULT_MAX_ROUNDS
    max_parallel_tools: int = DEFAULT_MAX_PARALLEL_TOOLS
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    max_input_tokens: int | None = None
    answer_at_limit: bool = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check("max_rounds", self.max_rounds, 1, 1_000)
        _check("max_parallel_tools", self.max_parallel_tools, 1, 256)
        _check("max_result_chars", self.max_result_chars, 1, None)
        if self.max_input_tokens is not None:
            _check("max_input_tokens", self.max_input_tokens, 1, None)

    @property
    def result_budget(self) -> int:
        """Characters of one output that the model sees: ``max_result_chars``, less where ``max_input_tokens`` is small."""
        if self.max_input_tokens is None:
            return self.max_result_chars
        return min(self.max_result_chars, max(LEAST_BUDGET, 2 * self.max_input_tokens))


def _check(name: str, value: object, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {f'from {low:,} to {high:,}' if high else f'at least {low}'}, not {value!r}")

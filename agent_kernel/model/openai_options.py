"""Checks OpenAIModel's options at construction, so that a bad value fails where it was written and not in a turn.

Pure functions and the value that holds the time limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Time limits in seconds; None: no limit."""

    connect: float | None
    first_byte: float | None
    idle: float | None
    total: float | None


def positive_limits(**seconds: float | None) -> Limits:
    """Return the limits.

    Raises:
        ValueError: One is no positive number.
    """
    for name, value in seconds.items():
        if value is not None and not (_is_number(value) and value > 0):
            raise ValueError(f"{name}_timeout must be a positive number of seconds or None, not {value!r}")
    return Limits(**seconds)


def checked_url(url: str | None) -> str | None:
    """Return the base URL.

    Raises:
        ValueError: It is no http(s) URL with a host.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except (ValueError, AttributeError):
        good = False
    if not good:
        raise ValueError(f"base_url must look like http://localhost:8000/v1, not {url!r}")
    return url


def checked_fields(
    *,
    max_tokens: int | None,
    temperature: float | None,
    stop: str | Sequence[str] | None,
    seed: int | None,
    reasoning_effort: str | None,
    verbosity: str | None,
) -> dict[str, Any]:
    """Return the request fields that are set.

    Raises:
        ValueError: One has a value that no server can take.
    """
    if max_tokens is not None and not (_is_whole(max_tokens) and max_tokens >= 1):
        raise ValueError(f"max_tokens must be a whole number from 1, not {max_tokens!r}")
    if temperature is not None and not (_is_number(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be a number from 0, not {temperature!r}")
    if stop is not None and not isinstance(stop, str):
        stop = _texts(stop)
    if seed is not None and not _is_whole(seed):
        raise ValueError(f"seed must be a whole number, not {seed!r}")
    for name, word in (("reasoning_effort", reasoning_effort), ("verbosity", verbosity)):
        _check_word(name, word)
    fields = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stop": stop,
        "seed": seed,
        "reasoning_effort": reasoning_effort,
        "verbosity": verbosity,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list | tuple) or not all(isinstance(text, str) for text in values):
        raise ValueError(f"stop must be a text or a list of texts, not {values!r}")
    return list(values)


def _check_word(name: str, word: Any) -> None:
    if word is not None and not (isinstance(word, str) and word):
        raise ValueError(f"{name} must be a word such as 'low', not {word!r}")


def checked_model(model: Any, api: Any, max_retries: Any) -> None:
    """Check what every request needs.

    Raises:
        ValueError: One of the three does not fit.
    """
    if not isinstance(model, str) or not model.strip():
        raise ValueError(f"model must be the name of a model, not {model!r}")
    if api != "chat":
        raise ValueError(f"api must be 'chat', not {api!r}")
    if not _is_whole(max_retries) or max_retries < 0:
        raise ValueError(f"max_retries must be a whole number from 0, not {max_retries!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

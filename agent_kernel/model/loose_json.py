"""Reads JSON that strict parsers refuse and models still write: lone surrogates, raw line breaks inside strings.

What comes out is always clean: text that UTF-8 can carry, finite numbers. Never guesses at broken structure, so a cut object
stays an error.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def decode(text: str | bytes) -> Any:
    """Decode strictly where that works, else once more with tolerance; keys and strings come out mended.

    Raises:
        ValueError: The text is no JSON, or holds NaN, an infinity or a number too long to read.
        RecursionError: It is nested too deeply.
    """
    try:
        return DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return mended_value(json.loads(text, strict=False, parse_constant=_refuse, parse_float=_finite))


def decode_raw(data: bytes) -> Any:
    """Decode with most tolerance: NaN passes, and lone surrogates stay for a reader that can still join their halves.

    Raises:
        ValueError: The data is no JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(data.decode("utf-8", "replace"), strict=False)


def mended(text: str) -> str:
    """Join surrogate halves and replace lone ones with U+FFFD; other text is returned as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def mended_value(value: Any) -> Any:
    """Mend every string in a decoded JSON value, keys included."""
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, list):
        return [mended_value(item) for item in value]
    if isinstance(value, dict):
        return {mended(key): mended_value(item) for key, item in value.items()}
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is out of range")
    return number

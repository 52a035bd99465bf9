"""The table of scalar conversions: each takes a JSON value, returns the Python value, and raises ValueError for all else.

Strict means that the value must have its own JSON form already. Nothing here knows paths, schemas or annotations.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def read_int(value: Any, strict: bool) -> int:
    """Take 3, and 3.0 and "3" unless strict."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not strict:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            return int(value)
    raise ValueError


def read_float(value: Any, strict: bool) -> float:
    """Take 3.5, and 3 and "3.5" unless strict; never NaN or an infinity, which JSON does not have."""
    number = value if isinstance(value, float) else None
    if number is None and not strict and not isinstance(value, bool):
        text = isinstance(value, str) and _NUMBER.fullmatch(value)
        number = float(value) if isinstance(value, int) or text else None
    if number is None or not math.isfinite(number):
        raise ValueError
    return number


def read_bool(value: Any, strict: bool) -> bool:
    """Take true and false, and their names as text unless strict."""
    if isinstance(value, bool):
        return value
    if not strict and isinstance(value, str) and value in {"true", "false"}:
        return value == "true"
    raise ValueError


def read_str(value: Any, strict: bool) -> str:  # noqa: ARG001 - one signature for all leaves
    """Take text."""
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - Leaf asks for ValueError
    return value


def read_none(value: Any, strict: bool) -> None:  # noqa: ARG001 - one signature for all leaves
    """Take null."""
    if value is not None:
        raise ValueError


def read_bytes(value: Any, strict: bool) -> bytes:
    """Take base64 text (RFC 4648, section 4)."""
    return base64.b64decode(read_str(value, strict), validate=True)


def read_datetime(value: Any, strict: bool) -> dt.datetime:
    """Take ISO 8601 text."""
    return dt.datetime.fromisoformat(read_str(value, strict))


def read_date(value: Any, strict: bool) -> dt.date:
    """Take ISO 8601 text."""
    return dt.date.fromisoformat(read_str(value, strict))


def path_reader(cls: type[PurePath]) -> Callable[[Any, bool], PurePath]:
    """Return the reader of one Path class."""
    return lambda value, strict: cls(read_str(value, strict))

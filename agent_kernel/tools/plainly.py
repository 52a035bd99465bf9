"""Foreign values made plain: one step from an object towards text, numbers, lists and dicts.

No library is imported to recognise its values. Text in a result is never quoted here; jsontext does that.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import itertools
import types
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final

import msgspec

from agent_kernel.tools.clean import text_of
from agent_kernel.tools.frames import as_frame, frame_text, lazy_text
from agent_kernel.tools.loaded import is_loaded

MAX_ITEMS = 10_000
SMALL_ARRAY = 1_000  # values; up to here an array is plain JSON
_SHOWN_BYTES = 64
_ALONE = "\n(a summary; it is kept whole if it is returned by itself)"
_NOTHING: Final[Any] = object()
_END: Final = object()
_AS_TEXT = (decimal.Decimal, Fraction, uuid.UUID, PurePath, dt.timedelta, complex)


def simplify(value: Any, max_items: int = MAX_ITEMS) -> Any:
    """Return a plainer form of a value that is no JSON: text, a number, a list or a dict, whose parts may need the same again."""
    for plainer in (_scalar, _fields, _array_value, _frame_value, _collection):
        found = plainer(value, max_items)
        if found is not _NOTHING:
            return found
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that it was never awaited
    return text_of(value)


def _scalar(value: Any, _max_items: int) -> Any:  # noqa: PLR0911 - one return per kind
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float) and type(value).__module__ != "numpy":
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {exception_text(value)}"
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return bytes_text(data) + ("" if is_whole(data) else _ALONE)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, _AS_TEXT) else _NOTHING


def exception_text(error: BaseException) -> str:
    """Return an exception's own text, whatever its ``__str__`` does."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as inner:  # foreign code, SystemExit included
        return f"(its text raised {type(inner).__name__})"


def bytes_text(data: bytes) -> str:
    """Return a bounded form of bytes; whole up to 64."""
    if len(data) <= _SHOWN_BYTES:
        return repr(data)
    return f"{len(data):,} bytes, beginning with {data[:_SHOWN_BYTES]!r}"


def is_whole(data: bytes) -> bool:
    """Whether ``bytes_text`` shows all of it."""
    return len(data) <= _SHOWN_BYTES


def _fields(value: Any, _max_items: int) -> Any:
    """Return the fields of an object that declares them."""
    cls = type(value)
    if isinstance(value, msgspec.Struct):
        return _struct_fields(value)
    if dataclasses.is_dataclass(cls):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(cls) if field.repr}
    if is_loaded(value, "pydantic", "BaseModel"):
        return value.model_dump()
    if hasattr(cls, "__attrs_attrs__"):
        return {item.name: getattr(value, item.name, None) for item in cls.__attrs_attrs__ if item.repr}
    names = getattr(cls, "_fields", None) if isinstance(value, tuple) else None
    return _NOTHING if names is None else dict(zip(names, value, strict=False))


def _struct_fields(value: msgspec.Struct) -> dict[Any, Any]:
    config = value.__struct_config__
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    pairs = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    found = {key: getattr(value, name, msgspec.UNSET) for key, name in pairs}
    return tag | {key: item for key, item in found.items() if item is not msgspec.UNSET}


def _array_value(value: Any, _max_items: int) -> Any:
    if is_loaded(value, "numpy", "generic"):
        plain = value.item()
        return plain if type(plain) in {bool, int, float, str, bytes} and value.dtype.kind not in "mM" else str(value)
    if is_loaded(value, "numpy", "ndarray"):
        return array_text(value) + _ALONE if value.size > SMALL_ARRAY else array_list(value)
    return _NOTHING


def array_list(array: Any) -> Any:
    """Return an array as nested lists; dates as ISO text."""
    return (array.astype(str) if array.dtype.kind in "mM" else array).tolist()


def array_text(array: Any) -> str:
    """Return a bounded form of a large array: shape, type, range, first and last values."""
    first, last = array_list(array.flat[:10]), array_list(array.flat[array.size - 10 :])
    span = f", from {array.min()} to {array.max()}" if array.dtype.kind in "iuf" else ""
    head, tail = (", ".join(map(str, values)) for values in (first, last))
    return f"numpy {type(array).__name__}, shape {array.shape}, {array.size:,} values of {array.dtype}{span}\n[{head}, ..., {tail}]"


def _frame_value(value: Any, _max_items: int) -> Any:
    frame = as_frame(value)
    if frame is not None:
        text, whole = frame_text(frame)
        return text + ("" if whole else _ALONE)
    if is_loaded(value, "pyarrow", "Scalar"):
        return value.as_py()
    found = lazy_text(value)
    return _NOTHING if found is None else found


def _collection(value: Any, max_items: int) -> Any:  # noqa: PLR0911 - one return per kind
    if isinstance(value, type):
        return _NOTHING
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):  # the views of a dict's keys and items too
        return _sorted(value)
    if isinstance(value, range):
        return _drained(iter(value), max_items)
    if isinstance(value, deque | ValuesView | Sequence) or type(value).__module__ == "array":
        return list(value)
    if isinstance(value, Iterator) and not hasattr(value, "fileno"):  # reading an open file may wait for ever
        return _drained(value, max_items)
    return dict(vars(value)) if isinstance(value, types.SimpleNamespace) else _NOTHING


def _sorted(values: AbstractSet[Any]) -> list[Any]:
    try:
        return sorted(values)
    except Exception:  # values without an order of their own: by type and text, so that the same set reads the same
        return sorted(values, key=lambda item: (type(item).__name__, text_of(item)))


def _drained(iterator: Iterator[Any], max_items: int) -> list[Any]:
    """Return an iterator's items up to a bound; an error in it ends the list and is named there."""
    items: list[Any] = []
    try:
        items.extend(itertools.islice(iterator, max_items))
        if len(items) == max_items and next(iterator, _END) is not _END:
            items.append(cut_note(max_items))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code, SystemExit included
        items.append(f"[stopped by {type(error).__name__}: {exception_text(error)}]")
    return items


def cut_note(max_items: int) -> str:
    """Return the words that stand where an iterator was cut."""
    return f"[stopped after {max_items:,} items; there are more]"

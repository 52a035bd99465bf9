"""One way from any return value to what a model reads; it never fails and never loses the whole.

Text is text; what has a JSON form is JSON; frames, arrays, bytes and figures have a bounded text and come along whole. No budget is known
here: cutting is agent/excerpt's business. Values of other libraries are recognised without importing them.
"""

from __future__ import annotations

import io
import sys
import types
from collections.abc import AsyncGenerator, Generator
from typing import Any

from msgspec import Struct

from agent_kernel.tools.clean import clean_text
from agent_kernel.tools.context import ToolContext
from agent_kernel.tools.frames import as_frame, frame_text
from agent_kernel.tools.jsontext import JsonWriter
from agent_kernel.tools.loaded import is_loaded
from agent_kernel.tools.pictures import Attachment, picture
from agent_kernel.tools.plainly import MAX_ITEMS, SMALL_ARRAY, array_text, bytes_text, cut_note, is_whole, simplify

_MAX_STEPS = 100  # a value whose plainer form is itself again stops here
_JSON = (dict, list, tuple, int, float, bool, type(None))
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"%PDF-", "application/pdf"))


class Serialised(Struct, frozen=True, kw_only=True):
    """A return value in words.

    Attributes:
        text: What a model sees if nothing has to be cut; free of escape sequences and lone surrogates.
        whole: The whole value where ``text`` is only a bounded form of it, else None.
        media_type: Of the whole (of ``text``, where that is the whole).
        attachments: Images found in the value.
    """

    text: str
    whole: str | bytes | None = None
    media_type: str = "text/plain"
    attachments: tuple[Attachment, ...] = ()


def serialise(value: Any, *, max_items: int = MAX_ITEMS) -> Serialised:
    """Turn any value into words; an iterator is drained up to ``max_items`` items."""
    try:
        return _serialise(value, max_items)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code; SystemExit in a property must not end the kernel
        return Serialised(text=f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>")


def _serialise(value: Any, max_items: int) -> Serialised:
    if type(value) is str:
        return Serialised(text=clean_text(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, types.GeneratorType):
        return _json(simplify(value, max_items), max_items)
    for kind in (_frame, _array, _picture):
        found = kind(value)
        if found is not None:
            return found
    for _ in range(_MAX_STEPS):
        if type(value) in _JSON:
            return _json(value, max_items)
        if type(value) is str:
            return Serialised(text=clean_text(value))
        value = simplify(value, max_items)
    raise RecursionError


def _json(value: Any, max_items: int) -> Serialised:
    writer = JsonWriter(max_items)
    text = writer.text(value)
    return Serialised(text=text, media_type="application/json", attachments=tuple(writer.attachments))


def _bytes(data: bytes) -> Serialised:
    media_type = next((name for magic, name in _MAGIC if data.startswith(magic)), "application/octet-stream")
    if is_whole(data):
        return Serialised(text=bytes_text(data))
    return Serialised(text=bytes_text(data), whole=data, media_type=media_type)


def _frame(value: Any) -> Serialised | None:
    frame = as_frame(value)
    if frame is None:
        return None
    text, shows_all = frame_text(frame)
    return Serialised(text=text) if shows_all else Serialised(text=text, whole="".join(frame.csv()), media_type="text/csv")


def _array(value: Any) -> Serialised | None:
    if not is_loaded(value, "numpy", "ndarray") or value.size <= SMALL_ARRAY:
        return None
    numpy = sys.modules["numpy"]
    text = clean_text(array_text(value))
    if type(value) is not numpy.ndarray or value.dtype.hasobject:  # what .npy cannot hold without pickle
        return Serialised(text=text, whole=JsonWriter().text(value.tolist()), media_type="application/json")
    out = io.BytesIO()
    numpy.save(out, value, allow_pickle=False)
    return Serialised(text=text, whole=out.getvalue(), media_type="application/x-npy")


def _picture(value: Any) -> Serialised | None:
    shown = picture(value)
    return None if shown is None else Serialised(text=clean_text(shown[0]), attachments=(shown[1],))


def collect(items: Generator[Any, Any, Any], context: ToolContext | None = None, *, max_items: int = MAX_ITEMS) -> Any:
    """Drain a generator tool: text joined to one text if every item is text, else a list; each text is reported as progress.

    At most ``max_items`` items, with a note where more were left; what the generator raises is raised.
    """
    found: list[Any] = []
    try:
        for item in items:
            if len(found) == max_items:
                return _joined(found, cut_note(max_items))
            found.append(item)
            _report(item, context)
            if context is not None and context.cancelled:
                break
    finally:
        items.close()
    return _joined(found)


async def drain(items: AsyncGenerator[Any, Any], context: ToolContext | None = None, *, max_items: int = MAX_ITEMS) -> Any:
    """Drain an async generator tool, as ``collect`` does."""
    found: list[Any] = []
    try:
        async for item in items:
            if len(found) == max_items:
                return _joined(found, cut_note(max_items))
            found.append(item)
            _report(item, context)
    finally:
        await items.aclose()
    return _joined(found)


def _report(item: Any, context: ToolContext | None) -> None:
    if context is not None and isinstance(item, str):
        context.progress(text=item)


def _joined(found: list[Any], note: str | None = None) -> Any:
    if found and all(isinstance(item, str) for item in found):
        return "".join(found) + (f"\n{note}" if note else "")
    return [*found, note] if note else found

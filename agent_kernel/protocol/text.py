"""Text that every wire and store accepts. Pure."""

from __future__ import annotations

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
CHUNK = 1 << 20  # characters handled in one go, so that no step holds the GIL for long


def well_formed(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD; pairs that JSON split in two become the character they mean."""
    if text.isascii():
        return text
    if len(text) <= CHUNK:
        return _mended(text)
    pieces, start = [], 0
    while start < len(text):
        end = min(start + CHUNK, len(text))
        if end < len(text) and "\ud800" <= text[end - 1] <= "\udbff":
            end += 1
        pieces.append(_mended(text[start:end]))
        start = end
    return "".join(pieces)


def _mended(text: str) -> str:
    if not _LONE_SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

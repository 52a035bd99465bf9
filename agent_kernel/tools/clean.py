"""Make text fit for a model, a database and a browser: no lone surrogates, no terminal escape sequences.

Works in pieces of a quarter of a million characters, so that no single step holds the interpreter lock for long; text that is clean already
is returned as it is.
"""

from __future__ import annotations

import re

_PIECE = 1 << 18  # characters; the slowest of them, all surrogates, take a few milliseconds
# ECMA-48 and xterm: CSI, OSC (hyperlinks, titles), DCS/SOS/PM/APC strings, two- and three-character escapes, a stray ESC.
# An OSC or DCS that never ends loses its introducer only, not the text behind it.
_ESCAPE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*+[ -/]*+[@-~]?"
    r"|\][^\x00-\x1f\x7f]*+(?:\x07|\x1b\\)"
    r"|[PX^_][^\x1b]*+\x1b\\"
    r"|[ -/]*+[0-~]?"
    r")"
)


def clean_text(text: str) -> str:
    """Strip terminal escape sequences and replace lone surrogates by U+FFFD; other control characters stay, NUL too."""
    if text.isascii() and not _has_escape(text):  # isascii reads a flag
        return str(text)
    pieces = []
    at, changed = 0, False
    while at < len(text):
        end = _safe_cut(text, at)
        piece = text[at:end]
        pieces.append(_clean_piece(piece))
        changed = changed or pieces[-1] is not piece
        at = end
    return "".join(pieces) if changed else str(text)  # joining is the one step that takes as long as the text


def _has_escape(text: str) -> bool:
    return any(text.find("\x1b", at, at + _PIECE) >= 0 for at in range(0, len(text), _PIECE))


def _clean_piece(piece: str) -> str:
    if "\x1b" in piece:
        piece = _ESCAPE.sub("", piece)
    if piece.isascii():
        return piece
    try:
        piece.encode()
    except UnicodeEncodeError:
        # through UTF-16: two halves that belong together become their character, a lone one U+FFFD
        return piece.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return piece


def _safe_cut(text: str, at: int) -> int:
    """Return where the piece that starts here ends: never inside an escape sequence or between two surrogates."""
    end = at + _PIECE
    if end >= len(text):
        return len(text)
    if text[end - 1] == "\x1b" or ("\ud800" <= text[end - 1] <= "\udbff" and "\udc00" <= text[end] <= "\udfff"):
        end -= 1
    last = text.rfind("\x1b", at, end)
    if last >= 0:
        match = _ESCAPE.match(text, last)
        if match is not None:
            end = max(end, match.end())
    return end


def text_of(value: object) -> str:
    """Return the text of a foreign object, whatever its ``__repr__`` does: raises, exits, or returns no text."""
    try:
        own_str = type(value).__str__ is not object.__str__ and type(value).__repr__ is object.__repr__
        return clean_text(str(value) if own_str else repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit in a repr must not end the kernel
        return f"<{type(value).__name__} object, whose repr raised {type(error).__name__}>"

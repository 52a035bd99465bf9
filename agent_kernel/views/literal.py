"""Untrusted text made harmless: what a terminal, a browser or a typesetter would obey is stripped, escaped or shown.

Pure functions from text to text. Law: nothing that model or tools wrote reaches a cell except through here; text is shown, never obeyed.
"""

from __future__ import annotations

import html
import re

from agent_kernel.protocol.text import well_formed
from agent_kernel.tools.clean import clean_text

MAX_LINK = 2_000  # characters; longer targets are no links that a person can judge
MAX_PICTURE = 1 << 20  # characters of a data: picture

_BREAKS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# C0 and C1 controls but tab and newline; bidirectional controls; characters without a shape (joiners stay: emoji and some scripts need them)
_HIDDEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_TYPESET = re.compile(r"[$\\]")
_LINK = re.compile(r"(?:https?://[^\s/?#@]|mailto:[^\s@]+@)[^\s]*\Z", re.IGNORECASE)
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
_NOT_IN_LINK = re.compile(r"[^A-Za-z0-9\-._~:/?#@!&'+,;=%]")


def visible(text: str) -> str:
    """Return text without terminal escape sequences; other control characters and direction marks stand as their escapes."""
    text = _BREAKS.sub("\n", clean_text(text))
    return _HIDDEN.sub(_escape, text)


def named(text: str) -> str:
    """Return a name in which every character can be seen: one that is no letter, mark, sign or plain space stands as its escape."""
    return "".join(char if char.isprintable() else _escape_char(char) for char in clean_text(text))


def escaped(text: str) -> str:
    """Return HTML for text inside ``pre`` and ``code``, where nothing is typeset."""
    return html.escape(visible(text))


def literal(text: str) -> str:
    """Return HTML for text anywhere: a dollar or a backslash stands alone, so that no typesetter finds a formula."""
    return apart(escaped(text))


def apart(markup: str) -> str:
    """Return escaped HTML text with each dollar and backslash in an element of its own."""
    return _TYPESET.sub(lambda found: f"<span>{found.group()}</span>", markup)


def one_line(text: str, limit: int) -> str:
    """Return the text's beginning as one visible line of at most ``limit`` characters."""
    line = " ".join(visible(text[: 4 * limit]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "\u2026"


def clipped(text: str, limit: int) -> tuple[str, int]:
    """Return at most ``limit`` characters of a text, and how many were left out behind them."""
    return text[:limit], max(0, len(text) - limit)


def link(target: str) -> str | None:
    """Return a web or mail address in characters that no markup gives a meaning, or None for anything else."""
    target = well_formed(target)
    if len(target) > MAX_LINK or _HIDDEN.search(target) or not _LINK.match(target):
        return None
    safe = _NOT_IN_LINK.sub(lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()), target)
    return safe.replace("@@", "%40%40")  # a pair is a placeholder to JupyterLab's Markdown


def picture(target: str) -> str | None:
    """Return a picture that is given in full, in a raster format, or None for anything else."""
    return target if len(target) <= MAX_PICTURE and _PICTURE.match(target) else None


def _escape(found: re.Match[str]) -> str:
    return _escape_char(found.group())


def _escape_char(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

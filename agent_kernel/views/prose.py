"""Markdown tokens as HTML: a closed list of elements, no attribute that comes from the text but a judged link or picture.

Formulas stay text here; the typesetter works on the Markdown that follows at the turn's end. What comes here has been made visible
before it was parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markdown_it.token import Token

from agent_kernel.views.literal import apart, link, picture
from agent_kernel.views.mathematics import BLOCK, INLINE

_ELEMENTS = {
    "paragraph": "p",
    "blockquote": "blockquote",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "em": "em",
    "strong": "strong",
    "s": "s",
}
_ALIGNED = {"text-align:left": "left", "text-align:right": "right", "text-align:center": "center"}


def html_blocks(tokens: Sequence[Token]) -> str:
    """Return the HTML of block tokens."""
    return "".join(map(_block, tokens))


def dead(target: str) -> str:
    """Return how the target of a link that leads nowhere is shown."""
    return target if len(target) <= 80 else target[:79] + "\u2026"


def _block(token: Token) -> str:
    kind = token.type
    if kind == "inline":
        return _inline(token.children or [])
    if kind in {"fence", "code_block"}:
        return f"<pre><code>{escape(token.content)}</code></pre>"
    if kind == BLOCK:
        return f"<p><code>{escape(token.meta['source'])}</code></p>"
    if kind == "hr":
        return "<hr>"
    if token.hidden:  # a tight list's paragraphs
        return ""
    return _tag(token)


def _tag(token: Token) -> str:
    """Return the opening or closing tag that a token stands for."""
    base, _, side = token.type.rpartition("_")
    name = token.tag if base == "heading" and token.tag in {"h1", "h2", "h3", "h4", "h5", "h6"} else _ELEMENTS[base]
    if side == "close":
        return f"</{name}>"
    attributes = ""
    if name in {"th", "td"}:
        attributes = f' style="text-align:{_ALIGNED.get(str(token.attrGet("style")), "left")}"'
    elif name == "ol" and token.attrGet("start") is not None:
        attributes = f' start="{int(token.attrGet("start") or 1)}"'
    return f"<{name}{attributes}>"


def _inline(tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    targets: list[str] = []  # of the links that are open
    for token in tokens:
        kind = token.type
        if kind == "text":
            parts.append(apart(escape(token.content)))
        elif kind == "code_inline":
            parts.append(f"<code>{escape(token.content)}</code>")
        elif kind == INLINE:
            parts.append(f"<code>{escape(token.meta['source'])}</code>")
        elif kind in {"softbreak", "hardbreak"}:
            parts.append("\n" if kind == "softbreak" else "<br>")
        elif kind == "link_open":
            targets.append(str(token.attrGet("href") or ""))
            parts.append(_anchor(targets[-1]))
        elif kind == "link_close":
            parts.append(_anchor_end(targets.pop()))
        elif kind == "image":
            parts.append(_image(token))
        else:
            parts.append(_tag(token))
    return "".join(parts)


def _anchor(target: str) -> str:
    safe = link(target)
    return f'<a href="{_in_attribute(safe)}" target="_blank" rel="noopener noreferrer nofollow">' if safe else ""


def _anchor_end(target: str) -> str:
    return "</a>" if link(target) else f" (<code>{escape(dead(target))}</code>)"


def _image(token: Token) -> str:
    source, shown = str(token.attrGet("src") or ""), token.content.strip()
    if picture(source):
        return f'<img src="{source}" alt="{escape(shown)}" style="max-width:100%">'
    return f"{_anchor(source)}{apart(escape(shown or 'picture'))}{_anchor_end(source)}"


def _in_attribute(address: str) -> str:
    """Return an address, which holds no quote but the apostrophe, for an attribute."""
    return address.replace("&", "&amp;").replace("'", "&#x27;")

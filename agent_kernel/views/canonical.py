"""Markdown tokens as canonical Markdown, for a cell output that JupyterLab trusts and others read with parsers of their own.

Law: a raw ``<`` stands only in our own ``code`` and ``span`` and inside fences at column 0 between blank lines, where every parser sees
code; links are judged; formulas are tame; in text, every sign that could begin markup is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.token import Token

from agent_kernel.views.literal import link, picture
from agent_kernel.views.mathematics import BLOCK, INLINE, tame
from agent_kernel.views.prose import dead

_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+#.-]{0,30}")
_DRAWN = {"mermaid"}  # JupyterLab runs these instead of showing them, and their pictures may come from other hosts
_MARKS = {"em_open": "*", "em_close": "*", "strong_open": "**", "strong_close": "**", "s_open": "~~", "s_close": "~~"}
QUOTE = "> "
_RULES = {"text-align:left": ":---", "text-align:right": "---:", "text-align:center": ":---:"}
_TASK = re.compile(r"\[[ xX]\] ")

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LONE = r"(?<![^\W_])_|_(?![^\W_])"  # an underscore inside a word is no markup
# A bare address is a link to some parsers, and JupyterLab's lets a formula behind it into the attribute: so those that stay bare are broken
_BARE = r":(?=//)|(?<=[wW]{3})\.|@"
_ADDRESS = re.compile(r"(?>https?://[A-Za-z0-9\-._~:/?#!&'+,;=%()]*[A-Za-z0-9/])(?!@)")  # no name and password before a host
_SIGNS = re.compile(rf"[&<>`|*\[\]~$\\]|{_LONE}|{_BARE}")
_LINE_START = re.compile(r"^([ \t]*)([#+\-=:]|\d{1,9}(?=[.)]))", re.MULTILINE)
_LATE_HASH = re.compile(r"(?<=[ \t])#")
_CODE_SIGNS = re.compile(rf"[&<>`|*\[\]~$\\!]|{_LONE}|{_BARE}")  # Markdown is read inside our code elements too


def canonical_blocks(tokens: Sequence[Token]) -> str:
    """Return the Markdown of block tokens, ending with a newline where there is any."""
    page = _Page()
    for token in tokens:
        page.take(token)
    text = "\n".join(page.lines).strip("\n")
    return text + "\n" if text else ""


def fenced(text: str, language: str) -> str:
    """Return text in a fence that it cannot close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}"


def inline(tokens: Sequence[Token], *, narrow: bool = False) -> str:
    """Return the Markdown of inline tokens; ``narrow``: on one line, as cells and list items want it."""
    several = sum(token.content.count("$") + (token.type == INLINE) for token in tokens if token.type in {"text", INLINE}) > 1
    parts: list[str] = []
    targets: list[str] = []  # of the links that are open
    for token in tokens:
        kind = token.type
        if kind == "text":
            parts.append(_text(token.content, dollars=several, linked=bool(targets)))
        elif kind == "code_inline":
            parts.append(_code(token.content))
        elif kind == INLINE:
            parts.append(_formula(token))
        elif kind in {"softbreak", "hardbreak"}:
            parts.append(_break(kind, narrow=narrow))
        elif kind == "link_open":
            targets.append(str(token.attrGet("href") or ""))
            parts.append("[" if link(targets[-1]) else "")
        elif kind == "link_close":
            parts.append(_target(targets.pop()))
        elif kind == "image":
            parts.append(_image(token, dollars=several))
        else:
            parts.append(_MARKS[kind])
    return "".join(parts)


class _Container:
    """A quote, a list or an item: what its first and its other lines begin with."""

    def __init__(self, *, first: str = "", rest: str = "", start: int | None = None) -> None:
        self.first, self.rest, self.start = first, rest, start
        self.begun = not first
        self.items = 0
        self.broken = False  # whether a fence at column 0 has ended it

    @property
    def is_item(self) -> bool:
        """Whether this is a list's item."""
        return bool(self.first) and self.first != QUOTE

    def prefix(self) -> str:
        """Return what the next line begins with."""
        if self.begun:
            return self.rest
        self.begun = True
        return self.first

    def item(self) -> _Container:
        """Return the next item of this list."""
        mark = "- " if self.start is None else f"{self.start + self.items}. "
        self.items += 1
        return _Container(first=mark, rest=" " * len(mark))

    def break_off(self) -> None:
        """End it here; what follows is not indented."""
        self.broken = True
        self.rest = self.rest.strip(" ") and self.rest


class _Page:
    """Lines of Markdown under a stack of containers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._stack: list[_Container] = []
        self._table: list[list[str]] = []
        self._rules: list[str] = []
        self._heading = 0
        self._tight = False  # whether the paragraph at hand is a tight list's
        self._after_tight = False  # and the block before it

    def take(self, token: Token) -> None:
        """Write one block token."""
        kind = token.type
        if kind == "inline":
            self._inline(token)
        elif kind.endswith("_open"):
            self._open(kind, token)
        elif kind.endswith("_close"):
            self._close(kind)
        elif kind in {"fence", "code_block"}:
            self._fence(token)
        elif kind == BLOCK:
            formula = tame(token.content)
            self._write([f"$${formula}$$" if formula else _code(" ".join(token.meta["source"].split()))])
        elif kind == "hr":
            self._write(["***"])
        else:
            raise ValueError(f"no such block: {kind}")

    def _open(self, kind: str, token: Token) -> None:
        if kind == "blockquote_open":
            self._stack.append(_Container(first=QUOTE, rest=QUOTE))
        elif kind == "bullet_list_open":
            self._stack.append(_Container())
        elif kind == "ordered_list_open":
            start = token.attrGet("start")
            self._stack.append(_Container(start=1 if start is None else int(start)))
        elif kind == "list_item_open":
            self._stack.append(self._stack[-1].item())
        elif kind in {"heading_open", "paragraph_open"}:
            self._tight = bool(token.hidden)
            self._heading = int(token.tag[1]) if kind == "heading_open" else 0
        elif kind == "table_open":
            self._table, self._rules = [], []
        elif kind == "tr_open":
            self._table.append([])
        elif kind == "th_open":
            self._rules.append(_RULES.get(str(token.attrGet("style")), "---"))

    def _close(self, kind: str) -> None:
        if kind == "table_close":
            head, *rows = self._table
            self._write([_row(head), _row(self._rules), *map(_row, rows)])
            self._table = []
        elif kind in {"list_item_close", "blockquote_close"}:
            if not self._stack[-1].begun:
                self._tight = True
                self._write([""], tight=True)
            self._stack.pop()
        elif kind in {"bullet_list_close", "ordered_list_close"}:
            self._stack.pop()

    def _inline(self, token: Token) -> None:
        children: Sequence[Token] = token.children or []
        if self._table:
            self._table[-1].append(inline(children, narrow=True))
            return
        task = ""
        if self._stack and self._stack[-1].first == "- " and not self._stack[-1].begun:
            task, children = _task(children)
        text = _at_line_start(inline(children, narrow=bool(self._stack) or self._heading > 0))
        if self._heading:
            self._write(["#" * self._heading + " " + _LATE_HASH.sub(r"\\#", text)])
        else:
            self._write((task + text).split("\n"), tight=self._tight)

    def _fence(self, token: Token) -> None:
        """Write a fence at column 0: it ends the containers, and what follows in them goes on unindented."""
        words = token.info.split() if token.type == "fence" else []
        language = words[0] if words and _LANGUAGE.fullmatch(words[0]) and words[0].lower() not in _DRAWN else ""
        if any(container.is_item and not container.begun for container in self._stack):
            self._write([""])
        for container in self._stack:
            container.break_off()
        self.lines += ["", *fenced(token.content, language).split("\n"), ""]
        self._after_tight = False

    def _write(self, lines: list[str], *, tight: bool = False) -> None:
        """Write a block's lines under the prefixes of its containers."""
        if self.lines and self.lines[-1] and not (tight and self._joins()):
            self.lines.append("".join(container.rest for container in self._stack if container.begun).rstrip())
        for line in lines:
            prefix = "".join([container.prefix() for container in self._stack])
            self.lines.append(prefix + line if line else prefix.rstrip())
        self._after_tight = tight

    def _joins(self) -> bool:
        """Tell whether a tight paragraph may follow the last line directly: as an item after another, or as a nested list's first."""
        place = next((place for place, container in enumerate(self._stack) if not container.begun), None)
        if place is None or not self._after_tight or not self._stack[place].is_item:
            return False
        of = self._stack[place - 1]
        if of.items > 1:
            return not of.broken
        return place > 1 and self._stack[place - 2].is_item and not self._stack[place - 2].broken and of.start in {None, 1}


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _task(children: Sequence[Token]) -> tuple[str, Sequence[Token]]:
    """Split a check box off a list item."""
    if not children or children[0].type != "text" or not _TASK.match(children[0].content):
        return "", children
    rest = children[0].copy(content=children[0].content[4:])
    return children[0].content[:4], [rest, *children[1:]]


def _text(text: str, *, dollars: bool = False, linked: bool = False) -> str:
    """Return text in which no sign is markup.

    Args:
        text: Visible text.
        dollars: Whether so many are about that a typesetter might pair them.
        linked: Whether this is the text of a link, which holds no other.
    """

    def sign(found: re.Match[str]) -> str:
        char = found.group()
        if char in _ENTITIES:
            return _ENTITIES[char]
        if char == "\\" or (char == "$" and dollars):
            return f"<span>&#{ord(char)};</span>"
        return f"&#{ord(char)};" if char in "@$`|:." else "\\" + char

    parts, at = [], 0
    for found in () if linked else _ADDRESS.finditer(text):
        target = link(found.group())
        if target is not None:
            shown = _SIGNS.sub(sign, found.group()).replace("&#58;//", "://", 1)
            parts += [_SIGNS.sub(sign, text[at : found.start()]), f"[{shown}]({_in_link(target)})"]
            at = found.end()
    return "".join([*parts, _SIGNS.sub(sign, text[at:])])


def _at_line_start(text: str) -> str:
    """Return inline Markdown in which no line begins a block."""
    return _LINE_START.sub(lambda found: f"{found.group(1)}{_marked(found.group(2))}", text)


def _marked(sign: str) -> str:
    return f"{sign}\\" if sign.isdigit() else "\\" + sign


def _code(text: str) -> str:
    text = text.replace("\n", " ")
    return f"<code>{_CODE_SIGNS.sub(_entity, text)}</code>" if text else ""


def _entity(found: re.Match[str]) -> str:
    return _ENTITIES.get(found.group()) or f"&#{ord(found.group())};"


def _formula(token: Token) -> str:
    formula = tame(token.content)
    if formula is None:
        return _code(token.meta["source"])
    return f"$${formula}$$" if token.meta["display"] else f"${formula}$"


def _break(kind: str, *, narrow: bool) -> str:
    if narrow:
        return " " if kind == "softbreak" else "<br>"
    return "\n" if kind == "softbreak" else "\\\n"


def _target(target: str) -> str:
    safe = link(target)
    return f"]({_in_link(safe)})" if safe else f" ({_code(dead(target))})"


def _in_link(address: str) -> str:
    return address.replace("&", "&amp;").replace("*", "%2A").replace("_", "%5F" if "__" in address else "_")


def _image(token: Token, *, dollars: bool) -> str:
    source, shown = str(token.attrGet("src") or ""), token.content.strip()
    if picture(source):
        return f"![{re.sub(r'[^A-Za-z0-9 ]', ' ', shown)}]({source})"
    opening = "[" if link(source) else ""
    return f"{opening}{_text(shown or 'picture', dollars=dollars, linked=True)}{_target(source)}"

r"""Formulas in a model's Markdown: found before emphasis and escapes would take them apart, and tamed for JupyterLab's typesetter.

Delimiters are those that models write: dollars, ``\(...\)``, ``\[...\]`` and bare environments. Pure; every search is bounded.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

INLINE = "math_inline"
BLOCK = "math_block"
MAX_FORMULA = 4_000  # characters
MAX_LINES = 100

_ENVIRONMENT = re.compile(r"\\begin\{([a-z]{1,20}\*?)\}")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
# Commands that make links, attributes, styles or new commands, or fetch more of the typesetter
_WILD = re.compile(
    r"(?:href|url|class|style|cssId|bbox|label|csname|endcsname|[egx]?def|let|input|verb|char|action|toggle|(?:re)?new(?:command|environment)|providecommand"
    r"|(?:html|mml|data|texttip|tooltip|mathtip|require|include|unicode|declare).*)\Z",
    re.IGNORECASE,
)


def add_math(parser: MarkdownIt) -> None:
    """Teach a parser the formulas."""
    parser.inline.ruler.before("escape", INLINE, _inline)
    parser.block.ruler.before("fence", BLOCK, _block, {"alt": ["paragraph", "blockquote", "list"]})


def tame(formula: str) -> str | None:
    """Return a formula on one line that front ends read alike, or None if it had better be shown as code.

    Law: no ``<``, no link, balanced braces (JupyterLab counts them), no command that does more than set symbols.
    """
    text = " ".join(_COMMENT.sub("", formula).split())
    if not text or any(sign in text for sign in ("`", "$", "@@", "^^", "~~~")) or not _balanced(text) or text.endswith("\\"):
        return None
    if any(_WILD.match(name) for name in _COMMAND.findall(text)):
        return None
    text = re.sub(r" *< *", r" \\lt ", text)
    text = re.sub(r" *> *", r" \\gt ", text)
    return re.sub(r"\](?=[(\[:])", "] ", text).strip()  # a bracket pair before a parenthesis is a link to whoever sees no formula


def _balanced(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"\\[{}\\]|[{}]", text):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return False
    return depth == 0


def _inline(state: StateInline, silent: bool) -> bool:
    start = state.pos
    found = _closed(state.src, start, state.posMax)
    if found is None:
        return False
    content, end, display = found
    if not silent:
        token = state.push(INLINE, "", 0)
        token.content, token.meta = content, {"display": display, "source": state.src[start:end]}
    state.pos = end
    return True


def _closed(text: str, start: int, limit: int) -> tuple[str, int, bool] | None:
    """Return content, end and kind of the formula that starts at a place."""
    if text[start] not in "$\\":
        return None
    limit = min(limit, start + MAX_FORMULA)
    for opening, closing, display in (("$$", "$$", True), ("$", "$", False), ("\\(", "\\)", False), ("\\[", "\\]", True)):
        if not text.startswith(opening, start):
            continue
        begin = start + len(opening)
        end = text.find(closing, begin, limit)
        while opening != "\\[" and end > 0 and text[end - 1] == "\\" and closing[0] == "$":
            end = text.find(closing, end + 1, limit)
        content = text[begin:end] if end >= 0 else ""
        if not content.strip() or _BLANK_LINE.search(content) or not _reads_as_math(opening, content, text[end + 1 : end + 2]):
            return None
        return content, end + len(closing), display
    return None


def _reads_as_math(opening: str, content: str, behind: str) -> bool:
    """Tell a formula from two prices, and from escaped brackets; ``behind`` follows a closing dollar."""
    if opening == "$":
        return not content[0].isspace() and not content[-1].isspace() and "`" not in content and not behind.isdigit()
    return opening != "\\[" or any(sign in content for sign in "\\^_=+")


def _block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    if state.is_code_block(start_line):
        return False
    first = state.src[state.bMarks[start_line] + state.tShift[start_line] : state.eMarks[start_line]]
    environment = _ENVIRONMENT.match(first)
    if environment:
        opening, closing = "", f"\\end{{{environment.group(1)}}}"
    elif first.startswith(("$$", "\\[")):
        opening, closing = first[:2], "$$" if first[0] == "$" else "\\]"
    else:
        return False
    begin = state.bMarks[start_line] + state.tShift[start_line] + len(opening)
    if state.src.find(closing, begin, begin + MAX_FORMULA) < 0:
        return False
    found = _lines_to(state, start_line, end_line, first[len(opening) :], closing)
    if found is None:
        return False
    content, last = found
    if silent:
        return True
    state.line = last + 1
    token = state.push(BLOCK, "", 0)
    token.content, token.map = content + (closing if environment else ""), [start_line, state.line]
    token.meta = {"display": True, "source": opening + content + closing}
    return True


def _lines_to(state: StateBlock, start_line: int, end_line: int, first: str, closing: str) -> tuple[str, int] | None:
    """Return what stands before a closing sign at a line's end, and that line; None where a blank line comes first."""
    lines, line = [first], start_line
    while True:
        stripped = lines[-1].rstrip()
        if stripped.endswith(closing):
            content = "\n".join([*lines[:-1], stripped[: -len(closing)]])
            return (content, line) if content.strip() and closing not in content else None
        if closing in stripped:
            return None
        line += 1
        if line >= min(end_line, start_line + MAX_LINES) or state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return None
        lines.append(state.getLines(line, line + 1, state.blkIndent, False))

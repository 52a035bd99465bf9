"""A model's Markdown for a cell: escaped HTML while the turn runs, canonical Markdown at its end.

Markdown from a running cell is trusted by JupyterLab, and parsers differ in what is code and what is HTML. So nothing passes through:
both forms are written anew from one parser's tokens, raw HTML off. Linear in the text; what fails or nests too deep is shown as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from agent_kernel.views.canonical import canonical_blocks, fenced
from agent_kernel.views.literal import escaped, visible
from agent_kernel.views.mathematics import add_math
from agent_kernel.views.prose import html_blocks

MAX_NESTING = 20  # quotes and list items within each other; the parser drops what is deeper, so such a text is shown as it is
MAX_CHARS = 2_000_000  # more is no prose
MAX_PARAGRAPH = 50_000  # characters in one piece of inline text
MAX_BRACKETS = 10_000  # possible links in one text; an open one costs the parser some 50 us


def answer_html(text: str) -> str:
    """Return a model's Markdown as HTML without script, style, foreign attribute or request to another host."""
    try:
        return html_blocks(parsed(visible(text)))
    except Exception:  # the parser is foreign: what it cannot do is shown as it came
        return plain_html(text)


def canonical(text: str) -> str:
    """Return a model's Markdown as Markdown in which no parser can see HTML but our own ``code``, ``span`` and ``br``."""
    text = visible(text)
    try:
        return canonical_blocks(parsed(text))
    except Exception:  # as above
        return fenced(text, "text") + "\n"


def plain_html(text: str) -> str:
    """Return any text as HTML that shows it, line by line."""
    return f'<pre style="white-space:pre-wrap">{escaped(text)}</pre>'


def parsed(text: str) -> Sequence[Token]:
    """Return the tokens of a text that ``visible`` has been over.

    Raises:
        ValueError: It is too long, or nested too deep to be shown whole.
    """
    if len(text) > MAX_CHARS:
        raise ValueError("too long for Markdown")
    tokens = _parser().parse(text)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        raise ValueError("nested too deep for Markdown")
    if not tokens and text.strip():
        raise ValueError("nothing but definitions, which would not show")
    return tokens


def _bounded(state: StateCore) -> None:
    """Refuse what the inline rules would take too long over; stands before them."""
    texts = [token.content for token in state.tokens if token.type == "inline"]
    if max(map(len, texts), default=0) > MAX_PARAGRAPH or sum(text.count("[") for text in texts) > MAX_BRACKETS:
        raise ValueError("too long for Markdown")


def _parser() -> MarkdownIt:
    """Make a parser: it keeps state while it works, and turns may run in several threads."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
    parser.validateLink = lambda _: True  # type: ignore[method-assign,assignment]  # the writers judge every target, and show the dead ones
    add_math(parser)
    parser.core.ruler.before("inline", "bounded", _bounded)
    return parser

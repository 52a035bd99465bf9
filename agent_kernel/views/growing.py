"""Markdown that is still being written, as HTML, without doing finished paragraphs again.

Only a text's last block can change when more comes (but for link definitions, which the ending sets right), so those before it are
kept. One object per round of a turn.
"""

from __future__ import annotations

from agent_kernel.views.literal import visible
from agent_kernel.views.markdown import parsed, plain_html
from agent_kernel.views.prose import html_blocks

LONG_BLOCK = 100_000  # characters; a longer unfinished block is shown as plain text until it ends


class GrowingMarkdown:
    """HTML of one growing text."""

    def __init__(self) -> None:
        self._text = ""
        self._done: list[str] = []  # HTML of blocks that cannot change any more
        self._from = 0  # where the others begin
        self._html = ""

    def render(self, text: str) -> str:
        """Return the HTML of the text as it is now; one that does not go on from the last is begun anew."""
        text = visible(text)
        if text == self._text:
            return self._html
        if not text.startswith(self._text):
            self._done, self._from = [], 0
        self._text = text
        tail = self._tail(text[self._from :])
        self._html = "".join(self._done) + tail
        return self._html

    def _tail(self, text: str) -> str:
        if len(text) > LONG_BLOCK:
            return plain_html(text)
        try:
            return self._settled(text)
        except Exception:  # the parser is foreign: what it cannot do is shown as it came
            return plain_html(text)

    def _settled(self, text: str) -> str:
        """Return the HTML of the last block, and keep that of the blocks before it."""
        tokens = parsed(text)
        last = max((place for place, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0), default=0)
        lines = tokens[last].map if last else None
        if lines:
            self._done.append(html_blocks(tokens[:last]))
            self._from += _offset(text, lines[0])
            tokens = tokens[last:]
        return html_blocks(tokens)


def _offset(text: str, line: int) -> int:
    """Return where a line begins."""
    at = 0
    for _ in range(line):
        at = text.index("\n", at) + 1
    return at

"""What a reader of an answer gets: Markdown as HTML while it streams, canonical Markdown at the end, nothing lost on the way."""

from __future__ import annotations

import re

import pytest

from agent_kernel.views.growing import GrowingMarkdown
from agent_kernel.views.literal import link, named, one_line, visible
from agent_kernel.views.markdown import answer_html, canonical
from agent_kernel.views.mathematics import tame

WHOLE = """# Title

Some **bold**, *em*, ~~old~~ and snake_case with `code`.
A second line\\
and a break.

1. one
2. two
   - deep
   - [x] done

> quoted

| a | b |
| :--- | ---: |
| 1 | 2 |

```python
x = 1
```

***

[docs](https://example.org/a_b?x=1&y=2) and $x^2$

$$a = b$$
"""


def test_canonical_text_stays_canonical():
    once = canonical(WHOLE)
    assert canonical(once.replace("<code>", "`").replace("</code>", "`").replace("&amp;", "&")) == once
    for piece in (
        "# Title",
        "**bold**",
        "*em*",
        "~~old~~",
        "snake_case",
        "<code>code</code>",
        "2. two",
        "   - [x] done",
        "> quoted",
        "```python\nx = 1\n```",
        "$x^2$",
        "$$a = b$$",
    ):
        assert piece in once


def test_html_has_the_same_structure(judged):
    html = answer_html(WHOLE)
    text = judged(html)
    for tag in ("h1", "strong", "em", "s", "code", "ol", "ul", "blockquote", "table", "pre", "hr", "br"):
        assert f"<{tag}" in html
    assert 'href="https://example.org/a_b?x=1&amp;y=2" target="_blank" rel="noopener noreferrer nofollow"' in html
    assert 'style="text-align:right"' in html
    assert "$x^2$" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`a | b` <b> & c", "<code>a &#124; b</code> &lt;b&gt; &amp; c\n"),
        ("- a\n  ```py\n  x\n  ```\n- b", "- a\n\n```py\nx\n```\n\n- b\n"),
        ("1. a\n\n   ```\n   x\n   ```\n\n   after\n2. b", "1. a\n\n```\nx\n```\n\nafter\n\n2. b\n"),
        ("> ```\n> x\n> ```\n> y", "```\nx\n```\n\n> y\n"),
        ("````\n```\n````", "````\n```\n````\n"),
        ("    indented <b>", "```\nindented <b>\n```\n"),
        ("\\# no head\n\\- no item\n1\\. no number\n\\+ x", "\\# no head\n\\- no item\n1\\. no number\n\\+ x\n"),
        ("a \\* b \\_c\\_ \\[d\\](e) \\`f\\`", "a \\* b \\_c\\_ \\[d\\](e) &#96;f&#96;\n"),
        ("```mermaid\na\n```", "```\na\n```\n"),
        ("- a\n- b\n\n  c\n- d", "- a\n\n- b\n\n  c\n\n- d\n"),
        ("3. a\n4. b\n   1. c\n   2. d", "3. a\n4. b\n   1. c\n   2. d\n"),
        ("| a |\n|---|\n| x \\| y |", "| a |\n| --- |\n| x &#124; y |\n"),
        ("![plot](https://example.org/p.png)", "[plot](https://example.org/p.png)\n"),
        ("![plot](data:image/png;base64,AAAA)", "![plot](data:image/png;base64,AAAA)\n"),
        ("[x](javascript:y)", "x (<code>javascript:y</code>)\n"),
        ("<mailto:a@example.org>", "[mailto:a&#64;example.org](mailto:a@example.org)\n"),
        ("see https://example.org/a_b?c=1&d=2.", "see [https://example.org/a_b?c=1&amp;d=2](https://example.org/a_b?c=1&amp;d=2).\n"),
        ("www.example.org a@example.org ftp://x", "www&#46;example.org a&#64;example.org ftp&#58;//x\n"),
        ("https://example.org@evil.test/", "https&#58;//example.org&#64;evil.test/\n"),
        ("[http://a.b](http://c.d)", "[http&#58;//a.b](http://c.d)\n"),
    ],
)
def test_canonical_forms(text, expected):
    assert canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\(a < b\\)", "$a \\lt b$\n"),
        ("\\[\na &= b \\\\\n- c\n\\]", "$$a &= b \\\\ - c$$\n"),
        ("Then:\n\\begin{align*}\na &> b\n\\end{align*}", "Then:\n\n$$\\begin{align*} a & \\gt b \\end{align*}$$\n"),
        ("$a_1$ and $b_1$", "$a_1$ and $b_1$\n"),
        ("costs $5", "costs &#36;5\n"),
        ("costs $5 or $6", "costs <span>&#36;</span>5 or <span>&#36;</span>6\n"),
        ("echo `$HOME` for $3, `$PATH`", "echo <code>&#36;HOME</code> for &#36;3, <code>&#36;PATH</code>\n"),
        ("$\\href{https://x}{y}$", "<code>&#36;&#92;href{https&#58;//x}{y}&#36;</code>\n"),
        ("C:\\temp", "C:<span>&#92;</span>temp\n"),
        ("$[a](b)$", "$[a] (b)$\n"),
        ("$\\{ a$ and ${b$", "$\\{ a$ and <code>&#36;{b&#36;</code>\n"),
    ],
)
def test_formulas(text, expected):
    assert canonical(text) == expected


def test_formulas_with_two_readings_are_code():
    for formula in ("a ` b", "{a", "a}{b", "@@0@@", "\\unicode{x}", "\\def\\x{y}", "\\htmlClass{a}{b}", "x\\", "  "):
        assert tame(formula) is None
    for formula in (
        "\\delta \\bullet",
        "\\displaystyle x",
        "\\left\\{ a \\right.",
        "\\frac{a}{b}",
        "\\begin{matrix} a & b \\\\[2pt] c \\end{matrix}",
    ):
        assert tame(formula) == formula


def test_what_cannot_be_read_as_markdown_is_shown_as_it_came(judged):
    deep = "> " * 40 + "text"
    assert "text" in canonical(deep)
    assert "text" in judged(answer_html(deep))
    only_definitions = "[a]: https://example.org"
    assert "example.org" in canonical(only_definitions)
    assert "example.org" in answer_html(only_definitions)
    assert canonical("") == answer_html("") == ""
    long = "word " * 20_000
    assert canonical(long).startswith("```text\nword ")


def test_hidden_characters_are_seen():
    assert visible("a\x1b[31mb\x1b[0m\r\nc\x07\u202e\u200b") == "ab\nc\\x07\\u202e\\u200b"
    assert visible("\U0001f469\u200d\U0001f52c \u0646\u200c\u0645") == "\U0001f469\u200d\U0001f52c \u0646\u200c\u0645"
    assert named("pay\u200dpal\n\xa0x") == "pay\\u200dpal\\x0a\\xa0x"
    assert one_line("a\n  b\tc", 100) == "a b c"
    assert one_line("x" * 50, 10) == "x" * 9 + "\u2026"


def test_links_that_lead_somewhere():
    assert link("https://example.org/a(b)_c?d=[e]#f") == "https://example.org/a%28b%29_c?d=%5Be%5D#f"
    assert link("HTTP://example.org") == "HTTP://example.org"
    assert link("mailto:a@example.org?subject=x") == "mailto:a@example.org?subject=x"
    for dead in (
        "",
        "x",
        "/x",
        "//example.org",
        "#a",
        "javascript:x",
        "http:x",
        "https://",
        "file:///x",
        "ftp://x",
        "https://a\u202eb",
        "https://" + "a" * 3000,
    ):
        assert link(dead) is None


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_growing_text_ends_like_a_whole_one(step):
    text = WHOLE * 3 + "\x1b[1mlast\x1b[0m **words"
    growing = GrowingMarkdown()
    for end in range(step, len(text) + step, step):
        html = growing.render(text[:end])
    assert html == answer_html(text)
    assert growing.render("anew") == answer_html("anew")


def test_finished_paragraphs_are_not_rendered_again():
    growing = GrowingMarkdown()
    text = "".join(f"Paragraph {number} with `code`.\n\n" for number in range(500))
    growing.render(text)
    assert growing._from > len(text) - 100  # private: the work that is saved has no other sign than time
    assert len(re.findall("<p>", growing.render(text + "more"))) == 501

"""What model and tools write is shown and never obeyed: the attack corpus through every form that a cell gets."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import mistune
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from agent_kernel.views.cards import card
from agent_kernel.views.ending import answer, transcript
from agent_kernel.views.growing import GrowingMarkdown
from agent_kernel.views.markdown import answer_html, canonical

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
RAW = re.compile(r"<(?!/?code>|/?span>|br>)")


def outside_fences(text):
    """Return a text's lines without the fences at column 0 that stand between blank lines."""
    kept, fence, before = [], None, ""
    for line in text.split("\n"):
        opening = re.match(r"(`{3,})[A-Za-z0-9_+#.-]*$", line)
        if fence is None and opening:
            assert before == "", f"a fence right after {before!r}"
            fence = opening.group(1)
        elif fence is not None:
            fence = None if line == fence else fence
        else:
            kept.append(line)
        before = line
    assert fence is None
    return kept


def test_html_of_an_answer_holds_our_elements_only(attack, judged):
    html = answer_html(attack)
    judged(html)
    assert not OBEYED.search(html)


def test_markdown_of_an_answer_has_raw_html_in_fences_only(attack, judged_markdown):
    text = canonical(attack)
    assert not OBEYED.search(text)
    for line in outside_fences(text):
        assert not RAW.search(line), line
    judged_markdown(text)


def test_other_parsers_see_no_html_either(attack, harmless):
    text = canonical(attack)
    harmless(mistune.html(text))
    harmless(markdown2html_mistune(text))


def test_half_an_attack_is_shown_while_it_streams(attack, judged):
    growing = GrowingMarkdown()
    step = max(7, len(attack) // 12)
    for end in range(step, len(attack) + step, step):
        judged(growing.render(attack[:end]))


def test_names_arguments_and_results_are_shown_in_cards(attack, judged, folded):
    state = folded(
        "answer",
        call=(attack[:200], json.dumps({attack[:200]: attack})),
        result=attack,
        error=attack,
        turn_error=attack,
        artifact=True,
        handle=attack[:9],
    )
    bundle = transcript(state)
    judged(bundle["text/html"])
    assert not OBEYED.search(bundle["text/html"] + bundle["text/plain"])
    judged(card(folded("x", call=(attack, attack), result=attack).tool_calls[0], 0.0))
    assert answer(folded(attack)) is None or not OBEYED.search(answer(folded(attack))["text/plain"])


def test_a_typesetter_finds_no_formula_in_html(folded):
    """MathJax reads the text of the page between two tags, but not that of code and pre."""
    tricky = "$\\href{javascript:alert(1)}{x}$ \\(y\\) $$z$$ \\begin{align}a\\end{align} \\\\(w\\\\) costs $5 $6"
    html = transcript(folded("final", call=(tricky, tricky), result=tricky, error=tricky, turn_error=tricky, reasoning=tricky))[
        "text/html"
    ] + answer_html(tricky)
    bare = re.sub(r"<(code|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    assert not re.findall(r">[^<]*(?:\$[^<]*\$|\\[(\[b])[^<]*<", bare)
    markdown = canonical("\\\\(\\href{javascript:alert(1)}{x}\\\\) and $5 or $6 \\\\begin{equation}x")
    assert "$" not in markdown
    assert "\\" not in markdown


FRAGMENTS = json.loads((Path(__file__).resolve().parents[1] / "data" / "attacks.json").read_text())["fragments"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
def test_no_mixture_of_fragments_gets_through(judged, judged_markdown, harmless, text):
    judged(answer_html(text))
    markdown = canonical(text)
    assert not any(RAW.search(line) for line in outside_fences(markdown)), markdown
    judged_markdown(markdown)
    harmless(mistune.html(markdown))


def test_a_long_answer_is_written_in_linear_time():
    paragraph = "Some **bold** text with `code` and more words, [a link](http://example.org/) here and there.\n" * 5 + "\n"
    answer_html(paragraph)
    costs = []
    for size in (50_000, 200_000):
        text = paragraph * (size // len(paragraph))
        begun = time.process_time()
        canonical(text)
        answer_html(text)
        costs.append(time.process_time() - begun)
    print(f"200 kB both ways: {costs[1]:.2f} s, {costs[1] / costs[0]:.1f} times 50 kB")
    assert costs[1] / costs[0] < 4 * 4
    assert costs[1] < 4 * 1.0

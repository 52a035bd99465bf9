"""The first line: options, their values, and where the prompt begins."""

from __future__ import annotations

import pytest

from agent_kernel.errors import SettingsError
from agent_kernel.notebook.options import Options, parse, prompt_of


@pytest.mark.parametrize(
    ("line", "options", "rest"),
    [
        ("", {}, ""),
        ("hello -m x", {}, "hello -m x"),
        ("-m gpt hello", {"model": "gpt"}, " hello"),
        ("--model=gpt  hello", {"model": "gpt"}, "  hello"),
        ("-t a,b,c", {"tools": ("a", "b", "c")}, ""),
        ("-t none ask", {"tools": ()}, " ask"),
        ("--new --quiet what?", {"new": True, "quiet": True}, " what?"),
        ('--name "my session" go', {"name": "my session"}, " go"),
        ("--name 'it''s' go", {"name": "it"}, "'s' go"),
        ("--max-rounds 3 --approve ask go", {"max_rounds": 3, "approve": "ask"}, " go"),
        ("-- -m x", {}, "-m x"),
        ("--quiet -- --new", {"quiet": True}, "--new"),
        ("- a list item", {}, "- a list item"),
        ("-5 + 3?", {}, "-5 + 3?"),
        ("--- rule", {}, "--- rule"),
        ("-h", {"help": True}, ""),
    ],
)
def test_options_count_only_before_the_first_other_word(line, options, rest):
    parsed = parse(line)
    assert parsed.options == Options(**options)
    assert parsed.rest == rest
    assert parsed.ended == (" -- " in f" {line}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--modell x", ["--modell", "--model", "write -- before it"]),
        ("-x hello", ["-x", "-m"]),
        ("--model", ["--model needs a value"]),
        ("--max-rounds many", ["--max-rounds is 'many'", "1 to 1,000"]),
        ("--max-rounds 0", ["1 to 1,000"]),
        ("--max-rounds 1001", ["1 to 1,000"]),
        ("--approve maybe", ["allow, ask, deny"]),
        ("--new=1 x", ["takes no value"]),
        ("--name '' x", ["not empty"]),
    ],
)
def test_what_does_not_fit_says_what_would(line, words):
    with pytest.raises(SettingsError) as caught:
        parse(line)
    for word in words:
        assert word in str(caught.value)


def test_the_prompt_is_the_first_lines_rest_and_the_body():
    assert prompt_of("", "body\n") == "body"
    assert prompt_of("", "body\n\n") == "body\n"
    assert prompt_of("   ", " body") == " body"
    assert prompt_of(" first ", "body") == "first \nbody"
    assert prompt_of(" line\t", None) == "line\t"

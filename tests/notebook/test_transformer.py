"""Cell text through IPython's transforms with ours among them: prompts byte for byte, awaits only where they are legal."""

from __future__ import annotations

import ast

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from agent_kernel.notebook.options import parse, prompt_of
from agent_kernel.notebook.transformer import CallRewrite, CellPrompt, agent_line


def owns(name):
    return name in {"agent", "ak"}


def transformed(cell, *, awaits=True):
    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, CellPrompt(owns))
    manager.token_transformers.insert(0, agent_line(owns))
    rewrite = CallRewrite(owns, lambda: awaits)
    return "".join(rewrite(manager.transform_cell(cell).splitlines(keepends=True)))


def calls(cell, *, awaits=True):
    """What the magics would be called with: name and arguments of each call."""
    code = transformed(cell, awaits=awaits)
    compile(code, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    magics = {"run_line_magic", "run_cell_magic"}
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in magics]
    return [[argument.value for argument in node.args] for node in nodes]


def prompt(cell):
    ((_, *arguments),) = calls(cell)
    body = arguments[1] if len(arguments) > 1 else None
    return prompt_of(parse(arguments[0]).rest, body)


BODIES = [
    "what is x?",
    "why??",
    "price is $5 and $x {x} {{y}} {x!r}",
    'it\'s "quoted" and \'\'\'so\'\'\' and """so"""',
    "back\\slash and a trailing one \\",
    "# a comment first\n# and second",
    "\n\n  indented after blank lines\n    more",
    "    all\n    indented",
    ">>> doctest(1)\n... more\n1",
    "In [1]: prompt-like\n   ...: more",
    "emoji 😀👩‍👩‍👧 and ünï, CJK 漢字, RTL שלום",
    "%matplotlib inline\n!ls\n?help",
    "%%agent\nnested",
    'unbalanced ( [ { \' """',
    "tab\tand form\x0cfeed and line\u2028separator and nul \x00",
    "trailing blanks   ",
    "\\N{BULLET} \\u0041 \\x41 %s %(x)s",
    "-- dashes -m x",
    "status",
    "r'raw' b'bytes' f'{x}'",
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("head", ["%%agent\n", "\n  \n%%agent -m offline --quiet\n"])
def test_a_cells_body_arrives_byte_for_byte(body, head):
    assert prompt(head + body) == body


@pytest.mark.parametrize(
    "line", [body for body in BODIES if not set(body) & set("\n\x0c\u2028") and body.lstrip() == body and not body.startswith("--")]
)
@pytest.mark.parametrize("form", ["%agent {}", "x = %agent {}", "x: int = %agent {}", "a.b[0] = %agent {}", "x = y = %agent {}", "%ak {}"])
def test_a_line_arrives_byte_for_byte(line, form):
    assert prompt(form.replace("{}", line)) == line


@pytest.mark.parametrize("line", ["what is this?", "trailing \\", "it's", "open ("])
def test_the_next_lines_are_left_alone(line):
    code = transformed(f"y = 1\nx = %agent {line}\nz = 2\n%agent {line}\nw = 3\n")
    assert code.startswith("y = 1\nx = (await get_ipython()")
    assert "\nz = 2\n((await get_ipython()" in code
    assert code.endswith(", None)[1]\nw = 3\n")
    assert calls(f"x = %agent {line}\nz = 2\n") == [["agent_awaited", line]]


def test_the_first_lines_words_begin_the_prompt():
    assert prompt("%%agent --quiet what is\nthis?") == "what is\nthis?"
    assert prompt("%%agent what?") == "what?"
    assert prompt("%%agent what?  \n") == "what?  "


def test_an_empty_cell_calls_the_magic_with_an_empty_prompt():
    for cell in ("%%agent", "%%agent\n", "%%agent --quiet\n"):
        assert prompt(cell) == ""


def test_help_stays_help():
    for cell in ("%agent?", "%%agent?", "%agent??"):
        assert "pinfo" in transformed(cell)
        assert "await" not in transformed(cell)
    assert "pinfo" in transformed("x?")
    assert "%other thing?" not in transformed("x = %other thing?")


@pytest.mark.parametrize(
    "cell",
    [
        "def f():\n    %agent hello",
        "async def f():\n    x = %agent hello",
        "class A:\n    x = %agent hello",
        "f = lambda: get_ipython().run_line_magic('agent', 'x')",
        "[get_ipython().run_line_magic('agent', str(i)) for i in range(3)]",
        "%%time\n%agent hello",
        "%time %agent hello",
        "%other hello",
        "x = 10 %agent",
    ],
)
def test_what_is_not_the_cells_own_top_level_is_not_awaited(cell):
    assert "await" not in transformed(cell)


def test_calls_inside_blocks_are_awaited():
    code = transformed("if True:\n    x = %agent a?\nfor i in range(2):\n    %agent 😀 b\nwith z:\n    y = %agent c\n")
    assert code.count("(await get_ipython()") == 3
    assert [name for name, _ in calls("if True:\n    x = %agent a?\n")] == ["agent_awaited"]
    assert "    ((await get_ipython().run_line_magic('agent_awaited', '😀 b')), None)[1]\n" in code


def test_several_calls_and_wide_characters_in_one_statement():
    code = transformed("é = '漢'; x = [get_ipython().run_line_magic('agent', 'ü'), get_ipython().run_line_magic('ak', 'b')]; y = 'ß'")
    assert code == (
        "é = '漢'; x = [(await get_ipython().run_line_magic('agent_awaited', 'ü')), "
        "(await get_ipython().run_line_magic('ak_awaited', 'b'))]; y = 'ß'\n"
    )


def test_without_await_only_the_value_of_statements_is_hidden():
    assert transformed("%agent hello", awaits=False) == "(get_ipython().run_line_magic('agent', 'hello'), None)[1]\n"
    assert transformed("x = %agent hello", awaits=False) == "x = get_ipython().run_line_magic('agent', 'hello')\n"


def test_a_renamed_get_ipython_and_bad_syntax_are_left_alone():
    rewrite = CallRewrite(owns, lambda: True)
    for line in ("ip().run_line_magic('agent', 'x')\n", "get_ipython().run_line_magic('agent', 'x'\n"):
        assert rewrite([line]) == [line]


def test_a_cell_being_typed_is_complete_only_at_a_blank_line():
    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, CellPrompt(owns))
    assert manager.check_complete("%%agent\nfirst line")[0] == "incomplete"
    assert manager.check_complete("%%agent\nfirst line\n\n")[0] == "complete"


def test_a_name_that_is_not_ours_is_left_to_ipython():
    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, CellPrompt(lambda name: False))
    manager.token_transformers.insert(0, agent_line(lambda name: False))
    assert manager.transform_cell("%%agent\n>>> x") == "get_ipython().run_cell_magic('agent', '', 'x\\n')\n"

"""Three input transformers for `%agent` and `%%agent`: prompts survive byte for byte, and top-level calls are awaited.

``CellPrompt`` stands before IPython's own transforms, ``agent_line`` first among its token transforms, ``CallRewrite`` after all of
them. They only rewrite text and never run anything; what they do not understand is left for IPython and the sync entry.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.inputtransformer2 import TokenTransformBase

Owns = Callable[[str], bool]

AWAITED = "_awaited"  # suffix of the magic that returns a coroutine
_CELL = re.compile(r"[ \t]*%%(\w+)(?:[ \t]([^\r\n]*))?\r?\n?\Z")
_NEWLINE = re.compile(rb"\r\n|\r|\n")
_IGNORED = {tokenize.INDENT, tokenize.DEDENT}
_ENDS = {tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER}


class CellPrompt:
    """Turns a whole `%%agent` cell into one call before IPython dedents it, strips doctest prompts or misses its empty body."""

    has_side_effects = True  # keeps IPython from using it to ask whether a typed cell is complete

    def __init__(self, owns: Owns) -> None:
        """Keep the test for names that are ours."""
        self._owns = owns

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the call, or the lines as they are."""
        start = next((row for row, line in enumerate(lines) if not line.isspace()), None)
        found = _CELL.match(lines[start]) if start is not None else None
        if start is None or found is None or not self._owns(found[1]):
            return lines
        body = "".join(lines[start + 1 :])
        # IPython refuses an empty body, so that one newline stands for it; the magic takes one newline off every body.
        return [f"get_ipython().run_cell_magic({found[1]!r}, {found[2] or ''!r}, {body or chr(10)!r})\n"]


def agent_line(owns: Owns) -> type[TokenTransformBase]:
    """Return a token transform for `%agent ...` and `x = %agent ...` that outranks help (`?`) and line joining (a trailing backslash)."""

    class AgentLine(TokenTransformBase):
        priority = 0

        def __init__(self, start: tuple[int, int], percent: tuple[int, int]) -> None:
            super().__init__(start)  # type: ignore[no-untyped-call]  # IPython has no annotation here
            self.percent = (percent[0] - 1, percent[1])

        @classmethod
        def find(cls, tokens_by_line: list[list[tokenize.TokenInfo]]) -> AgentLine | None:
            for line in tokens_by_line:
                tokens = [token for token in line if token.type not in _IGNORED]
                percent = _percent(tokens, owns)
                if percent is not None:
                    return cls(tokens[0].start, tokens[percent].start)
            return None

        def transform(self, lines: list[str]) -> list[str]:
            row, column = self.percent
            left, call = lines[row][:column], lines[row][column + 1 :].rstrip("\r\n")
            name = re.match(r"\w+", call)
            prompt = call[name.end() :][1:] if name else ""
            code = f"{left}get_ipython().run_line_magic({name.group() if name else ''!r}, {prompt!r})\n"
            return [*lines[:row], code, *lines[row + 1 :]]

    return AgentLine


def _percent(tokens: Sequence[tokenize.TokenInfo], owns: Owns) -> int | None:
    """Return where the `%` of one of our magics stands: first in the line, or right after an assignment's `=`."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.string == "%" and depth == 0 and (index == 0 or tokens[index - 1].string == "="):
            return index if _is_call(tokens[index : index + 3], owns) else None
        if token.string in {"(", "[", "{"}:
            depth += 1
        elif token.string in {")", "]", "}"}:
            depth -= 1
    return None


def _is_call(tokens: Sequence[tokenize.TokenInfo], owns: Owns) -> bool:
    """Tell whether `%`, a name of ours, and then a blank or the line's end follow each other (`%agent?` stays help)."""
    if len(tokens) < 2 or tokens[1].type != tokenize.NAME or tokens[0].end != tokens[1].start or not owns(tokens[1].string):
        return False
    after = tokens[2] if len(tokens) > 2 else None
    return after is None or after.type in _ENDS or after.start != tokens[1].end or after.string.isspace()


class CallRewrite:
    """Rewrites finished cell text: our calls that stand as a whole statement show no value, and are awaited where that is legal."""

    def __init__(self, owns: Owns, may_await: Callable[[], bool]) -> None:
        """Keep the tests for our names and for a cell that a front end started."""
        self._owns = owns
        self._may_await = may_await

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the rewritten lines, or the same ones where there is nothing of ours or nothing that parses."""
        source = "".join(lines)
        if "run_cell_magic(" not in source and "run_line_magic(" not in source:
            return lines
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return lines
        calls = _Calls(self._owns)
        calls.visit(tree)
        if not calls.found:
            return lines
        return _rewritten(source, calls, awaited=self._may_await()).splitlines(keepends=True)


class _Calls(ast.NodeVisitor):
    """Finds our calls outside functions, classes, lambdas and comprehensions."""

    def __init__(self, owns: Owns) -> None:
        self._owns = owns
        self.found: list[ast.Call] = []
        self.statements: set[ast.Call] = set()

    def visit_Expr(self, node: ast.Expr) -> None:  # the name that ast calls
        if isinstance(node.value, ast.Call):
            self.statements.add(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:  # the name that ast calls
        if self._is_ours(node):
            self.found.append(node)
        else:
            self.generic_visit(node)

    def _skip(self, node: ast.AST) -> None:
        """Leave what is below alone: it is not the cell's own top level."""

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _skip  # noqa: N815
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _skip  # noqa: N815

    def _is_ours(self, node: ast.Call) -> bool:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr="run_line_magic" | "run_cell_magic"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                return self._owns(name)
        return False


def _rewritten(source: str, calls: _Calls, *, awaited: bool) -> str:
    """Return the source with our calls edited from the last to the first, so that earlier positions stay true."""
    text = source.encode("utf-8", "surrogatepass")
    starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
    for call in sorted(calls.found, key=lambda call: (call.lineno, call.col_offset), reverse=True):
        begin, end = _offset(starts, call.lineno, call.col_offset), _offset(starts, call.end_lineno, call.end_col_offset)
        code = text[begin:end]
        if awaited:
            name: Any = call.args[0]
            first = _offset(starts, name.lineno, name.col_offset) - begin
            last = _offset(starts, name.end_lineno, name.end_col_offset) - begin
            code = b"(await " + code[:first] + repr(name.value + AWAITED).encode() + code[last:] + b")"
        if call in calls.statements:
            code = b"(" + code + b", None)[1]"  # the statement's value is None, and nothing is shown
        text = text[:begin] + code + text[end:]
    return text.decode("utf-8", "surrogatepass")


def _offset(starts: list[int], line: int | None, column: int | None) -> int:
    """Return the byte offset of a position as ``ast`` gives it: line from 1, column in UTF-8 bytes."""
    return starts[(line or 1) - 1] + (column or 0)

"""The first line of `%agent` and `%%agent`: options, then the prompt byte for byte.

Options count only before the first other word, and ``--`` ends them. Pure text work: nothing is run, looked up or expanded.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from agent_kernel.errors import SettingsError
from agent_kernel.notebook.settings import close, find, read

_WORD = re.compile(r"\s*(--?[A-Za-z][\w-]*)(?:=|(?=\s|\Z))")
_VALUE = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|(\S+))")
_END = re.compile(r"\s*--(?=\s|\Z)\s?")


class Options(Struct, frozen=True, kw_only=True):
    """What a call asks for beside its prompt; None or False: not given."""

    model: str | None = None
    tools: tuple[str, ...] | None = None
    new: bool = False
    fork: bool = False
    name: str | None = None
    max_rounds: int | None = None
    approve: str | None = None
    quiet: bool = False
    help: bool = False


class _Option(Struct, frozen=True):
    field: str
    short: str | None
    value: str | None  # what help calls it; None: a switch
    about: str


OPTIONS: tuple[_Option, ...] = (
    _Option("model", "-m", "NAME", "the model for this turn: a name, offline, or a Model from your namespace"),
    _Option("tools", "-t", "A,B", "the tools on offer; none for no tools"),
    _Option("new", None, None, "start a new session first"),
    _Option("fork", None, None, "ask in a fork of the session, which stays as it is; also where another kernel has it"),
    _Option("name", None, "NAME", "go on with the newest session of this name, or start it"),
    _Option("max_rounds", None, "N", "model requests in this turn"),
    _Option("approve", None, "allow|ask|deny", "policy for tool calls in this turn"),
    _Option("quiet", None, None, "show only the answer, at the end"),
    _Option("help", "-h", None, "show this text"),
)


class Parsed(Struct, frozen=True, kw_only=True):
    """A first line taken apart; ``ended`` tells that ``--`` came before the rest, which makes it a prompt whatever it says."""

    options: Options
    rest: str
    ended: bool


def parse(line: str) -> Parsed:
    """Take options off the front of a line; what follows is kept byte for byte.

    Raises:
        SettingsError: An unknown option, a missing value or one that does not fit.
    """
    given: dict[str, Any] = {}
    at = 0
    while not (end := _END.match(line, at)) and (word := _WORD.match(line, at)):
        option = _named(word[1])
        at = word.end()
        if option.value is None:
            if word[0].endswith("="):
                raise SettingsError(f"{word[1]} takes no value.")
            given[option.field] = True
            continue
        value = _VALUE.match(line, at)
        if value is None:
            raise SettingsError(f"{word[1]} needs a value: {word[1]} {option.value}.")
        at = value.end()
        given[option.field] = _value(option, next(group for group in value.groups() if group is not None))
    return Parsed(options=Options(**given), rest=line[end.end() :] if end else line[at:], ended=end is not None)


def _named(word: str) -> _Option:
    names = {name: option for option in OPTIONS for name in (option.short, f"--{option.field.replace('_', '-')}") if name}
    option = names.get(word)
    if option is None:
        hint = close(word, names) if word.startswith("--") else f" Known: {', '.join(names)}."
        raise SettingsError(f"Unknown option {word}.{hint} To begin a prompt with a dash, write -- before it.")
    return option


def _value(option: _Option, text: str) -> Any:
    shown = f"--{option.field.replace('_', '-')}"
    if option.field == "tools":
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        return () if names == ("none",) else names
    if option.field == "name":
        if not text.strip():
            raise SettingsError(f"{shown} needs a name that is not empty.")
        return text.strip()
    return read(find(option.field), text, shown)


def prompt_of(rest: str, body: str | None) -> str:
    """Join a first line's rest and a cell's body (None for a line magic) to the prompt.

    One newline at the body's end is IPython's own and is taken off; nothing else is.
    """
    if body is None:
        return rest.lstrip()
    body = body.removesuffix("\n")
    if not rest.strip():
        return body
    return f"{rest.lstrip()}\n{body}" if body else rest.lstrip()

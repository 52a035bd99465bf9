"""The words after a command's name, and whether they fit it: what does not fit is a prompt that someone forgot to mark as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from agent_kernel.notebook.history import FORMATS
from agent_kernel.notebook.settings import SETTINGS, find
from agent_kernel.store.sql import GROUPS

Split = Callable[[str], tuple[str, ...]]
Fits = Callable[[Sequence[str]], bool]

_WORD = re.compile(r"\"([^\"]*)\"(?=\s|\Z)|'([^']*)'(?=\s|\Z)|(\S+)")
_HANDLE = re.compile(r"[a-z]\d+")
# First words of what may be SQL; what of it is allowed is the database's business.
_SQL = re.compile(
    r"(?:select|with|from|values|describe|show|summarize|explain|pragma|set|copy|attach|detach|install|load|insert|update|delete|create|drop|alter)\b",
    re.IGNORECASE,
)


def words(text: str) -> tuple[str, ...]:
    """Split at blanks; quotes keep a name with blanks together."""
    return tuple(next(group for group in found.groups() if group is not None) for found in _WORD.finditer(text))


def whole(text: str) -> tuple[str, ...]:
    """Take all of it as one argument, or none."""
    return (text.strip(),) if text.strip() else ()


def name_and_rest(text: str) -> tuple[str, ...]:
    """Take a first word, and all that follows as a second argument."""
    return tuple(part.strip() for part in text.split(None, 1))


def nothing(arguments: Sequence[str]) -> bool:
    """Tell whether there are none."""
    return not arguments


def at_most_one(arguments: Sequence[str]) -> bool:
    """Tell whether there is one or none."""
    return len(arguments) <= 1


def one(arguments: Sequence[str]) -> bool:
    """Tell whether there is one that is not empty."""
    return len(arguments) == 1 and bool(arguments[0].strip())


def anything(arguments: Sequence[str]) -> bool:  # noqa: ARG001 - all of these have one shape
    """Fit always."""
    return True


def shown(arguments: Sequence[str]) -> bool:
    """Tell whether they are a handle, a session, a turn's number, or a session and a number."""
    return at_most_one(arguments) or (len(arguments) == 2 and arguments[1].isdecimal())


def is_handle(word: str) -> bool:
    """Tell whether a word has the form of a result's handle."""
    return _HANDLE.fullmatch(word) is not None


def is_turn(word: str) -> bool:
    """Tell whether a word is the number of a turn rather than the beginning of an id."""
    return word.isdecimal() and len(word) <= 4


def tree(arguments: Sequence[str]) -> bool:
    """Tell whether they are what ``log`` takes."""
    return tuple(arguments) in {(), ("--tree",)}


def grouped(arguments: Sequence[str]) -> bool:
    """Tell whether they are what ``usage`` takes."""
    return not arguments or (len(arguments) == 2 and arguments[0] == "by" and arguments[1] in GROUPS)


def sql(arguments: Sequence[str]) -> bool:
    """Tell whether they begin like SQL."""
    return len(arguments) == 1 and _SQL.match(arguments[0]) is not None


def set_one(arguments: Sequence[str]) -> bool:
    """Fit unless it reads like a sentence; an unknown setting raises by itself, with close names."""
    if arguments:
        names = {setting.name for setting in SETTINGS}
        if arguments[0] not in names and len(arguments) > 1 and " " in arguments[1]:
            return False
        find(arguments[0])
    return True


class Fork(Struct, frozen=True, kw_only=True):
    """What ``fork`` is asked for."""

    at: int | None = None
    name: str | None = None


def fork(arguments: Sequence[str]) -> Fork | None:
    """Read ``[--at N] [NAME]``, in any order; None where it does not fit."""
    at, names, left = None, [], list(arguments)
    while left:
        word = left.pop(0)
        if word == "--at" and left and left[0].isdecimal() and at is None:
            at = int(left.pop(0))
        elif word.startswith("--at=") and word[5:].isdecimal() and at is None:
            at = int(word[5:])
        elif word.startswith("--"):
            return None
        else:
            names.append(word)
    return Fork(at=at, name=names[0] if names else None) if len(names) <= 1 else None


class Export(Struct, frozen=True, kw_only=True):
    """What ``export`` is asked for."""

    format: str
    path: str
    force: bool = False


def export(arguments: Sequence[str]) -> Export | None:
    """Read ``[md|json|ipynb|html] PATH [--force]``; None where it does not fit."""
    left = [word for word in arguments if word != "--force"]
    if len(left) == 2 and left[0] in FORMATS:
        return Export(format=left[0], path=left[1], force=len(left) < len(arguments))
    suffix = left[0].rpartition(".")[2] if len(left) == 1 else ""
    return Export(format=suffix, path=left[0], force=len(left) < len(arguments)) if suffix in FORMATS and "." in left[0] else None


def json_file(arguments: Sequence[str]) -> bool:
    """Tell whether they are the one file that ``import`` takes."""
    return len(arguments) == 1 and arguments[0].endswith(".json")

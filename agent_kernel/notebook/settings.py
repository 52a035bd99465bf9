"""Settings: what may be set, from where, and which source wins.

Magic option > `%agent set` (this kernel only) > settings file > environment > default. Every value is checked where it comes in, and
an unknown name raises with close ones. Holds values only; App builds things from them.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from agent_kernel.errors import SettingsError

PREFIX = "AGENT_KERNEL_"
FILE_VARIABLE = "AGENT_KERNEL_SETTINGS"
POLICIES = ("allow", "ask", "deny")
VIEWS = ("auto", "plain")


class Setting(Struct, frozen=True):
    """One thing that may be set; ``read`` makes the value of a text or a TOML value, or raises ValueError with what it wants."""

    name: str
    about: str
    read: Callable[[Any], Any]
    default: Any = None


class Values(Struct, frozen=True, kw_only=True):
    """All settings as they stand for one turn."""

    model: str | None
    base_url: str | None
    system_prompt: str | None
    approve: Literal["allow", "ask", "deny"] | None
    max_rounds: int
    max_parallel_tools: int
    max_result_chars: int
    max_input_tokens: int | None
    answer_at_limit: bool
    home: str | None
    view: str


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


def _whole(low: int, high: int | None = None) -> Callable[[Any], int]:
    wanted = f"a whole number from {low:,}" + (f" to {high:,}" if high else " on")

    def read(value: Any) -> int:
        try:
            number = int(value.replace("_", "").replace(",", "")) if isinstance(value, str) else value
        except ValueError:
            raise ValueError(wanted) from None
        if not isinstance(number, int) or isinstance(number, bool) or number < low or (high is not None and number > high):
            raise ValueError(wanted)
        return number

    return read


def _switch(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    answer = words.get(str(value).lower())
    if answer is None:
        raise ValueError("true or false")
    return answer


SETTINGS: tuple[Setting, ...] = (
    Setting("model", "the model's name; offline for the built-in one", _text),
    Setting("base_url", "address of an OpenAI-compatible server", _text),
    Setting("system_prompt", "instructions before every conversation", _text),
    Setting("approve", "policy for tool calls: allow, ask or deny", _one_of(*POLICIES)),
    Setting("max_rounds", "model requests per turn", _whole(1, 1_000), 32),
    Setting("max_parallel_tools", "tool calls that run at once", _whole(1, 256), 8),
    Setting("max_result_chars", "characters of a result that the model sees", _whole(1), 32_000),
    Setting("max_input_tokens", "tokens of a request; older messages are left out above it", _whole(1)),
    Setting("answer_at_limit", "whether the model answers once more, without tools, at the round limit", _switch, default=False),
    Setting("home", "folder of sessions and large results; set it before the first turn, or as AGENT_KERNEL_HOME", _text),
    Setting("view", "auto, or plain for text output only", _one_of(*VIEWS), "auto"),
)

_BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


class Settings:
    """The four sources below a magic's options, and what they say together."""

    def __init__(self, *, path: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
        """Name the sources; nothing is read before it is needed.

        Args:
            path: The settings file; None for ``$AGENT_KERNEL_SETTINGS`` or the platform's configuration folder.
            environ: The environment; None for the process's own.
        """
        self._environ = os.environ if environ is None else environ
        self._path = path
        self._file: dict[str, Any] | None = None
        self._set: dict[str, Any] = {}

    @property
    def path(self) -> Path:
        """Where the settings file is, or would be."""
        if self._path is not None:
            return self._path
        if named := self._environ.get(FILE_VARIABLE):
            return Path(named).expanduser()
        from platformdirs import user_config_path  # noqa: PLC0415  # costs time at load, needed at the first turn

        return user_config_path("agent_kernel", appauthor=False) / "settings.toml"

    def set(self, name: str, value: Any) -> Any:
        """Set one value for this kernel and return it as read; None goes back to the lower sources.

        Raises:
            SettingsError: The name is unknown or the value does not fit.
        """
        setting = find(name)
        if value is None:
            self._set.pop(name, None)
            return None
        self._set[name] = read(setting, value, name)
        return self._set[name]

    def values(self, options: Mapping[str, Any] | None = None) -> Values:
        """Return all settings, with a magic's options on top (an option of None is not given).

        Raises:
            SettingsError: A source holds an unknown name or a value that does not fit.
        """
        given = {name: read(find(name), value, f"--{name.replace('_', '-')}") for name, value in (options or {}).items() if value is not None}
        layers = [given, *(layer for _, layer in self._layers())]
        return Values(**{setting.name: _first(layers, setting) for setting in SETTINGS})

    def rows(self) -> list[tuple[str, Any, str]]:
        """Return name, value and source of every setting, for a person to read."""
        layers = self._layers()
        found = []
        for setting in SETTINGS:
            source, layer = next(((source, layer) for source, layer in layers if setting.name in layer), ("default", {}))
            found.append((setting.name, layer.get(setting.name, setting.default), source))
        return found

    def __repr__(self) -> str:
        return "\n".join(f"{name:<19} {value!s:<24} {source}" for name, value, source in self.rows())

    def _layers(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the sources below the options, the strongest first."""
        return [("%agent set", self._set), ("settings file", self._from_file()), ("environment", self._from_environment())]

    def _from_file(self) -> dict[str, Any]:
        if self._file is None:
            try:
                content = tomllib.loads(self.path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                content = {}
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise SettingsError(f"The settings file {self.path} cannot be read: {error}") from error
            self._file = {name: read(find(name, f" in {self.path}"), value, f"{name} in {self.path}") for name, value in content.items()}
        return self._file

    def _from_environment(self) -> dict[str, Any]:
        found = {}
        for variable, value in self._environ.items():
            if variable.startswith(PREFIX) and variable != FILE_VARIABLE and value:
                name = variable.removeprefix(PREFIX).lower()
                found[name] = read(find(name, f" in the environment variable {variable}"), value, variable)
        return found


def find(name: str, where: str = "") -> Setting:
    """Return the setting of a name.

    Raises:
        SettingsError: There is none; the message names close ones.
    """
    setting = _BY_NAME.get(name)
    if setting is None:
        raise SettingsError(f"Unknown setting {name!r}{where}.{close(name, _BY_NAME)}")
    return setting


def read(setting: Setting, value: Any, shown: str) -> Any:
    """Return a value in its type.

    Raises:
        SettingsError: It does not fit; the message says what would.
    """
    try:
        return setting.read(value)
    except ValueError as error:
        raise SettingsError(f"{shown} is {value!r}, but must be {error}.") from None


def close(word: str, known: Iterable[str]) -> str:
    """Return a sentence with close names, or with all of them where none is close, led by a blank; empty if there are none."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=3)
    if near:
        return f" Did you mean {' or '.join(near)}?"
    return f" Known: {', '.join(known)}." if known else ""


def _first(layers: list[dict[str, Any]], setting: Setting) -> Any:
    return next((layer[setting.name] for layer in layers if setting.name in layer), setting.default)

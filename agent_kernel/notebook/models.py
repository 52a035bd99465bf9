"""Which model answers: the one that an option or a setting names, a server's first, or the offline one.

A name is looked for in the user's namespace first, so that a Model made in a cell can be used by its variable. Models are kept, because
a client is slow to make; one that the user has put on a session stays until a setting changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from agent_kernel.errors import SettingsError
from agent_kernel.model.base import Model
from agent_kernel.model.offline import OfflineModel
from agent_kernel.model.openai_chat import OpenAIModel
from agent_kernel.notebook.namespace import model_named
from agent_kernel.notebook.settings import Values

OFFLINE = "offline"
DEFAULT_MODEL = "gpt-5-mini"

_Wish = tuple[str | None, str | None, bool]


class Models:
    """The models of one kernel."""

    def __init__(self, namespace: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> None:
        """Look names up in a namespace, and keys in an environment (None: the process's own)."""
        self._namespace = namespace
        self._environ = os.environ if environ is None else environ
        self._made: dict[_Wish, Model] = {}
        self._default: _Wish | None = None

    async def default(self, values: Values) -> Model:
        """Return the model that the settings ask for."""
        self._default = self._wish(values.model, values)
        return await self._model(self._default)

    async def wanted(self, option: str | None, values: Values, current: Model) -> Model:
        """Return the model for a turn: the option's, else the current one, else what the settings ask for since they changed."""
        if option is not None:
            return await self._model(self._wish(option, values))
        return current if self._default == self._wish(values.model, values) else await self.default(values)

    async def close(self) -> None:
        """Close the connections of the models that were made here."""
        for model in self._made.values():
            if isinstance(model, OpenAIModel):
                await model.close()
        self._made.clear()

    def _wish(self, name: str | None, values: Values) -> _Wish:
        base_url = values.base_url or self._environ.get("OPENAI_BASE_URL") or None
        return name, base_url, bool(self._environ.get("OPENAI_API_KEY"))

    async def _model(self, wish: _Wish) -> Model:
        name, base_url, has_key = wish
        if name is not None and (own := model_named(self._namespace, name)) is not None:
            return own
        if wish not in self._made:
            self._made[wish] = await _make(name, base_url, has_key=has_key)
        return self._made[wish]


async def _make(name: str | None, base_url: str | None, *, has_key: bool) -> Model:
    if name == OFFLINE or (name is None and base_url is None and not has_key):
        return OfflineModel()
    if name is None and base_url is not None:
        async with OpenAIModel(DEFAULT_MODEL, base_url=base_url) as asking:
            listed = await asking.list_models()
        if not listed:
            raise SettingsError(f"The server at {base_url} lists no model. Name one with %agent model NAME.")
        name = listed[0]
    return OpenAIModel(name or DEFAULT_MODEL, base_url=base_url)

"""Intake: from a tool's return value to what the model, the person and the side store get.

Two halves: ``prepare`` is the heavy, synchronous one (serialise, clean, mask) and runs where the tool ran or in a thread, never on an
event loop; ``keep`` stores what is over the budget and cuts the excerpt. No value ends a turn, and neither does a full disk.
"""

from __future__ import annotations

import itertools
from typing import Any

from msgspec import Struct, structs

from agent_kernel.agent.excerpt import excerpt
from agent_kernel.agent.redact import Redactor
from agent_kernel.errors import StoreError
from agent_kernel.protocol.messages import Artifact, Excerpt
from agent_kernel.store.artifacts import Artifacts
from agent_kernel.tools.pictures import Attachment
from agent_kernel.tools.serialise import serialise

LONGEST_LINE = 2_000  # characters
RAW = "application/octet-stream"
SMALL = 20_000  # characters that are cleaned and masked in well under a millisecond: not worth a thread


class Prepared(Struct, frozen=True, kw_only=True):
    """A value as clean, masked text; ``whole`` is the whole output where ``text`` is only a bounded form of it."""

    text: str
    whole: str | bytes | None = None
    media_type: str = "text/plain"
    attachments: tuple[Attachment, ...] = ()


class Kept(Struct, frozen=True, kw_only=True):
    """What became of an output."""

    excerpt: Excerpt
    artifact: Artifact | None = None
    attachments: tuple[Artifact, ...] = ()


class Intake:
    """Takes in the results of one session."""

    def __init__(self, *, artifacts: Artifacts, redactor: Redactor, budget: int, first_handle: int) -> None:
        """Keep the collaborators.

        Args:
            artifacts: The side store.
            redactor: Masks secrets.
            budget: Characters of an output that the model sees.
            first_handle: Number of the next handle.
        """
        self._artifacts, self._redactor, self._budget = artifacts, redactor, budget
        self._numbers = itertools.count(first_handle)

    def prepare(self, value: Any) -> Prepared:
        """Serialise, clean and mask a value; may take a second per 100 MB."""
        made = serialise(value)
        whole = made.whole
        if isinstance(whole, str):
            whole = self._redactor.text(whole)
        elif whole is not None and made.media_type == RAW:  # pictures and arrays have a form that masking would break
            whole = self._redactor.data(whole)
        return Prepared(text=self._redactor.text(made.text), whole=whole, media_type=made.media_type, attachments=made.attachments)

    @staticmethod
    def is_small(value: Any) -> bool:
        """Tell whether ``prepare`` takes no time worth a thread."""
        return value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= SMALL)

    def line(self, text: str) -> str:
        """Return a line for an event (progress, a person's comment), masked and of bounded length."""
        return self._redactor.text(text[: 2 * LONGEST_LINE])[:LONGEST_LINE]

    def facts(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return a tool's notes with every text in them masked."""
        return {self._redactor.text(key): _masked(value, self._redactor) for key, value in metadata.items()}

    def inline(self, prepared: Prepared) -> Excerpt:
        """Return what fits the budget, without storing the rest: for short texts of our own."""
        return excerpt(prepared.text, self._budget)

    async def keep(self, prepared: Prepared) -> Kept:
        """Store what is over the budget and return what to show; never raises a StoreError."""
        attachments = [await self._attach(each) for each in prepared.attachments]
        kept = tuple(each for each in attachments if each is not None)
        if prepared.whole is None and len(prepared.text) <= self._budget:
            return Kept(excerpt=excerpt(prepared.text, self._budget), attachments=kept)
        data = prepared.text if prepared.whole is None else prepared.whole
        if isinstance(data, str) and prepared.whole is None and excerpt(data, self._budget, handle="r").shown == len(data):
            return Kept(excerpt=excerpt(data, self._budget), attachments=kept)
        artifact, problem = await self._store(data, prepared.media_type)
        handle = artifact.handle if artifact else None
        shown = self._summary(prepared.text, data, handle) if prepared.whole is not None else None
        return Kept(excerpt=shown or excerpt(prepared.text, self._budget, handle=handle, note=problem), artifact=artifact, attachments=kept)

    def _summary(self, text: str, whole: str | bytes, handle: str | None) -> Excerpt | None:
        """Return a bounded form that fits as it is, with a line that says where the whole is; None if it must be cut too."""
        if len(text) > self._budget:
            return None
        total = max(len(whole), len(text))
        where = f"whole output: {handle}" if handle else "the rest is not kept"
        return Excerpt(text=f"{text}\n[truncated: this is a summary; {where}]", shown=len(text), total=total)

    async def _attach(self, attachment: Attachment) -> Artifact | None:
        artifact, _ = await self._store(attachment.data, attachment.media_type)
        return artifact

    async def _store(self, data: str | bytes, media_type: str) -> tuple[Artifact | None, str]:
        try:
            kept = await self._artifacts.put(data, media_type=media_type)
        except StoreError as error:
            return None, str(error)[:200]
        return structs.replace(kept, handle=f"r{next(self._numbers)}"), ""


def _masked(value: Any, redactor: Redactor) -> Any:
    """Mask every text in a JSON value, keys included."""
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, list):
        return [_masked(item, redactor) for item in value]
    if isinstance(value, dict):
        return {redactor.text(key): _masked(item, redactor) for key, item in value.items()}
    return value

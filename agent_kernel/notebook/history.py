"""NotebookHistory: a History with what people do with one beside asking: find, sum, query, take away as a file and bring back.

``agent.history`` is this, and the commands of `%agent` are thin over it. Every method is a coroutine that any loop may await; files are
written and read in threads, whole or not at all.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from agent_kernel.errors import ArtifactNotFound, SessionBusy, StoreError
from agent_kernel.protocol.messages import Artifact
from agent_kernel.store import sql
from agent_kernel.store.artifacts import Artifacts
from agent_kernel.store.history import History
from agent_kernel.store.home import Home
from agent_kernel.store.kept import Kept, SessionSummary
from agent_kernel.store.lines import Line, SessionCreated
from agent_kernel.store.records import SessionRecord
from agent_kernel.store.transfer import Exported, ExportedArtifact, adopted, artifacts_of, decoded, encoded, turn_ids, write_apart
from agent_kernel.views.export import READABLE

FORMATS = ("md", "json", "ipynb", "html")


class NotebookHistory(History):
    """The history of one kernel."""

    def __init__(self, kept: Kept, *, artifacts: Artifacts | None = None, notebook: str | None = None) -> None:
        """Take the place where lines are kept.

        Args:
            kept: A Home, or memory.
            artifacts: Where whole outputs are; exports take them along.
            notebook: Path of the notebook, if known; new sessions bear it.
        """
        super().__init__(kept)
        self.notebook = notebook
        self._artifacts = artifacts

    def __repr__(self) -> str:
        where = f"in {self.kept.folder}" if isinstance(self.kept, Home) else "in memory"
        return f"<History {where}{f', which cannot be written: {self.problem}' if self.problem else ''}>"

    async def list(self, *, text: str | None = None) -> builtins.list[SessionSummary]:
        """Return sessions, the one with the newest turn first.

        Args:
            text: Only those with this text in name, id, notebook, date (2026-11-30) or a prompt, case aside.
        """
        found = await super().list()
        if not text:
            return found
        asked, wanted = await sql.prompted(self.kept, text), text.lower()
        return [each for each in found if each.id in asked or any(wanted in fact.lower() for fact in _facts(each))]

    async def usage(self, by: str | None = None) -> Sequence[sql.UsageSum]:
        """Return what was used, in one sum or by ``model``, ``notebook`` or ``day``.

        Raises:
            SettingsError: It cannot be summed by that.
        """
        return await sql.usage(self.kept, by)

    async def rows(self, query: str) -> sql.Answer:
        """Return the rows of one reading SQL statement over the views ``sessions``, ``turns``, ``messages``, ``tool_calls``, ``results``, ``usage``.

        Raises:
            StoreError: It is no single reading statement, it is wrong, forbidden or too slow.
        """
        return await sql.ask(self.kept, query)

    async def sql(self, query: str) -> Any:
        """Return the rows of one reading SQL statement as a DataFrame of pandas or polars, else as an ``Answer``; as ``rows`` otherwise."""
        from agent_kernel.notebook.tables import frame  # noqa: PLC0415  # only who queries needs it

        answer = await self.rows(query)
        made = await asyncio.to_thread(frame, answer)
        return answer if made is None else made

    async def export(self, session_id: str, path: str | Path, format: str | None = None, *, force: bool = False) -> Path:  # noqa: A002 - the word that people use
        """Write a session to a file and return its path.

        Args:
            session_id: Which session.
            path: The file; ``~`` is the home folder.
            format: md, json, ipynb or html; None: by the path's suffix. Only json can be imported again, with everything that is kept.
            force: Write over a file that is there.

        Raises:
            StoreError: No such session or format, a file is there already, or it cannot be written.
        """
        target = _place(path)
        chosen = format or target.suffix.removeprefix(".")
        if chosen not in FORMATS:
            raise StoreError(f"A session is exported as {', '.join(FORMATS)}, not as {chosen or 'a file without a suffix'}.")
        data = await self._json(session_id) if chosen == "json" else await self._readable(session_id, chosen)
        await asyncio.to_thread(_write_whole, target, data, force=force)
        return target

    async def import_file(self, path: str | Path) -> SessionRecord:
        """Bring back a session that was exported as json, here or elsewhere, and return it; ids change only where they are taken.

        Raises:
            StoreError: The file cannot be read, is no such session, or what it holds cannot be kept.
            SchemaTooNew: A newer agent_kernel wrote it.
        """
        source = _place(path)
        exported = await asyncio.to_thread(lambda: decoded(_read(source)))
        here = await self.kept.session(exported.session.id)
        known = await sql.known_turns(self.kept, turn_ids(exported.session.turns))
        lines = adopted(exported, session_known=here.created or here.deleted or bool(here.record.turns), turns_known=known)
        for artifact in exported.artifacts:
            await self._take_in(artifact)
        if isinstance(self.kept, Home):
            await asyncio.to_thread(write_apart, self.kept.journal_folder, socket.gethostname(), lines)
        else:
            await self.kept.append(lines)
        return await self.load(lines[-1].session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session for good, as ``remove`` does."""
        await self.remove(session_id)

    async def remove(self, session_id: str) -> int:
        """Delete a session and the whole outputs that no other session refers to, and return how many of these went.

        Raises:
            SessionBusy: Another kernel that still runs asks in it.
            StoreError: No session has this id.
        """
        holder = await self.kept.holder(session_id)
        if holder is not None:
            raise SessionBusy(f"The session is open in {holder}: it can be deleted when that kernel has left it.")
        record = await self.load(session_id)
        await super().delete(session_id)
        if self._artifacts is None:
            return 0
        needed = await sql.still_kept(self.kept) | await self._of_forks()
        gone = [artifact for artifact in artifacts_of(record) if artifact.hash not in needed]
        for artifact in gone:
            await self._artifacts.delete(artifact)
        return len(gone)

    async def _of_forks(self) -> set[str]:
        """Return the hashes of outputs in turns that forks share."""
        forks = [each.id for each in await super().list() if each.forked_from is not None]
        return {artifact.hash for fork in forks for artifact in artifacts_of(await self.load(fork))}

    async def _write(self, new: Sequence[Line]) -> None:
        """Keep lines; a session that comes to be is this notebook's."""
        await super()._write(
            [structs.replace(line, notebook=self.notebook) if isinstance(line, SessionCreated) and line.notebook is None else line for line in new]
        )

    async def _readable(self, session_id: str, chosen: str) -> bytes:
        record = await self.load(session_id)
        version = str(sys.modules["agent_kernel"].__version__)  # stands in the package's face, which floors below never import
        text = await asyncio.to_thread(READABLE[chosen], record, version)
        return text.encode("utf-8", "replace")

    async def _json(self, session_id: str) -> bytes:
        record = await self.load(session_id)
        notebook = next((each.notebook for each in await super().list() if each.id == session_id), None)
        taken = [await self._take_out(artifact) for artifact in artifacts_of(record)]
        exported = Exported(session=record, notebook=notebook, artifacts=tuple(artifact for artifact in taken if artifact is not None))
        return await asyncio.to_thread(encoded, exported)

    async def _take_out(self, artifact: Artifact) -> ExportedArtifact | None:
        """Return an output for an export; None where its bytes are gone."""
        if self._artifacts is None:
            return None
        with contextlib.suppress(ArtifactNotFound):
            value = await self._artifacts.read(artifact)
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            return ExportedArtifact(hash=artifact.hash, media_type=artifact.media_type, size=artifact.size, data=data)
        return None

    async def _take_in(self, artifact: ExportedArtifact) -> None:
        if self._artifacts is None:
            return
        kept = await self._artifacts.put(artifact.data, media_type=artifact.media_type)
        if kept.hash != artifact.hash:
            await self._artifacts.delete(kept)
            raise StoreError("The file is damaged: a large result in it is not what its hash says. Nothing was imported.")


def _facts(session: SessionSummary) -> tuple[str, ...]:
    days = {time.strftime("%Y-%m-%d", time.localtime(at)) for at in (session.created_at, session.updated_at)}
    return (session.name or "", session.id, session.notebook or "", *days)


def _place(path: str | Path) -> Path:
    return Path(path).expanduser()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from error


def _write_whole(path: Path, data: bytes, *, force: bool) -> None:
    """Write a file under a temporary name and give it its own when it is whole."""
    if path.exists() and not force:
        raise StoreError(f"{path} is there already; nothing was written. Choose another name, or write over it with --force (in Python: force=True).")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error

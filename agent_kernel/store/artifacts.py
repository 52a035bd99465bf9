"""Artifacts: whole outputs as content-addressed files, read back by page.

Layout: ``FOLDER/artifacts/ab/<the other 62 hexadecimal digits of SHA-256>``, files 0400 in folders 0700, written under a temporary name,
fsynced and renamed. All I/O runs on one worker thread, in chunks of 1 MiB, never on an event loop. Who may read what is decided
above: a handle belongs to a session.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from agent_kernel.errors import ArtifactNotFound, StoreError
from agent_kernel.protocol.messages import Artifact
from agent_kernel.store.worker import Worker

CHUNK = 1 << 20  # bytes or characters handled in one go: about 3 ms of the GIL
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class Artifacts:
    """The side store of one folder; made by ``Artifacts.open``."""

    def __init__(self, folder: Path | None, *, max_result_bytes: int, max_bytes: int, max_age_days: float) -> None:
        """Keep the limits; nothing touches the disk before the first use."""
        for name, value in (("max_result_bytes", max_result_bytes), ("max_bytes", max_bytes), ("max_age_days", max_age_days)):
            if value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        self.max_result_bytes, self.max_bytes, self.max_age_days = max_result_bytes, max_bytes, max_age_days
        self.folder = folder
        self._temporary: Path | None = None
        self._leaving: weakref.finalize[..., Artifacts] | None = None  # removes the temporary folder, at the latest when Python ends
        self._sizes: dict[str, int] | None = None  # digest -> bytes, oldest first; read from the disk once
        self._total = 0
        self._worker = Worker("agent-kernel-artifacts")

    @classmethod
    def open(
        cls, folder: str | Path | None = None, *, max_result_bytes: int = 256 << 20, max_bytes: int = 2 << 30, max_age_days: float = 30
    ) -> Artifacts:
        """Return the side store of a folder; None: a temporary folder that goes with it. Does no I/O.

        Args:
            folder: Where the files are; made at the first write.
            max_result_bytes: A larger output is refused.
            max_bytes: Of all files; the oldest go first.
            max_age_days: Files that are older go at the first write.
        """
        return cls(None if folder is None else Path(folder), max_result_bytes=max_result_bytes, max_bytes=max_bytes, max_age_days=max_age_days)

    async def put(self, data: str | bytes, *, media_type: str = "text/plain", handle: str | None = None) -> Artifact:
        """Keep text (as UTF-8) or bytes and return the reference; equal content is kept once.

        Raises:
            StoreError: The output is over the limit, or cannot be written.
        """
        return await self._worker.finish(lambda: self._put(data, media_type, handle))

    async def read(self, artifact: Artifact) -> str | bytes:
        """Return the whole output: text for text and JSON, else bytes.

        Raises:
            ArtifactNotFound: Its bytes are not there (any more).
        """
        return await self._worker.run(lambda: self._read(artifact))

    async def slice(self, artifact: Artifact, start: int = 0, stop: int | None = None) -> str | bytes:
        """Return characters (of text) or bytes ``start`` to ``stop``, without the rest in memory.

        Raises:
            ArtifactNotFound: Its bytes are not there (any more).
            ValueError: A negative bound.
        """
        if start < 0 or (stop is not None and stop < 0):
            raise ValueError("start and stop count from the beginning; neither may be negative")
        return await self._worker.run(lambda: self._slice(artifact, start, stop))

    async def delete(self, artifact: Artifact) -> None:
        """Remove the output's file; no error if it is gone already."""
        await self._worker.run(lambda: self._remove(_digest(artifact)))

    async def close(self) -> None:
        """End the worker and remove a temporary folder."""
        await self._worker.close(lambda: None)
        if self._leaving is not None:
            self._leaving()
            self._temporary = self._leaving = self._sizes = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _root(self) -> Path:
        if self.folder is None:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="agent-kernel-"))
                self._leaving = weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
            return self._temporary / "artifacts"
        return self.folder / "artifacts"

    def _path(self, digest: str) -> Path:
        return self._root() / digest[:2] / digest[2:]

    def _put(self, data: str | bytes, media_type: str, handle: str | None) -> Artifact:
        try:
            sizes = self._known()
            digest, size = self._write(data)
            self._total += size - sizes.pop(digest, 0)
            sizes[digest] = size
            self._evict(sizes, keep=digest)
        except OSError as error:
            raise StoreError(f"The output could not be kept in {self._root()}: {error.strerror or error}.") from error
        return Artifact(handle=handle or digest[:8], hash=f"sha256:{digest}", media_type=media_type, size=size)

    def _write(self, data: str | bytes) -> tuple[str, int]:
        root = self._root()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        descriptor, temporary = tempfile.mkstemp(dir=root, prefix=".part-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in _pieces(data):
                    size += len(piece)
                    self._check_size(size)
                    digest.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o400)
            path = self._path(digest.hexdigest())
            path.parent.mkdir(mode=0o700, exist_ok=True)
            Path(temporary).replace(path)
            _sync_folder(path.parent)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return digest.hexdigest(), size

    def _check_size(self, size: int) -> None:
        if size > self.max_result_bytes:
            raise StoreError(f"The output is larger than {self.max_result_bytes:,} bytes, the limit for one result.")

    def _known(self) -> dict[str, int]:
        if self._sizes is None:
            found = []
            for path in self._root().glob("[0-9a-f][0-9a-f]/*"):
                status = path.stat()
                found.append((status.st_mtime, path.parent.name + path.name, status.st_size))
            self._sizes, self._total = {}, 0
            oldest = time.time() - self.max_age_days * 86_400
            for modified, digest, size in sorted(found):
                self._sizes[digest] = size
                self._total += size
                if modified < oldest:
                    self._remove(digest)
        return self._sizes

    def _evict(self, sizes: dict[str, int], *, keep: str) -> None:
        for digest in iter(list(sizes)) if self._total > self.max_bytes else ():
            if self._total <= self.max_bytes:
                return
            if digest != keep:
                self._remove(digest)

    def _remove(self, digest: str) -> None:
        self._path(digest).unlink(missing_ok=True)
        if self._sizes is not None:
            self._total -= self._sizes.pop(digest, 0)

    def _open(self, artifact: Artifact) -> Path:
        path = self._path(_digest(artifact))
        if not path.is_file():
            raise ArtifactNotFound(f"The output {artifact.handle} is not kept any more.")
        return path

    def _read(self, artifact: Artifact) -> str | bytes:
        path = self._open(artifact)
        if not _is_text(artifact):
            return path.read_bytes()
        with path.open(encoding="utf-8", newline="") as file:
            return "".join(iter(lambda: file.read(CHUNK), ""))

    def _slice(self, artifact: Artifact, start: int, stop: int | None) -> str | bytes:
        path = self._open(artifact)
        if not _is_text(artifact):
            with path.open("rb") as raw:
                raw.seek(start)
                return raw.read(-1 if stop is None else max(0, stop - start))
        with path.open(encoding="utf-8", newline="") as file:
            skip = start
            while skip and (piece := file.read(min(skip, CHUNK))):
                skip -= len(piece)
            return file.read(-1 if stop is None else max(0, stop - start))


def _digest(artifact: Artifact) -> str:
    if not _HASH.fullmatch(artifact.hash):
        raise ArtifactNotFound(f"{artifact.hash!r} is no artifact's hash.")
    return artifact.hash.removeprefix("sha256:")


def _is_text(artifact: Artifact) -> bool:
    return artifact.media_type.startswith("text/") or artifact.media_type == "application/json"


def _pieces(data: str | bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        piece = data[start : start + CHUNK]
        yield piece.encode("utf-8", "replace") if isinstance(piece, str) else piece


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

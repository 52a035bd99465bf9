"""OpenAIModel: any server that speaks Chat Completions, asked through the openai client's raw streaming response.

openai makes the request (auth, base URL, proxies, typed HTTP errors) with its own retries off; the bytes are split and decoded
here. This file and its openai_* siblings are the door to openai and httpx2, which load at the first request.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from agent_kernel.errors import ModelError, ModelRejected
from agent_kernel.model import loose_json
from agent_kernel.model.chat_decoder import ChatDecoder
from agent_kernel.model.chat_messages import request_fields
from agent_kernel.model.classify import Source, no_stream
from agent_kernel.model.openai_clock import Clock
from agent_kernel.model.openai_errors import from_foreign
from agent_kernel.model.openai_options import checked_fields, checked_model, checked_url, positive_limits
from agent_kernel.protocol.events import Delta
from agent_kernel.protocol.request import ModelRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PLACEHOLDER_KEY = "none"
"""What a server that wants no key is sent: the client refuses to be made without one."""
DRAIN_SECONDS = 0.1
"""How long the end of a finished stream is waited for, so that its connection can be used again."""

UNKNOWN_FIELD = re.compile(r"un(supported|known|recogni|expected)|not (supported|permitted|allowed)|extra", re.IGNORECASE)
"""How servers say that they do not know a field, as opposed to its value."""


def warm() -> None:
    """Load openai, which takes some 0.4 s and 60 MB, ahead of the first request; call it off the event loop."""
    for name in ("openai", "openai.resources.chat.completions", "httpx2"):
        importlib.import_module(name)


class OpenAIModel:
    """A language model behind OpenAI's own API or any server that speaks it.

    Args:
        model: The model's name, as the server lists it.
        base_url: Where the server is; None: ``OPENAI_BASE_URL``, else OpenAI's own.
        api_key: None: ``OPENAI_API_KEY``. A base URL without a key sends a placeholder.
        api: Which of the server's interfaces to speak; ``chat`` alone for now.
        stream: Whether the answer comes piece by piece.
        max_retries: How often a turn repeats a request that may succeed later.
        max_tokens: Most tokens of the answer.
        temperature: Sampling temperature.
        stop: Text, or up to four texts, at which the answer ends.
        seed: For servers that sample reproducibly.
        reasoning_effort: A word such as ``low`` or ``high``, where the model reasons.
        verbosity: A word such as ``low`` or ``high``, where the model knows it.
        extra_body: More fields of the request.
        connect_timeout: Seconds to a connection. None: no limit, as for the next three.
        first_byte_timeout: Seconds from the request to the first byte of the answer.
        idle_timeout: Seconds between two pieces of the answer.
        total_timeout: Seconds for the whole answer.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api: str = "chat",
        stream: bool = True,
        max_retries: int = 2,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        reasoning_effort: str | None = None,
        verbosity: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
        connect_timeout: float | None = 10,
        first_byte_timeout: float | None = 300,
        idle_timeout: float | None = 120,
        total_timeout: float | None = None,
    ) -> None:
        checked_model(model, api, max_retries)
        self.name = model
        self.max_retries = max_retries
        self._base_url = checked_url(base_url)
        self._api_key = api_key
        self._stream = stream
        self._fields = checked_fields(
            max_tokens=max_tokens, temperature=temperature, stop=stop, seed=seed, reasoning_effort=reasoning_effort, verbosity=verbosity
        )
        self._extra_body = dict(extra_body or {})
        self._limits = positive_limits(connect=connect_timeout, first_byte=first_byte_timeout, idle=idle_timeout, total=total_timeout)
        # What this server turned out not to take; learnt from its 400.
        self._no_stream_options = False
        self._length_field: str | None = None
        # A client belongs to the loop that first used it. Each is held by a suspended generator: see _kept.
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[None]]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    @property
    def secrets(self) -> frozenset[str]:
        """What a session masks wherever it shows up: the key, and a password in the base URL."""
        return frozenset(filter(None, (self._key(), urlsplit(self._url() or "").password)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Yield the answer's fragments as they arrive.

        Raises:
            ModelError: The answer could not be had; its class, ``kind`` and ``retryable`` say why.
        """
        source = self._source()
        decoder = ChatDecoder(source, self.name)
        clock = Clock(source, self._limits)
        try:
            async with AsyncExitStack() as stack:
                response = await self._opened(stack, source, request, clock)
                pieces = response.iter_bytes()
                stack.push_async_callback(_unwound, response, pieces)
                while (piece := await clock.next(pieces)) is not None:
                    for delta in decoder.feed(piece):
                        yield delta
                    if decoder.done:
                        await _drained(pieces)
                        break
                for delta in decoder.finish():
                    yield delta
        except ModelError as error:
            error.usage = error.usage or decoder.usage
            raise

    async def list_models(self) -> list[str]:
        """Return the names of the models that the server offers."""
        source = self._source()
        client = await self._client(source)
        clock = Clock(source, self._limits)
        answer = await clock.wait(client.models.with_raw_response.list())
        body = answer.http_response.content
        listed = _listed(body)
        if listed is None:
            raise no_stream(source, body)
        return listed

    async def close(self) -> None:
        """Close the connections of every loop that used this model."""
        with self._lock:
            kept = list(self._clients.items())
            self._clients.clear()
        here = asyncio.get_running_loop()
        for loop, (_, keeper) in kept:
            if loop is here:
                await keeper.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_closed(keeper), loop))

    async def _opened(self, stack: AsyncExitStack, source: Source, request: ModelRequest, clock: Clock) -> Any:
        """Send the request; once more, in other words, if the server names a field that it does not know."""
        client = await self._client(source)
        fields = request_fields(request)
        for _ in range(3):  # two fields can be unknown
            body = fields | self._wire_options()
            manager = client.chat.completions.with_streaming_response.create(**body)
            try:
                return await clock.wait(stack.enter_async_context(manager))
            except ModelRejected as error:
                if not self._learns(str(error), body):
                    raise
        raise AssertionError("each round has learnt another field")  # pragma: no cover

    def _wire_options(self) -> dict[str, Any]:
        options = dict(self._fields)
        limit = options.pop("max_tokens", None)
        if limit is not None:
            # OpenAI's newer models know the new name alone, most other servers the old one.
            options[self._length_field or ("max_tokens" if self._url() else "max_completion_tokens")] = limit
        if self._stream and not self._no_stream_options:
            options["stream_options"] = {"include_usage": True}
        return {"model": self.name, "stream": self._stream, "extra_body": self._extra_body or None, **options}

    def _learns(self, message: str, body: Mapping[str, Any]) -> bool:
        if "stream_options" in body and "stream_options" in message:
            self._no_stream_options = True
            return True
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        sent = next((name for name in other if name in body), None)
        if sent is not None and sent in message and self._length_field is None and UNKNOWN_FIELD.search(message):
            self._length_field = other[sent]
            return True
        return False

    def _url(self) -> str | None:
        return self._base_url or os.environ.get("OPENAI_BASE_URL") or None

    def _key(self) -> str:
        return self._api_key or os.environ.get("OPENAI_API_KEY") or ""

    def _source(self) -> Source:
        try:
            url = checked_url(self._url()) or "https://api.openai.com"
        except ValueError as error:  # ours was checked at construction
            raise ModelRejected(f"OPENAI_BASE_URL is no usable address: {error}.") from error
        host = urlsplit(url).netloc.rpartition("@")[2]
        return Source(f"{self.name} at {host}", self._key())

    async def _client(self, source: Source) -> AsyncOpenAI:
        loop = asyncio.get_running_loop()
        with self._lock:
            for dead in [other for other in self._clients if other.is_closed()]:
                del self._clients[dead]
            kept = self._clients.get(loop)
        if kept is not None:
            return kept[0]
        if not self._key() and not self._url():
            raise ModelRejected(
                f"{source.label} needs an API key and none is set. Set OPENAI_API_KEY or api_key=, or base_url= for a server that needs none.",
                kind="auth",
            )
        if "openai.resources.chat.completions" not in sys.modules:
            await asyncio.to_thread(warm)
        with self._lock:  # another request of this loop may have been faster
            kept = self._clients.get(loop)
        if kept is None:
            client = self._made(source)
            kept = client, _kept(client)
            with self._lock:
                self._clients[loop] = kept
            await anext(kept[1])
        return kept[0]

    def _made(self, source: Source) -> AsyncOpenAI:
        import httpx2  # noqa: PLC0415  # loads with openai, at the first request
        import openai  # noqa: PLC0415

        # Reads are timed here, by piece; the client's one read limit would mix first byte and idle.
        timeout = httpx2.Timeout(None, connect=self._limits.connect)
        try:
            return openai.AsyncOpenAI(
                api_key=self._key() or PLACEHOLDER_KEY,
                base_url=self._url(),
                max_retries=0,
                timeout=timeout,
                # The client's own default closes itself from __del__ on whatever loop then runs.
                http_client=openai.DefaultAsyncHttpxClient(timeout=timeout),
            )
        except (openai.OpenAIError, httpx2.InvalidURL, ValueError) as error:
            raise from_foreign(source, error) from error


async def _kept(client: AsyncOpenAI) -> AsyncGenerator[None]:
    """Hold a client until its loop shuts its generators down, as asyncio.run does: no socket outlives its loop."""
    try:
        yield
    finally:
        await client.close()


async def _closed(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()


async def _drained(pieces: AsyncGenerator[bytes]) -> None:
    """Read past the end mark: a connection with unread bytes cannot be used again."""
    with suppress(Exception):  # the answer is complete; how its connection ends does not matter
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass


async def _unwound(response: Any, pieces: AsyncGenerator[bytes]) -> None:
    """Close an answer, finished or not, and leave nothing to the garbage collector.

    The transport reads through a chain of generators. Closing the outer one would leave the inner ones to tasks that the loop
    starts later; reading on after the response was closed ends all of them here, by the transport's own exception.
    """
    await response.close()
    with suppress(Exception):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in pieces:
                pass


def _listed(body: bytes) -> list[str] | None:
    try:
        value = loose_json.decode(body)
    except (ValueError, RecursionError):
        return None
    rows = value.get("data") or value.get("models") or [] if isinstance(value, dict) else value
    if not isinstance(rows, list):
        return None
    names = [row if isinstance(row, str) else row.get("id") or row.get("name") for row in rows if isinstance(row, str | dict)]
    return [name for name in names if isinstance(name, str)]

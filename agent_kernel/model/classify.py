"""Sorts what a provider says went wrong into our errors, by HTTP status and by the words of its error object.

Pure functions of the answer; no provider is asked for by name. Nothing that looks like a key leaves through a message.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agent_kernel.errors import ModelConnectionError, ModelError, ModelProtocolError, ModelRateLimited, ModelRefused, ModelRejected
from agent_kernel.model.loose_json import mended

KEY_SHAPES = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp)[-_*][\w*.\-]{6,}|\bAIza[\w\-]{10,}|\bbearer\s+[^\s\"',]+", re.IGNORECASE)
SHOWN = 600

# The first pattern that fits the error's code and type decides; its status stands for the whole kind.
WORDS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), status)
    for pattern, status in (
        (r"quota|billing|credit|payment|insufficient_balance", 402),
        (r"content_(filter|policy)|moderation|safety|responsible", 451),
        (r"context_(length|window)|too_large|too_long|string_above_max", 413),
        (r"rate_?limit|too_many|throttl|resource_exhausted", 429),
        (r"overload|unavailable|capacity", 503),
        (r"auth|api_key|permission|forbidden|denied", 401),
        (r"not_found|model_not", 404),
        (r"time_?out|deadline", 408),
        (r"invalid|bad_request|unsupported|validation", 400),
    )
)


class _Form(NamedTuple):
    """How one kind of failure is said."""

    error: type[ModelError]
    kind: str
    verdict: str
    advice: str = ""
    retryable: bool | None = None


AUTH = _Form(ModelRejected, "auth", "refused the API key", " Check OPENAI_API_KEY or api_key=.")
OVERLOADED = _Form(ModelRateLimited, "overloaded", "is overloaded", " Try again later.")
SERVER = _Form(ModelConnectionError, "server", "failed", " Try again.")
BAD_REQUEST = _Form(ModelRejected, "bad_request", "rejected the request")
FORMS = {
    401: AUTH,
    402: _Form(ModelRateLimited, "quota", "says that the account's quota is used up", " Check its plan and billing.", retryable=False),
    403: AUTH,
    404: _Form(ModelRejected, "not_found", "was not found", " Check the model's name and the base URL."),
    408: SERVER,
    409: SERVER,
    413: _Form(ModelRejected, "too_large", "finds the request too large", " Shorten the conversation or set max_input_tokens."),
    425: SERVER,
    429: _Form(ModelRateLimited, "rate_limit", "limits the rate", " Wait, or set another model."),
    451: _Form(ModelRefused, "content_filter", "refused for reasons of content", " Put the request in other words."),
    503: OVERLOADED,
    529: OVERLOADED,
}
"""Statuses with a form of their own; other 5xx are SERVER, other 4xx BAD_REQUEST."""


class Source:
    """Who is asked, for messages: ``model at host``; hides the key in whatever is said."""

    __slots__ = ("_key", "label")

    def __init__(self, label: str, key: str = "") -> None:
        self.label = label
        self._key = key

    def __repr__(self) -> str:
        return f"Source({self.label!r})"

    def say(self, text: str) -> str:
        """Make a provider's text one clean line without keys, clipped."""
        if len(self._key) >= 8:  # a shorter one is a placeholder and would mask ordinary words
            text = text.replace(self._key, "***")
        text = KEY_SHAPES.sub("***", mended(text[: SHOWN * 4]))
        text = "".join(c if c.isprintable() else " " for c in text)
        text = " ".join(text.split())
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def classify(
    source: Source, text: str, *, status: int | None = None, code: Any = None, kind: Any = None, retry_after: float | None = None
) -> ModelError:
    """Make the error for an answer that is none.

    Args:
        source: Who was asked.
        text: The provider's own words.
        status: HTTP status; None for an error inside a stream that began well.
        code: The error object's ``code``, a word or a status.
        kind: The error object's ``type``.
        retry_after: Seconds that the provider asked to wait.
    """
    words = f"{_word(code)} {_word(kind)}".lower()
    inner = _status_of(code)
    effective = _refined(status if status is not None else inner, words)
    shown = f"HTTP {status}: " if status is not None else f"{code}: " if code is not None else ""
    said = source.say(f"{shown}{text or 'no reason given'}")
    number = status if status is not None else inner
    return _error(effective, f"{source.label}", said, number, retry_after)


def from_object(source: Source, error: Any, *, status: int | None = None, retry_after: float | None = None) -> ModelError:
    """Make the error for a decoded error object of any shape: a dict, a list of them, or a bare text."""
    if isinstance(error, list):
        error = error[0] if error else None
    if isinstance(error, dict) and isinstance(error.get("error"), dict | str | list) and error["error"]:
        return from_object(source, error["error"], status=status, retry_after=retry_after)
    if not isinstance(error, dict):
        return classify(source, "" if error is None else str(error), status=status, retry_after=retry_after)
    text = next((error[key] for key in ("message", "msg", "detail", "description", "status_msg") if error.get(key)), "")
    code = error.get("code") if error.get("code") is not None else error.get("status")
    return classify(source, str(text), status=status, code=code, kind=error.get("type"), retry_after=retry_after)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _status_of(code: Any) -> int | None:
    text = str(code)
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def _refined(status: int | None, words: str) -> int:
    """Return the status whose kind fits; words may sharpen a client error, and stand in where no status came."""
    by_word = next((number for pattern, number in WORDS if pattern.search(words)), None)
    if status is None:
        return by_word or 500
    sharper: dict[int, set[int]] = {400: {402, 413, 451}, 403: {402, 451}, 422: {413, 451}, 429: {402}}
    return by_word if by_word is not None and by_word in sharper.get(status, set()) else status


def _error(status: int, label: str, said: str, number: int | None, retry_after: float | None) -> ModelError:
    form = FORMS.get(status) or (SERVER if status >= 500 else BAD_REQUEST)
    text = f"{label} {form.verdict} ({said}).{form.advice}"
    return form.error(text, kind=form.kind, retryable=form.retryable, retry_after=retry_after, status=number)


def incomplete(source: Source, what: str) -> ModelConnectionError:
    """Make the error for a stream that ended too early."""
    return ModelConnectionError(f"{source.label} ended its answer {what}. Try again.", kind="incomplete")


def no_stream(source: Source, body: bytes) -> ModelProtocolError:
    """Make the error for a successful answer that is neither an event stream nor JSON."""
    shown = source.say(body.decode("utf-8", "replace")[:200])
    return ModelProtocolError(f"{source.label} answered with something that is no model's answer: {shown!r}. Check the base URL.")

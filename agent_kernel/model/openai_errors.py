"""Maps what the openai client and its transport raise into our errors; beside openai_chat the one place that knows their classes.

Called with the exception in hand, so openai is loaded by then. Never lets a key through: the foreign exception's own text is
cleaned too, because it stays visible as the cause in a traceback.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

from agent_kernel.errors import ModelConnectionError, ModelError, ModelRejected
from agent_kernel.model.classify import Source, from_object


def from_foreign(source: Source, error: Exception) -> ModelError:
    """Return our error for one that the client or the transport raised, before or in the middle of a stream."""
    import openai  # noqa: PLC0415  # loaded by the client already; this module must not load it earlier

    error.args = tuple(source.say(arg) if isinstance(arg, str) else arg for arg in error.args)
    if isinstance(error, openai.APIStatusError):
        return from_status(source, error)
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) and error.__cause__ is not None else error
    if isinstance(cause, openai.APITimeoutError):
        return ModelConnectionError(f"{source.label} ran out of time. Try again.", kind="timeout")
    return _from_transport(source, cause)


def _from_transport(source: Source, cause: BaseException) -> ModelError:
    import httpx2  # noqa: PLC0415  # as above

    reason = source.say(str(cause) or type(cause).__name__)
    if isinstance(cause, httpx2.ConnectTimeout):
        return ModelConnectionError(
            f"{source.label} could not be connected to within the limit connect_timeout. Is the server running, and the base URL right?",
            kind="timeout",
        )
    if isinstance(cause, httpx2.TimeoutException):
        return ModelConnectionError(f"{source.label} ran out of time ({type(cause).__name__}). Try again.", kind="timeout")
    if isinstance(cause, httpx2.ConnectError):
        return ModelConnectionError(f"{source.label} could not be reached ({reason}). Is the server running, and the base URL right?")
    if isinstance(cause, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ModelRejected(f"{source.label} has no usable base URL ({reason}).")
    if isinstance(cause, httpx2.HTTPError | httpx2.StreamError | OSError):
        return ModelConnectionError(f"The connection to {source.label} broke ({reason}). Try again.")
    return ModelRejected(f"The request to {source.label} could not be made ({type(cause).__name__}: {reason}).")


def from_status(source: Source, error: Exception) -> ModelError:
    """Return our error for an HTTP answer with a status of failure."""
    status, body, response = getattr(error, "status_code", 500), getattr(error, "body", None), getattr(error, "response", None)
    wait = retry_after(response.headers) if response is not None else None
    if body is None or body == "":
        body = getattr(response, "reason_phrase", "") or "no body"
    return from_object(source, body, status=status, retry_after=wait)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read the seconds to wait from ``retry-after-ms`` or ``retry-after`` (RFC 9110, section 10.2.3: seconds or a date)."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())

"""Every exception that agent_kernel raises.

Messages say what was tried, what happened and what to do. Errors of other libraries are mapped, always with ``from``,
in the file that imports the library; nothing here imports anything of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class AgentKernelError(Exception):
    """Base of all errors of this package.

    Attributes:
        state: The turn's ``TurnState`` where a turn raised the error, else None.
    """

    state: Any = None

    def _render_traceback_(self) -> list[str]:
        """Show one line in IPython instead of a traceback through our files: the message says what to do."""
        return [f"{type(self).__name__}: {self}"]


class SettingsError(AgentKernelError):
    """A setting or an option is unknown or has a value that does not fit."""


class ModelError(AgentKernelError):
    """A language model could not answer.

    Attributes:
        kind: One word of a closed list per class, for code that branches.
        retryable: Whether the same request may succeed later.
        retry_after: Seconds that the provider asked to wait, or None.
        usage: What the failed attempt reported to have used, or None.
    """

    default_kind: ClassVar[str] = "model"
    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        """Keep the message and what a caller may branch on.

        Args:
            message: What was tried, what happened, what to do.
            kind: Overrides the class's kind.
            retryable: Overrides the class's retryability.
            retry_after: Seconds the provider asked to wait.
            status: HTTP status code, where there was one.
        """
        super().__init__(message)
        self.kind = self.default_kind if kind is None else kind
        self.retryable = self.default_retryable if retryable is None else retryable
        self.retry_after = retry_after
        self.status = status
        self.usage: Any = None


class ModelConnectionError(ModelError):
    """The server could not be reached, timed out, failed, or broke the stream off (kinds: connection, timeout, server)."""

    default_kind = "connection"
    default_retryable = True


class ModelRateLimited(ModelError):
    """The provider is overloaded or limits the rate (kinds: rate_limit, overloaded, quota)."""

    default_kind = "rate_limit"
    default_retryable = True


class ModelRejected(ModelError):
    """The provider refuses this request for good (kinds: auth, bad_request, not_found, too_large)."""

    default_kind = "bad_request"


class ModelRefused(ModelError):
    """The model or its content filter refuses to answer (kinds: content_filter, refusal)."""

    default_kind = "refusal"


class ModelProtocolError(ModelError):
    """The stream broke its own rules (kinds: protocol, incomplete, bounds)."""

    default_kind = "protocol"


class EmptyAnswer(ModelError):
    """The model ended without text and without a tool call."""

    default_kind = "empty"


class ToolError(AgentKernelError):
    """Raised by a tool to speak to the model: its text becomes the error result, without a traceback."""


class UnknownTool(ToolError):
    """The model asked for a tool that is not on offer."""

    def __init__(self, name: str, close: Iterable[str] = (), known: Iterable[str] = ()) -> None:
        """Name the tool, and close or known names."""
        close, known = list(close), list(known)
        hint = f" Did you mean {', '.join(close)}?" if close else f" Tools on offer: {', '.join(known)}." if known else " No tools are on offer."
        super().__init__(f"There is no tool named {name!r}.{hint}")
        self.name = name


class InvalidArguments(ToolError):
    """The arguments of a tool call do not fit its signature."""


class StoreError(AgentKernelError):
    """History or side store cannot be read or written."""


class HistoryLocked(StoreError):
    """Another process holds the history's index for too long."""


class SchemaTooNew(StoreError):
    """The history was written by a newer version of agent_kernel."""


class ArtifactNotFound(StoreError):
    """No artifact under this handle in this session, or its bytes are gone."""


class SessionBusy(AgentKernelError):
    """A turn is running in this session already."""


class NothingToRetry(AgentKernelError):
    """The session has no pending prompt."""


class LimitHookFailed(AgentKernelError):
    """The ``on_limit`` hook raised."""


class TurnInterrupted(KeyboardInterrupt):
    """A turn in a cell was stopped or interrupted.

    A KeyboardInterrupt only, so that user code's ``except Exception`` does not eat it and Run All stops here.
    """

    def __init__(self, message: str = "The turn was interrupted.") -> None:
        """Keep the one line that the cell shows."""
        super().__init__(message)

    def _render_traceback_(self) -> list[str]:
        """Show one line in IPython instead of a traceback."""
        return [str(self)]

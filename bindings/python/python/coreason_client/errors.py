"""What can go wrong: RFC 004's three kinds under one base, and documents that break their model."""

from __future__ import annotations

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .definitions.presentation import ErrorSeverity, StreamError

__all__ = [
    "CAPConnectionError",
    "CAPError",
    "CAPProtocolError",
    "CAPRuntimeError",
    "CAPTimeoutError",
    "CAPValidationError",
    "UntypedErrorError",
]


class CAPError(Exception):
    """Base of everything that this package raises on its own account."""

    is_retryable: bool = False
    """Whether the same request may succeed later."""


class CAPConnectionError(CAPError):
    """The connection could not be made, or not be kept, after all retries.

    Check the network, or try again later.
    """

    is_retryable = True

    def __init__(
        self,
        message: str,
        retries: int = 0,
        address: str | None = None,
        deadline: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retries = retries
        """How often it was tried again since the last new packet."""
        self.address = address
        """The server: scheme, host and port."""
        self.deadline = deadline
        """The call's own deadline in seconds, if that is what ended it."""


class CAPTimeoutError(CAPConnectionError, TimeoutError):
    """The server was silent for longer than `timeout`, or the call took longer than `deadline`."""


class CAPProtocolError(CAPError):
    """The server sent what the protocol does not allow. Check versions, or report it."""


class CAPRuntimeError(CAPError):
    """The server refused the request, or the run failed."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "http_error",
        severity: ErrorSeverity | None = None,
        retry_after: float | None = None,
        is_retryable: bool = False,
        error: StreamError | None = None,
        problem: dict[str, Any] | None = None,
        partial_text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, if a request was refused."""
        self.code = code
        """The code of the failure: the stream's, else the problem's."""
        self.severity = _fatal() if severity is None else severity
        """What the run does next: FATAL, TRANSIENT or WARNING."""
        self.retry_after = retry_after
        """Seconds to wait before trying again, if the server said so."""
        self.is_retryable = is_retryable
        self.error = error
        """The error of the stream, if the run failed."""
        self.problem = problem
        """The RFC 9457 problem, if a request was refused with one."""
        self.partial_text = partial_text
        """In `chat()`: the text that came before the failure."""


def _fatal() -> ErrorSeverity:
    from .definitions.presentation import ErrorSeverity  # which imports us

    return ErrorSeverity.FATAL


class CAPValidationError(CAPError, ValueError):
    """A document breaks its model, or an argument is not what it should be; `path` names the member
    or the argument.
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, what)
        self.path = path
        """The member, dotted, `[n]` for list items; empty for the document itself."""
        self.what = what
        """What is wrong there."""

    def __str__(self) -> str:
        return f"{self.path or 'document'}: {self.what}"


class UntypedErrorError(CAPError, TypeError, ValueError):
    """An error was written as a string.

    RFC 005 forbids that: errors are typed, so that clients can decide.
    """

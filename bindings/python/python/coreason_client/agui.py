"""AG-UI error events (story 22-B2): any exception as one RUN_ERROR.

Which exception is which kind of fault is said here; what a kind means (code, status, texts, wait)
is said in the Rust catalogue only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

from . import _core
from .definitions.presentation import StreamError
from .errors import CAPConnectionError, CAPProtocolError, CAPRuntimeError, CAPValidationError

__all__ = [
    "A2AAgentNotFoundError",
    "A2ACapabilityNotFoundError",
    "A2AError",
    "A2AMessageLimitExceeded",
    "A2AMessageLimitExceededError",
    "A2APermissionError",
    "A2ARateLimitExceeded",
    "A2ARateLimitExceededError",
    "A2AServiceUnavailableError",
    "A2ASessionLimitExceeded",
    "A2ASessionLimitExceededError",
    "AGUIErrorCode",
    "AGUIErrorEvent",
    "SessionNotFoundError",
    "TenantRequiredError",
    "classify",
    "create_error_event",
    "create_stream_error",
]


class AGUIErrorCode(str, Enum):
    """The ten codes; each has its fixed HTTP status."""

    AGENT_EXECUTION_ERROR = "AGENT_EXECUTION_ERROR"
    """Unhandled failure of the agent (500)."""
    TENANT_REQUIRED = "TENANT_REQUIRED"
    """No tenant is named (401)."""
    TENANT_UNAUTHORIZED = "TENANT_UNAUTHORIZED"
    """The tenant may not do this (403)."""
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    """The session is unknown (404)."""
    RATE_LIMITED = "RATE_LIMITED"
    """A limit is reached (429)."""
    TIMEOUT = "TIMEOUT"
    """Time ran out (504)."""
    INVALID_REQUEST = "INVALID_REQUEST"
    """The request is malformed (400)."""
    CAPABILITY_NOT_FOUND = "CAPABILITY_NOT_FOUND"
    """The agent or capability is unknown (404)."""
    UPSTREAM_ERROR = "UPSTREAM_ERROR"
    """A system behind the agent failed (502)."""
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    """The service cannot serve at the moment (503)."""

    @property
    def http_status(self) -> int:
        """The fixed HTTP status of the code."""
        return int(_row(self)["http_status"])

    @property
    def is_retryable(self) -> bool:
        """Whether the code alone says "try again"."""
        return bool(_row(self)["is_agui_retryable"])


_rows: dict[str, dict[str, Any]] = {}


def _row(code: AGUIErrorCode) -> dict[str, Any]:
    """The catalogue's first row of a code."""
    if not _rows:
        _rows.update((row["agui_code"], row) for row in _core.catalogue() if row["is_head"])
    return _rows[code.value]


class AGUIErrorEvent:
    """RUN_ERROR with the story's members. Frozen."""

    __slots__ = ("_event", "code", "details", "http_status", "message", "retry_after")

    event: ClassVar[str] = "RUN_ERROR"

    code: AGUIErrorCode | str
    message: str
    http_status: int
    details: dict[str, Any]
    retry_after: int | None

    def __init__(
        self,
        code: AGUIErrorCode | str,
        message: str,
        http_status: int = 500,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        try:
            code = AGUIErrorCode(code)
        except ValueError:
            code = str(code)
        self._fill(code, message, http_status, dict(details or {}), retry_after, None)

    def _fill(self, *values: Any) -> None:
        for name, value in zip(
            ("code", "message", "http_status", "details", "retry_after", "_event"),
            values,
            strict=True,
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls, fault: _core.Fault, is_debug: bool) -> AGUIErrorEvent:
        members, event = fault.to_run_error(is_debug)
        self = object.__new__(cls)
        code = AGUIErrorCode(members["code"])
        wait = members.get("retry_after")
        self._fill(
            code, members["message"], members["http_status"], members["details"], wait, event
        )
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"AGUIErrorEvent is frozen: {name} cannot be set")

    @property
    def data(self) -> dict[str, Any]:
        """The story's members; `retry_after` only when it is set."""
        code = self.code.value if isinstance(self.code, AGUIErrorCode) else self.code
        data = {
            "code": code,
            "message": self.message,
            "http_status": self.http_status,
            "details": self.details,
        }
        return data if self.retry_after is None else {**data, "retry_after": self.retry_after}

    def to_dict(self) -> dict[str, Any]:
        """The event as it goes out:

        AG-UI's `type`, the story's members, and ours under `metadata.capstan`.
        """
        event: dict[str, Any] | None = self._event  # type: ignore[attr-defined]
        return event or {"type": self.event, **self.data}

    model_dump = to_dict

    def to_json(self) -> str:
        """`to_dict` as JSON text on one line."""
        text = json.dumps(self.to_dict(), ensure_ascii=True, separators=(",", ":"))
        return text

    model_dump_json = to_json

    def to_sse(self) -> str:
        """The SSE frame: `event: RUN_ERROR` and one `data:` line."""
        return f"event: {self.event}\ndata: {self.to_json()}\n\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AGUIErrorEvent) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return (
            f"AGUIErrorEvent({', '.join(f'{name}={value!r}' for name, value in self.data.items())})"
        )


class A2AError(Exception):
    """Base of the exceptions that limiters, tenancy and lookups raise.

    `kind` is the catalogue's wire code.
    """

    kind: ClassVar[str] = "agent_execution_error"


class A2ARateLimitExceededError(A2AError):
    """The tenant sends too fast."""

    kind = "rate_limit_exceeded"

    def __init__(self, *args: object, retry_after: float | None = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after
        """Seconds until the next request may pass, if that is known."""


class A2ASessionLimitExceededError(A2AError):
    """The tenant has as many sessions as it may."""

    kind = "session_limit_exceeded"


class A2AMessageLimitExceededError(A2AError):
    """The session has as many messages as it may."""

    kind = "message_limit_exceeded"


class A2AAgentNotFoundError(A2AError):
    """The agent is unknown."""

    kind = "agent_not_found"


class A2ACapabilityNotFoundError(A2AError):
    """The capability is unknown."""

    kind = "capability_not_found"


class TenantRequiredError(A2AError):
    """The request names no tenant."""

    kind = "tenant_required"


class A2APermissionError(A2AError):
    """The tenant may not do this."""

    kind = "tenant_unauthorized"


class SessionNotFoundError(A2AError):
    """The session is unknown. A failed lookup of anything else is not this."""

    kind = "session_not_found"


class A2AServiceUnavailableError(A2AError):
    """The service cannot serve at the moment."""

    kind = "service_unavailable"


A2ARateLimitExceeded = A2ARateLimitExceededError
A2ASessionLimitExceeded = A2ASessionLimitExceededError
A2AMessageLimitExceeded = A2AMessageLimitExceededError


def create_error_event(exception: BaseException, is_debug: bool = False) -> AGUIErrorEvent:
    """Any exception as a RUN_ERROR.

    Args:
        exception: What was raised. It and its explicit causes are looked at, the outermost first.
        is_debug: Whether the exception's type and texts may leave the process.
    """
    return AGUIErrorEvent._of(classify(exception), is_debug)


def create_stream_error(exception: BaseException, is_debug: bool = False) -> StreamError:
    """Any exception as the payload of an ERROR packet; see `create_error_event`."""
    return classify(exception).to_stream_error(is_debug)


def classify(exception: BaseException) -> _core.Fault:
    """Any exception as a fault of the catalogue.

    What nothing recognises is `agent_execution_error`.
    """
    chain: list[str] = []
    found = None
    current: BaseException | None = exception
    while current is not None and len(chain) < 16:
        found = found or _known(current)
        chain.append(f"{type(current).__name__}: {current}")
        current = current.__cause__
    fault = found or _core.Fault("agent_execution_error")
    return fault.with_cause(type(exception).__name__, chain)


def _known(error: BaseException) -> _core.Fault | None:
    return _from_ours(error) or _from_httpx(error) or _from_pydantic(error) or _from_python(error)


def _from_ours(error: BaseException) -> _core.Fault | None:
    if isinstance(error, A2AError):
        return _core.Fault(error.kind, retry_after=getattr(error, "retry_after", None))
    if isinstance(error, CAPRuntimeError):
        if error.error is not None:
            return _core.Fault.from_stream_error(error.error)
        return _core.Fault.from_upstream_status(error.status or 500, error.retry_after)
    if isinstance(error, CAPConnectionError):
        return _core.Fault("upstream_unreachable")
    if isinstance(error, CAPProtocolError):
        return _core.Fault("upstream_malformed")
    if isinstance(error, CAPValidationError):
        return _core.Fault("invalid_request", message=str(error))
    return None


def _from_httpx(error: BaseException) -> _core.Fault | None:
    # An exception of httpx's can only come from a program that has imported it.
    httpx = sys.modules.get("httpx")
    if httpx is None:
        return None
    if isinstance(error, httpx.TimeoutException):
        return _core.Fault("upstream_timeout")
    if isinstance(error, httpx.HTTPStatusError):
        return _core.Fault.from_upstream_status(
            error.response.status_code, _retry_after(error.response.headers)
        )
    if isinstance(error, (httpx.ConnectError, httpx.ProxyError)):
        return _core.Fault("upstream_unreachable")
    if isinstance(error, httpx.TransportError):
        return _core.Fault("upstream_truncated")
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None


def _from_pydantic(error: BaseException) -> _core.Fault | None:
    core = sys.modules.get("pydantic_core")
    if core is None or not (isinstance(error, core.ValidationError) or _is_fastapis(error)):
        return None
    problems: list[dict[str, Any]] = error.errors()  # type: ignore[attr-defined]
    told = "; ".join(_problem(problem) for problem in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return _core.Fault("invalid_request", message=f"The request is invalid. {told}{more}.")


def _is_fastapis(error: BaseException) -> bool:
    """FastAPI wraps pydantic's errors of a request in an exception of its own."""
    exceptions = sys.modules.get("fastapi.exceptions")
    return exceptions is not None and isinstance(error, exceptions.RequestValidationError)


def _problem(problem: Mapping[str, Any]) -> str:
    """The field and what is wrong with it, but never the value, which may be private."""
    field = ".".join(map(str, problem["loc"])) or "document"
    # A text with a context may quote the value, or whatever a validator of the program's own said.
    is_plain = not problem.get("ctx") and problem["type"] in _plain_types()
    return f"{field}: {problem['msg'] if is_plain else problem['type']}"


def _plain_types() -> tuple[str, ...]:
    from typing import get_args

    from pydantic_core import core_schema

    return get_args(core_schema.ErrorType)


def _from_python(error: BaseException) -> _core.Fault | None:
    if isinstance(error, TimeoutError) or _is_asyncio_timeout(error):
        return _core.Fault("timeout")
    if isinstance(error, ConnectionError):
        return _core.Fault("upstream_unreachable")
    return None


def _is_asyncio_timeout(error: BaseException) -> bool:
    """Before 3.11 it is a class of its own."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.TimeoutError)

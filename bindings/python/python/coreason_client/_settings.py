"""What can be set on a client, sync or async."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID, uuid4

from ._model import to_uuid

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, Protocol, TypedDict

    class HttpxTimeout(Protocol):
        """What is read of an `httpx.Timeout`."""

        @property
        def connect(self) -> float | None: ...

        @property
        def read(self) -> float | None: ...

    Timeout = float | HttpxTimeout | None
    """Seconds a response may be silent, or an `httpx.Timeout`; `None` waits for ever."""

    class Settings(TypedDict):
        """As the native half takes them."""

        read_timeout: float | None
        connect_timeout: float | None
        max_retries: int
        max_wait: float
        resume_patience: float
        backoff_first: float
        backoff_max: float
        strict: bool
        profile: str
        path: str
        headers: list[tuple[str, str]]


CONNECT_TIMEOUT = 10.0


def make_settings(
    timeout: Any,
    max_retries: int,
    *,
    headers: Mapping[str, str] | None = None,
    path: str = "/assist",
    profile: str = "v1",
    strict: bool = False,
    max_wait: float = 30.0,
    resume_patience: float = 0.0,
    backoff: tuple[float, float] = (0.5, 30.0),
) -> Settings:
    """Checks nothing: the native half does, and names what is wrong."""
    read, connect = timeout, CONNECT_TIMEOUT
    if hasattr(timeout, "read"):
        read, connect = timeout.read, timeout.connect
    return {
        "read_timeout": read,
        "connect_timeout": connect,
        "max_retries": max_retries,
        "max_wait": max_wait,
        "resume_patience": resume_patience,
        "backoff_first": backoff[0],
        "backoff_max": backoff[1],
        "strict": strict,
        "profile": profile,
        "path": path,
        "headers": list((headers or {}).items()),
    }


def to_conversation(conversation_id: UUID | str | None) -> UUID:
    """The conversation to continue, or a new one."""
    return uuid4() if conversation_id is None else to_uuid("conversation_id", conversation_id)

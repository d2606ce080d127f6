"""The settings of a client, sync or async."""

from __future__ import annotations

from collections.abc import Mapping

from . import _arguments as check

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, Protocol, TypedDict

    class HttpxTimeout(Protocol):
        """The members of `httpx.Timeout` that count."""

        @property
        def connect(self) -> float | None: ...

        @property
        def read(self) -> float | None: ...

    Timeout = float | HttpxTimeout | None
    """Seconds a response may be silent, or an `httpx.Timeout`; `None` waits for ever."""

    class Settings(TypedDict):
        """The settings in the form of the native half."""

        read_timeout: float | None
        connect_timeout: float | None
        max_retries: int
        max_wait: float
        resume_patience: float
        deadline: float | None
        backoff_first: float
        backoff_max: float
        least_wait: float
        strict: bool
        profile: str
        path: str
        headers: list[tuple[str, str]]


CONNECT_TIMEOUT = 10.0

LEAST_WAIT = 0.1
"""No wait between tries is shorter: a client must not hammer.

Tests that break hundreds of connections set it.
"""


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
    deadline: float | None = None,
    backoff: tuple[float, float] = (0.5, 30.0),
) -> Settings:
    """Checks the caller's settings. An error names the wrong one."""
    read, connect = timeout, CONNECT_TIMEOUT
    name = "timeout"
    if hasattr(timeout, "read"):
        read, connect, name = timeout.read, timeout.connect, "timeout.read"
    if profile not in ("v1", "v2"):
        raise check.wrong("profile", "'v1' or 'v2'", profile)
    first, longest = check.pair("backoff", backoff)
    return {
        "read_timeout": check.limit(name, read),
        "connect_timeout": check.limit("timeout.connect", connect),
        "max_retries": check.count("max_retries", max_retries),
        "max_wait": check.wait("max_wait", max_wait),
        "resume_patience": check.wait("resume_patience", resume_patience),
        "deadline": check.limit("deadline", deadline),
        "backoff_first": first,
        "backoff_max": longest,
        "least_wait": LEAST_WAIT,
        "strict": check.flag("strict", strict),
        "profile": profile,
        "path": check.text("path", path, "a path below the base URL, such as '/assist'"),
        "headers": check.headers(headers),
    }

"""Checks arguments. An error names the argument and what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from uuid import UUID

from .errors import CAPValidationError

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

MAX_COUNT = 2**32 - 1


def wrong(name: str, expected: str, found: Any) -> CAPValidationError:
    """The exception for an invalid argument."""
    return CAPValidationError(name, f"expected {expected}, found {_shown(found)}")


def _shown(value: Any) -> str:
    """Shows a short, harmless value; any other may be long or a secret."""
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return (
        repr(value)
        if is_plain and len(repr(value)) <= 80
        else f"a value of type {type(value).__name__}"
    )


def text(name: str, value: Any, expected: str = "text") -> str:
    """A `str`."""
    if not isinstance(value, str):
        raise wrong(name, expected, value)
    return unicode(name, value)


def unicode(name: str, value: str) -> str:
    """Text that UTF-8 can carry.

    Half a surrogate pair is not: it comes from `surrogateescape`, or from a cut emoji.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CAPValidationError(
            name,
            f"holds the lone surrogate {value[error.start]!a} at index {error.start}, "
            "which is not Unicode text; value.encode('utf-8', 'replace').decode() replaces it",
        ) from None
    return value


def agent(value: Any) -> str | None:
    """The name of an agent, or `None` for the default one."""
    if value is None or (isinstance(value, str) and value.strip(".")):
        return value if value is None else unicode("agent", value)
    raise wrong("agent", "the name of an agent, or None for the server's default one", value)


def base_url(value: Any) -> str:
    """The URL of the server."""
    expected = "http://host:port or https://host"
    url = text("base_url", value, expected)
    if not url.startswith(("http://", "https://")):
        raise wrong("base_url", expected, url.rpartition("@")[2])
    return url


def api_key(value: Any) -> str:
    """A key that a header can carry. It is never shown."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CAPValidationError(
            "api_key", f"expected text or None, found a value of type {type(value).__name__}"
        )
    if not all(32 <= ord(character) < 127 for character in value):
        raise CAPValidationError(
            "api_key",
            "holds a character that no header can carry, such as a line break; try api_key.strip()",
        )
    return value


def count(name: str, value: Any) -> int:
    """A whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise wrong(name, "a whole number, 0 or more", value)
    return int(value)


def wait(name: str, value: Any) -> float:
    """Seconds, 0 or more."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise wrong(name, "seconds, 0 or more", value)
    return float(value)


def limit(name: str, value: Any) -> float | None:
    """Seconds above 0; `None` for no limit."""
    if value is None or value == math.inf:
        return None
    if not _is_number(value) or not value > 0:
        raise wrong(name, "seconds above 0, or None for no limit", value)
    return float(value)


def pair(name: str, value: Any) -> tuple[float, float]:
    """The first and the longest of several waits."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise wrong(
            name,
            "two numbers of seconds, the first and the longest wait, such as (0.5, 30.0)",
            value,
        )
    return wait(f"{name}[0]", value[0]), wait(f"{name}[1]", value[1])


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value)
    return value


def headers(value: Any) -> list[tuple[str, str]]:
    """Names and values. The native half checks whether they are valid headers."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise wrong("headers", "a dict of names and values", value)
    return [
        (text("headers", name, "names that are text"), text(f"headers[{name!r}]", value[name]))
        for name in value
    ]


def http_client(value: Any, is_async: bool) -> Any:
    """An httpx client of the right kind."""
    from inspect import iscoroutinefunction

    kind, other = (
        ("httpx.AsyncClient", "CAPClient") if is_async else ("httpx.Client", "AsyncCAPClient")
    )
    if not hasattr(value, "build_request") or not hasattr(value, "send"):
        raise wrong("http_client", f"an {kind}", value)
    if iscoroutinefunction(value.send) != is_async:
        raise wrong("http_client", f"an {kind} (the other kind is for {other})", value)
    return value


def cursor(value: Any) -> str:
    """`<stream_id>:<seq>`; the id of a stream alone stands for its beginning."""
    stream, colon, seq = str(value).partition(":")
    try:
        if colon and not (seq.isascii() and seq.isdigit()):
            raise ValueError
        return f"{UUID(stream)}:{int(seq or 0)}"
    except ValueError:
        expected = "a cursor, as stream.cursor has it (<stream_id>:<seq>), or the UUID of a stream"
        raise wrong("cursor", expected, value) from None


def stream_id(value: Any) -> UUID:
    """The id of a stream, as `stream.stream_id` has it."""
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise wrong(
            "stream_id", "the UUID of a stream, as stream.stream_id has it", value
        ) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

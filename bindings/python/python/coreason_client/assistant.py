"""Assistant frames: an agent CLI's stream-json output, one JSON object a line, with ADR 0004's
`error`.

frame = parse_frame(line)
if isinstance(frame, AssistantMessage) and frame.error == AssistantError.RATE_LIMIT:
    offer_a_retry(frame.text)
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from . import _core

__all__ = [
    "AssistantError",
    "AssistantMessage",
    "ConversationResetMessage",
    "Frame",
    "RateLimitEvent",
    "ResultMessage",
    "StreamEvent",
    "SystemMessage",
    "UnknownFrame",
    "UserMessage",
    "parse_frame",
]


class AssistantError(str, Enum):
    """Why an assistant message is no answer: ADR 0004's six codes, and those of later CLIs."""

    AUTHENTICATION_FAILED = "authentication_failed"
    BILLING_ERROR = "billing_error"
    RATE_LIMIT = "rate_limit"
    INVALID_REQUEST = "invalid_request"
    SERVER_ERROR = "server_error"
    UNKNOWN = "unknown"
    OAUTH_ORG_NOT_ALLOWED = "oauth_org_not_allowed"
    ACCOUNT_ON_HOLD = "account_on_hold"
    VERIFICATION_REQUIRED = "verification_required"
    OVERLOADED = "overloaded"
    MODEL_NOT_FOUND = "model_not_found"
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    CLOUD_CREDENTIAL_ERROR = "cloud_credential_error"


def _error(word: str | None) -> AssistantError | str | None:
    try:
        return None if word is None else AssistantError(word)
    except ValueError:
        return word


class _Frame:
    """The base of all frames: frozen members, and `raw`, the unchanged object."""

    __slots__ = ("_members", "raw")
    _names: ClassVar[tuple[str, ...]] = ()

    raw: dict[str, Any]
    _members: dict[str, Any]

    def __init__(self, members: dict[str, Any]) -> None:
        object.__setattr__(self, "raw", members.pop("raw"))
        object.__setattr__(self, "_members", members)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _Frame) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(repr(self.raw))

    def __repr__(self) -> str:
        members = ", ".join(
            f"{name}={value!r}" for name, value in self._members.items() if value is not None
        )
        return f"{type(self).__name__}({members})"


class AssistantMessage(_Frame):
    """A message of the agent."""

    __slots__ = ()

    @property
    def error(self) -> AssistantError | str | None:
        """Why this is not an answer; a word that is not known yet is kept as it came.

        Absent or null: `None`.
        """
        return _error(self._members["error"])

    @property
    def any_error(self) -> AssistantError | str | None:
        """`error`, or the error that older CLIs put inside `message`."""
        return _error(self._members["any_error"])

    @property
    def adr_error(self) -> AssistantError | None:
        """`any_error` as one of ADR 0004's six codes. Other codes are `UNKNOWN`."""
        word = self._members["adr_error"]
        return None if word is None else AssistantError(word)

    @property
    def id(self) -> str | None:
        """The message that this frame belongs to; one message may come in several frames."""
        value: str | None = self._members["id"]
        return value

    @property
    def model(self) -> str:
        """The model; `<synthetic>` for messages of the CLI itself."""
        return str(self._members["model"])

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return str(self._members["text"])

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The content blocks: dicts with a `type`."""
        return list(self._members["blocks"])

    @property
    def parent_tool_use_id(self) -> str | None:
        """The tool call of the subagent that wrote it."""
        value: str | None = self._members["parent_tool_use_id"]
        return value


class UserMessage(_Frame):
    """A message of the user or of a tool."""

    __slots__ = ()

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The content blocks: dicts with a `type`."""
        return list(self._members["blocks"])

    @property
    def parent_tool_use_id(self) -> str | None:
        """The tool call of the subagent that it is for."""
        value: str | None = self._members["parent_tool_use_id"]
        return value


class SystemMessage(_Frame):
    """A notice of the CLI. The whole frame is in `raw`."""

    __slots__ = ()

    @property
    def subtype(self) -> str:
        """The kind of notice."""
        return str(self._members["subtype"])


class ResultMessage(_Frame):
    """How a turn ended. `is_error` decides, never the subtype."""

    __slots__ = ()

    @property
    def subtype(self) -> str:
        """`success`, `error_max_turns`, …"""
        return str(self._members["subtype"])

    @property
    def is_error(self) -> bool:
        """Whether it failed."""
        return bool(self._members["is_error"])

    @property
    def api_error_status(self) -> int | None:
        """The status of the API call that failed."""
        value: int | None = self._members["api_error_status"]
        return value

    @property
    def result(self) -> str | None:
        """The answer, or the failure as text."""
        value: str | None = self._members["result"]
        return value

    @property
    def errors(self) -> list[str]:
        """Further failures as text."""
        return list(self._members["errors"])

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts."""
        value: dict[str, Any] | None = self._members["usage"]
        return value

    @property
    def total_cost_usd(self) -> float | None:
        """The cost in US dollars."""
        value: float | None = self._members["total_cost_usd"]
        return value


class StreamEvent(_Frame):
    """A raw event of the provider's stream, for text in pieces."""

    __slots__ = ()

    @property
    def event(self) -> Any:
        """The provider's event."""
        return self._members["event"]

    @property
    def error(self) -> AssistantError | str | None:
        """An error that the CLI put on the event, such as on `message_stop`."""
        return _error(self._members["error"])

    @property
    def parent_tool_use_id(self) -> str | None:
        """The tool call of the subagent that wrote it."""
        value: str | None = self._members["parent_tool_use_id"]
        return value


class RateLimitEvent(_Frame):
    """The state of a rate limit."""

    __slots__ = ()

    @property
    def status(self) -> str:
        """`allowed`, `allowed_warning`, `rejected`, …"""
        return str(self._members["status"])

    @property
    def resets_at(self) -> int | None:
        """When it resets, in seconds since the Unix epoch."""
        value: int | None = self._members["resets_at"]
        return value


class ConversationResetMessage(_Frame):
    """The conversation begins again."""

    __slots__ = ()


class UnknownFrame(_Frame):
    """A frame of an unknown type, to be ignored."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """The type's name."""
        return str(self._members["type"])


Frame = (
    AssistantMessage
    | UserMessage
    | SystemMessage
    | ResultMessage
    | StreamEvent
    | RateLimitEvent
    | ConversationResetMessage
    | UnknownFrame
)

_CLASSES: dict[str, type[_Frame]] = {
    kind.__name__: kind
    for kind in (
        AssistantMessage,
        UserMessage,
        ResultMessage,
        StreamEvent,
        RateLimitEvent,
        ConversationResetMessage,
        UnknownFrame,
    )
}


def parse_frame(line: str) -> Frame | None:
    """Reads one line of stream-json output; `None` for blank lines and log lines between the
    frames.

    Raises:
        ValueError: If it begins like a frame and is not one; the path of the member is named.
    """
    found = _core.parse_frame(line)
    if found is None:
        return None
    name, members = found
    # The CLI's news have many names and one shape.
    return _CLASSES.get(name, SystemMessage)(members)  # type: ignore[return-value]

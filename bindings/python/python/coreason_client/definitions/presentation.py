"""Packets, errors and presentation events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from uuid import UUID, uuid4

from .._core import StreamPacket
from .._model import Model, now, to_datetime

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, ClassVar

    _Mapping = Mapping[str, Any]
else:
    _Mapping = Mapping

__all__ = [
    "CitationBlock",
    "CitationItem",
    "ErrorDomain",
    "ErrorSeverity",
    "MarkdownBlock",
    "MediaCarousel",
    "MediaItem",
    "PresentationEvent",
    "PresentationEventType",
    "ProgressUpdate",
    "StreamError",
    "StreamOpCode",
    "StreamPacket",
    "StreamReset",
    "ThoughtTrace",
    "UserError",
]


class StreamOpCode(str, Enum):
    """The operation of a packet."""

    DELTA = "DELTA"
    """A piece of text."""
    EVENT = "EVENT"
    """A presentation event."""
    ERROR = "ERROR"
    """A `StreamError`."""
    CLOSE = "CLOSE"
    """The end of the stream."""


class ErrorSeverity(str, Enum):
    """What a stream does after an error."""

    FATAL = "FATAL"
    """The stream is dead and a retry cannot help. Raise it."""
    TRANSIENT = "TRANSIENT"
    """The stream was interrupted by something that passes. Retry, with backoff."""
    WARNING = "WARNING"
    """A minor part failed, and the stream continues. Log it."""


class ErrorDomain(str, Enum):
    """Where a failure comes from."""

    CLIENT = "client"
    """The request was wrong."""
    SYSTEM = "system"
    """The platform failed."""
    LLM = "llm"
    """The model provider failed or refused."""
    TOOL = "tool"
    """A tool failed."""
    SECURITY = "security"
    """Authentication, authorization or governance refused."""


class PresentationEventType(str, Enum):
    """The event types that the data contract knows. Others are passed on unchanged."""

    CITATION_BLOCK = "CITATION_BLOCK"
    PROGRESS_INDICATOR = "PROGRESS_INDICATOR"
    MEDIA_CAROUSEL = "MEDIA_CAROUSEL"
    MARKDOWN_BLOCK = "MARKDOWN_BLOCK"
    THOUGHT_TRACE = "THOUGHT_TRACE"


class StreamError(Model):
    """A failure of the stream itself: the payload of an ERROR packet (RFC 005)."""

    __slots__ = ("code", "details", "message", "severity")
    _name = "StreamError"
    _fields = ("code", "message", "severity", "details")
    _readers: ClassVar = {"severity": ErrorSeverity}

    code: str
    """Machine-readable, snake_case, such as `rate_limit_exceeded`."""
    message: str
    """For people."""
    severity: ErrorSeverity
    """What the stream does next."""
    details: dict[str, Any] | None
    """More, such as `{"retry_after": 60}`."""

    def __init__(
        self,
        code: str,
        message: str,
        severity: ErrorSeverity | str,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self._check({"code": code, "message": message, "severity": severity, "details": details})


class UserError(Model):
    """A failure that the user should read while the agent carries on: the data of a `user_error`
    event.
    """

    __slots__ = ("code", "domain", "message", "retryable")
    _name = "UserErrorData"
    _fields = ("message", "code", "domain", "retryable")
    _readers: ClassVar = {"domain": ErrorDomain}

    message: str
    """For the user."""
    code: int | None
    """A number such as 429 or 503."""
    domain: ErrorDomain
    """Where the failure comes from."""
    retryable: bool
    """Whether to offer a retry."""

    def __init__(
        self,
        message: str,
        code: int | None = None,
        domain: ErrorDomain | str = ErrorDomain.SYSTEM,
        retryable: bool = False,
    ) -> None:
        self._check({"message": message, "code": code, "domain": domain, "retryable": retryable})


class CitationItem(Model):
    """A source that backs the answer."""

    __slots__ = ("confidence", "snippet", "source_id", "title", "uri")
    _name = "CitationItem"
    _fields = ("source_id", "uri", "title", "snippet", "confidence")

    source_id: str
    uri: str
    title: str
    snippet: str | None
    confidence: float

    def __init__(
        self, source_id: str, uri: str, title: str, confidence: float, snippet: str | None = None
    ) -> None:
        self._check(
            {
                "source_id": source_id,
                "uri": uri,
                "title": title,
                "snippet": snippet,
                "confidence": confidence,
            }
        )


class CitationBlock(Model):
    """A list of sources."""

    __slots__ = ("citations",)
    _name = "CitationBlock"
    _fields = ("citations",)
    _readers: ClassVar = {
        "citations": lambda items: [CitationItem._trusted(item) for item in items]
    }

    citations: list[CitationItem]

    def __init__(self, citations: list[CitationItem]) -> None:
        self._check({"citations": citations})


class ProgressUpdate(Model):
    """A step of work that a person may watch; `status` is `running`, `complete` or `failed`."""

    __slots__ = ("label", "progress_percent", "status")
    _name = "ProgressUpdate"
    _fields = ("label", "status", "progress_percent")

    label: str
    status: str
    progress_percent: float | None

    def __init__(self, label: str, status: str, progress_percent: float | None = None) -> None:
        self._check({"label": label, "status": status, "progress_percent": progress_percent})


class MediaItem(Model):
    """A picture, a film, a file."""

    __slots__ = ("alt_text", "mime_type", "url")
    _name = "MediaItem"
    _fields = ("url", "mime_type", "alt_text")

    url: str
    mime_type: str
    alt_text: str | None

    def __init__(self, url: str, mime_type: str, alt_text: str | None = None) -> None:
        self._check({"url": url, "mime_type": mime_type, "alt_text": alt_text})


class MediaCarousel(Model):
    """Several media items."""

    __slots__ = ("items",)
    _name = "MediaCarousel"
    _fields = ("items",)
    _readers: ClassVar = {"items": lambda items: [MediaItem._trusted(item) for item in items]}

    items: list[MediaItem]

    def __init__(self, items: list[MediaItem]) -> None:
        self._check({"items": items})


class MarkdownBlock(Model):
    """Markdown to render."""

    __slots__ = ("content",)
    _name = "MarkdownBlock"
    _fields = ("content",)

    content: str

    def __init__(self, content: str) -> None:
        self._check({"content": content})


class ThoughtTrace(Model):
    """A thought of the agent."""

    __slots__ = ("thought",)
    _name = "ThoughtTrace"
    _fields = ("thought",)

    thought: str

    def __init__(self, thought: str) -> None:
        self._check({"thought": thought})


class StreamReset(Model):
    """ "Drop text and presentation events after `after_seq`; they follow again" (an extension)."""

    __slots__ = ("after_seq", "attempt")
    _name = "StreamReset"
    _fields = ("attempt", "after_seq")

    attempt: int
    after_seq: int

    def __init__(self, attempt: int, after_seq: int) -> None:
        self._check({"attempt": attempt, "after_seq": after_seq})


EventView = (
    CitationBlock
    | ProgressUpdate
    | MediaCarousel
    | MarkdownBlock
    | ThoughtTrace
    | UserError
    | StreamReset
)

_VIEWS: dict[str, type[Model]] = {
    "CITATION_BLOCK": CitationBlock,
    "PROGRESS_INDICATOR": ProgressUpdate,
    "MEDIA_CAROUSEL": MediaCarousel,
    "MARKDOWN_BLOCK": MarkdownBlock,
    "THOUGHT_TRACE": ThoughtTrace,
    "user_error": UserError,
    "stream_reset": StreamReset,
}


class PresentationEvent(Model, _Mapping):
    """What an EVENT packet shows to a person: `id`, `timestamp`, `type` and `data`.

    It also reads as the mapping that it is on the wire: `event["data"]["citations"]`. Events that a
    server sends are unchanged, whatever their type; an absent member is `None`. Building one checks
    it.
    """

    __slots__ = ("_raw",)
    _name = "PresentationEvent"
    _fields = ("id", "timestamp", "type", "data")

    _raw: dict[str, Any]

    def __init__(
        self,
        type: PresentationEventType | str,
        data: Mapping[str, Any] | Model,
        *,
        id: UUID | str | None = None,
        timestamp: datetime | None = None,
    ) -> None:
        document = {
            "id": id or uuid4(),
            "timestamp": timestamp or now(),
            "type": type,
            "data": data,
        }
        if type == "user_error" and not isinstance(data, UserError):
            # The contract's list of types does not have it; its data has a model all the same.
            document["data"] = UserError.from_dict(data)
        if type in _EXTRA:
            checked = self.from_json(
                _text({**document, "type": PresentationEventType.MARKDOWN_BLOCK})
            )
            object.__setattr__(self, "_raw", {**checked._raw, "type": str(type)})
        else:
            self._check(document)

    def _read(self, document: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_raw", dict(document))

    @property
    def id(self) -> UUID | str | None:
        """The event's own id."""
        value = self._raw.get("id")
        try:
            return UUID(value)
        except (ValueError, TypeError, AttributeError):
            return value

    @property
    def timestamp(self) -> datetime | None:
        """The time at which it was made."""
        value = self._raw.get("timestamp")
        try:
            return to_datetime(value) if isinstance(value, str) else None
        except ValueError:
            return None

    @property
    def type(self) -> str | None:
        """The type of the event. A `PresentationEventType` equals its name."""
        value = self._raw.get("type")
        return value if isinstance(value, str) else None

    @property
    def data(self) -> Any:
        """The block, as JSON values."""
        return self._raw.get("data")

    def view(self) -> EventView | None:
        """The typed block, in either profile; `None` if the type is unknown or its data does not
        fit.
        """
        word = self.type or ""
        model = _VIEWS.get(word) or _VIEWS.get(word.upper())
        if model is None:
            return None
        try:
            return model.from_dict(self.data)  # type: ignore[return-value]
        except ValueError:
            return None

    def _members(self) -> dict[str, Any]:
        return self._raw

    def model_dump(self, *, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """Pydantic's method."""
        return self.to_dict()

    def __getitem__(self, name: str) -> Any:
        return self._raw[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PresentationEvent):
            return self._raw == other._raw
        return self._raw == other

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_event_of, (self.to_json(),))


_EXTRA = ("user_error", "stream_reset", "INTERRUPT")
"""Event types beyond the contract's list that we write ourselves."""


def _text(document: Mapping[str, Any]) -> str:
    from .._model import to_json_text

    return to_json_text(document)


# The native half makes these from documents that it has judged.


_new = object.__new__
_set_raw = PresentationEvent.__dict__["_raw"].__set__


def _event_with(members: dict[str, Any]) -> PresentationEvent:
    # The one model on the packets' own path, so the shortest way there is.
    event = _new(PresentationEvent)
    _set_raw(event, members)
    return event


def _event_of(text: str) -> PresentationEvent:
    return _event_with(json.loads(text))


def _stream_error_of(text: str) -> StreamError:
    return StreamError._trusted(json.loads(text))


def _user_error_of(text: str) -> UserError:
    return UserError._trusted(json.loads(text))

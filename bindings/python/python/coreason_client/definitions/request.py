"""The payload of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID, uuid4

from .._model import Model, now, to_datetime, to_session
from ..errors import CAPValidationError
from .message import ChatMessage

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, ClassVar

__all__ = ["AgentRequest", "ClientCapabilities"]

NO_SESSION = UUID(int=0)
"""Replaces the session until the envelope names it."""


class ClientCapabilities(Model):
    """The abilities of the client's display."""

    __slots__ = ("image_resolution", "prefers_markdown", "supported_events")
    _name = "ClientCapabilities"
    _fields = ("supported_events", "prefers_markdown", "image_resolution")

    supported_events: list[str]
    prefers_markdown: bool
    image_resolution: str | None

    def __init__(
        self,
        supported_events: Sequence[str] = (),
        prefers_markdown: bool = True,
        image_resolution: str | None = None,
    ) -> None:
        self._check(
            {
                "supported_events": list(supported_events),
                "prefers_markdown": prefers_markdown,
                "image_resolution": image_resolution,
            }
        )


class AgentRequest(Model):
    """The payload, and the request that caused it.

    `AgentRequest(messages=[…])` or `AgentRequest(query="…")` is enough: ids and time are filled in,
    and the session is that of the `ServiceRequest` around it. Any other question goes into
    `payload`.
    """

    __slots__ = (
        "capabilities",
        "metadata",
        "parent_request_id",
        "payload",
        "request_id",
        "root_request_id",
        "session_id",
        "timestamp",
    )
    _name = "AgentRequest"
    _fields = (
        "request_id",
        "session_id",
        "root_request_id",
        "parent_request_id",
        "timestamp",
        "payload",
        "capabilities",
        "metadata",
    )
    _readers: ClassVar = {
        "request_id": UUID,
        "session_id": UUID,
        "root_request_id": UUID,
        "parent_request_id": UUID,
        "timestamp": to_datetime,
        "capabilities": ClientCapabilities._trusted,
    }

    request_id: UUID
    session_id: UUID | None
    root_request_id: UUID
    parent_request_id: UUID | None
    timestamp: datetime
    payload: dict[str, Any]
    capabilities: ClientCapabilities | None
    metadata: dict[str, Any]

    def __init__(
        self,
        messages: Sequence[ChatMessage | Mapping[str, Any]] | None = None,
        *,
        query: str | None = None,
        payload: Mapping[str, Any] | None = None,
        request_id: UUID | str | None = None,
        session_id: UUID | str | None = None,
        root_request_id: UUID | str | None = None,
        parent_request_id: UUID | str | None = None,
        timestamp: datetime | str | None = None,
        capabilities: ClientCapabilities | Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        question = dict(payload or {})
        if messages is not None:
            question["messages"] = [ChatMessage.model_validate(message) for message in messages]
        if query is not None:
            question["query"] = query
        if not question:
            raise CAPValidationError(
                "payload", "the payload is empty: give messages=[…], query=… or payload={…}"
            )
        self._check(
            {
                "request_id": request_id or uuid4(),
                "session_id": NO_SESSION
                if session_id is None
                else to_session("session_id", session_id),
                "root_request_id": root_request_id,
                "parent_request_id": parent_request_id,
                "timestamp": timestamp or now(),
                "payload": question,
                "capabilities": capabilities,
                "metadata": dict(metadata or {}),
            }
        )
        if session_id is None:
            object.__setattr__(self, "session_id", None)

    def in_session(self, session_id: UUID) -> AgentRequest:
        """The same request in a session."""
        copy = object.__new__(AgentRequest)
        copy._set(
            {**{name: getattr(self, name) for name in self._fields}, "session_id": session_id}
        )
        return copy

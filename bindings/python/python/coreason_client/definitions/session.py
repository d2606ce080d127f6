"""Who asks, where."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from .._model import Model, now, to_datetime, to_session, to_uuid
from ..errors import CAPValidationError

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, ClassVar

__all__ = ["SessionContext", "TraceContext", "UserContext"]

NO_AGENT = UUID(int=0)
"""A session that is not bound to a particular agent."""


class UserContext(Model):
    """Who asks."""

    __slots__ = ("email", "locale", "tier", "user_id")
    _name = "UserContext"
    _fields = ("user_id", "email", "tier", "locale")

    user_id: str
    email: str | None
    tier: str
    locale: str

    def __init__(
        self, user_id: str, email: str | None = None, tier: str = "free", locale: str = "en-US"
    ) -> None:
        self._check({"user_id": user_id, "email": email, "tier": tier, "locale": locale})


class TraceContext(Model):
    """Where the request stands in a distributed trace."""

    __slots__ = ("parent_id", "span_id", "trace_id")
    _name = "TraceContext"
    _fields = ("trace_id", "span_id", "parent_id")
    _readers: ClassVar = {"trace_id": UUID, "span_id": UUID, "parent_id": UUID}

    trace_id: UUID
    span_id: UUID
    parent_id: UUID | None

    def __init__(
        self,
        trace_id: UUID | str | None = None,
        span_id: UUID | str | None = None,
        parent_id: UUID | str | None = None,
    ) -> None:
        self._check(
            {"trace_id": trace_id or uuid4(), "span_id": span_id or uuid4(), "parent_id": parent_id}
        )


class SessionContext(Model):
    """The session that a request belongs to.

    `SessionContext(user_id=…, session_id=…)` is enough; the rest is filled in.
    """

    __slots__ = ("agent_id", "created_at", "permissions", "session_id", "trace", "user")
    _name = "SessionContext"
    _fields = ("session_id", "agent_id", "user", "trace", "permissions", "created_at")
    _readers: ClassVar = {
        "session_id": UUID,
        "agent_id": UUID,
        "user": UserContext._trusted,
        "trace": TraceContext._trusted,
        "created_at": to_datetime,
    }

    session_id: UUID
    agent_id: UUID
    user: UserContext
    trace: TraceContext
    permissions: list[str]
    created_at: datetime

    def __init__(
        self,
        session_id: UUID | str,
        user_id: str | None = None,
        *,
        user: UserContext | dict[str, Any] | None = None,
        agent_id: UUID | str = NO_AGENT,
        trace: TraceContext | dict[str, Any] | None = None,
        permissions: Sequence[str] = (),
        created_at: datetime | str | None = None,
    ) -> None:
        if (user is None) == (user_id is None):
            raise CAPValidationError(
                "user", "expected user_id=… or user=UserContext(…), one of the two"
            )
        self._check(
            {
                "session_id": to_session("session_id", session_id),
                "agent_id": to_uuid("agent_id", agent_id),
                "user": UserContext(user_id) if user_id is not None else user,
                "trace": trace or TraceContext(),
                "permissions": list(permissions),
                "created_at": created_at or now(),
            }
        )

"""The envelope that is posted to `/assist`."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID, uuid4

from .._model import Model, to_uuid
from .request import AgentRequest
from .session import SessionContext

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, ClassVar

__all__ = ["ServiceRequest"]


class ServiceRequest(Model):
    """A request: its key, its user, and its payload.

    A run starts at most once per `request_id`: the same key with the same body attaches to the run
    that is there.
    """

    __slots__ = ("context", "payload", "request_id")
    _name = "ServiceRequest"
    _fields = ("request_id", "context", "payload")
    _readers: ClassVar = {
        "request_id": UUID,
        "context": SessionContext._trusted,
        "payload": AgentRequest._trusted,
    }

    request_id: UUID
    context: SessionContext
    payload: AgentRequest

    def __init__(
        self,
        request_id: UUID | str | None = None,
        *,
        context: SessionContext | Mapping[str, Any],
        payload: AgentRequest | Mapping[str, Any],
    ) -> None:
        context = SessionContext.model_validate(context)
        if isinstance(payload, AgentRequest) and payload.session_id is None:
            payload = payload.in_session(context.session_id)
        self._check(
            {
                "request_id": uuid4() if request_id is None else to_uuid("request_id", request_id),
                "context": context,
                "payload": payload,
            }
        )

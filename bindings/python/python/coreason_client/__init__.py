"""The self-healing client of the Coreason Agent Protocol, and the agent's side of it.

from coreason_client import CAPClient

client = CAPClient(base_url="http://localhost:8787", api_key="sk_...")
for text in client.chat("Explain quantum mechanics."):
    print(text, end="", flush=True)
"""

from __future__ import annotations

from . import _manifest
from ._core import StreamPacket, __version__
from ._streams import AsyncChatStream, AsyncPacketStream, ChatStream, PacketStream
from .client import AsyncCAPClient, CAPClient
from .definitions.message import ChatMessage, Role
from .definitions.presentation import (
    ErrorDomain,
    ErrorSeverity,
    PresentationEvent,
    StreamError,
    StreamOpCode,
    UserError,
)
from .definitions.request import AgentRequest, ClientCapabilities
from .definitions.service import ServiceRequest
from .definitions.session import SessionContext, TraceContext, UserContext
from .errors import (
    CAPConnectionError,
    CAPError,
    CAPProtocolError,
    CAPRuntimeError,
    CAPTimeoutError,
    CAPValidationError,
)

_manifest.install()

__all__ = [
    "AgentRequest",
    "AsyncCAPClient",
    "AsyncChatStream",
    "AsyncPacketStream",
    "CAPClient",
    "CAPConnectionError",
    "CAPError",
    "CAPProtocolError",
    "CAPRuntimeError",
    "CAPTimeoutError",
    "CAPValidationError",
    "ChatMessage",
    "ChatStream",
    "ClientCapabilities",
    "ErrorDomain",
    "ErrorSeverity",
    "PacketStream",
    "PresentationEvent",
    "Role",
    "ServiceRequest",
    "SessionContext",
    "StreamError",
    "StreamOpCode",
    "StreamPacket",
    "TraceContext",
    "UserContext",
    "UserError",
    "__version__",
]

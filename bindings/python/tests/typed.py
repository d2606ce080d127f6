"""The types of packets for type checkers: `op` determines the type of `p`. For mypy, never run."""

from typing import Any

from typing_extensions import assert_type

from coreason_client import (
    AsyncCAPClient,
    CAPClient,
    CAPRuntimeError,
    ChatMessage,
    ServiceRequest,
    StreamPacket,
)
from coreason_client.definitions.presentation import (
    ErrorSeverity,
    PresentationEvent,
    StreamError,
    StreamOpCode,
)
from coreason_manifest.definitions import message, presentation, session
from coreason_manifest.definitions.presentation import StreamPacket as TheirPacket
from coreason_manifest.definitions.request import AgentRequest
from coreason_manifest.definitions.service import ServiceRequest as TheirRequest


def manifest(packet: TheirPacket, request: TheirRequest, refused: CAPRuntimeError) -> None:
    """The RFCs' names are ours, for type checkers as well."""
    anything(packet)
    assert_type(request.payload, AgentRequest)
    assert_type(request.context, session.SessionContext)
    assert_type(message.ChatMessage.user("Hi"), ChatMessage)
    assert_type(refused.severity, presentation.ErrorSeverity)


def anything(packet: StreamPacket) -> None:
    assert_type(packet.p, str | PresentationEvent | StreamError | dict[str, Any])


def rfcs(client: CAPClient, request: ServiceRequest) -> None:
    for packet in client.assist(request):
        if packet.op == StreamOpCode.DELTA:
            assert_type(packet.p, str)
        elif packet.op == StreamOpCode.EVENT:
            event = packet.p
            if event["type"] == "CITATION_BLOCK":
                print(f"\n[Citation: {event['data']['citations'][0]['uri']}]")
        elif packet.op == StreamOpCode.ERROR:
            error: StreamError = packet.p
            assert_type(error.severity, ErrorSeverity)
        else:
            assert_type(packet.p, str | dict[str, Any])
        anything(packet)
    kept: list[StreamPacket] = list(client.assist(request))
    anything(kept[0])


async def twin(client: AsyncCAPClient, request: ServiceRequest) -> None:
    async for packet in client.assist(request):
        if packet.op is StreamOpCode.ERROR:
            assert_type(packet.p, StreamError)
    async for text in await client.chat("Hi"):
        assert_type(text, str)

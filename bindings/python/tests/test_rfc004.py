"""RFC 004's own examples, as they are written, against a real gateway."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from coreason_client import AsyncCAPClient, CAPClient, CAPError, CAPRuntimeError


def test_scenario_a_runs_as_written(gateway: str, capsys: pytest.CaptureFixture[str]) -> None:
    from coreason_client import CAPClient

    client = CAPClient(base_url=gateway, api_key="sk_...")

    print("User: Explain quantum mechanics.")
    print("AI: ", end="", flush=True)

    # The stream object holds the ID for the next turn
    stream = client.chat("Explain quantum mechanics.")

    for chunk in stream:
        print(chunk, end="", flush=True)

    # Continue conversation
    next_stream = client.chat("How does that relate to gravity?", conversation_id=stream.conversation_id)

    assert capsys.readouterr().out.startswith("User: Explain quantum mechanics.\nAI: ")
    assert stream.text_so_far and next_stream.text()
    assert next_stream.conversation_id == stream.conversation_id
    client.close()


def test_scenario_b_differs_only_in_prefix_and_session_id(gateway: str, capsys: pytest.CaptureFixture[str]) -> None:
    from coreason_client import CAPClient, ServiceRequest
    from coreason_client.definitions.message import ChatMessage
    from coreason_client.definitions.presentation import StreamOpCode
    from coreason_client.definitions.request import AgentRequest
    from coreason_client.definitions.session import SessionContext

    client = CAPClient(base_url=gateway, api_key="...")

    # 1. Manually construct the envelope
    context = SessionContext(
        user_id="user_123",
        session_id=uuid4(),
    )

    payload = AgentRequest(
        messages=[
            ChatMessage.user("/events"),
        ]
    )

    request = ServiceRequest(
        request_id=uuid4(),
        context=context,
        payload=payload,
    )

    # 2. Iterate strictly over packets
    for packet in client.assist(request):
        if packet.op == StreamOpCode.DELTA:
            print(packet.p, end="")
        elif packet.op == StreamOpCode.EVENT:
            event = packet.p
            if event["type"] == "CITATION_BLOCK":
                print(f"\n[Citation: {event['data']['citations'][0]['uri']}]")

    assert "[Citation: http" in capsys.readouterr().out
    client.close()


def test_a_session_id_that_is_no_uuid_says_what_to_do() -> None:
    from coreason_client.definitions.session import SessionContext

    with pytest.raises(ValueError, match=r"session_id: expected a UUID, found 'sess_abc'; make one with uuid\.uuid4"):
        SessionContext(user_id="user_123", session_id="sess_abc")


def test_the_async_twin_reads_the_same(gateway: str) -> None:
    async def main() -> tuple[str, str]:
        async with AsyncCAPClient(base_url=gateway, api_key="sk_...") as client:
            stream = await client.chat("What is a capstan?")
            awaited = "".join([chunk async for chunk in stream])
            direct = ""
            async for chunk in client.chat("What is a capstan?", conversation_id=stream.conversation_id):
                direct += chunk
            return awaited, direct

    awaited, direct = asyncio.run(main())
    with CAPClient(gateway, "") as client:
        assert awaited and awaited == client.chat("What is a capstan?").text()
    assert direct


def test_failures_are_the_rfcs_three_kinds(gateway: str) -> None:
    from coreason_client import CAPConnectionError, CAPProtocolError

    assert {k.__base__ for k in (CAPConnectionError, CAPProtocolError, CAPRuntimeError)} == {CAPError}
    client = CAPClient("http://127.0.0.1:9", "", max_retries=1, backoff=(0.1, 0.1))
    with pytest.raises(CAPConnectionError) as lost:
        client.chat("Hi").text()
    assert lost.value.retries == 1
    with CAPClient(gateway, "") as real, pytest.raises(CAPRuntimeError) as failed:
        real.chat("/fault content_refused --after 2").text()
    error = failed.value
    assert (error.code, error.severity, error.is_retryable) == ("content_refused", "FATAL", False)
    assert error.error is not None and error.error.code == "content_refused" and error.partial_text
    client.close()


def test_a_refusal_carries_its_problem(gateway: str) -> None:
    with CAPClient(gateway, "", path="/v1/agents/nobody/assist") as client, pytest.raises(CAPRuntimeError) as refused:
        client.chat("Hi").text()
    assert refused.value.status == 404
    assert refused.value.problem is not None and refused.value.problem["code"] == refused.value.code


def test_a_body_that_is_no_stream_is_a_protocol_error(gateway: str) -> None:
    from coreason_client import CAPProtocolError

    with CAPClient(gateway, "", path="/health") as client, pytest.raises((CAPProtocolError, CAPRuntimeError)):
        client.chat("Hi").text()


def test_timeouts_are_floats_or_httpx_timeouts(gateway: str) -> None:
    import httpx

    for timeout in (5, 5.0, httpx.Timeout(5.0, connect=1.0), httpx.Timeout(None), None):
        with CAPClient(gateway, "", timeout=timeout) as client:
            assert client.chat("/tokens 2").text()
    with pytest.raises(ValueError):
        CAPClient(gateway, "", timeout=-1.0)
    with pytest.raises(ValueError, match="expected http"):
        CAPClient("localhost:8787", "")

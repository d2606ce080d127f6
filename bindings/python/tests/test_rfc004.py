"""RFC 004's own examples, unchanged, against a real gateway."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
import pytest

from conftest import QUICK, Scripted, answer, question
from coreason_client import (
    AsyncCAPClient,
    AsyncChatStream,
    AsyncPacketStream,
    CAPClient,
    CAPConnectionError,
    CAPError,
    CAPProtocolError,
    CAPRuntimeError,
    ChatStream,
    PacketStream,
)


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
    next_stream = client.chat(
        "How does that relate to gravity?", conversation_id=stream.conversation_id
    )

    assert capsys.readouterr().out.startswith("User: Explain quantum mechanics.\nAI: ")
    assert stream.text_so_far and next_stream.text()
    assert next_stream.conversation_id == stream.conversation_id
    client.close()


SCENARIO_B = """
from uuid import uuid4  # the RFC leaves it out

from coreason_client import CAPClient, ServiceRequest
from coreason_manifest.definitions.session import SessionContext
from coreason_manifest.definitions.request import AgentRequest
from coreason_manifest.definitions.message import ChatMessage
from coreason_manifest.definitions.presentation import StreamOpCode

client = CAPClient(base_url="...", api_key="...")

# 1. Manually construct the envelope
context = SessionContext(
    user_id="user_123",
    session_id="sess_abc",
    # ... other required fields
)

payload = AgentRequest(
    messages=[
        ChatMessage.user("Analyze this data."),
        # ... attached files or complex history
    ]
)

request = ServiceRequest(
    request_id=uuid4(),
    context=context,
    payload=payload
)

# 2. Iterate strictly over packets
for packet in client.assist(request):
    if packet.op == StreamOpCode.DELTA:
        print(packet.p, end="")
    elif packet.op == StreamOpCode.EVENT:
        event = packet.p
        if event['type'] == 'CITATION_BLOCK':
            print(f"\\n[Citation: {event['data']['citations'][0]['uri']}]")
"""


def run(source: str) -> str:
    """The output of a separate program."""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scenario_b_runs_as_written(gateway: str) -> None:
    source = SCENARIO_B.replace('base_url="..."', f"base_url={gateway!r}")
    assert "“Analyze”" in run(source), "the demo says what it was asked"
    assert "[Citation: http" in run(source.replace("Analyze this data.", "/events"))


def test_a_session_may_have_a_name_of_its_own() -> None:
    """On the wire it is a UUID, always the same; a UUID with a slip in it is refused."""
    from coreason_client.definitions.session import SessionContext

    session = SessionContext(user_id="user_123", session_id="sess_abc").session_id
    assert (
        session
        == uuid5(NAMESPACE_URL, "sess_abc")
        == SessionContext("sess_abc", "other").session_id
    )
    client = CAPClient("http://localhost", "")
    assert client.chat("Hi", conversation_id="sess_abc").conversation_id == str(session)
    assert client.chat("Hi", conversation_id=str(session)).conversation_id == str(session)
    with pytest.raises(
        ValueError, match=r"session_id: expected a UUID, found '7c9e6679-7425-40de-944b-e07fc1f90'"
    ):
        SessionContext(user_id="user_123", session_id="7c9e6679-7425-40de-944b-e07fc1f90")
    with pytest.raises(
        ValueError,
        match=r"conversation_id: expected a UUID, found 7; make one with uuid\.uuid4\(\)",
    ):
        client.chat("Hi", conversation_id=7)  # type: ignore[arg-type]


def test_the_async_twin_reads_the_same(gateway: str) -> None:
    async def main() -> tuple[str, str]:
        async with AsyncCAPClient(base_url=gateway, api_key="sk_...") as client:
            stream = await client.chat("/tokens 20")
            awaited = "".join([chunk async for chunk in stream])
            direct = ""
            async for chunk in client.chat("/tokens 20", conversation_id=stream.conversation_id):
                direct += chunk
            return awaited, direct

    awaited, direct = asyncio.run(main())
    with CAPClient(gateway, "") as client:
        assert awaited and awaited == direct == client.chat("/tokens 20").text()


def arguments(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """The parameters of a method except `self`."""
    _, *taken = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in taken]


@pytest.mark.parametrize(
    ("here", "there"),
    [(CAPClient, AsyncCAPClient), (ChatStream, AsyncChatStream), (PacketStream, AsyncPacketStream)],
)
def test_the_async_twin_has_every_method_of_the_blocking_client(here: type, there: type) -> None:
    """With the same arguments; those that wait are awaited or iterated by `async for`."""
    for name in (name for name in dir(here) if not name.startswith("_")):
        ours, theirs = getattr(here, name), getattr(there, name)
        if callable(ours):
            assert arguments(theirs) == arguments(ours), name
    assert hasattr(here, "__iter__") == hasattr(there, "__aiter__") and not hasattr(
        there, "__iter__"
    )
    assert hasattr(here, "__enter__") == hasattr(there, "__aenter__")
    if here is CAPClient:
        assert all(
            inspect.iscoroutinefunction(getattr(there, name))
            for name in ("stop", "health", "close")
        )


def test_failures_are_the_rfcs_three_kinds(gateway: str) -> None:
    assert {k.__base__ for k in (CAPConnectionError, CAPProtocolError, CAPRuntimeError)} == {
        CAPError
    }
    with CAPClient(gateway, "") as client, pytest.raises(CAPRuntimeError) as failed:
        client.chat("/fault content_refused --after 2").text()
    error = failed.value
    assert (error.code, error.severity, error.is_retryable) == ("content_refused", "FATAL", False)
    assert error.error is not None and error.error.code == "content_refused" and error.partial_text

    seen = []
    with CAPClient(gateway, "") as client, pytest.raises(CAPRuntimeError) as failed:
        for packet in client.assist(question("/fault content_refused --after 2")):
            seen.append(packet.op)
    assert (failed.value.code, seen) == ("content_refused", ["DELTA", "DELTA"])


@pytest.mark.parametrize("http", [None, httpx.Client()], ids=["native", "httpx"])
def test_a_connection_error_says_to_check_the_network_or_to_try_later(
    http: httpx.Client | None,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with CAPClient(url, "", max_retries=1, http_client=http, **QUICK) as client:
        for call, retries in ((lambda: client.chat("Hi").text(), 1), (client.health, 0)):
            with pytest.raises(CAPConnectionError) as lost:
                call()
            assert (lost.value.retries, lost.value.address, lost.value.is_retryable) == (
                retries,
                url,
                True,
            )
            assert str(lost.value).startswith(f"no connection to {url}: ")
            assert str(lost.value).endswith(
                "; check the address and the network, or try again later"
            )


def test_a_refusal_carries_its_problem(gateway: str) -> None:
    with (
        CAPClient(gateway, "", path="/v1/agents/nobody/assist") as client,
        pytest.raises(CAPRuntimeError) as refused,
    ):
        client.chat("Hi").text()
    assert refused.value.status == 404
    assert refused.value.problem is not None and refused.value.problem["code"] == refused.value.code


PACKET = (
    '{"stream_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","seq":1,"op":"DELTA",'
    '"t":"2026-02-03T10:15:37Z","p":"a"}'
)
BREACHES = {
    "a page": (
        answer("<p>Hello", "text/html"),
        "content type: expected text/event-stream, found text/html",
    ),
    "an answer without a body": (answer("", "", "204 No Content"), "status 204"),
    "malformed JSON": (answer(f"data: {PACKET[:-1]}\n\n"), "EOF"),
    "a member that is missing": (
        answer("data: " + PACKET.replace('"seq":1,', "") + "\n\n"),
        "seq: ",
    ),
    "an unknown op": (answer("data: " + PACKET.replace("DELTA", "SHOUT") + "\n\n"), "op: "),
    "a redirect": (
        answer(
            "", "", "307 Temporary Redirect", "Location: https://other.example/assist?token=secret"
        ),
        "redirected to https://other.example, which is not followed",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
@pytest.mark.parametrize("http", [None, httpx.Client()], ids=["native", "httpx"])
def test_a_breach_of_the_protocol_says_to_check_versions_or_to_report_it(
    scripted: Callable[..., Scripted], breach: str, http: httpx.Client | None
) -> None:
    said, what = BREACHES[breach]
    server = scripted(said, said, said)
    with CAPClient(server.address, "", http_client=http, **QUICK) as client:
        for read in (lambda: client.chat("Hi").text(), lambda: list(client.assist(question("Hi")))):
            with pytest.raises(CAPProtocolError) as broken:
                read()
            told = str(broken.value)
            assert told.startswith("the server does not speak the protocol: ") and what in told, (
                told
            )
            assert re.search(
                r"; check that client \([\d.]+\) and server fit together, or report it$", told
            ), told
            assert "secret" not in told and not broken.value.is_retryable
    assert len(server.requests) == 2, "what is wrong stays wrong"


def test_timeouts_are_floats_or_httpx_timeouts(gateway: str) -> None:
    for timeout, read, connect in (
        (5, 5.0, 10.0),
        (0.5, 0.5, 10.0),
        (httpx.Timeout(5.0, connect=1.0), 5.0, 1.0),
        (httpx.Timeout(None), None, None),
        (None, None, 10.0),
    ):
        with CAPClient(gateway, "", timeout=timeout) as client:
            assert (client._settings["read_timeout"], client._settings["connect_timeout"]) == (
                read,
                connect,
            )
            assert client.chat("/tokens 2").text()
    with CAPClient(gateway, "") as client:
        assert (client._settings["read_timeout"], client._settings["max_retries"]) == (60.0, 3)

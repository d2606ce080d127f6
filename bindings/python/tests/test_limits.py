"""How long a call may take: timeouts and deadlines, against servers that do not answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any
from uuid import uuid4

import httpx
import pytest
import trio

from conftest import QUICK, Scripted, answer
from coreason_client import (
    AgentRequest,
    AsyncCAPClient,
    CAPClient,
    CAPConnectionError,
    CAPProtocolError,
    CAPRuntimeError,
    ServiceRequest,
    SessionContext,
)

Make = Callable[..., Scripted]

REQUEST = ServiceRequest(
    context=SessionContext(session_id=uuid4(), user_id="u"), payload=AgentRequest(query="Hi")
)
STREAM = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
SOON = 0.05
MUCH_LATER = 30.0
"""After this time a test counts as hanging."""


class Holding(Scripted):
    """Sends its answer, and keeps the connection open."""

    def _serve(self, answers: tuple[bytes | None, ...]) -> None:
        connection, _ = self._listener.accept()
        self._request(connection)
        connection.sendall(b"".join(piece for piece in answers if piece))
        self._held.append(connection)


def frame(seq: int, op: str = "DELTA", text: str = "a") -> str:
    time = "2026-02-03T10:15:37Z"
    packet = f'{{"stream_id":"{STREAM}","seq":{seq},"op":"{op}","t":"{time}","p":"{text}"}}'
    return f"data: {packet}\n\n"


def one_packet(seq: int) -> bytes:
    return answer(frame(seq))


def failure(call: Callable[[], object]) -> CAPConnectionError:
    """The error of a call, within the time limit."""
    began = monotonic()
    with pytest.raises(CAPConnectionError) as lost:
        call()
    assert monotonic() - began < MUCH_LATER
    return lost.value


def calls(url: str, name: str, is_async: bool, has_http: bool, **options: Any) -> object:
    """Calls a client of one of four kinds."""

    def arguments() -> tuple[Any, ...]:
        return {"stop": (uuid4(),), "health": (), "chat": ("Hi",)}[name]

    async def aside() -> object:
        async with httpx.AsyncClient() as http:
            options["http_client"] = http if has_http else None
            async with AsyncCAPClient(url, "", **QUICK, **options) as client:
                made = getattr(client, name)(*arguments())
                return await (made.text() if name == "chat" else made)

    if is_async:
        return asyncio.run(aside())
    with (
        httpx.Client() as http,
        CAPClient(url, "", http_client=http if has_http else None, **QUICK, **options) as client,
    ):
        made = getattr(client, name)(*arguments())
        return made.text() if name == "chat" else made


KINDS = [(is_async, has_http) for is_async in (False, True) for has_http in (False, True)]
kinds = pytest.mark.parametrize(
    ("is_async", "has_http"), KINDS, ids=["sync", "sync-httpx", "async", "async-httpx"]
)


@kinds
@pytest.mark.parametrize("name", ["health", "stop", "chat"])
def test_a_server_that_never_answers_is_left(
    scripted: Make, name: str, is_async: bool, has_http: bool
) -> None:
    server = scripted(None)
    error = failure(
        lambda: calls(server.address, name, is_async, has_http, timeout=SOON, max_retries=0)
    )
    assert error.address == server.address and str(error).startswith(
        f"no connection to {server.address}: "
    )
    assert isinstance(error, TimeoutError)


@kinds
def test_a_connection_that_breaks_is_no_timeout(
    scripted: Make, is_async: bool, has_http: bool
) -> None:
    server = scripted(b"")
    assert not isinstance(
        failure(lambda: calls(server.address, "health", is_async, has_http, max_retries=0)),
        TimeoutError,
    )


@kinds
@pytest.mark.parametrize("name", ["health", "chat"])
def test_https_to_a_server_without_tls_says_so(
    gateway: str, name: str, is_async: bool, has_http: bool
) -> None:
    url = gateway.replace("http://", "https://")
    error = failure(lambda: calls(url, name, is_async, has_http, max_retries=0))
    assert "the server does not speak TLS on this port: try http:// instead of https://" in str(
        error
    )


@pytest.mark.parametrize("is_async", [False, True])
def test_a_body_that_never_ends_is_left(scripted: Make, is_async: bool) -> None:
    server = Holding(answer("{", "application/json", "200 OK", "Content-Length: 9"))
    error = failure(lambda: calls(server.address, "health", is_async, False, timeout=SOON))
    assert "no answer within 0.05 s" in str(error) and isinstance(error, TimeoutError)
    server.close()


@kinds
def test_a_deadline_ends_a_call_that_gets_one_packet_per_connection(
    scripted: Make, is_async: bool, has_http: bool
) -> None:
    """Each new packet renews the retries: without a deadline the call would not end."""
    server = scripted(*(one_packet(seq) for seq in range(1, 100_000)))
    error = failure(lambda: calls(server.address, "chat", is_async, has_http, deadline=0.3))
    assert error.deadline == 0.3 and error.address == server.address
    assert "not done within the deadline of 0.3 s" in str(error) and isinstance(error, TimeoutError)
    assert len(server.requests) >= 2


def think(seconds: float) -> None:
    """Blocks the thread."""
    until = monotonic() + seconds
    while monotonic() < until:
        pass


@kinds
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_deadline_takes_nothing_back_that_has_come(
    is_whole: bool, is_async: bool, has_http: bool
) -> None:
    """It is looked at between reads: what came together is handed out, however long its caller
    takes, and only then a call that is not done fails.
    """
    last = frame(3, "CLOSE", "completed") if is_whole else frame(3)
    server = Holding(answer(frame(1) + frame(2) + last))
    options: dict[str, Any] = {"deadline": 0.2, **QUICK}
    seqs: list[int] = []

    def take(seq: int) -> None:
        seqs.append(seq)
        think(options["deadline"])

    async def aside() -> None:
        async with httpx.AsyncClient() as http:
            client = AsyncCAPClient(
                server.address, "", http_client=http if has_http else None, **options
            )
            async with client:
                async for packet in client.assist(REQUEST):
                    take(packet.seq)

    def here() -> None:
        with (
            httpx.Client() as http,
            CAPClient(
                server.address, "", http_client=http if has_http else None, **options
            ) as client,
        ):
            for packet in client.assist(REQUEST):
                take(packet.seq)

    def read() -> None:
        asyncio.run(aside()) if is_async else here()

    if is_whole:
        read()
    else:
        assert failure(read).deadline == options["deadline"]
    assert seqs == [1, 2, 3]
    server.close()


@kinds
@pytest.mark.parametrize("name", ["health", "stop", "chat"])
def test_a_deadline_is_shorter_than_any_silence(
    scripted: Make, name: str, is_async: bool, has_http: bool
) -> None:
    server = scripted(None)
    error = failure(lambda: calls(server.address, name, is_async, has_http, deadline=SOON))
    assert name != "chat" or error.deadline == SOON


def test_a_healthy_call_is_not_touched_by_its_deadline(gateway: str) -> None:
    with CAPClient(gateway, "", deadline=60) as client:
        assert client.chat("/tokens 3").text() and client.health()["status"] == "ok"


def test_trio_gets_a_sentence(gateway: str) -> None:
    async def chat() -> None:
        await AsyncCAPClient(gateway, "").chat("Hi").text()

    async def health() -> None:
        await AsyncCAPClient(gateway, "").health()

    for call in (chat, health):
        with pytest.raises(
            RuntimeError,
            match=r"AsyncCAPClient needs asyncio.*under trio, use CAPClient in a thread",
        ):
            trio.run(call)

    async def in_a_thread() -> str:
        client = CAPClient(gateway, "")
        text: str = await trio.to_thread.run_sync(lambda: client.chat("/tokens 3").text())
        return text

    assert trio.run(in_a_thread)
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", ["chat", "health", "stop"])
def test_a_client_of_ones_own_that_follows_redirects_takes_no_question_elsewhere(
    scripted: Make, name: str, is_async: bool
) -> None:
    elsewhere = scripted(answer("{}", "application/json"))
    moved = answer(
        "", "text/plain", "307 Temporary Redirect", f"Location: {elsewhere.address}/assist"
    )
    url = scripted(moved).address

    async def aside() -> None:
        async with (
            httpx.AsyncClient(follow_redirects=True) as http,
            AsyncCAPClient(url, "sk_1", http_client=http, **QUICK) as client,
        ):
            made = getattr(client, name)(*arguments)
            await (made.text() if name == "chat" else made)

    def here() -> None:
        with (
            httpx.Client(follow_redirects=True) as http,
            CAPClient(url, "sk_1", http_client=http, **QUICK) as client,
        ):
            made = getattr(client, name)(*arguments)
            if name == "chat":
                made.text()

    arguments = {"stop": (uuid4(),), "health": (), "chat": ("Hi",)}[name]
    with pytest.raises(
        CAPProtocolError, match=f"redirected to {elsewhere.address}, which is not followed"
    ):
        asyncio.run(aside()) if is_async else here()
    assert elsewhere.requests == []


class Endless:
    """Refuses with an endless body, up to 100 MB."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent = 0
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(answer("", "text/plain", "500 Internal Server Error"))
            while self.sent < 100_000_000:
                connection.sendall(bytes(65536))
                self.sent += 65536


@pytest.mark.parametrize("has_http", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", ["chat", "health"])
def test_of_a_refusal_only_the_beginning_is_read(name: str, is_async: bool, has_http: bool) -> None:
    server = Endless()
    with pytest.raises(CAPRuntimeError) as refused:
        calls(server.address, name, is_async, has_http)
    assert refused.value.status == 500
    server.thread.join(MUCH_LATER)
    # What lies in the buffers of two sockets, and not more.
    assert server.sent < 20_000_000

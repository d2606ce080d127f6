"""The drop-in transport for pip `openai`: cuts that the SDK does not notice, and no second run."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, InternalServerError, OpenAI

from coreason_client.openai import AsyncHealingTransport, HealingTransport


def number(n: int) -> str:
    return f'{{"type":"response.output_text.delta","sequence_number":{n},"delta":"{n} "}}'


RESPONSE = (
    '{"id":"resp_1","object":"response","created_at":1,"status":"completed",'
    '"model":"m","output":[]}'
)
EVENTS = [
    f'{{"type":"response.created","sequence_number":0,"response":{RESPONSE}}}',
    *(number(n) for n in range(10, 60, 10)),
    f'{{"type":"response.completed","sequence_number":60,"response":{RESPONSE}}}',
]
CHUNK = (
    '{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    '"choices":[{{"index":0,"delta":{{"content":"{}"}}}}]}}'
)
CHUNKS = [*(CHUNK.format(n) for n in range(6)), "[DONE]"]


class Server:
    """Answers like the gateway, and cuts each answer after a number of frames."""

    def __init__(self) -> None:
        self.cuts: list[int] = []
        self.seen: list[tuple[str, str, str | None]] = []
        self.lock = threading.Lock()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.seen.append(("POST", self.path, self.headers["idempotency-key"]))
                if b'"stream":true' not in body.replace(b" ", b""):
                    return self.refuse()
                self.tell(CHUNKS if self.path.endswith("completions") else EVENTS)

            def do_GET(self) -> None:
                server.seen.append(("GET", self.path, self.headers["idempotency-key"]))
                after = int(self.path.split("starting_after=")[1])
                self.tell(
                    [
                        event
                        for event in EVENTS
                        if int(event.split('sequence_number":')[1].split(",")[0]) > after
                    ]
                )

            def refuse(self) -> None:
                self.send_response(503)
                self.send_header("retry-after-ms", "1")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def tell(self, frames: list[str]) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                with server.lock:
                    cut = server.cuts.pop(0) if server.cuts else len(frames)
                for frame in frames[:cut]:
                    data = f":\ndata: {frame}\n\n".encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                if cut >= len(frames):
                    self.wfile.write(b"0\r\n\r\n")
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def bytes_of(transport: Any, url: str, path: str) -> bytes:
    with httpx2.Client(transport=transport) as client:
        return client.post(f"{url}/{path}", json={"stream": True}).content


@pytest.mark.parametrize("path", ["responses", "chat/completions"])
@pytest.mark.parametrize("cuts", [[0], [1], [3], [5], [6], [2, 3, 4]])
def test_the_bytes_are_those_of_an_unbroken_answer(
    server: Server, path: str, cuts: list[int]
) -> None:
    frames = EVENTS if path == "responses" else CHUNKS
    server.cuts = list(cuts)
    waits: list[float] = []
    healed = bytes_of(HealingTransport(backoff=0.0, sleep=waits.append), server.url, path)
    assert healed == b"".join(f"data: {frame}\n\n".encode() for frame in frames)
    assert 1 <= len(waits) <= len(cuts)
    keys = {key for _, _, key in server.seen}
    assert len(keys) == 1 and None not in keys, "every try is the same run"


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_the_sdk_notices_nothing(server: Server, cut: int) -> None:
    server.cuts = [cut, 2, cut]
    http_client = httpx2.Client(transport=HealingTransport(backoff=0.0, sleep=lambda _: None))
    with OpenAI(base_url=server.url, api_key="k", http_client=http_client) as client:
        numbers = [
            event.sequence_number for event in client.responses.create(input="x", stream=True)
        ]
        assert numbers == [0, 10, 20, 30, 40, 50, 60]
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
        chunks = list(client.chat.completions.create(**asked))
        assert [chunk.choices[0].delta.content for chunk in chunks] == [str(n) for n in range(6)]


def test_the_same_for_asyncio(server: Server) -> None:
    async def no_wait(_: float) -> None:
        return None

    async def run() -> list[int]:
        http_client = httpx2.AsyncClient(
            transport=AsyncHealingTransport(backoff=0.0, sleep=no_wait)
        )
        async with AsyncOpenAI(base_url=server.url, api_key="k", http_client=http_client) as client:
            stream = await client.responses.create(input="x", stream=True)
            return [event.sequence_number async for event in stream]

    server.cuts = [2, 1, 3]
    assert asyncio.run(run()) == [0, 10, 20, 30, 40, 50, 60]


def test_cuts_without_progress_are_the_callers_to_know(server: Server) -> None:
    server.cuts = [2, 0, 0, 0, 0]
    with pytest.raises(httpx2.RemoteProtocolError):
        bytes_of(HealingTransport(backoff=0.0, sleep=lambda _: None), server.url, "responses")


def test_the_sdks_own_repeats_keep_the_key(server: Server) -> None:
    http_client = httpx2.Client(transport=HealingTransport())
    with (
        OpenAI(base_url=server.url, api_key="k", http_client=http_client) as client,
        pytest.raises(InternalServerError),
    ):
        client.responses.create(input="x")
    assert len(server.seen) == 3
    assert len({key for _, _, key in server.seen}) == 1

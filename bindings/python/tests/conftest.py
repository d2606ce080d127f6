"""A real gateway on a free port, `capstan chaos` before it, which breaks connections on purpose,
and servers that say exactly what a script says.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest

from coreason_client import AgentRequest, ServiceRequest, SessionContext, _settings

QUICK: dict[str, Any] = {"backoff": (0.001, 0.001), "max_wait": 0.01}
"""For tests that wait for failures.

A server may ask for more; `max_wait` is the limit of what is granted.
"""

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def least_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries need not be 0.1 s apart: these servers are ours."""
    monkeypatch.setattr(_settings, "LEAST_WAIT", 0.001)


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


def open_sockets() -> int:
    """The open sockets of this process."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        # The folder itself is closed by now.
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith("socket:") for link in links)


def address(said: IO[str] | None) -> str:
    """The URL that a server prints as soon as it listens."""
    assert said is not None
    lines: list[str] = []
    for line in said:
        if found := re.search(r"http://[^\s,]+:\d+", line):
            return found[0]
        lines.append(line)
    raise RuntimeError("the server did not start: " + "".join(lines))


def question(query: str) -> ServiceRequest:
    """A request for `assist`, as a dict."""
    context = SessionContext(session_id=uuid4(), user_id="u")
    return ServiceRequest(context=context, payload=AgentRequest(query=query))


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the demo agent and its own journal."""
    folder = tmp_path_factory.mktemp("journal")
    command = [
        target() / "capstan",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--journal",
        f"disk:{folder}",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as process:
        try:
            yield address(process.stdout)
        finally:
            process.kill()  # runs that nobody waits for would hold up a polite end


class Scripted:
    """Answers each connection with the next of `answers`, then hangs up.

    An answer of `None` is silence.
    """

    def __init__(self, *answers: bytes | None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, args=(answers,), daemon=True).start()

    def _serve(self, answers: tuple[bytes | None, ...]) -> None:
        for answer in answers:
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                if answer is None:
                    self._held.append(connection)
                    self.requests.append(self._request(connection))
                    continue
                # Also when its peer has gone.
                with connection:
                    self.requests.append(self._request(connection))
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)

    @staticmethod
    def _request(connection: socket.socket) -> str:
        seen = b""
        while True:
            head, end, body = seen.partition(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            if end and len(body) >= (int(found[1]) if found else 0):
                return seen.decode()
            piece = connection.recv(65536)
            if not piece:
                return seen.decode()
            seen += piece

    def close(self) -> None:
        for connection in (self._listener, *self._held):
            connection.close()


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Makes servers that follow a script."""
    made: list[Scripted] = []

    def make(*answers: bytes | None) -> Scripted:
        made.append(Scripted(*answers))
        return made[-1]

    yield make
    for server in made:
        server.close()


def answer(
    body: str, content_type: str = "text/event-stream", status: str = "200 OK", *headers: str
) -> bytes:
    """A response that ends with its connection."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        "Connection: close",
        *headers,
        "",
        body,
    ]
    return "\r\n".join(lines).encode()


class Chaos:
    """`capstan chaos` before a server."""

    def __init__(self, server: str, *faults: str) -> None:
        command = [
            target() / "capstan",
            "chaos",
            "--listen",
            "127.0.0.1:0",
            "--to",
            server,
            *faults,
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, **pipes)
        self.url = address(self._process.stdout)

    def count(self, fault: str) -> int:
        """The number of faults of a kind, such as `cuts`. The proxy prints it at its end."""
        self._process.terminate()
        _, told = self._process.communicate(timeout=60)
        found = re.search(rf"{fault} (\d+)", told)
        return int(found[1]) if found else 0

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def chaos(gateway: str) -> Iterator[Callable[..., Chaos]]:
    """Puts `capstan chaos` in front of the gateway."""
    made: list[Chaos] = []

    def make(*faults: str) -> Chaos:
        made.append(Chaos(gateway, *faults))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def cutter(chaos: Callable[..., Chaos]) -> Callable[..., Chaos]:
    """A proxy that resets each of the first `cuts` streams after so many bytes of its body."""
    return lambda after, cuts: chaos(
        "--seed", "1", "--cut", "--cut-after", f"{after}b", "--faults", str(cuts)
    )

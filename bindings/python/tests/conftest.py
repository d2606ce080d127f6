"""A real gateway on a free port, and a proxy that cuts connections on purpose."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutter import Cutter

ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(400):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server does not listen")


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the demo agent and a journal of its own."""
    port = free_port()
    journal = tmp_path_factory.mktemp("journal")
    command = [target() / "capstan", "serve", "--listen", f"127.0.0.1:{port}", "--journal", f"disk:{journal}"]
    process = subprocess.Popen(command, cwd=journal, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()  # runs that nobody waits for would hold up a polite end
        process.wait(20)


@pytest.fixture
def cutter(gateway: str) -> Iterator[Callable[..., Cutter]]:
    """Puts a cutting proxy in front of the gateway."""
    made: list[Cutter] = []

    def make(**faults: int) -> Cutter:
        made.append(Cutter(gateway, **faults))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def chaos(gateway: str) -> Iterator[Callable[[int], str]]:
    """Puts `capstan chaos` in front of the gateway, at its harshest, for a number of faults; its URL."""
    processes: list[subprocess.Popen[str]] = []

    def make(seed: int) -> str:
        faults = ["--brutal", "--faults", "20", "--seed", str(seed)]
        command = [str(target() / "capstan"), "chaos", "--listen", "127.0.0.1:0", "--to", gateway, *faults]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().split()[3]

    yield make
    for process in processes:
        process.kill()
        process.communicate(timeout=20)

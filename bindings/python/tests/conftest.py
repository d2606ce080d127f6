"""A real gateway on a free port, and `capstan chaos` before it, which breaks connections on purpose."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[3]


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


def address(said: IO[str] | None) -> str:
    """The URL that a server tells as soon as it listens."""
    assert said is not None
    lines: list[str] = []
    for line in said:
        if found := re.search(r"http://[^\s,]+:\d+", line):
            return found[0]
        lines.append(line)
    raise RuntimeError("the server did not start: " + "".join(lines))


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the demo agent and a journal of its own."""
    folder = tmp_path_factory.mktemp("journal")
    command = [target() / "capstan", "serve", "--listen", "127.0.0.1:0", "--journal", f"disk:{folder}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as process:
        try:
            yield address(process.stdout)
        finally:
            process.kill()  # runs that nobody waits for would hold up a polite end


class Chaos:
    """`capstan chaos` before a server."""

    def __init__(self, server: str, *faults: str) -> None:
        command = [target() / "capstan", "chaos", "--listen", "127.0.0.1:0", "--to", server, *faults]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, **pipes)
        self.url = address(self._process.stdout)

    def cuts(self) -> int:
        """How many there were. It tells when it ends."""
        self._process.terminate()
        _, told = self._process.communicate(timeout=60)
        found = re.search(r"cuts (\d+)", told)
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
    return lambda after, cuts: chaos("--seed", "1", "--cut", "--cut-after", f"{after}b", "--faults", str(cuts))

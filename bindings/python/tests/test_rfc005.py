"""RFC 005's examples, unchanged: the agent fails typed, and our clients retry."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from conftest import QUICK, address, target
from coreason_client import AsyncCAPClient, CAPClient

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """The RFC's agent, served by uvicorn."""
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--app-dir",
        HERE,
        "rfc005_agent:app",
        "--port",
        "0",
        "--lifespan",
        "off",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield address(process.stderr)
        finally:
            process.terminate()


def ask_sync(agent: str) -> str:
    with CAPClient(agent, "", **QUICK) as client:
        return client.chat("Hi").text()


def ask_async(agent: str) -> str:
    async def main() -> str:
        async with AsyncCAPClient(agent, "", **QUICK) as client:
            return await client.chat("Hi").text()

    return asyncio.run(main())


def ask_httpx(agent: str) -> str:
    with httpx.Client() as http:
        return CAPClient(agent, "", http_client=http, **QUICK).chat("Hi").text()


def ask_async_httpx(agent: str) -> str:
    async def main() -> str:
        async with httpx.AsyncClient() as http:
            return await AsyncCAPClient(agent, "", http_client=http, **QUICK).chat("Hi").text()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "ask", [ask_sync, ask_async, ask_httpx, ask_async_httpx], ids=lambda ask: ask.__name__
)
def test_a_transient_error_is_retried_until_it_passes(
    agent: str, caplog: pytest.LogCaptureFixture, ask: Callable[[str], str]
) -> None:
    with caplog.at_level(logging.WARNING, "coreason_client"):
        assert ask(agent) == "Here it is."
    told = [record.getMessage() for record in caplog.records]
    failed, dropped, *_ = told
    assert failed == "an attempt failed: TRANSIENT internal_error: Database connection failed"
    assert dropped.startswith(
        "Connection dropped. Retrying in 0.0 seconds: TRANSIENT internal_error"
    )
    assert len(told) == 4, told


def test_the_rust_client_comes_back_as_well(agent: str) -> None:
    done = subprocess.run(
        [target() / "examples" / "ask", agent, "Hi"], capture_output=True, check=True
    )
    packets = [json.loads(line) for line in done.stdout.splitlines()]
    assert [packet["p"] for packet in packets] == ["Here it is.", "completed"]

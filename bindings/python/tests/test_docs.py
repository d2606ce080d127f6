"""The Python code of the documents, unchanged: each page is one program."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from conftest import QUICK, ROOT
from coreason_client import AsyncCAPClient, CAPRuntimeError, ErrorSeverity, StreamPacket
from coreason_client.agent import PacketWriter


def page(name: str, url: str) -> dict[str, Any]:
    """The variables after a page's code has run against the gateway."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"{name} has no Python"
    names: dict[str, Any] = {"__name__": name}
    for block in blocks:
        exec(compile(block.replace("http://localhost:8787", url), name, "exec"), names)
    return names


def test_the_readme_runs_as_written(gateway: str, capsys: pytest.CaptureFixture[str]) -> None:
    page("README.md", gateway)
    assert "capstan" in capsys.readouterr().out


def test_the_packages_readme_runs_as_written(
    gateway: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = page("bindings/python/README.md", gateway)
    assert "quantum" in capsys.readouterr().out

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"])) as http:
            await AsyncCAPClient("http://agent", http_client=http, **QUICK).chat("Hi").text()

    with pytest.raises(CAPRuntimeError) as failed:
        asyncio.run(ask())
    assert (failed.value.code, failed.value.partial_text) == ("agent_execution_error", "Hello")


def test_the_migration_guide_runs_as_written(gateway: str) -> None:
    names = page("docs/migration.md", gateway)
    packet = StreamPacket.from_json(re.search(r"^data: (.*)$", names["frame"], re.MULTILINE)[1])  # type: ignore[index]
    assert (packet.p.severity, packet.p.details) == (ErrorSeverity.TRANSIENT, {"retry_after": 30})
    assert names["now"](json.loads(packet.to_json()))["code"] == "rate_limit_exceeded"

    async def frames() -> str:
        return b"".join([frame async for frame in PacketWriter(names["answer"])]).decode()

    body = asyncio.run(frames())
    assert "Database connection failed" in body and "CLOSE" not in body

"""The agent's side: packets as a response of any framework, failures in types, read by both
clients.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from conftest import QUICK, ROOT, address, target
from coreason_client import (
    AsyncCAPClient,
    CAPClient,
    CAPRuntimeError,
    PresentationEvent,
    StreamError,
    StreamOpCode,
    StreamPacket,
    UserError,
)
from coreason_client.agent import PacketWriter
from coreason_client.errors import UntypedErrorError

EXAMPLE = ROOT / "examples" / "fastapi_agent"


async def collect(writer: PacketWriter) -> list[StreamPacket]:
    body = b"".join([frame async for frame in writer]).decode()
    data = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [StreamPacket.from_json(line) for line in data]


def written(answer: Any, **options: Any) -> list[StreamPacket]:
    async def main() -> list[StreamPacket]:
        return await collect(PacketWriter(answer, **options))

    return asyncio.run(main())


def test_everything_that_can_be_written_is_read_back() -> None:
    async def answer(stream: PacketWriter) -> None:
        await stream.write_delta("Hel\u2028lo")
        await stream.write_event("MARKDOWN_BLOCK", {"content": "*x*"})
        await stream.write_event(PresentationEvent("user_error", UserError("Down")))
        await stream.write_event({"type": "SHINY"})
        await stream.write_error(StreamError("slow", "Slow.", "WARNING"))
        await stream.write_packet(op="DELTA", p="!")

    packets = written(answer)
    assert [p.seq for p in packets] == [1, 2, 3, 4, 5, 6, 7]
    assert [p.op.value for p in packets] == [
        "DELTA",
        "EVENT",
        "EVENT",
        "EVENT",
        "ERROR",
        "DELTA",
        "CLOSE",
    ]
    assert packets[0].p == "Hel\u2028lo" and packets[-1].p == "completed"
    assert packets[2].p.view() == UserError("Down")


def test_a_stream_that_asks_ends_with_its_question() -> None:
    async def answer(stream: PacketWriter) -> None:
        await stream.write_delta("One moment. ")
        await stream.ask("send", "approval", message="Send it?", response_schema={"type": "object"})

    packets = written(answer)
    assert [p.op.value for p in packets] == ["DELTA", "EVENT", "CLOSE"]
    assert packets[1].p["type"] == "INTERRUPT"
    asked = {
        "id": "send",
        "reason": "approval",
        "message": "Send it?",
        "responseSchema": {"type": "object"},
    }
    assert packets[1].p["data"] == asked
    assert packets[2].p == "interrupt"


def test_an_error_that_is_a_string_is_both_a_type_and_a_value_error() -> None:
    async def main() -> None:
        stream = PacketWriter()
        for kind in (TypeError, ValueError, UntypedErrorError):
            with pytest.raises(
                kind, match=r"StreamError\(code=\"internal_error\", message='Something went wrong'"
            ):
                await stream.write_error("Something went wrong")  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            await stream.write_packet(op=StreamOpCode.ERROR, p="Something went wrong")
        with pytest.raises(ValueError):
            await stream.write_packet(op=StreamOpCode.DELTA, p={"not": "text"})
        await stream.close()
        await stream.close()
        with pytest.raises(RuntimeError, match="closed"):
            await stream.write_delta("late")
        assert [p.op.value for p in await collect(stream)] == ["CLOSE"], (
            "what was refused used no number"
        )

    asyncio.run(main())


def test_what_is_raised_ends_the_stream_in_types() -> None:
    async def answer(stream: PacketWriter) -> None:
        raise KeyError("secret")

    error, close = written(answer, is_debug=False)
    assert (error.p.code, error.p.severity.value, error.p.details) == (
        "agent_execution_error",
        "FATAL",
        None,
    )
    assert (close.op, close.p) == (StreamOpCode.CLOSE, "error") and "secret" not in error.to_json()
    error, _ = written(answer, is_debug=True)
    assert error.p.details["error_type"] == "KeyError"


def test_a_transient_error_that_nothing_follows_ends_the_body_without_close() -> None:
    passing = StreamError("busy", "Busy.", "TRANSIENT")

    async def written_last(stream: PacketWriter) -> None:
        await stream.write_delta("a")
        await stream.write_error(passing)

    async def raised(stream: PacketWriter) -> None:
        await stream.write_delta("a")
        raise TimeoutError

    async def as_a_dict(stream: PacketWriter) -> None:
        await stream.write_delta("a")
        await stream.write_packet(op="ERROR", p=passing.to_dict())
        await stream.close()

    for answer in (written_last, raised, as_a_dict):
        packets = written(answer)
        assert [p.op.value for p in packets] == ["DELTA", "ERROR"], answer.__name__

    async def goes_on(stream: PacketWriter) -> None:
        await stream.write_error(passing)
        await stream.write_delta("a")

    async def says_why(stream: PacketWriter) -> None:
        await stream.write_error(passing)
        await stream.close("error")

    assert [p.op.value for p in written(goes_on)] == ["ERROR", "DELTA", "CLOSE"]
    assert [p.p for p in written(says_why)] == [passing, "error"]


def test_a_plain_asgi_app_serves_it_and_notices_that_the_reader_left() -> None:
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def answer(stream: PacketWriter) -> None:
            try:
                for n in range(5):
                    await stream.write_delta(str(n))
            finally:
                ended.append("answer")

        await PacketWriter(answer)(scope, receive, send)

    async def main() -> str:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport) as http:
            return await AsyncCAPClient("http://agent", "", http_client=http).chat("Hi").text()

    assert asyncio.run(main()) == "01234"
    assert ended == ["answer"]


def test_starlette_takes_the_writer_itself() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Route

    async def endpoint(request: Any) -> Any:
        async def answer(stream: PacketWriter) -> None:
            await stream.write_delta("starlette")

        return PacketWriter(answer)

    app = Starlette(routes=[Route("/assist", endpoint, methods=["POST"])])

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
            return await AsyncCAPClient("http://agent", "", http_client=http).chat("Hi").text()

    assert asyncio.run(main()) == "starlette"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """The example, served by uvicorn."""
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--app-dir",
        EXAMPLE,
        "main:app",
        "--port",
        "0",
        "--no-access-log",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield address(process.stderr)
        finally:
            process.terminate()


FAILURES = [
    ("/limit", "rate_limit_exceeded", 7.0),
    ("/crash", "agent_execution_error", None),
    ("/late", "timeout", None),
    ("/refuse", "content_refused", None),
]


@pytest.mark.parametrize(("message", "code", "wait"), FAILURES)
def test_the_examples_failures_are_typed_for_the_python_client(
    agent: str, message: str, code: str, wait: float | None
) -> None:
    with CAPClient(agent, "", **QUICK) as client, pytest.raises(CAPRuntimeError) as failed:
        client.chat(message).text()
    assert (failed.value.code, failed.value.retry_after) == (code, wait)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(("message", "code", "wait"), FAILURES)
def test_the_examples_failures_are_typed_for_the_rust_client(
    agent: str, message: str, code: str, wait: float | None
) -> None:
    done = subprocess.run(
        [target() / "examples" / "ask", agent, message, "0"], capture_output=True, check=False
    )
    assert done.returncode == 1 and done.stderr.decode().startswith(f"{code}: ")


def test_the_example_answers_both_clients(agent: str) -> None:
    with CAPClient(agent, "") as client:
        assert client.chat("hello there").text() == "You said: hello there "
        assert client.chat("/warn").text() == "Done without it."
    done = subprocess.run(
        [target() / "examples" / "ask", agent, "/warn"], capture_output=True, check=True
    )
    packets = [json.loads(line) for line in done.stdout.splitlines()]
    assert [p["op"] for p in packets] == ["ERROR", "EVENT", "DELTA", "CLOSE"]
    assert packets[1]["p"]["data"]["domain"] == "tool"


def test_the_example_refuses_what_is_no_request(agent: str) -> None:
    answer = httpx.post(f"{agent}/assist", json={"request_id": "x"})
    assert answer.status_code == 422 and "request_id" in answer.text
    schema = httpx.get(f"{agent}/openapi.json").json()
    assert "root_request_id" in json.dumps(schema), "the docs show the request's own schema"


def test_the_example_is_importable() -> None:
    spec = importlib.util.spec_from_file_location("example", EXAMPLE / "main.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.app.title

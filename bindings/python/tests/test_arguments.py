"""What callers give: a wrong argument is told by its name, with what was expected and without
secrets.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

import coreason_client
from coreason_client import (
    AgentRequest,
    AsyncCAPClient,
    CAPClient,
    CAPError,
    CAPRuntimeError,
    CAPValidationError,
    ChatMessage,
    ErrorSeverity,
    ServiceRequest,
    SessionContext,
)
from coreason_client.agent import PacketWriter

URL = "http://localhost:8787"


def client(**options: Any) -> CAPClient:
    return CAPClient(**{"base_url": URL, **options})


CASES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: client(base_url=None),
        "base_url: expected http://host:port or https://host, found None",
    ),
    (lambda: client(base_url=b"http://x"), "base_url: expected http"),
    (lambda: client(base_url="localhost:8787"), "base_url: expected http"),
    (lambda: client(base_url="me:sk_secret@localhost"), "base_url: expected http"),
    (lambda: client(base_url="http://me:sk_secret@"), "base URL"),
    (lambda: client(api_key="sk_secret\n"), "api_key: holds a character that no header can carry"),
    (
        lambda: client(api_key=b"sk_secret"),
        "api_key: expected text or None, found a value of type bytes",
    ),
    (lambda: client(max_retries=-1), "max_retries: expected a whole number, 0 or more, found -1"),
    (lambda: client(max_retries=1.5), "max_retries: expected a whole number, 0 or more, found 1.5"),
    (lambda: client(max_retries="3"), "max_retries: expected a whole number, 0 or more, found '3'"),
    (lambda: client(max_retries=None), "max_retries: expected a whole number"),
    (lambda: client(max_retries=True), "max_retries: expected a whole number"),
    (lambda: client(max_retries=2**40), "max_retries: expected a whole number"),
    (lambda: client(timeout=0), "timeout: expected seconds above 0, or None for no limit, found 0"),
    (lambda: client(timeout=-1.0), "timeout: expected seconds above 0"),
    (lambda: client(timeout="5"), "timeout: expected seconds above 0"),
    (lambda: client(timeout=float("nan")), "timeout: expected seconds above 0"),
    (lambda: client(timeout=httpx.Timeout(5, read=0)), "timeout.read: expected seconds above 0"),
    (
        lambda: client(timeout=httpx.Timeout(5, connect=-1)),
        "timeout.connect: expected seconds above 0",
    ),
    (lambda: client(deadline=0), "deadline: expected seconds above 0"),
    (lambda: client(max_wait=-1), "max_wait: expected seconds, 0 or more, found -1"),
    (lambda: client(max_wait=float("inf")), "max_wait: expected seconds, 0 or more, found inf"),
    (
        lambda: client(resume_patience=None),
        "resume_patience: expected seconds, 0 or more, found None",
    ),
    (lambda: client(backoff=1), "backoff: expected two numbers of seconds"),
    (lambda: client(backoff=(1,)), "backoff: expected two numbers of seconds"),
    (lambda: client(backoff=(-1, 2)), "backoff[0]: expected seconds, 0 or more, found -1"),
    (lambda: client(headers=[("authorization", "sk_secret")]), "headers: expected a dict"),
    (lambda: client(headers={"x-n": 1}), "headers['x-n']: expected text, found 1"),
    (lambda: client(headers={"a b": "sk_secret"}), 'headers["a b"]: no header can have this name'),
    (lambda: client(headers={"x-key": "sk_secret\n"}), 'headers["x-key"]: no header can'),
    (lambda: client(path=None), "path: expected a path below the base URL"),
    (lambda: client(profile="v3"), "profile: expected 'v1' or 'v2', found 'v3'"),
    (lambda: client(strict="no"), "strict: expected True or False"),
    (lambda: client(user_id=None), "user_id: expected text"),
    (lambda: client(http_client=object()), "http_client: expected an httpx.Client"),
    (
        lambda: client(http_client=httpx.AsyncClient()),
        "http_client: expected an httpx.Client (the other kind is for",
    ),
    (
        lambda: AsyncCAPClient(URL, http_client=httpx.Client()),
        "http_client: expected an httpx.AsyncClient",
    ),
    (lambda: client().chat(None), "message: expected text, found None"),  # type: ignore[arg-type]
    (lambda: client().chat("Hi", agent=""), "agent: expected the name of an agent"),
    (lambda: client().chat("Hi", agent=".."), "agent: expected the name of an agent"),
    (lambda: client().chat("Hi", agent=7), "agent: expected the name of an agent"),  # type: ignore[arg-type]
    (lambda: client().chat("Hi", conversation_id=7), "conversation_id: expected a UUID"),  # type: ignore[arg-type]
    (lambda: client().attach("x"), "cursor: expected a cursor, as stream.cursor has it"),
    (lambda: client().attach(f"{uuid4()}:-1"), "cursor: expected a cursor"),
    (lambda: client(http_client=httpx.Client()).attach("x"), "cursor: expected a cursor"),
    (
        lambda: client().stop("x"),
        "stream_id: expected the UUID of a stream, as stream.stream_id has it, found 'x'",
    ),
    (
        lambda: client().assist(None),
        "request: expected a ServiceRequest, a dict of its members, or a model with",
    ),
    (lambda: client().assist("sk_secret" * 20), "request: expected a ServiceRequest"),
    (lambda: client().assist(object()), "request: expected a ServiceRequest"),
    (lambda: PacketWriter(7), "answer: expected an async function"),  # type: ignore[arg-type]
    (lambda: PacketWriter(stream_id="x"), "stream_id: expected a UUID, found 'x'"),
]


@pytest.mark.parametrize(("build", "told"), CASES, ids=[told[:40] for _, told in CASES])
def test_a_wrong_argument_is_told_by_its_name(build: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError) as wrong:
        build()
    assert str(wrong.value).startswith(told)
    assert "sk_secret" not in str(wrong.value)


LONE = "half a \ud83d smile"
SURROGATES: list[Callable[[], object]] = [
    lambda: client().chat(LONE),
    lambda: client().chat("Hi", conversation_id=LONE),
    lambda: client().chat("Hi", agent=LONE),
    lambda: client(user_id=LONE),
    lambda: AsyncCAPClient(URL).chat(LONE),
    lambda: client(http_client=httpx.Client()).chat(LONE),
    lambda: client().assist({"request_id": LONE}),
    lambda: AgentRequest(query=LONE),
    lambda: ChatMessage.user(LONE),
    lambda: ChatMessage.from_json(f'{{"role": "{LONE}"}}'),
]


@pytest.mark.parametrize("build", SURROGATES)
def test_half_a_surrogate_pair_is_told_as_any_wrong_argument(build: Callable[[], object]) -> None:
    with pytest.raises(
        CAPError,
        match=r"holds the lone surrogate '\\ud83d' at index \d+, which is not Unicode text",
    ):
        build()


@pytest.mark.parametrize("has_http", [False, True])
@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
def test_another_agent_than_the_default_one_answers(
    gateway: str, has_http: bool, suffix: str
) -> None:
    request = ServiceRequest(
        context=SessionContext(user_id="u", session_id=uuid4()),
        payload=AgentRequest(query="/tokens 2"),
    )
    with (
        httpx.Client() as http,
        CAPClient(gateway + suffix, http_client=http if has_http else None) as connected,
    ):
        assert (
            connected.chat("/echo Hi", agent="demo").text()
            == connected.chat("/echo Hi").text()
            != ""
        )
        assert len(list(connected.assist(request, agent="demo"))) == 3
        for unknown in ("nobody", "demo/../x", "a b?c#d"):
            with pytest.raises(CAPRuntimeError) as refused:
                connected.chat("Hi", agent=unknown).text()
            assert (refused.value.status, refused.value.code) == (404, "agent_not_found")
    assert refused.value.severity is ErrorSeverity.FATAL


@pytest.mark.parametrize("has_http", [False, True])
def test_another_agent_answers_the_async_client_too(gateway: str, has_http: bool) -> None:
    async def main() -> str:
        async with (
            httpx.AsyncClient() as http,
            AsyncCAPClient(gateway, http_client=http if has_http else None) as connected,
        ):
            with pytest.raises(CAPRuntimeError) as refused:
                await connected.chat("Hi", agent="nobody").text()
            assert refused.value.code == "agent_not_found"
            return await connected.chat("/echo Hi", agent="demo").text()

    assert asyncio.run(main())


def test_no_limit_can_be_said_in_two_ways() -> None:
    for timeout in (None, float("inf")):
        assert client(timeout=timeout)._settings["read_timeout"] is None


def test_streams_say_what_they_are() -> None:
    conversation = str(uuid4())
    chat = client().chat("Hi", conversation_id=conversation)
    assert repr(chat) == (
        f"ChatStream(conversation_id='{conversation}', stream_id=None, reason=None, text_so_far='')"
    )
    assert repr(client().attach(str(uuid4()))) == "PacketStream(stream_id=None, cursor=None)"
    other = AsyncCAPClient(URL)
    assert repr(other.chat("Hi")).startswith("AsyncChatStream(conversation_id='")
    assert repr(other.attach(str(uuid4()))) == "AsyncPacketStream(stream_id=None, cursor=None)"


def test_a_stream_that_was_read_shows_its_end(gateway: str) -> None:
    with CAPClient(gateway) as connected:
        chat = connected.chat("/tokens 100")
        text = chat.text()
    assert f"stream_id='{chat.stream_id}', reason='completed', text_so_far='…" in repr(chat)
    assert text[-30:] in repr(chat) and len(repr(chat)) < 300


class Plain:
    """A model of no known library, whose dump has no arguments."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    def model_dump(self) -> dict[str, Any]:
        return self._members


class Moded(Plain):
    """A model whose dump has only the argument `mode`."""

    def model_dump(self, mode: str = "python") -> dict[str, Any]:
        return self._members


@pytest.mark.parametrize("model", [Plain, Moded])
def test_any_model_with_a_dump_can_be_sent(gateway: str, model: type[Plain]) -> None:
    request = ServiceRequest(
        context=SessionContext(user_id="u", session_id=uuid4()),
        payload=AgentRequest(query="/tokens 2"),
    )
    members = {**request.model_dump(), "payload": model(request.payload.model_dump())}
    with CAPClient(gateway) as connected:
        assert [packet.op for packet in connected.assist(model(members))] == [
            "DELTA",
            "DELTA",
            "CLOSE",
        ]
        with pytest.raises(CAPValidationError) as wrong:
            connected.assist(model({**members, "request_id": "x"}))
    assert wrong.value.path == "request_id"


def test_the_package_knows_its_version() -> None:
    assert coreason_client.__version__ == importlib.metadata.version("coreason-client")


def test_the_package_holds_its_licence_and_its_addresses() -> None:
    package = importlib.metadata.distribution("coreason-client")
    metadata = package.metadata
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert "Apache License" in (package.read_text("licenses/LICENSE") or "")
    urls = dict(entry.split(", ") for entry in metadata.get_all("Project-URL") or [])
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= set(urls)


def test_a_password_in_the_address_is_not_printed() -> None:
    assert repr(CAPClient("http://me:hush@host:1")) == "CAPClient('http://host:1')"

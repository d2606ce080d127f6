"""A drop-in transport for pip `openai`: a streamed answer of a gateway survives cuts, and the SDK
notices nothing.

    import httpx2  # openai 2 and older: httpx
    from coreason_client.openai import HealingTransport
    from openai import OpenAI

    http_client = httpx2.Client(transport=HealingTransport())
    client = OpenAI(base_url="http://localhost:8787/v1", http_client=http_client)

The SDK sees one body that never breaks: byte by byte what an unbroken one would have held. Behind
it a response is read on by `starting_after`; a chat, which has no place to read on from, is posted
again under its `Idempotency-Key`, and what was handed over is skipped. `openai`, `httpx2` and
`httpx` are no dependencies: whichever is there is used.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import ModuleType
from typing import Any, cast

__all__ = ["AsyncHealingTransport", "HealingTransport"]


def _modules() -> list[ModuleType]:
    """The HTTP clients that are there, the one of the newest SDK first."""
    found = []
    for name in ("httpx2", "httpx"):
        try:
            found.append(importlib.import_module(name))
        except ImportError:
            continue
    if not found:
        raise ImportError(
            "coreason_client.openai needs the httpx2 or httpx that openai brings along"
        )
    return found


_HTTP = _modules()
# A client takes only bodies of its own module's kind.
_SyncStream: Any = type("_SyncStream", tuple(module.SyncByteStream for module in _HTTP), {})
_AsyncStream: Any = type("_AsyncStream", tuple(module.AsyncByteStream for module in _HTTP), {})
_Lost: tuple[type[Exception], ...] = tuple(module.TransportError for module in _HTTP)

_KEY = "idempotency-key"
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOST_SPARE = 256


class _Healing:
    """What both transports know."""

    def __init__(
        self, max_retries: int, backoff: float, max_wait: float, read_timeout: float
    ) -> None:
        self.max_retries = max_retries
        self.backoff = backoff
        self.max_wait = max_wait
        self.read_timeout = read_timeout
        # Keys of requests that failed, by what they asked: the SDK sends those again, and that must
        # not be another run.
        self.spare: OrderedDict[tuple[str, bytes], list[str]] = OrderedDict()

    def give(self, asked: tuple[str, bytes], key: str) -> None:
        self.spare.setdefault(asked, []).append(key)
        while len(self.spare) > _MOST_SPARE:
            self.spare.popitem(last=False)

    def take(self, asked: tuple[str, bytes]) -> str | None:
        keys = self.spare.get(asked)
        if not keys:
            return None
        key = keys.pop(0)
        if not keys:
            del self.spare[asked]
        return key


class HealingTransport(_Healing):
    """For `OpenAI(http_client=httpx2.Client(transport=HealingTransport()))`. Times are seconds.

    `max_retries` counts cuts since the last new event; `read_timeout` is how long a response may be
    silent.
    """

    def __init__(
        self,
        transport: Any = None,
        *,
        max_retries: int = 3,
        backoff: float = 0.5,
        max_wait: float = 30.0,
        read_timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(max_retries, backoff, max_wait, read_timeout)
        self.inner = transport if transport is not None else _HTTP[0].HTTPTransport()
        self.sleep = sleep

    def __enter__(self) -> HealingTransport:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)

    def close(self) -> None:
        self.inner.close()

    def handle_request(self, request: Any) -> Any:
        exchange = _Exchange.of(request, self) if _can_heal(request) else None
        if exchange is None:
            return self.inner.handle_request(request)
        request.read()
        try:
            response = self.inner.handle_request(exchange.first())
        except BaseException:
            exchange.give_up()
            raise
        return exchange.opened(response, _Body(self, exchange, response))


class AsyncHealingTransport(_Healing):
    """The same for
    `AsyncOpenAI(http_client=httpx2.AsyncClient(transport=AsyncHealingTransport()))`.
    """

    def __init__(
        self,
        transport: Any = None,
        *,
        max_retries: int = 3,
        backoff: float = 0.5,
        max_wait: float = 30.0,
        read_timeout: float = 60.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(max_retries, backoff, max_wait, read_timeout)
        self.inner = transport if transport is not None else _HTTP[0].AsyncHTTPTransport()
        self.sleep = sleep

    async def __aenter__(self) -> AsyncHealingTransport:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.inner.__aexit__(*error)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        exchange = _Exchange.of(request, self) if _can_heal(request) else None
        if exchange is None:
            return await self.inner.handle_async_request(request)
        await request.aread()
        try:
            response = await self.inner.handle_async_request(exchange.first())
        except BaseException:
            exchange.give_up()
            raise
        return exchange.opened(response, _AsyncBody(self, exchange, response))


class _Body(_SyncStream):  # type: ignore[misc]
    """One body out of however many responses it takes."""

    def __init__(self, transport: HealingTransport, exchange: _Exchange, response: Any) -> None:
        self._transport, self._exchange, self._response = transport, exchange, response

    def __iter__(self) -> Iterator[bytes]:
        exchange = self._exchange
        while True:
            try:
                for chunk in self._response.stream:
                    yield from exchange.take(chunk)
                    if exchange.is_over:
                        return
                cut: Exception = exchange.ended()
            except _Lost as error:
                cut = error
            self._resume(cut)

    def _resume(self, cut: Exception) -> None:
        self._response.close()
        while True:
            self._transport.sleep(self._exchange.wait(cut))
            try:
                self._response = self._transport.inner.handle_request(self._exchange.again())
            except _Lost as error:
                cut = error
                continue
            if self._exchange.goes_on(self._response):
                return
            self._response.close()
            cut = self._exchange.refused(self._response)

    def close(self) -> None:
        self._response.close()


class _AsyncBody(_AsyncStream):  # type: ignore[misc]
    """The same for asyncio."""

    def __init__(
        self, transport: AsyncHealingTransport, exchange: _Exchange, response: Any
    ) -> None:
        self._transport, self._exchange, self._response = transport, exchange, response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        while True:
            try:
                async for chunk in self._response.stream:
                    for frame in exchange.take(chunk):
                        yield frame
                    if exchange.is_over:
                        return
                cut: Exception = exchange.ended()
            except _Lost as error:
                cut = error
            await self._resume(cut)

    async def _resume(self, cut: Exception) -> None:
        await self._response.aclose()
        while True:
            await self._transport.sleep(self._exchange.wait(cut))
            try:
                self._response = await self._transport.inner.handle_async_request(
                    self._exchange.again()
                )
            except _Lost as error:
                cut = error
                continue
            if self._exchange.goes_on(self._response):
                return
            await self._response.aclose()
            cut = self._exchange.refused(self._response)

    async def aclose(self) -> None:
        await self._response.aclose()


def _kind_of(request: Any) -> str | None:
    """What a request asks for, if it is something that can be healed."""
    path = request.url.path
    if request.method == "POST":
        if path.endswith("/chat/completions"):
            return "chat"
        return "responses" if path.endswith("/responses") else None
    is_reading = (
        re.search(r"/responses/[^/]+$", path) and request.url.params.get("stream") == "true"
    )
    return "reading" if is_reading else None


def _can_heal(request: Any) -> bool:
    return _kind_of(request) is not None


class _Exchange:
    """One request and all of its resumptions; decides, and does no I/O."""

    def __init__(self, request: Any, healing: _Healing, kind: str) -> None:
        self._request, self._healing, self._kind = request, healing, kind
        self._headers = request.headers.copy()
        # What is handed over is counted in bytes as they are.
        self._headers["accept-encoding"] = "identity"
        self._buffer = b""
        self._handed = self._skip = self._retries = 0
        self._id: str | None = None
        self._number: int | None = None
        self.is_over = False
        if kind == "reading":
            self._id = request.url.path.rsplit("/", 1)[1]
            after = request.url.params.get("starting_after")
            self._number = int(after) if after is not None else None

    @classmethod
    def of(cls, request: Any, healing: _Healing) -> _Exchange | None:
        kind = _kind_of(request)
        return cls(request, healing, kind) if kind else None

    @property
    def _asked(self) -> tuple[str, bytes]:
        return str(self._request.url), bytes(self._request.content)

    def first(self) -> Any:
        """The request, under a key if it starts something."""
        if self._kind != "reading" and _KEY not in self._headers:
            is_repeat = self._headers.get("x-stainless-retry-count", "0") not in ("", "0")
            spare = self._healing.take(self._asked) if is_repeat else None
            self._headers[_KEY] = spare or str(uuid.uuid4())
        return self._build(
            "POST" if self._kind != "reading" else "GET", self._request.url, self._request.content
        )

    def give_up(self) -> None:
        """The SDK may send it again."""
        if _KEY in self._headers:
            self._healing.give(self._asked, self._headers[_KEY])

    def opened(self, response: Any, body: Any) -> Any:
        """The response for the SDK. What is no stream of events is its own business."""
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if response.status_code >= 400:
            self.give_up()
        if response.status_code != 200 or not is_stream:
            return response
        return type(response)(
            status_code=response.status_code,
            headers=response.headers,
            stream=body,
            extensions=response.extensions,
        )

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """The frames that came with a chunk and that the SDK does not have."""
        self._buffer += chunk
        while not self.is_over and (end := self._buffer.find(b"\n\n")) >= 0:
            frame, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
            lines = [line for line in frame.split(b"\n") if not line.startswith(b":")]
            data = next((line[6:] for line in lines if line.startswith(b"data: ")), None)
            if data is None or self._is_known(data):
                continue
            self._retries = 0
            self._handed += 1
            yield b"\n".join(lines) + b"\n\n"

    def _is_known(self, data: bytes) -> bool:
        if self._kind == "chat":
            if self._skip > 0:
                self._skip -= 1
                return True
            self.is_over = data == b"[DONE]"
            return False
        event = json.loads(data)
        number = event.get("sequence_number")
        if number is not None:
            if self._number is not None and number <= self._number:
                return True
            self._number = number
        if self._id is None:
            self._id = (event.get("response") or {}).get("id")
        self.is_over = event.get("type") in _LAST
        return False

    def again(self) -> Any:
        """The request that resumes."""
        self._buffer = b""
        if self._kind == "chat" or self._id is None:
            self._skip = self._handed
            return self._build("POST", self._request.url, self._request.content)
        url = self._request.url
        path = url.path if self._kind == "reading" else f"{url.path}/{self._id}"
        after = {} if self._number is None else {"starting_after": str(self._number)}
        return self._build(
            "GET", url.copy_with(path=path, params={"stream": "true", **after}), None
        )

    def _build(self, method: str, url: Any, content: bytes | None) -> Any:
        headers = self._headers.copy()
        for name in (
            "content-length",
            "transfer-encoding",
            *(("content-type",) if content is None else ()),
        ):
            headers.pop(name, None)
        extensions = dict(self._request.extensions)
        limits = dict(extensions.get("timeout") or {})
        read = limits.get("read")
        limits["read"] = (
            self._healing.read_timeout if read is None else min(read, self._healing.read_timeout)
        )
        extensions["timeout"] = limits
        return type(self._request)(
            method, url, headers=headers, content=content, extensions=extensions
        )

    def ended(self) -> Exception:
        """A clean end before the last event."""
        return cast(
            Exception, _HTTP[0].RemoteProtocolError("the stream ended before its last event")
        )

    def goes_on(self, response: Any) -> bool:
        return bool(response.status_code == 200)

    def refused(self, response: Any) -> Exception:
        """Why it does not go on yet; raises if it never will."""
        error: Exception = _HTTP[0].RemoteProtocolError(
            f"the answer cannot be read on: status {response.status_code}"
        )
        if response.status_code not in _PASSING:
            raise error
        after = response.headers.get("retry-after", "")
        error.wait = float(after) if after.isdigit() else 0.0  # type: ignore[attr-defined]
        return error

    def wait(self, cut: Exception) -> float:
        """How long to wait after a cut; raises it if there were too many."""
        if self._retries >= self._healing.max_retries:
            raise cut
        backoff: float = self._healing.backoff * 2**self._retries * (0.5 + random.random() / 2)
        self._retries += 1
        asked = float(getattr(cut, "wait", 0.0))
        return min(max(backoff, asked), self._healing.max_wait)

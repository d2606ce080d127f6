"""Over the caller's own `httpx` client: the machine says what to do, this does it. Decides nothing.

Imported only when `http_client=` is used; `httpx` is not a dependency.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import httpx

from . import _core
from ._loop import sleep
from .errors import CAPError, CAPProtocolError

if TYPE_CHECKING:
    from ._settings import Settings

Step = Callable[[str, Any], None]

PROBLEM_BYTES = 64 * 1024
"""The most bytes that are read of a refusal's body."""
ANSWER_BYTES = 64 * 1024 * 1024
"""The most bytes of a collected answer."""


class Way:
    """The addresses and headers of requests."""

    def __init__(self, base_url: str, api_key: str, settings: Settings, http: Any) -> None:
        self._base = base_url
        url = httpx.URL(base_url)
        self._address = f"{url.scheme}://{url.netloc.decode()}"
        self._settings = settings
        self._http = http
        self._headers = dict(settings["headers"])
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        # A stream may take hours; only silence is limited. httpx's own default of 5 s is shorter
        # than a heartbeat.
        read, deadline = settings["read_timeout"], settings["deadline"]
        read = read if deadline is None or (read is not None and read < deadline) else deadline
        self._timeout = httpx.Timeout(read, connect=settings["connect_timeout"])

    def url(self, path: str) -> str:
        """A path below the base URL."""
        return f"{self._base}/{path.lstrip('/')}"

    def stream_url(self, stream_id: UUID | str) -> str:
        """The URL at which a stream is watched and stopped."""
        return self._versioned(f"/streams/{quote(str(stream_id))}")

    def _versioned(self, path: str) -> str:
        """Below `/v1`, whether or not the base URL ends in it."""
        version = "" if self._base.endswith("/v1") else "/v1"
        return self.url(f"{version}{path}")

    def post(self, prepared: _core.Prepared, agent: str | None) -> tuple[_core.Machine, None, Step]:
        """The machine of a run, and its driver."""
        machine = self._machine(prepared.profile)
        return machine, None, SyncDriver(machine, self._http, self._posting(prepared, agent)).step

    def post_async(
        self, prepared: _core.Prepared, agent: str | None
    ) -> tuple[_core.Machine, AsyncDriver]:
        """The same for asyncio."""
        machine = self._machine(prepared.profile)
        return machine, AsyncDriver(machine, self._http, self._posting(prepared, agent))

    def attach(self, cursor: str) -> tuple[_core.Machine, None, Step]:
        """The machine of a viewer, and its driver."""
        machine, request = self._viewing(cursor)
        return machine, None, SyncDriver(machine, self._http, request).step

    def attach_async(self, cursor: str) -> tuple[_core.Machine, AsyncDriver]:
        """The same for asyncio."""
        machine, request = self._viewing(cursor)
        return machine, AsyncDriver(machine, self._http, request)

    def exchange(self, method: str, url: str) -> str:
        """One request and its whole response."""
        try:
            response = _send(self._http, self._asking(method, url))
            try:
                body = _beginning(response)
            finally:
                response.close()
        except httpx.TransportError as error:
            raise self._lost(error) from error
        return self._answer(response, body)

    async def exchange_async(self, method: str, url: str) -> str:
        """The same for asyncio."""
        try:
            response = await _send(self._http, self._asking(method, url))
            try:
                body = await _beginning_async(response)
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise self._lost(error) from error
        return self._answer(response, body)

    def read(self, text: str) -> dict[str, Any]:
        """Decodes an answer that must be an object."""
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise CAPProtocolError(
                f"the server does not speak the protocol: the answer is not JSON: {error}"
            ) from None
        return answer if isinstance(answer, dict) else {}

    def _asking(self, method: str, url: str) -> httpx.Request:
        request: httpx.Request = self._http.build_request(
            method, url, headers=self._headers, timeout=self._timeout
        )
        return request

    def _answer(self, response: httpx.Response, body: bytes) -> str:
        status, headers = response.status_code, response.headers
        if status < 300:
            return body.decode("utf-8", "replace")
        machine = self._judge()
        if status < 400:
            machine.opened(status, headers.get("content-type", ""), headers.get("location"))
        else:
            machine.refused(status, headers.get("retry-after"), body)
        raise _verdict(machine)

    def _lost(self, error: Exception) -> CAPError:
        machine = self._judge()
        _lost(machine, error)
        return _verdict(machine)

    def _judge(self) -> _core.Machine:
        """Finds the exception for a call that is not retried."""
        return _core.Machine(
            {**self._settings, "max_retries": 0, "resume_patience": 0.0}, address=self._address
        )

    def _machine(self, profile: str) -> _core.Machine:
        return _core.Machine({**self._settings, "profile": profile}, address=self._address)

    def _posting(self, prepared: _core.Prepared, agent: str | None) -> dict[str, Any]:
        headers = {
            **self._headers,
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
            "X-Request-ID": str(prepared.request_id),
            "X-CAP-Accept": "stream_reset",
        }
        url = (
            self.url(self._settings["path"])
            if agent is None
            else self._versioned(f"/agents/{quote(agent, '')}/assist")
        )
        return {
            "method": "POST",
            "url": url,
            "headers": headers,
            "content": prepared.body,
            "timeout": self._timeout,
        }

    def _viewing(self, cursor: str) -> tuple[_core.Machine, dict[str, Any]]:
        headers = {**self._headers, "Accept": "text/event-stream"}
        url = self.stream_url(cursor.partition(":")[0])
        if self._settings["profile"] == "v2":
            url += "?profile=v2"
        machine = _core.Machine(
            self._settings, address=self._address, last_event_id=cursor, viewer=True
        )
        return machine, {"method": "GET", "url": url, "headers": headers, "timeout": self._timeout}


def _send(http: Any, request: httpx.Request) -> Any:
    """Whatever the caller's client does with redirects: another server gets neither the key nor
    what is asked.
    """
    return http.send(request, stream=True, follow_redirects=False)


def _limit(response: httpx.Response) -> int:
    return PROBLEM_BYTES if response.status_code >= 400 else ANSWER_BYTES


def _beginning(response: httpx.Response) -> bytes:
    """A body up to its limit. The rest is not read, because its size is unknown."""
    body, limit = bytearray(), _limit(response)
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


async def _beginning_async(response: httpx.Response) -> bytes:
    """The same for asyncio."""
    body, limit = bytearray(), _limit(response)
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


def _verdict(machine: _core.Machine) -> CAPError:
    while (action := machine.poll())[0] != "fail":
        pass
    error: CAPError = action[1]
    return error


class _Driver:
    """One call: the request, and the response that is being read."""

    def __init__(self, machine: _core.Machine, http: Any, request: dict[str, Any]) -> None:
        self._machine = machine
        self._http = http
        self._request = request
        self._response: httpx.Response | None = None

    def _build(self, last_event_id: str | None) -> httpx.Request:
        request = dict(self._request)
        if last_event_id is not None:
            request["headers"] = {**request["headers"], "Last-Event-ID": last_event_id}
        built: httpx.Request = self._http.build_request(**request)
        return built

    def _opened(self, response: httpx.Response) -> None:
        self._response = response
        headers = response.headers
        self._machine.opened(
            response.status_code, headers.get("content-type", ""), headers.get("location")
        )

    def _refused(self, response: httpx.Response, body: bytes) -> None:
        self._machine.refused(response.status_code, response.headers.get("retry-after"), body)


def _lost(machine: _core.Machine, error: Exception) -> None:
    """Reports a lost connection to the machine."""
    words = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, (httpx.TimeoutException, asyncio.TimeoutError)):
        machine.timed_out(words)
    elif "WRONG_VERSION_NUMBER" in words or "RECORD_LAYER_FAILURE" in words:
        machine.failed(
            f"{words}: the server does not speak TLS on this port: try http:// instead of https://"
        )
    else:
        machine.failed(words)


class SyncDriver(_Driver):
    """Performs one action at a time, blocking."""

    _chunks: Iterator[bytes]

    def step(self, what: str, value: Any) -> None:
        """Does what the machine requests, and reports the outcome to it."""
        try:
            if what == "connect":
                self._connect(value)
            elif what == "read":
                self._read()
            else:
                time.sleep(value)
        except (httpx.HTTPError, httpx.StreamError) as error:
            self._close()
            _lost(self._machine, error)
        except BaseException:
            self._close()
            raise

    def _connect(self, last_event_id: str | None) -> None:
        response = _send(self._http, self._build(last_event_id))
        if response.status_code >= 400:
            try:
                self._refused(response, _beginning(response))
            finally:
                response.close()
            return
        self._opened(response)
        self._chunks = response.iter_bytes()

    def _read(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._close()
            self._machine.ended()
        else:
            self._machine.bytes(chunk)

    def _close(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()

    def __del__(self) -> None:
        self._close()


class AsyncDriver(_Driver):
    """Performs one action at a time, for asyncio."""

    _chunks: AsyncIterator[bytes]

    async def step(self, what: str, value: Any) -> None:
        """Does what the machine requests, and reports the outcome to it."""
        try:
            left = self._machine.left()
            doing = self._do(what, value)
            await (doing if left is None else asyncio.wait_for(doing, left))
        except (httpx.HTTPError, httpx.StreamError, asyncio.TimeoutError) as error:
            await self.close()
            _lost(self._machine, error)

    async def _do(self, what: str, value: Any) -> None:
        if what == "connect":
            await self._connect(value)
        elif what == "read":
            await self._read()
        else:
            await sleep(value)

    async def _connect(self, last_event_id: str | None) -> None:
        response = await _send(self._http, self._build(last_event_id))
        if response.status_code >= 400:
            try:
                self._refused(response, await _beginning_async(response))
            finally:
                await response.aclose()
            return
        self._opened(response)
        self._chunks = response.aiter_bytes()

    async def _read(self) -> None:
        chunk = await anext(self._chunks, None)
        if chunk is None:
            await self.close()
            self._machine.ended()
        else:
            self._machine.bytes(chunk)

    async def close(self) -> None:
        """Closes the connection."""
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

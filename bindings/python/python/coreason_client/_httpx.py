"""Over the caller's own `httpx` client: the machine says what to do, this does it. Decides nothing.

Imported only when `http_client=` is used; `httpx` is not a dependency.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import httpx

from . import _core

if TYPE_CHECKING:
    from ._settings import Settings

Step = Callable[[str, Any], None]

PROBLEM_BYTES = 64 * 1024
"""A refusal's body is read up to this: a problem is small."""


class Way:
    """Where requests go, and with which headers."""

    def __init__(self, base_url: str, api_key: str, settings: Settings, http: Any) -> None:
        self._base = base_url
        self._settings = settings
        self._http = http
        self._headers = dict(settings["headers"])
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        read, connect = settings["read_timeout"], settings["connect_timeout"]
        # A stream may take hours; only silence is limited. httpx's own default of 5 s is shorter than a heartbeat.
        self._timeout = httpx.Timeout(read, connect=connect)

    def url(self, path: str) -> str:
        """A path below the base URL."""
        return f"{self._base}/{path.lstrip('/')}"

    def stream_url(self, stream_id: UUID | str) -> str:
        """Where a stream is watched and stopped."""
        version = "" if self._base.endswith("/v1") else "/v1"
        return self.url(f"{version}/streams/{quote(str(stream_id))}")

    def post(self, prepared: _core.Prepared) -> tuple[_core.Machine, None, Step]:
        """A run's machine, and what drives it."""
        machine = self._machine(prepared.profile)
        return machine, None, SyncDriver(machine, self._http, self._posting(prepared)).step

    def post_async(self, prepared: _core.Prepared) -> tuple[_core.Machine, AsyncDriver]:
        """The same for asyncio."""
        machine = self._machine(prepared.profile)
        return machine, AsyncDriver(machine, self._http, self._posting(prepared))

    def attach(self, cursor: str) -> tuple[_core.Machine, None, Step]:
        """A viewer's machine, and what drives it."""
        machine, request = self._viewing(cursor)
        return machine, None, SyncDriver(machine, self._http, request).step

    def attach_async(self, cursor: str) -> tuple[_core.Machine, AsyncDriver]:
        """The same for asyncio."""
        machine, request = self._viewing(cursor)
        return machine, AsyncDriver(machine, self._http, request)

    def exchange(self, method: str, url: str) -> str:
        """One request, one whole answer."""
        return _answer(self._http.request(method, url, headers=self._headers, timeout=self._timeout))

    async def exchange_async(self, method: str, url: str) -> str:
        """The same for asyncio."""
        return _answer(await self._http.request(method, url, headers=self._headers, timeout=self._timeout))

    def _machine(self, profile: str) -> _core.Machine:
        return _core.Machine({**self._settings, "profile": profile})

    def _posting(self, prepared: _core.Prepared) -> dict[str, Any]:
        headers = {
            **self._headers,
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
            "X-Request-ID": str(prepared.request_id),
            "X-CAP-Accept": "stream_reset",
        }
        url = self.url(self._settings["path"])
        return {"method": "POST", "url": url, "headers": headers, "content": prepared.body, "timeout": self._timeout}

    def _viewing(self, cursor: str) -> tuple[_core.Machine, dict[str, Any]]:
        stream, _, seq = cursor.partition(":")
        headers = {**self._headers, "Accept": "text/event-stream"}
        url = self.stream_url(UUID(stream))
        if self._settings["profile"] == "v2":
            url += "?profile=v2"
        machine = _core.Machine(self._settings, last_event_id=f"{stream}:{seq or 0}", viewer=True)
        return machine, {"method": "GET", "url": url, "headers": headers, "timeout": self._timeout}


def _answer(response: httpx.Response) -> str:
    if response.status_code < 400:
        return response.text
    machine = _core.Machine(_PLAIN)
    machine.refused(response.status_code, response.headers.get("retry-after"), response.content)
    while (action := machine.poll())[0] != "fail":
        pass
    raise action[1]


_PLAIN: Settings = {
    "read_timeout": None,
    "connect_timeout": None,
    "max_retries": 0,
    "max_wait": 0.0,
    "resume_patience": 0.0,
    "backoff_first": 0.5,
    "backoff_max": 30.0,
    "strict": False,
    "profile": "v1",
    "path": "",
    "headers": [],
}


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
        self._machine.opened(response.status_code, response.headers.get("content-type", ""))

    def _refused(self, response: httpx.Response, body: bytes) -> None:
        self._machine.refused(response.status_code, response.headers.get("retry-after"), body[:PROBLEM_BYTES])


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


class SyncDriver(_Driver):
    """Does one thing at a time, blocking."""

    _chunks: Iterator[bytes]

    def step(self, what: str, value: Any) -> None:
        """Does what the machine wants done, and tells it how that went."""
        try:
            if what == "connect":
                self._connect(value)
            elif what == "read":
                self._read()
            else:
                time.sleep(value)
        except (httpx.HTTPError, httpx.StreamError) as error:
            self._close()
            self._machine.failed(_words(error))
        except BaseException:
            self._close()
            raise

    def _connect(self, last_event_id: str | None) -> None:
        response = self._http.send(self._build(last_event_id), stream=True)
        if response.status_code >= 400:
            self._refused(response, response.read())
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
    """Does one thing at a time, for asyncio."""

    _chunks: AsyncIterator[bytes]

    async def step(self, what: str, value: Any) -> None:
        """Does what the machine wants done, and tells it how that went."""
        import asyncio

        try:
            if what == "connect":
                await self._connect(value)
            elif what == "read":
                await self._read()
            else:
                await asyncio.sleep(value)
        except (httpx.HTTPError, httpx.StreamError) as error:
            await self.close()
            self._machine.failed(_words(error))

    async def _connect(self, last_event_id: str | None) -> None:
        response = await self._http.send(self._build(last_event_id), stream=True)
        if response.status_code >= 400:
            self._refused(response, await response.aread())
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

"""RFC 004's client, written literally: httpx, pydantic, a loop over SSE lines.

The peer, not a part of ours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import httpx
from pydantic import BaseModel, ConfigDict, model_validator


class StreamOpCode(str, Enum):
    DELTA = "DELTA"
    EVENT = "EVENT"
    ERROR = "ERROR"
    CLOSE = "CLOSE"


class ErrorSeverity(str, Enum):
    FATAL = "FATAL"
    TRANSIENT = "TRANSIENT"
    WARNING = "WARNING"


class StreamError(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    code: str
    message: str
    severity: ErrorSeverity
    details: dict[str, Any] | None = None


class StreamPacket(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    stream_id: UUID
    seq: int
    op: StreamOpCode
    t: datetime
    p: str | StreamError | dict[str, Any]

    @model_validator(mode="after")
    def payload_fits(self) -> StreamPacket:
        fits = {
            StreamOpCode.DELTA: str,
            StreamOpCode.EVENT: dict,
            StreamOpCode.ERROR: StreamError,
            StreamOpCode.CLOSE: (str, dict),
        }[self.op]
        if not isinstance(self.p, fits):
            raise ValueError(f"payload does not fit {self.op}")
        return self


class CAPRuntimeError(Exception):
    pass


BROKEN = (httpx.StreamError, httpx.NetworkError, httpx.RemoteProtocolError)


def timeout(read: float) -> httpx.Timeout:
    return httpx.Timeout(read, connect=10.0)


class Place:
    """What both loops remember: section 3.2, steps 1 and 2."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.last_id: str | None = None
        self.last_seq = -1
        self.delay = 0.5

    def headers(self) -> dict[str, str]:
        headers = {"X-Request-ID": str(self.request["request_id"])}
        return headers if self.last_id is None else {**headers, "Last-Event-ID": self.last_id}

    def take(self, line: str) -> StreamPacket | None:
        if not line.startswith("data:"):
            return None
        packet = StreamPacket.model_validate_json(line[5:].strip())
        if packet.seq <= self.last_seq:
            return None
        self.last_seq = packet.seq
        self.last_id = str(packet.stream_id)
        return packet

    def backoff(self) -> float:
        delay, self.delay = self.delay, min(self.delay * 2, 30.0)
        return delay


def question(message: str) -> dict[str, Any]:
    return {"request_id": str(uuid4()), "query": message}


class CAPClient:
    def __init__(self, base_url: str, api_key: str, read: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"}, timeout=timeout(read)
        )

    def assist(self, request: dict[str, Any]) -> Iterator[StreamPacket]:
        place = Place(request)
        while True:
            try:
                url = f"{self.base_url}/assist"
                with self._http.stream(
                    "POST", url, json=request, headers=place.headers()
                ) as response:
                    response.raise_for_status()
                    place.delay = 0.5
                    for line in response.iter_lines():
                        packet = place.take(line)
                        if packet is not None:
                            yield packet
                            if packet.op == StreamOpCode.CLOSE:
                                return
            except BROKEN:
                time.sleep(place.backoff())
            except httpx.HTTPStatusError as error:
                raise CAPRuntimeError(str(error)) from error

    def chat(self, message: str) -> Iterator[str]:
        for packet in self.assist(question(message)):
            if packet.op == StreamOpCode.DELTA:
                yield str(packet.p)
            elif packet.op == StreamOpCode.ERROR:
                raise CAPRuntimeError(f"Stream Error: {packet.p}")

    def close(self) -> None:
        self._http.close()


class AsyncCAPClient:
    def __init__(self, base_url: str, api_key: str, read: float = 60.0) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"}, timeout=timeout(read)
        )

    async def assist(self, request: dict[str, Any]) -> AsyncIterator[StreamPacket]:
        place = Place(request)
        while True:
            try:
                url = f"{self.base_url}/assist"
                async with self._http.stream(
                    "POST", url, json=request, headers=place.headers()
                ) as response:
                    response.raise_for_status()
                    place.delay = 0.5
                    async for line in response.aiter_lines():
                        packet = place.take(line)
                        if packet is not None:
                            yield packet
                            if packet.op == StreamOpCode.CLOSE:
                                return
            except BROKEN:
                await asyncio.sleep(place.backoff())
            except httpx.HTTPStatusError as error:
                raise CAPRuntimeError(str(error)) from error

    async def chat(self, message: str) -> AsyncIterator[str]:
        async for packet in self.assist(question(message)):
            if packet.op == StreamOpCode.DELTA:
                yield str(packet.p)
            elif packet.op == StreamOpCode.ERROR:
                raise CAPRuntimeError(f"Stream Error: {packet.p}")

    async def close(self) -> None:
        await self._http.aclose()

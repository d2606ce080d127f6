"""The agent's side: a stream of packets as an HTTP response.

    @app.post("/assist")
    async def assist(request: Request):
        async def answer(stream: PacketWriter) -> None:
            await stream.write_delta("Hello")

        return PacketWriter(answer).response()

A function that raises ends its stream with a typed error. CLOSE follows a FATAL error. After a
TRANSIENT one the body ends, so that the client sends the request again. A plain agent stores
nothing: the gateway in front of it makes its streams survive a cut.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any
from uuid import UUID

from . import _core
from ._arguments import wrong
from ._loop import running_loop
from ._model import to_uuid
from .agui import create_stream_error
from .definitions.presentation import PresentationEvent, StreamError, StreamOpCode
from .errors import UntypedErrorError

__all__ = ["HEADERS", "PacketWriter"]

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}
"""The headers of a response of packets. Proxies must not buffer it."""

HEARTBEAT = b":\n"
HEARTBEAT_SECONDS = 15.0

FULL = 256
"""The most frames that wait for a slow reader. Then the writer waits."""

_HINT = (
    "an ERROR carries a StreamError, not a {kind} (RFC 005). Write "
    'StreamError(code="internal_error", message={value!r}, severity=ErrorSeverity.FATAL)'
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PacketWriter:
    """Writes the packets of one stream.

    It is an ASGI response, an async iterator of SSE bytes (for any framework's streaming response),
    and with `response()` a Starlette or FastAPI response.
    """

    def __init__(
        self,
        answer: Callable[[PacketWriter], Awaitable[None]] | None = None,
        *,
        stream_id: UUID | str | None = None,
        is_debug: bool | None = None,
    ) -> None:
        """
        Args:
            answer: Writes the answer. It starts when the response is first read and is cancelled
                when the reader goes. Without it, write from a task of your own and `close()`.
            stream_id: The stream's id; a new one without it.
            is_debug: Whether exceptions' types and texts may go out; by default in development only
                (`CAPSTAN_ENV`).
        """
        if answer is not None and not callable(answer):
            raise wrong("answer", "an async function that takes the writer", answer)
        self._writer = _core.PacketWriter(
            None if stream_id is None else to_uuid("stream_id", stream_id)
        )
        self._answer = answer
        self._is_debug = _is_development() if is_debug is None else is_debug
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(FULL)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._is_read = False
        self._is_waiting = False
        """The last packet was a TRANSIENT error."""
        self._has_asked = False

    @property
    def stream_id(self) -> UUID:
        """The stream's id."""
        return self._writer.stream_id

    @property
    def is_closed(self) -> bool:
        """Whether the stream has ended, so that nothing can be written."""
        return self._is_closed

    async def write_delta(self, text: str) -> None:
        """Writes a piece of text."""
        await self._put(self._writer.delta(text))

    async def write_event(
        self, event: PresentationEvent | Mapping[str, Any] | str, data: Any = None
    ) -> None:
        """Writes a presentation event: a whole one, or a type and its data."""
        if isinstance(event, str):
            event = PresentationEvent(event, data)
        await self._put(self._writer.packet(StreamOpCode.EVENT, event))

    async def write_error(self, error: StreamError) -> None:
        """A typed error. A FATAL one ends the stream; after a TRANSIENT one that nothing follows
        the client comes back.

        Raises:
            UntypedErrorError: If it is a string, or anything else that is not a `StreamError`. It
                is both a `TypeError` and a `ValueError`.
        """
        await self.write_packet(op=StreamOpCode.ERROR, p=error)

    async def ask(
        self,
        interrupt_id: str,
        reason: str,
        *,
        message: str | None = None,
        response_schema: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
        tool_call_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Asks a person. Return after the last question: the stream ends with it, and a later
        request answers.

        The answers are in that request's payload, `resume`, under the same ids.

        Args:
            interrupt_id: By which it is answered; unique within the stream.
            reason: Why the stream ends, in a word such as `approval`.
            message: The question, for the person who answers.
            response_schema: A JSON Schema of the answer, so that a form can be made of it.
            expires_at: Until when it can be answered.
            tool_call_id: The tool call that it is about.
            metadata: Anything else.
        """
        asked = {
            "id": interrupt_id,
            "reason": reason,
            "message": message,
            "toolCallId": tool_call_id,
            "responseSchema": response_schema,
            "expiresAt": expires_at.isoformat() if expires_at else None,
            "metadata": metadata,
        }
        await self.write_event(
            "INTERRUPT", {name: value for name, value in asked.items() if value is not None}
        )
        self._has_asked = True

    async def write_packet(self, *, op: StreamOpCode | str, p: Any) -> None:
        """Any packet.

        A payload that does not fit its op raises `ValueError`, and nothing is written.
        """
        op = StreamOpCode(op)
        if op is StreamOpCode.ERROR and not isinstance(p, (StreamError, Mapping)):
            raise UntypedErrorError(_HINT.format(kind=type(p).__name__, value=p))
        await self._put(self._writer.packet(op, p))
        if op is StreamOpCode.CLOSE:
            await self._end()
        elif op is StreamOpCode.ERROR and _severity(p) == "FATAL":
            await self.close("error")
        elif op is StreamOpCode.ERROR and _severity(p) == "TRANSIENT":
            self._is_waiting = True

    async def close(self, reason: str | None = None) -> None:
        """Ends the stream. Closing twice is no mistake.

        Args:
            reason: What CLOSE says; without it `completed`, or `interrupt` if something was asked.
                After a TRANSIENT error there is no CLOSE without it: the body ends, which tells the
                client to wait and to ask again.
        """
        if self._is_closed:
            return
        if reason is not None or not self._is_waiting:
            await self._put(
                self._writer.close(reason or ("interrupt" if self._has_asked else "completed"))
            )
        await self._end()

    async def _put(self, frame: bytes) -> None:
        if self._is_closed:
            raise RuntimeError("the stream is closed: nothing follows its end")
        self._is_waiting = False
        await self._frames.put(frame)

    async def _end(self) -> None:
        self._is_closed = True
        await self._frames.put(None)

    async def _run(self) -> None:
        """Writes the answer; whatever it raises becomes a typed ERROR."""
        assert self._answer is not None
        try:
            await self._answer(self)
        except Exception as error:
            if not self._is_closed:
                await self.write_packet(
                    op=StreamOpCode.ERROR, p=create_stream_error(error, self._is_debug)
                )
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The frames as bytes, heartbeats between them. Can be read once."""
        if self._is_read:
            raise RuntimeError("the stream was read before")
        running_loop("PacketWriter", "serve the agent with uvicorn, or another server of asyncio's")
        self._is_read = True
        if self._answer is not None:
            self._task = asyncio.create_task(self._run())
        try:
            yield self._writer.opening()
            while (frame := await self._next()) is not None:
                yield frame
        finally:
            if self._task is not None:
                self._task.cancel()

    async def _next(self) -> bytes | None:
        try:
            return self._frames.get_nowait()
        except asyncio.QueueEmpty:
            pass
        try:
            return await asyncio.wait_for(self._frames.get(), HEARTBEAT_SECONDS)
        except asyncio.TimeoutError:
            return HEARTBEAT

    @property
    def headers(self) -> dict[str, str]:
        """The response's headers."""
        return {**HEADERS, "X-Stream-ID": str(self.stream_id)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI response."""
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writing = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({writing, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (writing, gone):
                task.cancel()
            await asyncio.gather(writing, gone, return_exceptions=True)
        if (
            writing.done()
            and not writing.cancelled()
            and (error := writing.exception()) is not None
        ):
            raise error

    async def _send_all(self, send: Send) -> None:
        frames = self.__aiter__()
        try:
            async for frame in frames:
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await frames.aclose()  # type: ignore[attr-defined]

    def response(self) -> Any:
        """As a Starlette (and so FastAPI) response."""
        from starlette.responses import StreamingResponse

        headers = {name: value for name, value in self.headers.items() if name != "Content-Type"}
        return StreamingResponse(self, media_type=HEADERS["Content-Type"], headers=headers)


def _severity(error: Any) -> str:
    severity = error["severity"] if isinstance(error, Mapping) else error.severity
    return str(getattr(severity, "value", severity))


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_development() -> bool:
    """The same names as the gateway's."""
    return os.environ.get("CAPSTAN_ENV", "").lower() in {"development", "dev", "test", "local"}

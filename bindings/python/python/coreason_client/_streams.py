"""The streams that callers iterate over; reading is native."""

from __future__ import annotations

import sys
from types import TracebackType

from . import _core
from ._loop import running_loop, sleep

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator
    from typing import Any, Literal, cast
    from uuid import UUID

    from typing_extensions import Self

    from ._httpx import AsyncDriver
    from .definitions.presentation import PresentationEvent, StreamError, StreamOpCode

    AnyPacket = (
        _core.StreamPacket[Literal[StreamOpCode.DELTA], str]
        | _core.StreamPacket[Literal[StreamOpCode.EVENT], PresentationEvent]
        | _core.StreamPacket[Literal[StreamOpCode.ERROR], StreamError]
        | _core.StreamPacket[Literal[StreamOpCode.CLOSE], str | dict[str, Any]]
    )
    """A packet whose op tells the type of its `p`."""
else:

    def cast(kind, value):
        return value


__all__ = ["AsyncChatStream", "AsyncPacketStream", "ChatStream", "PacketStream"]

SHOWN = 60
"""How many characters of the text's end a repr shows."""


def _packets_repr(stream: PacketStream | AsyncPacketStream) -> str:
    return (
        f"{type(stream).__name__}(stream_id={_shown(stream.stream_id)}, cursor={stream.cursor!r})"
    )


def _chat_repr(stream: ChatStream | AsyncChatStream) -> str:
    text = stream.text_so_far
    text = text if len(text) <= SHOWN else "…" + text[-SHOWN:]
    return (
        f"{type(stream).__name__}(conversation_id={stream.conversation_id!r}, "
        f"stream_id={_shown(stream.stream_id)}, reason={stream.reason!r}, text_so_far={text!r})"
    )


def _shown(stream_id: UUID | None) -> str | None:
    return None if stream_id is None else repr(str(stream_id))


class PacketStream(_core.Stream):
    """The packets of one run, healed: `for packet in stream`.

    Nothing is sent before the first packet is read. Leaving a `with` block closes the
    connection; the run continues at the server, and `client.attach(stream.cursor)` follows it from
    there.
    """

    __repr__ = _packets_repr

    if TYPE_CHECKING:

        def __next__(self) -> AnyPacket: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ChatStream(_core.Stream):
    """The text of one answer, piece by piece: `for text in stream`.

    A `stream_reset` takes back text that was already handed out, which pieces of text cannot
    express: it raises `CAPRuntimeError` with code `stream_reset`. `text()` applies it instead.
    """

    __repr__ = _chat_repr

    if TYPE_CHECKING:

        def __next__(self) -> str: ...

    @property
    def conversation_id(self) -> str:
        """The conversation, to be continued with `chat(…, conversation_id=…)`. Known at once."""
        return cast(str, self._conversation)

    def text(self) -> str:
        """Reads to the end. Returns all of the text, with what was read before."""
        return self._read_text()

    @property
    def text_so_far(self) -> str:
        """The text so far."""
        return self._text

    @property
    def reason(self) -> str | None:
        """Why the answer ended, once it has: `completed`, `cancelled`, `length`, …"""
        return self._reason

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage, if the server sent it at the end."""
        return self._usage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _without_hooks(items: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Starts a generator that the event loop does not hear of. Where ours yields there is nothing
    to await, so one that is left in the middle just goes; a loop would make a task of it, and
    complain if it is closed before that has run.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        items.__anext__().send(None)
    except StopIteration:
        pass  # it has yielded
    finally:
        sys.set_asyncgen_hooks(*hooks)
    return items


class _AsyncStream(_core.AsyncStream):
    """The common part of both async streams."""

    _driver: AsyncDriver | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return _without_hooks(self._items())

    async def __anext__(self) -> Any:
        while True:
            for item in self._ready():
                return item
            if not await self._more():
                raise StopAsyncIteration

    async def _items(self) -> AsyncGenerator[Any, None]:
        """All that comes. A generator, since the interpreter hands over what one yields without an
        exception for each. It has no state: after a `break`, another one continues.
        """
        yield None  # for `_without_hooks`
        while True:
            for item in self._ready():
                yield item
            if not await self._more():
                return

    async def _more(self) -> bool:
        """Waits until something is there; false at the end.

        Being cancelled closes the connection.
        """
        found = self._look()
        try:
            if found:
                await sleep(0)  # a fast stream would otherwise never let go of the loop
            while found is None:
                await (self._sleep() if self._driver is None else self._drive(self._driver))
                found = self._look()
        except BaseException:
            await self.close()
            raise
        return found

    async def _sleep(self) -> None:
        """Waits until the worker has packets: one wake-up per batch."""
        loop = running_loop()
        future = loop.create_future()
        if self._arm(loop, future):
            await future

    async def _drive(self, driver: AsyncDriver) -> None:
        """Performs the machine's actions over the caller's own client."""
        step = self._step()
        if step is not None:
            await driver.step(*step)

    async def close(self) -> None:
        """Closes the connection. The run continues at the server."""
        self._close()
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    aclose = close

    def __await__(self) -> Generator[Any, None, Self]:
        return self
        yield  # what makes it a generator

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncPacketStream(_AsyncStream):
    """The packets of one run, healed: `async for packet in stream`. Awaiting it gives it back at
    once.

    Cancelling the task that reads closes the connection; the run continues at the server.

    """

    __repr__ = _packets_repr

    if TYPE_CHECKING:

        def __aiter__(self) -> AsyncIterator[AnyPacket]: ...

        async def __anext__(self) -> AnyPacket: ...


class AsyncChatStream(_AsyncStream):
    """The text of one answer, piece by piece:

    `async for text in stream`. Awaiting it gives it back at once.
    """

    __repr__ = _chat_repr

    if TYPE_CHECKING:

        def __aiter__(self) -> AsyncIterator[str]: ...

        async def __anext__(self) -> str: ...

    @property
    def conversation_id(self) -> str:
        """The conversation, to be continued with `chat(…, conversation_id=…)`. Known at once."""
        return cast(str, self._conversation)

    async def text(self) -> str:
        """Reads to the end. Returns all of the text, with what was read before."""
        self._begin_text()
        async for _ in self:
            pass
        return self._text

    @property
    def text_so_far(self) -> str:
        """The text so far."""
        return self._text

    @property
    def reason(self) -> str | None:
        """Why the answer ended, once it has: `completed`, `cancelled`, `length`, …"""
        return self._reason

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage, if the server sent it at the end."""
        return self._usage

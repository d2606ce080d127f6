"""`CAPClient` and `AsyncCAPClient`: RFC 004, section 3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from uuid import UUID, uuid4

from . import _arguments as check
from . import _core
from ._exit import remember
from ._loop import running_loop
from ._model import to_session
from ._settings import make_settings
from ._streams import AsyncChatStream, AsyncPacketStream, ChatStream, PacketStream

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any, TypeVar

    import httpx
    from typing_extensions import Self

    from ._httpx import AsyncDriver, Way
    from ._settings import Timeout
    from .definitions.service import ServiceRequest

    S = TypeVar("S", AsyncPacketStream, AsyncChatStream)

__all__ = ["AsyncCAPClient", "CAPClient"]

USER = "anonymous"
"""The default user of `chat()`."""


class _Client:
    """The common part of both clients."""

    _is_async: bool

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: Timeout = 60.0,
        max_retries: int = 3,
        *,
        http_client: Any = None,
        user_id: str = USER,
        headers: Mapping[str, str] | None = None,
        path: str = "/assist",
        profile: str = "v1",
        strict: bool = False,
        max_wait: float = 30.0,
        resume_patience: float = 0.0,
        deadline: float | None = None,
        backoff: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        """
        Args:
            base_url: The root URL of the service.
            api_key: Sent as `Authorization: Bearer …`; an empty one sends none.
            timeout: Seconds a response may be silent, and all that `stop()` and `health()` may take
                (60), or an `httpx.Timeout`.
            max_retries: Interruptions since the last new packet that are healed (3).
            http_client: Your own `httpx.Client` (`httpx.AsyncClient` for the async client), to
                connect through.
            user_id: The user of `chat()`.
            headers: More headers for every request.
            path: Where requests are posted to, below the base URL.
            profile: What `chat()` and `attach()` speak: `v1` or `v2`.
            strict: Missing packets raise `CAPProtocolError` instead of being logged.
            max_wait: The longest wait before a retry; a longer `retry_after` raises at once.
            resume_patience: While resuming, retry beyond `max_retries` until no new packet came for
                so many seconds.
            deadline: The limit of a whole call in seconds; no limit without it.
            backoff: The first and the longest wait between tries, in seconds.

        Raises:
            CAPValidationError: If an argument is wrong; it names the argument. It
                is a `ValueError`.
        """
        self.base_url = check.base_url(base_url).rstrip("/")
        key = check.api_key(api_key)
        self._user_id = check.text("user_id", user_id)
        self._settings = make_settings(
            timeout,
            max_retries,
            headers=headers,
            path=path,
            profile=profile,
            strict=strict,
            max_wait=max_wait,
            resume_patience=resume_patience,
            deadline=deadline,
            backoff=backoff,
        )
        self.max_retries = max_retries
        self._core = _core.Client(base_url, key, self._settings, self._is_async)
        remember(self._core)
        self._way: Way | None = None
        if http_client is not None:
            from ._httpx import Way

            self._way = Way(
                self.base_url, key, self._settings, check.http_client(http_client, self._is_async)
            )

    def _question(self, message: str, conversation: UUID) -> _core.Prepared:
        return _core.question(
            self._settings["profile"], conversation, check.text("message", message), self._user_id
        )

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called."""
        return self._core.is_closed

    def __repr__(self) -> str:
        # A password in the address stays out of whatever prints a client.
        scheme, _, rest = self.base_url.partition("://")
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        return f"{type(self).__name__}({shown!r})"


class CAPClient(_Client):
    """The client of one server.

    Safe to share between threads; each stream belongs to one of them.
    """

    _is_async = False

    if TYPE_CHECKING:

        def __init__(
            self,
            base_url: str,
            api_key: str | None = None,
            timeout: Timeout = 60.0,
            max_retries: int = 3,
            *,
            http_client: httpx.Client | None = None,
            user_id: str = USER,
            headers: Mapping[str, str] | None = None,
            path: str = "/assist",
            profile: str = "v1",
            strict: bool = False,
            max_wait: float = 30.0,
            resume_patience: float = 0.0,
            deadline: float | None = None,
            backoff: tuple[float, float] = (0.5, 30.0),
        ) -> None: ...

    def assist(
        self, request: ServiceRequest | Mapping[str, Any] | Any, *, agent: str | None = None
    ) -> PacketStream:
        """Starts a run, or attaches to it if its key is known; its packets, healed.

        Args:
            request: A `ServiceRequest`, a dict of the same shape, or any model of it that has
                `model_dump`.
            agent: The name of the agent that answers; the server's default one without it.

        Raises:
            CAPConnectionError: If retries are exhausted; a `CAPTimeoutError`, which is a
                `TimeoutError` too, if the server was silent or the deadline has passed.
            CAPProtocolError: If the server sends invalid data.
            CAPRuntimeError: If the server refuses, or the run fails.
            ValueError: If the request is invalid; nothing was sent.
        """
        prepared, agent = _prepared(request), check.agent(agent)
        if self._way is not None:
            return PacketStream(*self._way.post(prepared, agent))
        return PacketStream(self._core.call(prepared, agent))

    def chat(
        self, message: str, conversation_id: UUID | str | None = None, *, agent: str | None = None
    ) -> ChatStream:
        """Sends a message. Returns the text of the answer.

        Args:
            message: The message.
            conversation_id: The conversation to continue; a new one without it. A name of your own
                stands for a UUID, always the same.
            agent: The name of the agent that answers; the server's default one without it.
        """
        conversation, agent = _conversation(conversation_id), check.agent(agent)
        prepared = self._question(message, conversation)
        if self._way is not None:
            machine, _, step = self._way.post(prepared, agent)
            return ChatStream(machine, conversation, step)
        return ChatStream(self._core.call(prepared, agent), conversation)

    def attach(self, cursor: UUID | str) -> PacketStream:
        """Follows a stream that exists, from a cursor (or the id of a stream) on.

        Starts nothing.
        """
        if self._way is not None:
            return PacketStream(*self._way.attach(check.cursor(cursor)))
        return PacketStream(self._core.attach(check.cursor(cursor)))

    def stop(self, stream_id: UUID | str) -> None:
        """Stops a run; returns when its end is in the journal. A finished run does not change."""
        stream = check.stream_id(stream_id)
        if self._way is not None:
            self._way.exchange("DELETE", self._way.stream_url(stream))
        else:
            self._core.stop(stream)

    def health(self) -> dict[str, Any]:
        """The health of the server."""
        if self._way is not None:
            return self._way.read(self._way.exchange("GET", self._way.url("/health")))
        return _object(self._core.health())

    def close(self) -> None:
        """Ends every call; no thread is left when it returns.

        A `http_client` of your own stays open.
        """
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncCAPClient(_Client):
    """The async twin.

    `stream = await client.chat(…)` and `async for text in client.chat(…)` both work.
    """

    _is_async = True

    if TYPE_CHECKING:

        def __init__(
            self,
            base_url: str,
            api_key: str | None = None,
            timeout: Timeout = 60.0,
            max_retries: int = 3,
            *,
            http_client: httpx.AsyncClient | None = None,
            user_id: str = USER,
            headers: Mapping[str, str] | None = None,
            path: str = "/assist",
            profile: str = "v1",
            strict: bool = False,
            max_wait: float = 30.0,
            resume_patience: float = 0.0,
            deadline: float | None = None,
            backoff: tuple[float, float] = (0.5, 30.0),
        ) -> None: ...

    def assist(
        self, request: ServiceRequest | Mapping[str, Any] | Any, *, agent: str | None = None
    ) -> AsyncPacketStream:
        """Starts a run, or attaches to it if its key is known; see `CAPClient.assist`."""
        prepared, agent = _prepared(request), check.agent(agent)
        if self._way is not None:
            return self._driven(AsyncPacketStream, *self._way.post_async(prepared, agent))
        return AsyncPacketStream(self._core.call(prepared, agent))

    def chat(
        self, message: str, conversation_id: UUID | str | None = None, *, agent: str | None = None
    ) -> AsyncChatStream:
        """Sends a message. Returns the text of the answer. See `CAPClient.chat`."""
        conversation, agent = _conversation(conversation_id), check.agent(agent)
        prepared = self._question(message, conversation)
        if self._way is not None:
            return self._driven(
                AsyncChatStream, *self._way.post_async(prepared, agent), conversation
            )
        return AsyncChatStream(self._core.call(prepared, agent), conversation)

    def attach(self, cursor: UUID | str) -> AsyncPacketStream:
        """Follows a stream that exists, from a cursor (or the id of a stream) on.

        Starts nothing.
        """
        if self._way is not None:
            return self._driven(AsyncPacketStream, *self._way.attach_async(check.cursor(cursor)))
        return AsyncPacketStream(self._core.attach(check.cursor(cursor)))

    async def stop(self, stream_id: UUID | str) -> None:
        """Stops a run; returns when its end is in the journal. A finished run does not change."""
        stream = check.stream_id(stream_id)
        if self._way is not None:
            await self._way.exchange_async("DELETE", self._way.stream_url(stream))
        else:
            await self._exchange(self._core.begin_stop, stream)

    async def health(self) -> dict[str, Any]:
        """The health of the server."""
        if self._way is not None:
            return self._way.read(await self._way.exchange_async("GET", self._way.url("/health")))
        return _object(await self._exchange(self._core.begin_health))

    async def close(self) -> None:
        """Ends every call; no thread is left when the last client is closed.

        A `http_client` of your own stays open.
        """
        self._core.close()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _driven(
        self,
        kind: type[S],
        machine: _core.Machine,
        driver: AsyncDriver,
        conversation: UUID | None = None,
    ) -> S:
        stream = kind(machine, conversation)
        stream._driver = driver
        return stream

    async def _exchange(self, begin: Any, *arguments: Any) -> str | None:
        loop = running_loop()
        future = loop.create_future()
        pending: _core.Pending = begin(*arguments, loop, future)
        await future
        return pending.result()


def _prepared(request: Any) -> _core.Prepared:
    if isinstance(request, Mapping) or hasattr(request, "model_dump"):
        return _core.prepare(request)
    raise check.wrong(
        "request", "a ServiceRequest, a dict of its members, or a model with model_dump()", request
    )


def _conversation(conversation_id: UUID | str | None) -> UUID:
    """The conversation to continue, or a new one."""
    return uuid4() if conversation_id is None else to_session("conversation_id", conversation_id)


def _object(text: str | None) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text or "{}")
    return answer

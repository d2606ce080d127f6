"""RFC 005's agent, its example as written, in an app of its own: each request fails twice, then it
is answered.
"""

from collections import Counter
from typing import Any

import coreason_client  # noqa: F401 - from here on the RFC's own imports resolve
from coreason_client.agent import PacketWriter
from coreason_manifest.definitions.presentation import ErrorSeverity, StreamError, StreamOpCode

tries: Counter[bytes] = Counter()


async def app(scope: Any, receive: Any, send: Any) -> None:
    key = dict(scope["headers"])[b"x-request-id"]
    tries[key] += 1

    async def answer(stream: PacketWriter) -> None:
        if tries[key] == 1:
            error = StreamError(
                code="internal_error",
                message="Database connection failed",
                severity=ErrorSeverity.TRANSIENT,
            )
            await stream.write_packet(op=StreamOpCode.ERROR, p=error)
        elif tries[key] == 2:
            raise TimeoutError
        else:
            await stream.write_delta("Here it is.")

    await PacketWriter(answer)(scope, receive, send)

"""The event loop must be asyncio's. Under another one, the error names the remedy."""

from __future__ import annotations

TYPE_CHECKING = False  # without `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def running_loop(
    who: str = "AsyncCAPClient",
    remedy: str = "use CAPClient in a thread: "
    "await trio.to_thread.run_sync(lambda: client.chat(message).text())",
) -> AbstractEventLoop:
    """The running event loop."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    raise RuntimeError(
        f"{who} needs asyncio, and no asyncio event loop runs here; under trio, {remedy}"
    )


async def sleep(seconds: float) -> None:
    """`asyncio.sleep`, with the same error under another loop."""
    import asyncio

    running_loop()
    await asyncio.sleep(seconds)

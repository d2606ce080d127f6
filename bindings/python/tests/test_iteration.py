"""The promises of `async for`, wherever the loop is left and continued."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import open_sockets
from coreason_client import AsyncCAPClient, AsyncChatStream, AsyncPacketStream, CAPRuntimeError

SLOW = "/tokens 100000 --delay 20ms"
PATIENCE = 60.0
"""After this time a test fails."""


async def replay(client: AsyncCAPClient, tokens: int) -> AsyncPacketStream:
    """A stream that arrives in pieces of many packets."""
    chat = client.chat(f"/tokens {tokens}")
    await chat.text()
    return client.attach(f"{chat.stream_id}:0")


def test_a_loop_that_is_left_continues_at_its_packet(gateway: str) -> None:
    """By any way of reading, in any order: each packet once."""

    async def main() -> list[int]:
        async with AsyncCAPClient(gateway, "") as client:
            stream, seqs = await replay(client, 500), []
            while stream.cursor is None or len(seqs) < 400:
                async for packet in stream:
                    seqs.append(packet.seq)
                    if packet.seq % 7 == 0:
                        break
                seqs.append((await anext(stream)).seq)
            return seqs + [packet.seq async for packet in stream]

    assert asyncio.run(main()) == list(range(1, 502))


def test_a_streams_state_covers_returned_packets_only(gateway: str) -> None:
    """Not packets that were fetched ahead."""

    async def main() -> None:
        async with AsyncCAPClient(gateway, "") as client:
            stream = await replay(client, 500)
            async for packet in stream:
                assert (stream.cursor, stream.stream_id) == (packet.cursor, packet.stream_id)
            chat, text = client.chat("/tokens 500"), ""
            async for piece in chat:
                text += piece
                assert chat.text_so_far == text
            assert chat.reason == "completed"

    asyncio.run(main())


def test_a_void_text_can_be_read_on(gateway: str) -> None:
    async def main() -> tuple[str, str]:
        async with AsyncCAPClient(gateway, "") as client:
            stream = client.chat("/diverge")
            with pytest.raises(CAPRuntimeError) as reset:
                [_ async for _ in stream]
            assert reset.value.code == "stream_reset"
            rest = "".join([text async for text in stream])
            assert stream.reason == "completed"
            return rest, await client.chat("/diverge").text()

    rest, whole = asyncio.run(main())
    assert rest and whole.endswith(rest)


def test_two_tasks_that_read_one_stream_are_told(gateway: str) -> None:
    async def read(stream: AsyncChatStream) -> None:
        async for _ in stream:
            pass

    async def main() -> list[BaseException | None]:
        async with AsyncCAPClient(gateway, "") as client:
            stream = client.chat("/tokens 5 --delay 600000ms")
            return await asyncio.gather(read(stream), read(stream), return_exceptions=True)

    told = [str(error) for error in asyncio.run(main()) if error is not None]
    assert told == ["another task is reading this stream"]


def test_a_stream_without_references_is_closed(gateway: str) -> None:
    """Without the garbage collector: a loop that is left without a reference closes its stream."""

    async def main() -> tuple[int, int]:
        async with AsyncCAPClient(gateway, "") as client:
            base = open_sockets()
            async for _ in client.chat(SLOW):
                during = open_sockets()
                break
            while open_sockets() > base:
                await asyncio.sleep(0)
            return base, during

    gc.disable()
    try:
        base, during = asyncio.run(asyncio.wait_for(main(), PATIENCE))
    finally:
        gc.enable()
    assert during == base + 1


LEAVING = {
    "by break": "asyncio.run(main())",
    "before the loop is closed": "loop.run_until_complete(main()); loop.close()",
    "after the loop is closed": (
        "kept = loop.run_until_complete(main()); loop.close(); del kept; gc.collect()"
    ),
    "in a loop that goes on": (
        "for _ in range(2): kept = loop.run_until_complete(main())\nloop.close()"
    ),
    "by an exception": "asyncio.run(fails())",
    "by the end of the program": "kept = loop.run_until_complete(main())",
}


@pytest.mark.parametrize("how", LEAVING)
def test_leaving_in_the_middle_leaves_nothing_behind(gateway: str, how: str) -> None:
    """No task, no warning, no log: the event loop does not know the iterator."""
    source = f"""
import asyncio, gc
from coreason_client import AsyncCAPClient
client = AsyncCAPClient({gateway!r}, '')
loop = asyncio.new_event_loop()
async def main():
    stream = client.chat({SLOW!r})
    items = aiter(stream)
    async for _ in items: break
    async for _ in client.chat({SLOW!r}): break
    assert len(asyncio.all_tasks()) == 1
    return items
async def fails():
    try:
        async for _ in client.chat({SLOW!r}): raise KeyError
    except KeyError:
        return
{LEAVING[how]}
{"" if "loop" in LEAVING[how] else "loop.close()"}
"""
    command = [
        sys.executable,
        "-X",
        "dev",
        "-W",
        "error",
        "-W",
        "ignore::ResourceWarning",
        "-c",
        source,
    ]
    done = subprocess.run(
        command, capture_output=True, timeout=PATIENCE, check=False, cwd=Path(__file__).parent
    )
    assert (done.returncode, done.stderr) == (0, b"")

"""Processes that fork, as gunicorn's `--preload`, Celery and multiprocessing do: what the parent
used stays its own, and the child's clients work.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from coreason_client import AsyncCAPClient, CAPClient

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    # Python warns of the threads that a parent has; what becomes of them is what these tests are
    # about.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

PATIENCE = 60.0
"""After this time a child counts as hanging."""
QUESTION = "/echo hello"
SLOW = "/tokens 100000 --delay 20ms"
REMEDY = "make a client in each process, after the fork"


def in_child(work: Callable[[], Any]) -> Any:
    """The result of `work` in a forked child, or its error as text."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(work())
        except BaseException as error:
            sender.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    try:
        assert receiver.poll(PATIENCE), "the child hangs"
        told = receiver.recv()
        child.join(PATIENCE)
        # It has dropped what it got from its parent, too.
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()
    return told


def ask(url: str) -> str:
    with CAPClient(url) as client:
        return client.chat(QUESTION).text()


def ask_async(url: str) -> str:
    async def main() -> str:
        async with AsyncCAPClient(url) as client:
            assert (await client.health())["status"] == "ok"
            return await client.chat(QUESTION).text()

    return asyncio.run(main())


def test_a_client_made_in_the_child_works_though_the_parent_uses_one(gateway: str) -> None:
    blocking, shared = CAPClient(gateway), AsyncCAPClient(gateway)

    async def main() -> list[str]:
        texts = [blocking.chat(QUESTION).text(), await shared.chat(QUESTION).text()]
        return [*texts, *(in_child(lambda ask=ask: ask(gateway)) for ask in (ask, ask_async))]

    texts = asyncio.run(main())
    assert texts[0] and len(set(texts)) == 1
    # The parent's are as they were.
    assert blocking.chat(QUESTION).text() == asyncio.run(text_of(shared)) == texts[0]
    blocking.close()
    asyncio.run(shared.close())


async def text_of(client: AsyncCAPClient) -> str:
    return await client.chat(QUESTION).text()


def test_a_client_that_was_not_used_may_cross(gateway: str) -> None:
    blocking, shared = CAPClient(gateway), AsyncCAPClient(gateway)
    assert (
        in_child(lambda: blocking.chat(QUESTION).text())
        == in_child(lambda: asyncio.run(text_of(shared)))
        != ""
    )


def test_a_client_that_was_used_says_what_to_do_instead(gateway: str) -> None:
    with CAPClient(gateway) as blocking:
        shared = AsyncCAPClient(gateway)
        assert blocking.chat(QUESTION).text() == asyncio.run(text_of(shared)) != ""
        for work in (
            lambda: blocking.chat(QUESTION).text(),
            blocking.health,
            lambda: asyncio.run(text_of(shared)),
            lambda: asyncio.run(shared.health()),
        ):
            told = in_child(work)
            assert told.startswith("RuntimeError: ") and REMEDY in told
        # What a child closes and drops is not its parent's.
        assert (
            in_child(blocking.close) is None
            and in_child(lambda: asyncio.run(shared.close())) is None
        )
        assert blocking.chat(QUESTION).text() == asyncio.run(text_of(shared)) != ""
        asyncio.run(shared.close())


def test_a_stream_that_has_begun_stays_with_its_parent(gateway: str) -> None:
    async def first(client: AsyncCAPClient) -> tuple[Any, Any]:
        stream = client.chat(SLOW)
        return stream, await anext(stream)

    async def more(stream: Any) -> list[str]:
        return [text async for text in stream]

    with CAPClient(gateway) as blocking:
        shared = AsyncCAPClient(gateway)
        stream = blocking.chat(SLOW)
        assert next(stream)
        told = in_child(lambda: list(stream))
        assert told.startswith("RuntimeError: ") and REMEDY in told
        twin, text = asyncio.run(first(shared))
        assert text
        told = in_child(lambda: asyncio.run(more(twin)))
        assert told.startswith("RuntimeError: ") and REMEDY in told
        # Closing it in the child closes nothing here.
        assert (
            in_child(stream.close) is None and in_child(lambda: asyncio.run(twin.close())) is None
        )
        assert next(stream)
        stream.close()
        asyncio.run(shared.close())


def test_children_of_children(gateway: str) -> None:
    def child() -> list[str]:
        return [ask_async(gateway), in_child(lambda: ask_async(gateway))]

    mine = ask_async(gateway)
    assert in_child(child) == [mine, mine]


PRELOADED = """
import asyncio, os, sys
from coreason_client import AsyncCAPClient, CAPClient
url = sys.argv[1]
async def text_of(client):
    return await client.chat("/echo hello").text()
blocking, shared = CAPClient(url), AsyncCAPClient(url)
stream = blocking.chat("/tokens 100000 --delay 20ms")
expected = next(stream), blocking.chat("/echo hello").text(), asyncio.run(text_of(shared))
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        assert asyncio.run(text_of(AsyncCAPClient(url))) == expected[2]
        # An ordinary end, with all that closes and drops: of its own, and of its parent's.
        sys.exit(0)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
assert next(stream) and asyncio.run(text_of(shared)) == expected[2]
"""


def test_a_plain_fork_ends_in_peace(gateway: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELOADED, gateway]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")

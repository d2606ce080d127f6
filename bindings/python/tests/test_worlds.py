"""A client with threads, event loops and signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from conftest import open_sockets, question
from coreason_client import AsyncCAPClient, CAPClient, CAPRuntimeError, ErrorSeverity, StreamOpCode

SLOW = "/tokens 100000 --delay 20ms"
SILENT = "/tokens 5 --delay 600000ms"
"""Longer than any test."""
PATIENCE = 60.0
"""After this time a test fails."""


def threads() -> int:
    """All threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def is_asleep(pid: int) -> bool:
    """Whether a process waits for something."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def settled(expected: int) -> bool:
    """Waits for the kernel, which removes a joined thread after a moment."""
    for _ in range(100):
        if threads() <= expected:
            return True
        time.sleep(0.01)
    return False


def test_no_thread_is_left_after_close(gateway: str) -> None:
    # In a process of its own: threads of earlier tests come to their end when they like.
    source = f"""
import asyncio, time
from pathlib import Path
from coreason_client import AsyncCAPClient, CAPClient
def threads():
    return len(list(Path('/proc/self/task').iterdir()))
def settled(expected):
    # The kernel takes a moment to forget a thread that was joined.
    for _ in range(100):
        if threads() == expected: return True
        time.sleep(0.01)
before = threads()
# A name is looked up in a thread.
with CAPClient({gateway.replace("127.0.0.1", "localhost")!r}, '') as client:
    client.chat('/tokens 2').text()
assert settled(before), 'after a blocking client'
async def main():
    async with AsyncCAPClient({gateway!r}, '') as client, AsyncCAPClient({gateway!r}, '') as other:
        await client.chat('/tokens 2').text()
        await other.chat('/tokens 2').text()
        return threads()
assert asyncio.run(main()) == before + 1, 'async clients share one worker'
assert settled(before), 'after async clients'
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=PATIENCE)


def test_closing_ends_what_other_threads_are_reading(gateway: str) -> None:
    before = threads()
    client = CAPClient(gateway, "")
    has_begun = threading.Event()

    def read() -> None:
        for _ in client.chat(SLOW):
            has_begun.set()

    reading = threading.Thread(target=read)
    reading.start()
    assert has_begun.wait(PATIENCE)
    client.close()
    reading.join(PATIENCE)
    assert not reading.is_alive()
    assert settled(before)
    with pytest.raises(RuntimeError, match="closed"):
        client.chat("Hi").text()


def test_threads_share_a_client(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        texts: list[str] = []
        workers = [
            threading.Thread(target=lambda: texts.append(client.chat("/tokens 50").text()))
            for _ in range(8)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
    assert len(texts) == 8 and len(set(texts)) == 1 and texts[0]


def test_the_interpreter_is_free_while_waiting(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        waiting = client.chat(SILENT)
        reading = threading.Thread(target=lambda: list(waiting))
        reading.start()
        assert client.chat("/tokens 50").text()
        assert reading.is_alive(), "the other thread still waits for its first token"
    reading.join(PATIENCE)
    assert not reading.is_alive()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_ctrl_c_interrupts_at_once(gateway: str, kind: str) -> None:
    program = {
        "sync": f"for _ in CAPClient(url, '').chat({SILENT!r}): pass",
        "async": "asyncio.run(go())",
    }[kind]
    source = f"""
import asyncio, signal, sys
from coreason_client import AsyncCAPClient, CAPClient
# Whoever started the suite may ignore the signal, as a shell does for what runs in the background;
# that is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
url = {gateway!r}
async def go():
    async for _ in AsyncCAPClient(url, '').chat({SILENT!r}): pass
print('up', flush=True)
{program}
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", source], **pipes) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            while not is_asleep(process.pid):
                os.sched_yield()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert b"KeyboardInterrupt" in errors, errors


def test_a_client_that_nobody_closed_does_not_hold_up_the_exit(gateway: str) -> None:
    source = f"""
import asyncio
from coreason_client import AsyncCAPClient
client = AsyncCAPClient({gateway!r}, '')
async def go():
    return await anext(client.chat({SLOW!r}))
assert asyncio.run(go())
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_exit_waits_for_the_thread_of_a_client_that_was_dropped(gateway: str) -> None:
    # The thread is in the middle of Python when the interpreter starts to go down.
    source = f"""
import asyncio, atexit, threading, time
from coreason_client import AsyncCAPClient
inside, leaving = threading.Event(), threading.Event()
atexit.register(leaving.set)
class Loop(asyncio.SelectorEventLoop):
    def call_soon_threadsafe(self, *args, **kwargs):
        handle = super().call_soon_threadsafe(*args, **kwargs)
        if has_begun and threading.current_thread() is not threading.main_thread():
            inside.set()
            leaving.wait()
            time.sleep(0.2)
        return handle
async def go():
    global has_begun
    async for _ in AsyncCAPClient({gateway!r}, '').chat({SLOW!r}):
        has_begun = True
        if inside.is_set():
            break
has_begun = False
loop = Loop()
loop.run_until_complete(go())
loop.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_cancelling_closes_the_connection(gateway: str) -> None:
    async def main() -> tuple[int, int]:
        async with AsyncCAPClient(gateway, "") as client:
            base = open_sockets()
            has_begun = asyncio.Event()

            async def read() -> None:
                async for _ in client.chat(SLOW):
                    has_begun.set()

            task = asyncio.create_task(read())
            await has_begun.wait()
            during = open_sockets()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(100):
                if open_sockets() <= base:
                    break
                await asyncio.sleep(0.02)
            return during - base, open_sockets() - base

    assert asyncio.run(main()) == (1, 0)


def test_a_stream_that_timed_out_is_over(gateway: str) -> None:
    async def main() -> list[str]:
        async with AsyncCAPClient(gateway, "") as client:
            stream = client.chat(SILENT)
            with pytest.raises(asyncio.TimeoutError):
                while True:
                    await asyncio.wait_for(anext(stream), 0.2)
            return [text async for text in stream]

    assert asyncio.run(main()) == []


def test_a_running_loop_takes_the_sync_client_too(gateway: str) -> None:
    """As in a notebook: the loop runs, and the cell is not async."""

    async def cell() -> str:
        with CAPClient(gateway, "") as client:
            return client.chat("/tokens 3").text()

    assert asyncio.run(cell())


def test_uvloop_works_the_same(gateway: str) -> None:
    async def main() -> list[str]:
        async with AsyncCAPClient(gateway, "") as client:
            return list(
                await asyncio.gather(*(client.chat("/tokens 40").text() for _ in range(10)))
            )

    texts = uvloop.run(main())
    assert len(set(texts)) == 1 and texts[0]


def test_one_client_serves_several_loops(gateway: str) -> None:
    client = AsyncCAPClient(gateway, "")

    async def ask() -> str:
        return await client.chat("/tokens 3").text()

    assert asyncio.run(ask()) == asyncio.run(ask()) != ""

    async def finish() -> None:
        await client.close()

    asyncio.run(finish())


class Counted:
    """Awaits an awaitable, and counts how often it suspended."""

    def __init__(self, awaited: Awaitable[Any]) -> None:
        self._awaited = awaited
        self.pauses = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaited.__await__()
        while True:
            try:
                pause = steps.send(None)
            except StopIteration as end:
                return end.value
            self.pauses += 1
            yield pause


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_buffered_packet_does_not_touch_the_loop(gateway: str, is_direct: bool) -> None:
    """Awaiting an available packet neither suspends nor schedules."""

    async def main() -> tuple[int, int]:
        async with AsyncCAPClient(gateway, "") as client:
            chat = client.chat("/tokens 500")
            await chat.text()
            # A replay comes in pieces of many packets.
            replay = client.attach(f"{chat.stream_id}:0")
            items, packets, pauses = replay if is_direct else aiter(replay), 0, 0
            while True:
                step = Counted(items.__anext__())
                try:
                    await step
                except StopAsyncIteration:
                    return packets, pauses
                packets += 1
                pauses += step.pauses

    packets, pauses = asyncio.run(main())
    assert packets == 501
    assert pauses < packets / 2


def test_other_tasks_run_beside_a_fast_stream(gateway: str) -> None:
    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with AsyncCAPClient(gateway, "") as client:
            beside = asyncio.create_task(tick())
            await client.chat("/tokens 20000").text()
            beside.cancel()
        return ticks

    assert asyncio.run(main()) > 10


def test_a_stream_outlives_its_client_variable(gateway: str) -> None:
    stream = CAPClient(gateway, "").chat("/tokens 5")
    gc.collect()
    assert stream.text()


def test_two_readers_of_one_stream_are_told(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        stream = client.chat(SLOW)
        next(stream)
        told: list[str] = []

        def read() -> None:
            try:
                while not told:
                    next(stream, None)
            except RuntimeError as error:
                told.append(str(error))

        reading = threading.Thread(target=read)
        reading.start()
        read()
        stream.close()
        reading.join(PATIENCE)
        assert not reading.is_alive()
    assert "another thread" in told[0]


def test_streams_are_context_managers_and_stop_works(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        with client.chat(SLOW) as stream:
            assert next(stream)
            assert stream.stream_id is not None
            client.stop(stream.stream_id)
            assert list(stream) is not None
            assert stream.reason == "cancelled"
        assert client.health()["status"] == "ok"
        cursor = stream.cursor
        assert cursor is not None and list(client.attach(cursor)) == []

    async def main() -> str | None:
        async with AsyncCAPClient(gateway, "") as client, client.chat(SLOW) as stream:
            await anext(stream)
            assert stream.stream_id is not None
            await client.stop(stream.stream_id)
            assert (await client.health())["status"] == "ok"
            await stream.text()
            return stream.reason

    assert asyncio.run(main()) == "cancelled"


def test_resets_raise_in_text_and_are_applied_in_the_whole(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        with pytest.raises(CAPRuntimeError) as reset:
            list(client.chat("/diverge"))
        assert reset.value.code == "stream_reset" and reset.value.partial_text is not None
        whole = client.chat("/diverge").text()
    assert whole and whole != reset.value.partial_text


def test_warnings_are_yielded_and_logged(gateway: str, caplog: pytest.LogCaptureFixture) -> None:
    with CAPClient(gateway, "") as client, caplog.at_level("WARNING", "coreason_client"):
        warnings = [
            packet.p
            for packet in client.assist(question("/warn"))
            if packet.op is StreamOpCode.ERROR
        ]
    assert [w.severity for w in warnings] == [ErrorSeverity.WARNING]
    (record,) = caplog.records
    assert (
        record.levelname == "WARNING"
        and record.getMessage()
        == f"the agent warns: WARNING {warnings[0].code}: " + (warnings[0].message)
    )


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("has_http", [False, True])
def test_warnings_are_logged_in_text_as_well(
    gateway: str, caplog: pytest.LogCaptureFixture, is_async: bool, has_http: bool
) -> None:
    async def aside() -> str:
        async with (
            httpx.AsyncClient() as http,
            AsyncCAPClient(gateway, http_client=http if has_http else None) as client,
        ):
            return await client.chat("/warn").text()

    with caplog.at_level("WARNING", "coreason_client"):
        if is_async:
            assert asyncio.run(aside())
        else:
            with (
                httpx.Client() as http,
                CAPClient(gateway, http_client=http if has_http else None) as client,
            ):
                assert client.chat("/warn").text()
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.getMessage().startswith(
        "the agent warns: WARNING "
    )


def test_both_profiles_tell_the_same(gateway: str) -> None:
    texts = []
    for profile in ("v1", "v2"):
        with CAPClient(gateway, "", profile=profile) as client:
            texts.append(client.chat("/echo What is a capstan?").text())
    assert texts[0] == texts[1] != ""

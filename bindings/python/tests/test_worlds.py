"""Threads, event loops, signals: what a client must live with."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coreason_client import AsyncCAPClient, CAPClient, CAPRuntimeError

SLOW = "/tokens 100000 --delay 20ms"


def threads() -> int:
    """The threads of this process, ours or anybody's."""
    return len(list(Path("/proc/self/task").iterdir()))


def settled(expected: int) -> bool:
    """The kernel takes a moment to forget a thread that was joined."""
    for _ in range(100):
        if threads() <= expected:
            return True
        time.sleep(0.01)
    return False


def test_no_thread_is_left_after_close(gateway: str) -> None:
    before = threads()
    host = gateway.replace("127.0.0.1", "localhost")  # a name is looked up in a thread
    with CAPClient(host, "") as client:
        client.chat("/tokens 2").text()
    assert settled(before)

    async def main() -> int:
        async with AsyncCAPClient(gateway, "") as client, AsyncCAPClient(gateway, "") as other:
            await client.chat("/tokens 2").text()
            await other.chat("/tokens 2").text()
            during = threads()
        return during

    during = asyncio.run(main())
    assert during == before + 1, "async clients share one worker"
    assert settled(before)


def test_closing_ends_what_other_threads_are_reading(gateway: str) -> None:
    before = threads()
    client = CAPClient(gateway, "")
    seen: list[str] = []
    reading = threading.Thread(target=lambda: seen.extend(client.chat(SLOW)))
    reading.start()
    time.sleep(0.3)
    started = time.monotonic()
    client.close()
    reading.join(5)
    assert not reading.is_alive() and seen and time.monotonic() - started < 2
    assert settled(before)
    with pytest.raises(RuntimeError, match="closed"):
        client.chat("Hi").text()


def test_threads_share_a_client(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        texts: list[str] = []
        workers = [threading.Thread(target=lambda: texts.append(client.chat("/tokens 50").text())) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
    assert len(texts) == 8 and len(set(texts)) == 1 and texts[0]


def test_the_interpreter_is_free_while_waiting(gateway: str) -> None:
    with CAPClient(gateway, "") as client:
        stream = client.chat("/tokens 3 --delay 300ms")
        counted = 0
        reading = threading.Thread(target=stream.text)
        reading.start()
        while reading.is_alive():
            counted += 1
            time.sleep(0.005)
    assert counted > 30


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_ctrl_c_interrupts_at_once(gateway: str, kind: str) -> None:
    program = {
        "sync": "for _ in CAPClient(url, '').chat('/tokens 5 --delay 60000ms'): pass",
        "async": "asyncio.run(go())",
    }[kind]
    source = f"""
import asyncio, sys
from coreason_client import AsyncCAPClient, CAPClient
url = {gateway!r}
async def go():
    async for _ in AsyncCAPClient(url, '').chat('/tokens 5 --delay 60000ms'): pass
print('up', flush=True)
{program}
"""
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(0.5)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(10)
    took = time.monotonic() - started
    errors = process.stderr.read().decode()
    process.stdout.close()
    process.stderr.close()
    assert "KeyboardInterrupt" in errors and took < 2, errors


def test_a_client_that_nobody_closed_does_not_hold_up_the_exit(gateway: str) -> None:
    source = f"""
import asyncio
from coreason_client import AsyncCAPClient
client = AsyncCAPClient({gateway!r}, '')
async def go():
    return await anext(client.chat({SLOW!r}))
assert asyncio.run(go())
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def open_sockets() -> int:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sum(link.startswith("socket:") for link in links)


def test_cancelling_closes_the_connection(gateway: str) -> None:
    async def main() -> tuple[int, int]:
        async with AsyncCAPClient(gateway, "") as client:
            base = open_sockets()

            async def read() -> None:
                async for _ in client.chat(SLOW):
                    pass

            task = asyncio.create_task(read())
            await asyncio.sleep(0.4)
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
            stream = client.chat("/tokens 5 --delay 60000ms")
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
    uvloop = pytest.importorskip("uvloop")

    async def main() -> list[str]:
        async with AsyncCAPClient(gateway, "") as client:
            return list(await asyncio.gather(*(client.chat("/tokens 40").text() for _ in range(10))))

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


def test_a_buffered_packet_does_not_touch_the_loop(gateway: str) -> None:
    """Awaiting what is there neither suspends nor schedules: driven by hand, it ends at the first step."""

    async def main() -> int:
        async with AsyncCAPClient(gateway, "") as client:
            stream = client.chat("/tokens 500")
            await anext(stream)
            await asyncio.sleep(0.5)
            at_once = 0
            while True:
                waiting = stream.__anext__()
                if type(waiting).__name__ != "Ready":
                    await waiting
                    return at_once
                with pytest.raises((StopIteration, StopAsyncIteration)) as stopped:
                    next(iter(waiting))
                if stopped.type is StopAsyncIteration:
                    return at_once
                at_once += 1

    assert asyncio.run(main()) >= 499


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
        reading = threading.Thread(target=lambda: list(stream))
        reading.start()
        time.sleep(0.2)
        with pytest.raises(RuntimeError, match="another thread"):
            for _ in range(100):
                next(stream)
        stream.close()
        reading.join(5)
        assert not reading.is_alive()


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
    from uuid import uuid4

    from coreason_client import AgentRequest, ErrorSeverity, ServiceRequest, SessionContext

    context = SessionContext(session_id=uuid4(), user_id="u")
    request = ServiceRequest(context=context, payload=AgentRequest(query="/warn"))
    with CAPClient(gateway, "") as client, caplog.at_level("WARNING", "coreason_client"):
        warnings = [packet.p for packet in client.assist(request) if packet.op == "ERROR"]
    assert [w.severity for w in warnings] == [ErrorSeverity.WARNING]
    assert len(caplog.records) == 1


def test_both_profiles_tell_the_same(gateway: str) -> None:
    texts = []
    for profile in ("v1", "v2"):
        with CAPClient(gateway, "", profile=profile) as client:
            texts.append(client.chat("What is a capstan?").text())
    assert texts[0] == texts[1] != ""

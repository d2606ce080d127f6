"""A hundred reconnects, the exact text, in both worlds and over the caller's own client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from conftest import QUICK, Chaos, question
from coreason_client import AsyncCAPClient, CAPClient, CAPConnectionError, StreamPacket

Make = Callable[..., Chaos]

TOKENS = "/tokens 3000"


@pytest.fixture(scope="module")
def whole(gateway: str) -> str:
    with CAPClient(gateway, "") as client:
        return client.chat(TOKENS).text()


def test_a_hundred_reconnects_give_the_exact_text_in_both_worlds(cutter: Make, whole: str) -> None:
    """Both at the same time."""
    here, there = cutter(after=6000, cuts=100), cutter(after=6000, cuts=100)

    async def aside() -> str:
        async with AsyncCAPClient(there.url, "", **QUICK) as client:
            return "".join([text async for text in client.chat(TOKENS)])

    with ThreadPoolExecutor(1) as pool, CAPClient(here.url, "", **QUICK) as client:
        other = pool.submit(asyncio.run, aside())
        assert "".join(client.chat(TOKENS)) == whole
        assert other.result() == whole
    assert (here.count("cuts"), there.count("cuts")) == (100, 100)


def test_chaos_at_its_harshest_changes_nothing(chaos: Make, gateway: str) -> None:
    """Cuts, stalls, refusals, repeats and early ends, by seed; sync and async, all at the same
    time.
    """

    def here(url: str) -> str:
        with CAPClient(url, "", max_retries=50, strict=True, **QUICK) as client:
            return client.chat("/tokens 60").text()

    async def aside(url: str) -> str:
        async with AsyncCAPClient(url, "", max_retries=50, strict=True, **QUICK) as client:
            return "".join([text async for text in client.chat("/tokens 60")])

    whole = here(gateway)
    # Ten times as fast as it would be otherwise: what is lost does not depend on how long it takes.
    fast = ["--stall-for", "10ms-200ms", "--delay-for", "5ms-50ms", "--throttle-to", "40000"]
    urls = [
        chaos("--brutal", *fast, "--faults", "20", "--seed", str(seed)).url for seed in range(8)
    ]
    with ThreadPoolExecutor(len(urls)) as pool:
        sync = [pool.submit(here, url) for url in urls[::2]]
        tasks = [pool.submit(asyncio.run, aside(url)) for url in urls[1::2]]
        assert {future.result() for future in [*sync, *tasks]} == {whole}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("has_http", [False, True])
def test_every_packet_comes_once_and_in_order(chaos: Make, is_async: bool, has_http: bool) -> None:
    """Each connection after the first begins with packets that came before."""
    proxy = chaos(
        "--seed",
        "1",
        "--cut",
        "--cut-after",
        "3",
        "--repeat",
        "--repeat-last",
        "3",
        "--faults",
        "10",
    )
    request = question("/tokens 30")

    async def aside() -> list[StreamPacket]:
        async with (
            httpx.AsyncClient() as http,
            AsyncCAPClient(
                proxy.url, "", strict=True, http_client=http if has_http else None, **QUICK
            ) as client,
        ):
            return [packet async for packet in client.assist(request)]

    if is_async:
        packets = asyncio.run(aside())
    else:
        with (
            httpx.Client() as http,
            CAPClient(
                proxy.url, "", strict=True, http_client=http if has_http else None, **QUICK
            ) as client,
        ):
            packets = list(client.assist(request))
    assert [packet.seq for packet in packets] == list(range(1, 32))
    assert "".join(packet.p for packet in packets[:-1]) == "".join(f"tok{n} " for n in range(1, 31))
    assert packets[-1].op == "CLOSE"
    assert proxy.count("repeats") > 0


def test_the_callers_own_client_heals_as_well(cutter: Make, whole: str) -> None:
    proxy = cutter(after=20000, cuts=10)
    with httpx.Client() as http, CAPClient(proxy.url, "", http_client=http, **QUICK) as client:
        assert client.chat(TOKENS).text() == whole
    assert proxy.count("cuts") == 10


def test_the_callers_own_async_client_heals_as_well(cutter: Make, whole: str) -> None:
    proxy = cutter(after=20000, cuts=10)

    async def main() -> str:
        async with (
            httpx.AsyncClient() as http,
            AsyncCAPClient(proxy.url, "", http_client=http, **QUICK) as client,
        ):
            return "".join([text async for text in await client.chat(TOKENS)])

    assert asyncio.run(main()) == whole
    assert proxy.count("cuts") == 10


@pytest.mark.parametrize("is_async", [False, True])
def test_a_drop_is_logged_in_the_rfcs_words(
    cutter: Make, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    proxy = cutter(after=2000, cuts=1)

    async def main() -> None:
        async with AsyncCAPClient(proxy.url, "", **QUICK) as client:
            await client.chat("/tokens 50").text()

    with caplog.at_level(logging.WARNING, "coreason_client"):
        if is_async:
            asyncio.run(main())
        else:
            with CAPClient(proxy.url, "", **QUICK) as client:
                client.chat("/tokens 50").text()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and record.name == "coreason_client"
    assert record.getMessage().startswith("Connection dropped. Retrying in 0.0 seconds")


@pytest.mark.parametrize(
    ("options", "retries"), [({}, 3), ({"max_retries": 2}, 2)], ids=["by default", "as asked"]
)
def test_what_never_holds_is_given_up(chaos: Make, options: dict[str, Any], retries: int) -> None:
    proxy = chaos("--cut", "--cut-at", "head")
    with CAPClient(proxy.url, "", **options, **QUICK) as client:
        for read in (lambda: client.chat("Hi").text(), lambda: list(client.assist(question("Hi")))):
            with pytest.raises(CAPConnectionError) as lost:
                read()
            assert lost.value.retries == retries
    assert proxy.count("cuts") == 2 * (1 + retries)

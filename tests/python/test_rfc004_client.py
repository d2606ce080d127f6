"""A client that follows RFC 004 to the letter gets the whole answer through any number of cuts."""

import asyncio

import httpx
import pytest
import rfc004_client
from cutting_proxy import CuttingProxy, after_bytes

TOKENS = 60
TEXT = "".join(f"tok{n} " for n in range(1, TOKENS + 1))
LIVE = f"/tokens {TOKENS} --delay 2ms"
# It is replayed from the start every time, so that every cut must come later than the one before.
# The steps are of no frame's length: most cuts fall inside a frame, the first ones into the head.
RULES = [after_bytes(count) for count in range(40, 11_000, 577)]


def no_sleep(_):
    pass


def assert_whole(packets):
    assert [p["seq"] for p in packets] == list(range(1, len(packets) + 1))
    assert "".join(p["p"] for p in packets if p["op"] == "DELTA") == TEXT
    assert [p["op"] for p in packets].count("CLOSE") == 1
    assert packets[-1]["op"] == "CLOSE"


def test_a_literal_client_is_healed_through_every_cut(gateway, http, ask):
    with CuttingProxy(gateway.port, RULES) as proxy:
        packets = list(rfc004_client.assist(http, f"{proxy.url}/assist", ask(LIVE), sleep=no_sleep))
    assert_whole(packets)
    assert proxy.cuts == len(RULES), "every cut took place"


def test_the_async_twin_is_healed_too(gateway, ask):
    async def run(url):
        sleep = lambda _: asyncio.sleep(0)  # noqa: E731
        async with httpx.AsyncClient(trust_env=False) as http:
            return [p async for p in rfc004_client.assist_async(http, url, ask(LIVE), sleep)]

    with CuttingProxy(gateway.port, RULES) as proxy:
        packets = asyncio.run(run(f"{proxy.url}/assist"))
    assert_whole(packets)
    assert proxy.cuts == len(RULES)


def test_all_its_attempts_are_one_run(gateway, http, ask):
    request = ask(LIVE)
    with CuttingProxy(gateway.port, RULES) as proxy:
        packets = list(rfc004_client.assist(http, f"{proxy.url}/assist", request, sleep=no_sleep))
    streams = http.get(f"{gateway.url}/v1/streams?limit=1000").json()["streams"]
    own = [s for s in streams if s["request_id"] == request["request_id"]]
    assert [(s["stream_id"], s["attempt"]) for s in own] == [(packets[0]["stream_id"], 1)]


def test_a_drop_is_waited_out_with_a_doubling_backoff(http, ask):
    waits = []
    with CuttingProxy(1, [after_bytes(0)] * 9) as proxy:  # Nothing answers on port 1.
        with pytest.raises(rfc004_client.CAPConnectionError):
            list(rfc004_client.assist(http, f"{proxy.url}/assist", ask("Hi"), sleep=waits.append))
    assert waits == [0.5, 1.0, 2.0]


def test_a_refusal_is_not_retried(gateway, http, ask):
    request = ask("/tokens 1") | {"context": None}
    with pytest.raises(rfc004_client.CAPRuntimeError, match="400"):
        list(rfc004_client.assist(http, f"{gateway.url}/assist", request, sleep=no_sleep))

"""The transports of `coreason_client.openai` below OpenAI's published SDK, against the real binary:
cut wherever it may be cut."""

import asyncio
import importlib.util
import os

import httpx2
import pytest
from conftest import ROOT
from cutting_proxy import CuttingProxy, after_frames
from openai import AsyncOpenAI, OpenAI

# A module of its own: what it is part of need not be built for this.
_spec = importlib.util.spec_from_file_location(
    "healing", ROOT / "bindings/python/python/coreason_client/openai.py"
)
healing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(healing)

IS_SOAK = "CAPSTAN_SOAK" in os.environ
# A response of /tokens 12 has so many frames: two before its item, two for it, its words, four at
# its end. A chat has a role and [DONE] instead.
FRAMES = {"responses": 20, "chat": 15}
ASKED = {
    "responses": ("/responses", {"input": "/tokens 12", "stream": True}),
    "chat": (
        "/chat/completions",
        {"messages": [{"role": "user", "content": "/tokens 12"}], "stream": True},
    ),
}


def cuts(face):
    last = FRAMES[face]
    return range(1, last) if IS_SOAK else (1, 2, 3, 7, last - 2, last - 1)


def rules(face):
    """Each answer is cut, and its resumed rest is cut once more."""
    return [
        rule
        for n in cuts(face)
        for rule in (after_frames(n), after_frames(n + 1 if face == "chat" else 1))
    ]


def no_wait(_):
    pass


async def no_wait_async(_):
    pass


def runs(gateway, http):
    return http.get(f"{gateway.url}/v1/streams", params={"limit": 1000}).json()["streams"]


def plain(event):
    """Removes values that differ between runs."""
    told = event.to_json()
    return [
        line
        for line in told.splitlines()
        if not any(
            f'"{name}":' in line
            for name in ("id", "item_id", "created", "created_at", "completed_at")
        )
    ]


def opened(client, face):
    body = ASKED[face][1]
    api = client.responses if face == "responses" else client.chat.completions
    return api.create(model="demo", **body)


@pytest.fixture(scope="module")
def whole(gateway):
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-local") as client:
        told = {face: [plain(event) for event in opened(client, face)] for face in ASKED}
    # The last frame of a chat is no event to the SDK.
    assert {face: len(events) + (face == "chat") for face, events in told.items()} == FRAMES
    return told


@pytest.mark.parametrize("face", ASKED)
def test_cuts_are_not_noticed_and_there_is_one_run(gateway, http, whole, face):
    before = len(runs(gateway, http))
    with CuttingProxy(gateway.port, rules(face)) as proxy:
        for n in cuts(face):
            transport = healing.HealingTransport(sleep=no_wait)
            with (
                httpx2.Client(transport=transport) as under,
                OpenAI(
                    base_url=f"{proxy.url}/v1", api_key="sk", max_retries=0, http_client=under
                ) as client,
            ):
                assert [plain(event) for event in opened(client, face)] == whole[face], (
                    f"cut after {n}"
                )
        assert proxy.cuts >= len(cuts(face))
    assert len(runs(gateway, http)) == before + len(cuts(face))


@pytest.mark.parametrize("face", ASKED)
def test_cuts_are_not_noticed_by_an_async_client_either(gateway, http, whole, face):
    async def read(url):
        transport = healing.AsyncHealingTransport(sleep=no_wait_async)
        async with (
            httpx2.AsyncClient(transport=transport) as under,
            AsyncOpenAI(
                base_url=f"{url}/v1", api_key="sk", max_retries=0, http_client=under
            ) as client,
        ):
            return [plain(event) async for event in await opened(client, face)]

    before = len(runs(gateway, http))
    with CuttingProxy(gateway.port, rules(face)) as proxy:
        for n in cuts(face):
            assert asyncio.run(read(proxy.url)) == whole[face], f"cut after {n}"
        assert proxy.cuts >= len(cuts(face))
    assert len(runs(gateway, http)) == before + len(cuts(face))


@pytest.mark.parametrize("face", ASKED)
def test_the_bytes_are_those_of_an_unbroken_connection(gateway, face):
    """Of one run, so that nothing differs: under one key, read whole and read through cuts."""
    path, body = ASKED[face]
    for n in cuts(face):
        headers = {"idempotency-key": f"bytes-{face}-{n}-{os.getpid()}"}
        unbroken = httpx2.post(f"{gateway.url}/v1{path}", json=body, headers=headers).content
        with (
            CuttingProxy(gateway.port, [after_frames(n)]) as proxy,
            httpx2.Client(transport=healing.HealingTransport(sleep=no_wait)) as client,
        ):
            assert (
                client.post(f"{proxy.url}/v1{path}", json=body, headers=headers).content == unbroken
            ), f"cut after {n}"
            assert proxy.cuts == 1

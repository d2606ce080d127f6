"""A generic SSE client that resumes by the last event id gets every packet exactly once."""

import json
import random

import pytest
from cutting_proxy import CuttingProxy, after_bytes, after_frames
from event_source import EventSource

TOKENS = 12


def start(gateway, http, request):
    """Starts a run and leaves at once; a disconnect is not a stop."""
    with http.stream("POST", f"{gateway.url}/v1/assist", json=request) as response:
        assert response.status_code == 200
        return response.headers["x-stream-id"]


def whole_body(gateway, http, request):
    """The frames of an uncut replay, without the opening."""
    body = http.post(f"{gateway.url}/v1/assist", json=request).content
    return body.partition(b"\n\n")[2]


@pytest.mark.parametrize("seed", range(5))
def test_it_gets_every_packet_once_wherever_it_is_cut(gateway, http, ask, seed):
    request = ask("/tokens 80 --delay 1ms")
    stream = start(gateway, http, request)
    chance = random.Random(seed)
    # Some end inside the head or a frame: such a connection brings nothing, and the next one goes
    # on as if it was not.
    rules = [after_bytes(chance.randrange(200, 1800)) for _ in range(30)]
    with CuttingProxy(gateway.port, rules) as proxy:
        source = EventSource(http, f"{proxy.url}/v1/streams/{stream}").run()
    assert [event_id for event_id, _, _ in source.events] == [
        f"{stream}:{seq}" for seq in range(1, 82)
    ]
    assert {event_type for _, event_type, _ in source.events} == {"stream.packet"}
    packets = [json.loads(data) for _, _, data in source.events]
    assert "".join(p["p"] for p in packets[:-1]) == "".join(f"tok{n} " for n in range(1, 81))
    assert source.frames == whole_body(gateway, http, request)
    assert proxy.cuts > 5 and source.connections > proxy.cuts, "it was cut, and stopped by 204"


@pytest.mark.parametrize("frames", range(1, TOKENS + 3))
def test_a_cut_after_any_frame_gives_the_same_bytes(gateway, http, ask, frames):
    """After 1 frame only the opening has arrived: an id, not a single packet. After the last one,
    CLOSE has."""
    request = ask(f"/tokens {TOKENS} --delay 1ms")
    stream = start(gateway, http, request)
    with CuttingProxy(gateway.port, [after_frames(frames)]) as proxy:
        source = EventSource(http, f"{proxy.url}/v1/streams/{stream}")
        source.connect()
        assert (proxy.cuts, source.last_event_id) == (1, f"{stream}:{frames - 1}")
        source.run()
    assert source.frames == whole_body(gateway, http, request)


@pytest.mark.parametrize("frames", range(1, TOKENS + 2))
def test_a_second_cut_after_every_frame_gives_the_same_bytes(gateway, http, ask, frames):
    """Every connection brings its opening and one packet; the last one is not cut."""
    request = ask(f"/tokens {TOKENS}")
    stream = start(gateway, http, request)
    with CuttingProxy(gateway.port, [after_frames(2)] * frames) as proxy:
        source = EventSource(http, f"{proxy.url}/v1/streams/{stream}").run()
    assert proxy.cuts == frames
    assert source.frames == whole_body(gateway, http, request)

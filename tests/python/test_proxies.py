"""Through every proxy of deploy/, over HTTP/1.1 and HTTP/2, a client sees what it would see without
one."""

import os
import ssl
import time
import uuid

import httpx
import pytest
from proxies import CERTIFICATE, GUARD, PROXIES, program

# Only a stop ends these. The first is at work, the second says nothing, the third waits for its
# client after some packets.
BUSY = "/tokens 1000000 --delay 2ms"
SILENT = "/hang"
WAITING = "/fault service_unavailable --retry-after 200"
TOKENS = 12


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request, gateway, tmp_path_factory):
    name = request.param
    if program(name) is None:
        missing = f"{name} is not installed"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    proxy = PROXIES[name](tmp_path_factory.mktemp(name), gateway.port)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module", params=["HTTP/1.1", "HTTP/2"])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def connect(version, proxy):
    """Makes a client of the proxy, which speaks TLS with it."""
    trusted = ssl.create_default_context(cafile=CERTIFICATE)
    is_2 = version == "HTTP/2"
    # It has a while for all that it does; only what never comes needs it.
    options = {
        "verify": trusted,
        "http1": not is_2,
        "http2": is_2,
        "trust_env": False,
        "timeout": GUARD,
    }
    return lambda: httpx.Client(base_url=proxy.url, **options)


@pytest.fixture(scope="module")
def web(version, connect):
    with connect() as client:
        assert client.get("/livez").http_version == version
        yield client


class Frames:
    """The frames of a streamed response, one at a time, as they come."""

    def __init__(self, response):
        self.chunks, self.buffer = response.iter_raw(), b""

    def next(self):
        while b"\n\n" not in self.buffer:
            self.buffer += next(self.chunks)
        frame, _, self.buffer = self.buffer.partition(b"\n\n")
        return frame + b"\n\n"

    def rest(self):
        return self.buffer + b"".join(self.chunks)


def stream_of(response):
    assert response.status_code == 200, response.read()
    return response.headers["x-stream-id"]


def cursor_of(frame):
    return next(line[4:].decode() for line in frame.split(b"\n") if line.startswith(b"id: "))


def metric(gateway, http, name):
    lines = http.get(f"{gateway.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"capstan_{name} "))


def wait_for(is_so, what):
    deadline = time.monotonic() + GUARD
    while not is_so():
        assert time.monotonic() < deadline, what


def test_packets_arrive_while_the_run_is_at_work(web, ask):
    with web.stream("POST", "/v1/assist", json=ask(BUSY)) as response:
        stream, frames = stream_of(response), Frames(response)
        for seq in range(6):
            assert cursor_of(frames.next()) == f"{stream}:{seq}"
        # Only now is it told to end.
        assert web.delete(f"/v1/streams/{stream}").status_code == 200
        assert b'"cancelled"' in frames.rest()


def test_nothing_is_held_back_until_more_comes(web, ask):
    asked = web.post("/v1/assist", json=ask(WAITING))
    stream = stream_of(asked)
    count = asked.content.count(b"\n\n")
    with web.stream("GET", f"/v1/streams/{stream}") as response:
        frames = Frames(response)
        assert b"".join(frames.next() for _ in range(count)) == asked.content
        assert web.delete(f"/v1/streams/{stream}").status_code == 200
        assert b'"op":"CLOSE"' in frames.rest()


def test_a_resume_gives_the_same_bytes(gateway, http, web, ask):
    request = ask(f"/tokens {TOKENS}")
    direct = http.post(f"{gateway.url}/v1/assist", json=request)
    path, whole = f"/v1/streams/{stream_of(direct)}", direct.content
    assert web.get(path).content == whole
    for count in range(1, TOKENS + 2):
        with web.stream("GET", path) as response:
            frames = Frames(response)
            body = b"".join(frames.next() for _ in range(count))
        cursor = {"Last-Event-ID": cursor_of(body[body.rindex(b"id: ") :])}
        for again in (
            web.get(path, headers=cursor),
            web.post("/v1/assist", json=request, headers=cursor),
        ):
            assert body + again.content.partition(b"\n\n")[2] == whole


def test_the_head_of_a_response_survives(web, ask):
    headers = {"X-Request-ID": "trace-1", "Accept-Encoding": "gzip, deflate, br, zstd"}
    response = web.post("/v1/assist", json=ask("/tokens 200"), headers=headers)
    stream_of(response)
    expected = {
        "content-type": "text/event-stream",
        "cache-control": "no-store, no-transform",
        "x-accel-buffering": "no",
        "x-request-id": "trace-1",
        "x-content-type-options": "nosniff",
    }
    assert {name: response.headers.get(name) for name in expected} == expected
    assert "content-encoding" not in response.headers
    assert b"tok200 " in response.content


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "status, method, path, what",
    [
        (400, "POST", "/v1/assist", {"content": b"{", "headers": JSON}),
        (404, "GET", f"/v1/streams/{uuid.uuid4()}", {}),
        (404, "GET", "/no/such/route", {}),
        (405, "PUT", "/v1/assist", {}),
        (
            410,
            "POST",
            "/v1/assist",
            {"text": "Hi", "headers": {"Last-Event-ID": f"{uuid.uuid4()}:1"}},
        ),
        (413, "POST", "/v1/assist", {"content": b" " * (4 * 1024 * 1024 + 1), "headers": JSON}),
        (415, "POST", "/v1/assist", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}),
        # Failures of a run, asked for as one object. Some proxies have pages of their own for
        # these.
        (429, "POST", "/v1/assist", {"text": "/fault rate_limit_exceeded --retry-after 7"}),
        (500, "POST", "/v1/assist", {"text": "/fault agent_execution_error"}),
        (502, "POST", "/v1/assist", {"text": "/fault upstream_error"}),
        (503, "POST", "/v1/assist", {"text": "/fault service_unavailable --retry-after 7"}),
        (504, "POST", "/v1/assist", {"text": "/fault upstream_timeout"}),
    ],
)
def test_a_refusal_arrives_as_it_was_told(gateway, http, web, ask, status, method, path, what):
    headers = {"X-Request-ID": "trace-2", "Accept": "application/json"} | what.get("headers", {})
    # A fresh key each time: with the same one the second would attach to the first one's run.
    body = lambda: (
        {"json": ask(what["text"])} if "text" in what else {"content": what.get("content", b"")}
    )  # noqa: E731
    direct = http.request(method, f"{gateway.url}{path}", headers=headers, **body())
    response = web.request(method, path, headers=headers, **body())
    assert (response.status_code, direct.status_code) == (status, status)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers.get("retry-after") == direct.headers.get("retry-after")
    assert response.content == direct.content


def test_a_viewer_that_leaves_is_let_go_and_its_run_goes_on(gateway, http, web, connect, ask):
    before = metric(gateway, http, "active_readers")
    with connect() as viewer, viewer.stream("POST", "/v1/assist", json=ask(SILENT)) as response:
        stream = stream_of(response)
        Frames(response).next()
    wait_for(lambda: metric(gateway, http, "active_readers") == before, "the viewer is still there")
    with web.stream("GET", f"/v1/streams/{stream}") as response:
        frames = Frames(response)
        assert cursor_of(frames.next()) == f"{stream}:0"
        assert web.delete(f"/v1/streams/{stream}").status_code == 200
        assert b'"cancelled"' in frames.next()


def test_numbers_are_not_for_the_world(web):
    assert web.get("/metrics").status_code == 404


def test_a_server_without_tenants_sees_the_name_it_was_called_by(web):
    response = web.get("/v1/streams", headers={"Host": "capstan.example.com"})
    assert (response.status_code, response.json()["code"]) == (403, "tenant_unauthorized")

"""RFC 004, section 3.2, taken at its word: what a client does that has read the RFC and nothing
else.

It knows nothing of cursors: it sends the bare stream id, is replayed from the start, and drops
repeats by seq. `sleep` is passed in, so that a test or a bench does not have to wait.
"""

import json
import time

import httpx

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
MEMBERS = {"stream_id", "seq", "op", "t", "p"}
# `ChunkedEncodingError` is another library's name; httpx says RemoteProtocolError when a body
# breaks off.
DROPS = (httpx.StreamError, httpx.NetworkError, httpx.RemoteProtocolError)


class CAPError(Exception):
    """Anything that this client raises."""


class CAPConnectionError(CAPError):
    """The retries are used up."""


class CAPProtocolError(CAPError):
    """The server sent what is not a packet."""


class CAPRuntimeError(CAPError):
    """The server refused, or sent an ERROR packet."""


def parse(line):
    """The packet of a `data:` line; None for any other line."""
    if not line.startswith("data:"):
        return None
    packet = json.loads(line[5:])
    if set(packet) != MEMBERS or packet["op"] not in ("DELTA", "EVENT", "ERROR", "CLOSE"):
        raise CAPProtocolError(line)
    return packet


class Session:
    """The state between connections, shared by the blocking and the async client."""

    def __init__(self, request, max_retries):
        self.body = json.dumps(request).encode()
        self.request_id = request["request_id"]
        self.last_id, self.last_seq, self.is_closed = None, -1, False
        self.backoff, self.retries, self.max_retries = FIRST_BACKOFF, 0, max_retries

    def headers(self):
        own = {"Content-Type": "application/json", "X-Request-ID": self.request_id}
        return own if self.last_id is None else own | {"Last-Event-ID": self.last_id}

    def connected(self, response):
        if response.status_code != 200:
            raise CAPRuntimeError(response.status_code)
        self.backoff, self.retries = FIRST_BACKOFF, 0

    def take(self, line):
        """A packet that is new, or None."""
        packet = parse(line)
        if packet is None or packet["seq"] <= self.last_seq:
            return None
        self.last_seq, self.last_id = packet["seq"], packet["stream_id"]
        self.is_closed = packet["op"] == "CLOSE"
        return packet

    def dropped(self):
        """How long to sleep before the next attempt."""
        if self.retries == self.max_retries:
            raise CAPConnectionError(f"{self.retries} retries")
        wait, self.backoff, self.retries = (
            self.backoff,
            min(self.backoff * 2, LONGEST_BACKOFF),
            self.retries + 1,
        )
        return wait


def assist(http, url, request, max_retries=3, sleep=time.sleep):
    """Yields every packet once, whatever happens to the connection."""
    session = Session(request, max_retries)
    while not session.is_closed:
        try:
            with http.stream(
                "POST", url, content=session.body, headers=session.headers()
            ) as response:
                session.connected(response)
                for line in response.iter_lines():
                    if packet := session.take(line):
                        yield packet
                    if session.is_closed:
                        return
        except DROPS:
            pass
        sleep(session.dropped())


async def assist_async(http, url, request, sleep, max_retries=3):
    """The same over an `httpx.AsyncClient`."""
    session = Session(request, max_retries)
    while not session.is_closed:
        try:
            async with http.stream(
                "POST", url, content=session.body, headers=session.headers()
            ) as response:
                session.connected(response)
                async for line in response.aiter_lines():
                    if packet := session.take(line):
                        yield packet
                    if session.is_closed:
                        return
        except DROPS:
            pass
        await sleep(session.dropped())

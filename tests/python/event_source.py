"""A generic SSE client, as the WHATWG describes EventSource: it keeps the last event id and comes
back with it.

It knows nothing of CAP. It stops when the server answers 204. Beside the events it keeps the bytes
of whole frames, so that a test can compare them.
"""

import re

import httpx

BROKEN = (httpx.StreamError, httpx.NetworkError, httpx.RemoteProtocolError)


class EventSource:
    def __init__(self, http, url):
        self.http, self.url = http, url
        self.last_event_id = ""
        self.events = []  # (id, type, data)
        self.frames = b""  # whole frames as they came, those without data left out
        self.connections = 0

    def run(self):
        """Reads until the server reports the end."""
        while self.connect():
            pass
        return self

    def connect(self):
        """Reads one connection. Returns False at the server's end of the stream."""
        self.connections += 1
        headers = {"Accept": "text/event-stream", "Last-Event-ID": self.last_event_id}
        buffer = b""
        try:
            with self.http.stream("GET", self.url, headers=headers) as response:
                if response.status_code == 204:
                    return False
                assert response.status_code == 200, response.status_code
                for chunk in response.iter_bytes():
                    *frames, buffer = (buffer + chunk).split(b"\n\n")
                    for frame in frames:
                        self.dispatch(frame + b"\n\n")
        except BROKEN:
            pass  # What is left in the buffer is half a frame: it is dropped, as the standard says.
        return True

    def dispatch(self, frame):
        event_type, data, event_id = "message", [], self.last_event_id
        for line in re.split("\r\n|\n|\r", frame.decode()):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                event_type = value
            elif name == "data":
                data.append(value)
            elif name == "id" and "\0" not in value:
                event_id = value
        # The id counts even if there is no data, and so no event.
        self.last_event_id = event_id
        if data:
            self.events.append((event_id, event_type, "\n".join(data)))
            self.frames += frame

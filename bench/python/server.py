"""Answers every POST with the same stream, as fast as the socket takes it: what is measured is the clients.

The frames are written by the package's own pen, which is the gateway's encoder. It prints its port.
"""

from __future__ import annotations

import socket
import sys
import threading

from coreason_client._core import Pen

WORDS = ["You ", "turn ", "the ", "capstan ", "by ", "its ", "bars ", "and ", "the ", "anchor ", "comes ", "up. "]
CITATION = {"source_id": "s", "uri": "https://example.org/a", "title": "A", "snippet": "…", "confidence": 0.9}
EVENT = {
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "timestamp": "2026-02-03T10:15:37Z",
    "type": "CITATION_BLOCK",
    "data": {"citations": [CITATION]},
}


def body(packets: int, events_every: int) -> bytes:
    pen = Pen()
    frames = [pen.opening()]
    for n in range(packets - 1):
        is_event = events_every and n % events_every == events_every - 1
        frames.append(pen.packet("EVENT", EVENT) if is_event else pen.delta(WORDS[n % len(WORDS)]))
    frames.append(pen.close("completed"))
    return b"".join(frames)


def response(packets: int, events_every: int, chunk: int) -> bytes:
    whole = body(packets, events_every)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = [whole[at : at + chunk] for at in range(0, len(whole), chunk)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def serve(client: socket.socket, answer: bytes) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pending = b""
    try:
        while data := client.recv(65536):
            pending += data
            head, found, rest = pending.partition(b"\r\n\r\n")
            if not found:
                continue
            length = next((int(h[15:]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")), 0)
            if len(rest) >= length:
                pending = rest[length:]
                client.sendall(answer)
    except OSError:
        pass
    client.close()


def main() -> None:
    answer = response(*map(int, sys.argv[1:4]))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, answer), daemon=True).start()


main()

"""Answers every POST with the same stream, as fast as the socket takes it: what is measured is the
clients.

The frames are those that the gateway writes. It prints its port.
"""

from __future__ import annotations

import json
import socket
import sys
import threading

STREAM = "01a1ec05-486f-7464-be15-da6f3a13a349"
WORDS = [
    "You ",
    "turn ",
    "the ",
    "capstan ",
    "by ",
    "its ",
    "bars ",
    "and ",
    "the ",
    "anchor ",
    "comes ",
    "up. ",
]
CITATION = {
    "source_id": "s",
    "uri": "https://example.org/a",
    "title": "A",
    "snippet": "…",
    "confidence": 0.9,
}
EVENT = {
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "timestamp": "2026-02-03T10:15:37Z",
    "type": "CITATION_BLOCK",
    "data": {"citations": [CITATION]},
}


def frame(seq: int, op: str, payload: object) -> str:
    packet = {
        "stream_id": STREAM,
        "seq": seq,
        "op": op,
        "t": f"2026-11-18T00:18:51.{seq:06}Z",
        "p": payload,
    }
    data = json.dumps(packet, ensure_ascii=False, separators=(",", ":"))
    return f"event: stream.packet\nid: {STREAM}:{seq}\ndata: {data}\n\n"


def body(packets: int, events_every: int) -> bytes:
    frames = [f"retry: 500\nid: {STREAM}:0\n\n"]
    for n in range(packets - 1):
        is_event = events_every and n % events_every == events_every - 1
        op, payload = ("EVENT", EVENT) if is_event else ("DELTA", WORDS[n % len(WORDS)])
        frames.append(frame(n + 1, op, payload))
    frames.append(frame(packets, "CLOSE", {"reason": "completed"}))
    return "".join(frames).encode()


def response(packets: int, events_every: int, chunk: int) -> bytes:
    whole = body(packets, events_every)
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
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
            length = next(
                (
                    int(h[15:])
                    for h in head.lower().split(b"\r\n")
                    if h.startswith(b"content-length:")
                ),
                0,
            )
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

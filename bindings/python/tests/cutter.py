"""A TCP proxy that cuts responses after a number of bytes.

`Cutter(url, after=…, cuts=…)` is all that the tests know of it, so that another proxy can take its place.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Cutter:
    """Forwards to `upstream`; cuts each of the first `cuts` connections after `after` bytes of response."""

    def __init__(self, upstream: str, *, after: int = 4000, cuts: int = 1) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._after = after
        self._left = cuts
        self.cuts = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            is_cut, self._left = self._left > 0, self._left - 1
        server = socket.create_connection(self._upstream)
        threading.Thread(target=_copy, args=(client, server), daemon=True).start()
        done = _copy(server, client, self._after if is_cut else None)
        if done:
            with self._lock:
                self.cuts += 1
        for side in (client, server):
            # Reset rather than close: the client must see a broken body, not an end.
            with contextlib.suppress(OSError):
                if done:
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                side.shutdown(socket.SHUT_RDWR)
            side.close()


def _copy(source: socket.socket, sink: socket.socket, limit: int | None = None) -> bool:
    """Copies until the end; true if it stopped at the limit."""
    copied = 0
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if limit is not None and copied + len(data) >= limit:
                sink.sendall(data[: limit - copied])
                return True
            sink.sendall(data)
            copied += len(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
    return False

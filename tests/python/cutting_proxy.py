"""A TCP proxy that cuts connections on purpose.

Each connection gets the next rule: a function that sees all bytes the server has sent so far and
returns how many of them the client may have, or None while the connection may go on.
"""

import select
import socket
import struct
import threading


def after_bytes(count):
    return lambda sent: count if len(sent) >= count else None


def after_frames(count):
    """Right after the count-th blank line of the body. The head ends in CR LF, so it has none."""

    def rule(sent):
        end = -1
        for _ in range(count):
            end = sent.find(b"\n\n", end + 1)
            if end < 0:
                return None
        return end + 2

    return rule


class CuttingProxy:
    def __init__(self, server_port, rules):
        self.server_port = server_port
        self.rules = iter(rules)
        self.cuts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Wakes the thread that waits in accept.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self.serve, args=(client, next(self.rules, None)), daemon=True
            ).start()

    def serve(self, client, rule):
        with client:
            try:
                with socket.create_connection(("127.0.0.1", self.server_port)) as server:
                    self.relay(client, server, rule)
            except OSError:
                pass  # Whoever is gone is gone; the other side is closed with it.

    def relay(self, client, server, rule):
        """Both directions in one thread: a socket that another thread reads from would stay open
        after the cut."""
        sent = b""
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if client in ready:
                if not (chunk := client.recv(65536)):
                    return
                server.sendall(chunk)
            if server in ready:
                if not (chunk := server.recv(65536)):
                    return
                seen, sent = len(sent), sent + chunk
                end = rule(sent) if rule else None
                # Counted before the client has what it may be waiting for.
                self.cuts += end is not None
                client.sendall(sent[seen:end])
                if end is not None:
                    return self.cut(client)

    def cut(self, client):
        # Every other cut is a reset, as a crash makes them; the rest are plain ends.
        if self.cuts % 2 == 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

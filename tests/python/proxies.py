"""The proxies of deploy/, each started with the very file that stands there.

An operator changes names, ports and certificates in such a file, and so does this: every text to be
replaced stands in it exactly once.
"""

import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
TLS = ROOT / "crates/capstan/tests/it/serve/tls"
CERTIFICATE, KEY = TLS / "one.cert.pem", TLS / "one.key.pem"
UPSTREAM = "127.0.0.1:8787"
# Only a proxy that never listens needs the guard.
GUARD = 30


class Proxy:
    """A proxy in a folder of its own, between a free port and the server's."""

    file = ""

    def __init__(self, folder, server_port):
        self.folder = folder
        self.port = free_port()
        self.url = f"https://localhost:{self.port}"
        changes = self.changes(f"127.0.0.1:{server_port}")
        config = self.write(self.file, replaced((ROOT / "deploy" / self.file).read_text(), changes))
        self.log = open(folder / "log", "w+")
        # Nothing of this machine's settings; Caddy keeps things at home.
        env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        self.process = subprocess.Popen(
            self.command(config), cwd=folder, env=env, stdout=self.log, stderr=self.log
        )
        self.wait_until_it_listens()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def wait_until_it_listens(self):
        deadline = time.monotonic() + GUARD
        while time.monotonic() < deadline:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                pass
            try:
                self.process.wait(0.01)
                break
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        raise RuntimeError(f"{self.file}: it does not listen\n{self.told()}")

    def told(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Nginx(Proxy):
    file = "nginx.conf"

    def changes(self, server):
        return {
            f"server {UPSTREAM};": f"server {server};",
            "listen 443 ssl http2;": f"listen 127.0.0.1:{self.port} ssl http2;",
            "server_name capstan.example.com;": "server_name localhost;",
            "/etc/ssl/capstan/fullchain.pem": str(CERTIFICATE),
            "/etc/ssl/capstan/privkey.pem": str(KEY),
            "/var/log/nginx/capstan.log": str(self.folder / "access.log"),
        }

    def command(self, config):
        # The file is part of nginx's own; everything that it would write elsewhere goes to the
        # folder.
        kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        temporary = "".join(f"{kind}_temp_path {kind};\n" for kind in kinds)
        main = (
            "user root; daemon off; worker_processes 1; pid pid; error_log stderr;\n"
            f"events {{ worker_connections 256; }}\nhttp {{ {temporary} include {config}; }}\n"
        )
        path = self.write("main.conf", main)
        return [program("nginx"), "-p", self.folder, "-c", path, "-e", "stderr"]


class Caddy(Proxy):
    file = "Caddyfile"

    def changes(self, server):
        return {
            f"reverse_proxy {UPSTREAM} {{": f"reverse_proxy {server} {{",
            "capstan.example.com {": (
                f"{self.url}, https://capstan.example.com:{self.port} "
                f"{{\n\tbind 127.0.0.1\n\ttls {CERTIFICATE} {KEY}"
            ),
            # No port for administration or redirects, no authority of its own, and by no means one
            # that this machine trusts.
            "grace_period 30s": (
                "grace_period 30s\n\tadmin off\n\tauto_https off\n\tskip_install_trust"
            ),
        }

    def command(self, config):
        return [program("caddy"), "run", "--config", config, "--adapter", "caddyfile"]


class Haproxy(Proxy):
    file = "haproxy.cfg"

    def changes(self, server):
        both = self.write("capstan.pem", CERTIFICATE.read_text() + KEY.read_text())
        return {
            f"server capstan {UPSTREAM}": f"server capstan {server}",
            "bind :443": f"bind 127.0.0.1:{self.port}",
            "/etc/haproxy/capstan.pem": str(both),
            # It refuses to start with fewer open files than it may need.
            "maxconn 20000": "maxconn 100",
        }

    def command(self, config):
        return [program("haproxy"), "-db", "-f", config]


class Envoy(Proxy):
    file = "envoy.yaml"

    def changes(self, server):
        host, port = server.split(":")
        return {
            "{ address: 127.0.0.1, port_value: 8787 }": (
                f"{{ address: {host}, port_value: {port} }}"
            ),
            "{ address: 0.0.0.0, port_value: 443 }": (
                f"{{ address: 127.0.0.1, port_value: {self.port} }}"
            ),
            "/etc/envoy/fullchain.pem": str(CERTIFICATE),
            "/etc/envoy/privkey.pem": str(KEY),
        }

    def command(self, config):
        # Without shared memory, through which two of them on one machine would meet.
        return [program("envoy"), "-c", config, "--disable-hot-restart", "--concurrency", "1"]


PROXIES = {"nginx": Nginx, "caddy": Caddy, "haproxy": Haproxy, "envoy": Envoy}


def program(name):
    """Where a program is, the ones of this Python's packages included."""
    path = os.pathsep.join(
        [str(pathlib.Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
    )
    return shutil.which(name, path=path)


def replaced(text, changes):
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} stands in it {text.count(old)} times"
        text = text.replace(old, new)
    return text


def free_port():
    """Below the range that the kernel hands out, so that no other server of the suites gets it
    meanwhile."""
    while True:
        try:
            with socket.create_server(("127.0.0.1", random.randrange(10_000, 30_000))) as listener:
                return listener.getsockname()[1]
        except OSError:
            continue

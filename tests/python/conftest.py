"""The real binary with a journal in a folder of its own, and requests for it."""

import os
import pathlib
import re
import signal
import subprocess
import uuid

import httpx
import pytest

ROOT = pathlib.Path(__file__).parents[2]
# The clients here make contexts of TLS by the dozen; to read all authorities for each would take
# longer than most tests.
os.environ["SSL_CERT_FILE"] = str(ROOT / "crates/capstan/tests/it/serve/tls/one.cert.pem")
# The demo says all that it has to say at once, and tries again at once.
AT_ONCE = '[[agents]]\nname = "demo"\nkind = "demo"\ndelay = 0\n\n[timeouts]\nbackoff = 0.01\n'
BINARY = pathlib.Path(os.environ.get("CAPSTAN_BIN", ROOT / "target/debug/capstan"))


class Gateway:
    def __init__(self, folder, config="", env=None):
        if not BINARY.exists():
            pytest.exit(
                f"{BINARY} is missing; `cargo build --package capstan` makes it", returncode=1
            )
        command = [
            BINARY,
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--journal",
            f"disk:{folder}/journal",
        ]
        # Nothing of this machine's settings: neither its environment nor its capstan.toml.
        if config:
            (folder / "capstan.toml").write_text(config)
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen(
            command, cwd=folder, env=env or {}, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline()
        self.url = re.search(r"listening on (http://[^,\s]+)", line)[1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()
        self.log.seek(0)
        assert self.process.returncode == 0, self.log.read()


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), AT_ONCE)
    yield gateway
    gateway.stop()


@pytest.fixture
def http():
    # It speaks plain HTTP; to read the certificates of all authorities would take longer than most
    # tests.
    with httpx.Client(trust_env=False, verify=False) as client:
        yield client


@pytest.fixture
def ask():
    return service_request


def service_request(text):
    """A ServiceRequest (profile v1) with a fresh key."""
    new = lambda: str(uuid.uuid4())  # noqa: E731
    session = new()
    context = {
        "session_id": session,
        "agent_id": new(),
        "user": {"user_id": "u", "tier": "free", "locale": "en-US"},
        "trace": {"trace_id": new(), "span_id": new()},
        "permissions": [],
        "created_at": "2026-01-01T00:00:00Z",
    }
    return {
        "request_id": new(),
        "context": context,
        "payload": {"session_id": session, "payload": {"query": text}},
    }

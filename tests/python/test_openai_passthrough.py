"""OpenAI's published SDK on the routes that are no runs: they reach the provider of an agent that
passes them on, and say how to switch that on where none does."""

import base64
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest
from conftest import Gateway
from openai import OpenAI

FILE = {
    "id": "file-1",
    "object": "file",
    "bytes": 3,
    "created_at": 1,
    "filename": "a.txt",
    "purpose": "assistants",
    "status": "processed",
}
VECTOR = base64.b64encode(struct.pack("<2f", 0.5, -1.0)).decode()
ANSWERS = {
    ("POST", "/v1/embeddings"): {
        "object": "list",
        "model": "text-embedding-3-small",
        "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    },
    ("POST", "/v1/moderations"): {"id": "modr-1", "model": "m", "results": []},
    ("POST", "/v1/images/generations"): {"created": 1, "data": [{"b64_json": "AAAA"}]},
    ("POST", "/v1/audio/transcriptions"): {"text": "Hello."},
    ("POST", "/v1/files"): FILE,
    ("GET", "/v1/files/file-1"): FILE,
    ("GET", "/v1/files"): {"object": "list", "data": [FILE], "has_more": False},
    ("DELETE", "/v1/files/file-1"): {"id": "file-1", "object": "file", "deleted": True},
}
PIECE = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self.server.seen.append((self.headers, body))
        kind = "application/json"
        if self.path == "/v1/completions":
            pieces = [{**PIECE, "choices": [{"index": 0, "text": text}]} for text in ("a", "b")]
            told = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
            kind, told = "text/event-stream", f"{told}data: [DONE]\n\n".encode()
        elif self.path in ("/v1/audio/speech", "/v1/files/file-1/content"):
            kind, told = "audio/mpeg", bytes(range(256)) * 1000
        else:
            told = json.dumps(ANSWERS[self.command, self.path]).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def client(provider, tmp_path_factory):
    groups = ["audio", "completions", "embeddings", "files", "images", "moderations"]
    config = f"""
[[agents]]
name = "gpt"
kind = "openai"
model = "gpt-5-mini"
url = "http://127.0.0.1:{provider.server_port}/v1"
key_env = "THEIR_KEY"
passthrough = {json.dumps(groups)}
"""
    folder = tmp_path_factory.mktemp("passthrough")
    gateway = Gateway(folder, config, {"THEIR_KEY": "sk-theirs"})
    yield OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-mine", max_retries=0)
    gateway.stop()


def test_every_group_answers_as_the_provider_does(client, provider):
    embedded = client.embeddings.create(model="text-embedding-3-small", input="a")
    assert embedded.data[0].embedding == [0.5, -1.0]
    assert client.moderations.create(input="a").id == "modr-1"
    assert client.images.generate(prompt="a").data[0].b64_json == "AAAA"
    spoken = client.audio.speech.create(model="tts-1", voice="alloy", input="a")
    assert spoken.read() == bytes(range(256)) * 1000
    heard = client.audio.transcriptions.create(model="whisper-1", file=("a.mp3", b"\0" * 200_000))
    assert heard.text == "Hello."
    stream = client.completions.create(model="m", prompt="a", stream=True)
    assert [piece.choices[0].text for piece in stream] == ["a", "b"]
    for headers, _ in provider.seen:
        assert headers["authorization"] == "Bearer sk-theirs"
        assert "sk-mine" not in str(headers)


def test_files_go_up_and_come_down(client, provider):
    content = bytes(range(256)) * 40_000
    assert client.files.create(file=("a.bin", content), purpose="assistants").id == "file-1"
    assert content in provider.seen[-1][1]
    assert client.files.retrieve("file-1").filename == "a.txt"
    assert [file.id for file in client.files.list()] == ["file-1"]
    assert client.files.content("file-1").read() == bytes(range(256)) * 1000
    assert client.files.delete("file-1").deleted


def test_an_agents_name_becomes_its_model(client, provider):
    client.embeddings.create(model="gpt", input="a")
    assert json.loads(provider.seen[-1][1])["model"] == "gpt-5-mini"


def test_without_it_the_404_says_how_to_switch_it_on(gateway):
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-local", max_retries=0)
    for group, ask in [
        ("embeddings", lambda: client.embeddings.create(model="m", input="a")),
        ("moderations", lambda: client.moderations.create(input="a")),
        ("files", lambda: client.files.list()),
    ]:
        with pytest.raises(openai.NotFoundError, match=rf'passthrough = \["{group}"\]'):
            ask()

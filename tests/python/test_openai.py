"""OpenAI's published SDK against the real binary, its retries on: answers, failures by class, cuts,
start once."""

import hashlib
import json
import queue
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import openai
import pytest
from conftest import BINARY, Gateway
from cutting_proxy import CuttingProxy, after_frames
from openai import OpenAI

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CATALOGUE = json.loads(
    subprocess.run([BINARY, "errors", "--json"], check=True, capture_output=True).stdout
)
# Where the status is another than the catalogue's: what nobody should send again must not look as
# if it passed.
STATUSES = {
    "stream_expired": 404,
    "stream_lost": 404,
    "context_length_exceeded": 400,
    "content_refused": 400,
    "answer_too_large": 400,
    "stream_too_long": 400,
    "interrupt_not_open": 400,
    "upstream_quota": 429,
    "model_not_found": 404,
    "upstream_auth": 500,
}
CLASSES = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    502: openai.InternalServerError,
    503: openai.InternalServerError,
    504: openai.InternalServerError,
}


def client_for(url, **options):
    return OpenAI(base_url=f"{url}/v1", api_key="sk-local", **options)


@pytest.fixture(scope="module")
def client(gateway):
    with client_for(gateway.url) as client:
        yield client


def runs(gateway, http):
    return http.get(f"{gateway.url}/v1/streams", params={"limit": 1000}).json()["streams"]


def chat(client, text, **options):
    return client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": text}], **options
    )


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_chat_whole_and_streamed(client):
    assert [model.id for model in client.models.list()] == ["demo"]
    whole = chat(client, "/echo one two three")
    assert whole.choices[0].message.content == "one two three"
    chunks = list(
        chat(client, "/echo one two three", stream=True, stream_options={"include_usage": True})
    )
    assert text_of(chunks) == "one two three"
    assert chunks[-1].usage == whole.usage
    asked = [{"role": "user", "content": "/tokens 20"}]
    with client.chat.completions.stream(model="demo", messages=asked) as stream:
        assert stream.get_final_completion().choices[0].finish_reason == "stop"


def test_a_response_whole_streamed_and_by_its_id(client):
    assert client.responses.create(model="demo", input="/echo one two").output_text == "one two"
    for command in ["/events", "/tokens 50", "/warn", "/flaky 1"]:
        with client.responses.stream(model="demo", input=command) as stream:
            final = stream.get_final_response()
        assert final.status == "completed"
        assert client.responses.retrieve(final.id).output_text == final.output_text
        replayed = list(client.responses.retrieve(final.id, stream=True))
        rest = list(
            client.responses.retrieve(
                final.id, stream=True, starting_after=replayed[3].sequence_number
            )
        )
        assert rest == replayed[4:]
    items = client.responses.input_items.list(final.id)
    assert items.data[0].content[0].text == "/flaky 1"
    client.responses.delete(final.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(final.id)


def test_in_the_background_and_cancelled(client):
    response = client.responses.create(input="/tokens 30", background=True)
    while response.status == "in_progress":
        response = client.responses.retrieve(response.id)
    assert response.status == "completed"
    hanging = client.responses.create(input="/hang", background=True)
    assert client.responses.cancel(hanging.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(input="x", previous_response_id="resp_none")
    assert refused.value.code == "previous_response_not_found"


def test_a_run_that_failed_is_told_once_in_the_class_of_its_kind(gateway, http, client):
    for fault in CATALOGUE:
        before = len(runs(gateway, http))
        kind, command = fault["code"], f"/fault {fault['code']}"
        status = STATUSES.get(kind, fault["status"])
        for ask in (lambda: chat(client, command), lambda: client.responses.create(input=command)):
            with pytest.raises(CLASSES.get(status, openai.APIStatusError)) as failed:
                ask()
            assert (failed.value.body["kind"], failed.value.status_code) == (kind, status)
        for ask in (
            lambda: chat(client, command, stream=True),
            lambda: client.responses.create(input=command, stream=True),
        ):
            with pytest.raises(openai.APIError) as failed:
                list(ask())
            assert failed.value.body["kind"] == kind
        assert len(runs(gateway, http)) == before + 4, f"{kind} was tried again"


def test_wrong_input_starts_nothing(gateway, http, client):
    before = len(runs(gateway, http))
    with pytest.raises(openai.NotFoundError) as refused:
        client.responses.create(model="gpt-9", input="x")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, "x", n=2)
    assert refused.value.param == "n"
    for param, wrong in (
        ("metadata.k", {"metadata": {"k": 5}}),
        ("metadata", {"metadata": {str(n): "" for n in range(17)}}),
        ("temperature", {"temperature": "hot"}),
        ("truncation", {"truncation": "half"}),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(input="x", **wrong)
        assert refused.value.param == param
    assert len(runs(gateway, http)) == before
    headers = {"Idempotency-Key": f"python-{time.time_ns()}"}
    first = chat(client, "/echo a", extra_headers=headers)
    assert chat(client, "/echo a", extra_headers=headers) == first
    with pytest.raises(openai.ConflictError):
        chat(client, "/echo b", extra_headers=headers)
    assert len(runs(gateway, http)) == before + 1


class Provider(BaseHTTPRequestHandler):
    """A model that calls the first tool for two towns at once, in pieces, and then says what it was
    told."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if results:
            self.say({"content": f"It is {' and '.join(results)}."})
        for index, town in enumerate([] if results else ["Bern", "Oslo"]):
            name = asked["tools"][0]["function"]["name"]
            self.say(
                {
                    "tool_calls": [
                        {
                            "index": index,
                            "id": town,
                            "type": "function",
                            "function": {"name": name, "arguments": ""},
                        }
                    ]
                }
            )
            for piece in ('{"to', f'wn":"{town}"', "}"):
                self.say({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        self.say({}, "stop" if results else "tool_calls")
        self.wfile.write(b"data: [DONE]\n\n")

    def say(self, delta, finish=None):
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, *_):
        pass


PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}}
TOWNS = ['{"town":"Bern"}', '{"town":"Oslo"}']


def test_tools_are_called_and_answered_whole_and_streamed_in_both_apis(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as provider:
        threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_port}/v1"
        gateway = Gateway(
            tmp_path, f'[[agents]]\nname = "demo"\nkind = "openai"\nmodel = "m"\nurl = "{url}"\n'
        )
        with client_for(gateway.url) as client:
            for is_streamed in (False, True):
                responses_with_tools(client, is_streamed)
                chat_with_tools(client, is_streamed)
        gateway.stop()
        provider.shutdown()


def responses_with_tools(client, is_streamed):
    def ask(**request):
        if not is_streamed:
            return client.responses.create(model="demo", **request)
        with client.responses.stream(model="demo", **request) as events:
            return events.get_final_response()

    tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}]
    first = ask(input="How is it?", tools=tools)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == TOWNS
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": word}
        for call, word in zip(calls, ("dry", "wet"))
    ]
    assert (
        ask(input=outputs, previous_response_id=first.id, tools=tools).output_text
        == "It is dry and wet."
    )
    # The same with all of it told again.
    told = [item.model_dump(exclude_none=True) for item in first.output]
    assert (
        ask(
            input=[{"role": "user", "content": "How is it?"}, *told, *outputs], tools=tools
        ).output_text
        == "It is dry and wet."
    )


def chat_with_tools(client, is_streamed):
    def ask(messages):
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        if not is_streamed:
            return client.chat.completions.create(
                model="demo", messages=messages, tools=tools
            ).choices[0]
        with client.chat.completions.stream(model="demo", messages=messages, tools=tools) as events:
            return events.get_final_completion().choices[0]

    messages = [{"role": "user", "content": "How is it?"}]
    first = ask(messages)
    calls = first.message.tool_calls
    assert (first.finish_reason, [call.function.arguments for call in calls]) == (
        "tool_calls",
        TOWNS,
    )
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": word}
        for call, word in zip(calls, ("dry", "wet"))
    ]
    second = ask([*messages, first.message.model_dump(exclude_none=True), *results])
    assert (second.finish_reason, second.message.content) == ("stop", "It is dry and wet.")


class BreakingProvider(Provider):
    """The same, with a thought before; its first answer breaks off within the second call, and the
    next one has other ids."""

    def do_POST(self):
        json.loads(self.rfile.read(int(self.headers["content-length"])))
        attempt = self.server.attempt = getattr(self.server, "attempt", 0) + 1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.say({"reasoning_content": "Two towns, then."})
        for index, town in enumerate(["Bern", "Oslo"]):
            function = {"name": "weather", "arguments": ""}
            call = {"index": index, "id": f"{town}-{attempt}", "type": "function"}
            self.say({"tool_calls": [{**call, "function": function}]})
            pieces = ['{"to', "wn", f'":"{town}"', "}"]
            if attempt % 2 and town == "Oslo":
                pieces = pieces[:2]
            for piece in pieces:
                self.say({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        if attempt % 2 == 0:
            self.say({}, "tool_calls")
            self.wfile.write(b"data: [DONE]\n\n")


def test_arguments_come_as_they_are_written_and_once_although_the_model_broke_off(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), BreakingProvider) as provider:
        threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_port}/v1"
        gateway = Gateway(
            tmp_path,
            f'[[agents]]\nname = "demo"\nkind = "openai"\nmodel = "m"\nurl = "{url}"\n'
            "[timeouts]\nbackoff = 0.01\n",
        )
        with client_for(gateway.url) as client:
            chat_in_pieces(client)
            assert provider.attempt == 2
            response_in_pieces(client)
            assert provider.attempt == 4
        gateway.stop()
        provider.shutdown()


SIGNATURE = {"google": {"thought_signature": "c2lnbmVk"}}


class SigningProvider(Provider):
    """Signs its call as Gemini does, and records what comes back."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.messages = body["messages"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if len(body["messages"]) == 1:
            function = {"name": "weather", "arguments": TOWNS[0]}
            call = {"index": 0, "id": "c", "type": "function", "function": function}
            self.say({"tool_calls": [{**call, "extra_content": SIGNATURE}]})
            self.say({}, "tool_calls")
        else:
            self.say({"content": "It is dry."})
            self.say({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")


def test_signature_of_a_streamed_call_comes_back_to_its_provider(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), SigningProvider) as provider:
        threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_port}/v1"
        gateway = Gateway(
            tmp_path, f'[[agents]]\nname = "demo"\nkind = "openai"\nmodel = "m"\nurl = "{url}"\n'
        )
        tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
        messages = [{"role": "user", "content": "How is it?"}]
        with client_for(gateway.url) as client:
            for answer in ("dry", None):
                options = {"model": "demo", "messages": messages, "tools": tools}
                with client.chat.completions.stream(**options) as events:
                    message = events.get_final_completion().choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                messages.append({"role": "tool", "tool_call_id": "c", "content": answer})
        assert message.content == "It is dry."
        assert provider.messages[1]["tool_calls"][0]["extra_content"] == SIGNATURE
        gateway.stop()
        provider.shutdown()


PIECES = [
    *[("Bern-1", piece) for piece in ('{"to', "wn", '":"Bern"', "}")],
    *[("Oslo-1", piece) for piece in ('{"to', "wn", '":"Oslo"', "}")],
]


def chat_in_pieces(client):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    messages = [{"role": "user", "content": "How is it?"}]
    pieces, thoughts, ids = [], "", {}
    with client.chat.completions.stream(model="demo", messages=messages, tools=tools) as events:
        for event in events:
            if event.type == "chunk" and event.chunk.choices:
                delta = event.chunk.choices[0].delta
                thoughts += getattr(delta, "reasoning_content", None) or ""
                for call in delta.tool_calls or []:
                    ids.setdefault(call.index, call.id)
                    assert call.id in (None, ids[call.index])
                    if call.function.arguments:
                        pieces.append((ids[call.index], call.function.arguments))
        whole = events.get_final_completion().choices[0]
    assert pieces == PIECES
    assert thoughts == "Two towns, then."
    assert [call.function.arguments for call in whole.message.tool_calls] == TOWNS
    assert whole.finish_reason == "tool_calls"


def response_in_pieces(client):
    tools = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}]
    pieces, done, ids = [], [], {}
    with client.responses.stream(model="demo", input="How is it?", tools=tools) as events:
        for event in events:
            if event.type == "response.output_item.added" and event.item.type == "function_call":
                ids[event.output_index] = event.item.call_id.replace("-3", "-1")
            if event.type == "response.function_call_arguments.delta":
                pieces.append((ids[event.output_index], event.delta))
            if event.type == "response.function_call_arguments.done":
                done.append(event.arguments)
        response = events.get_final_response()
    assert (pieces, done) == (PIECES, TOWNS)
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == TOWNS


def test_a_cut_is_never_an_answer(gateway):
    with CuttingProxy(gateway.port, [after_frames(n) for n in (1, 2, 4, 9, 14, 15)]) as proxy:
        for _ in range(6):
            with (
                client_for(proxy.url, max_retries=0) as cut,
                pytest.raises(openai.APIConnectionError),
            ):
                list(cut.responses.create(input="/tokens 12", stream=True))


def test_an_answer_that_was_lost_is_asked_for_again_and_bills_no_second_run(gateway, http):
    for ask in (
        lambda c: chat(c, "/tokens 60 --delay 5ms"),
        lambda c: c.responses.create(input="/tokens 61 --delay 5ms"),
    ):
        before = len(runs(gateway, http))
        with LosingProxy(gateway.port) as proxy, client_for(proxy.url) as client:
            ask(client)
            assert proxy.connections == 2
        assert len(runs(gateway, http)) == before + 1


class LosingProxy(CuttingProxy):
    """Cuts its first connection before the answer."""

    def __init__(self, server_port):
        self.connections = 0
        super().__init__(server_port, [])

    def relay(self, client, server, rule):
        self.connections += 1
        if self.connections == 1:
            threading.Timer(0.1, lambda: self.lose(client)).start()
        super().relay(client, server, rule)

    def lose(self, client):
        import socket

        client.shutdown(socket.SHUT_RDWR)


def test_a_webhook_is_accepted(tmp_path):
    posted = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.put(
                (self.rfile.read(int(self.headers["content-length"])).decode(), dict(self.headers))
            )
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, args=(0.01,), daemon=True).start()
        key = hashlib.sha256(b"sk-hook").hexdigest()
        url = f"http://127.0.0.1:{receiver.server_port}/"
        webhook = f'{{ url = "{url}", secret_env = "HOOK_SECRET", allow_private = true }}'
        config = f'[[tenants]]\nname = "acme"\nkeys = ["sha256:{key}"]\nwebhook = {webhook}\n'
        gateway = Gateway(tmp_path, config, {"HOOK_SECRET": SECRET})
        with OpenAI(
            base_url=f"{gateway.url}/v1", api_key="sk-hook", webhook_secret=SECRET
        ) as client:
            for command, kind in [
                ("/echo hi", "response.completed"),
                ("/fault upstream_auth", "response.failed"),
            ]:
                response = client.responses.create(input=command, background=True)
                body, headers = posted.get(timeout=30)
                event = client.webhooks.unwrap(body, headers)
                assert (event.type, event.data.id) == (kind, response.id)
                with pytest.raises(openai.InvalidWebhookSignatureError):
                    client.webhooks.unwrap(body.replace("evt_", "evil"), headers)
        gateway.stop()
        receiver.shutdown()

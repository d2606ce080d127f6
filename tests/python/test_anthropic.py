"""Anthropic's published SDK against the real binary, its retries on: answers, tools by translation,
failures by class, counts, models, an answer that was lost."""

import json
import threading
from http.server import ThreadingHTTPServer

import anthropic
import pytest
from anthropic import Anthropic
from conftest import Gateway
from cutting_proxy import CuttingProxy, after_frames
from test_openai import PARAMETERS, TOWNS, LosingProxy, Provider, runs

CLASSES = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    409: anthropic.ConflictError,
    413: anthropic.RequestTooLargeError,
    429: anthropic.RateLimitError,
    529: anthropic.OverloadedError,
}


def client_for(url, **options):
    return Anthropic(base_url=url, api_key="sk-local", **options)


@pytest.fixture(scope="module")
def client(gateway):
    with client_for(gateway.url) as client:
        yield client


def asked(text, **more):
    messages = [{"role": "user", "content": text}]
    return {"model": "demo", "max_tokens": 1024, "messages": messages, **more}


def test_a_message_whole_and_streamed(client):
    whole = client.messages.create(**asked("/echo one two three"))
    assert [block.text for block in whole.content] == ["one two three"]
    assert (whole.stop_reason, whole.model, whole.type) == ("end_turn", "demo", "message")
    assert whole.usage.output_tokens > 0
    with client.messages.stream(**asked("/echo one two three")) as stream:
        assert "".join(stream.text_stream) == "one two three"
        final = stream.get_final_message()
    assert final.content[0].text == "one two three"
    assert final.usage.output_tokens == whole.usage.output_tokens
    with client.messages.stream(**asked("/events")) as stream:
        kinds = [block.type for block in stream.get_final_message().content]
    assert "thinking" in kinds and "text" in kinds


def test_models_and_counts(client):
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").display_name == "demo"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("gpt-9")
    # Its own models' names are known to every client of Anthropic's.
    assert client.messages.create(**asked("/echo hi", model="claude-opus-5-5")).model == "demo"
    count = client.messages.count_tokens(
        model="demo", messages=[{"role": "user", "content": "word " * 80}]
    )
    assert count.input_tokens >= 100


def test_a_failure_has_its_class_and_is_tried_again_where_that_may_help(gateway, http, client):
    for fault, status, tries in [
        ("agent_execution_error", 500, 1),
        ("context_length_exceeded", 400, 1),
        ("upstream_quota", 402, 1),
        ("service_unavailable", 529, 3),
    ]:
        before = len(runs(gateway, http))
        with pytest.raises(CLASSES.get(status, anthropic.APIStatusError)) as failed:
            client.messages.create(**asked(f"/fault {fault} --after 0"))
        assert failed.value.status_code == status
        assert failed.value.request_id
        assert len(runs(gateway, http)) == before + tries, fault
    # Behind the first word there is no status any more.
    with (
        pytest.raises(anthropic.APIStatusError) as failed,
        client.messages.stream(**asked("/fault upstream_error")) as stream,
    ):
        list(stream)
    assert failed.value.body["error"]["code"] == "upstream_error"


def test_wrong_input_starts_nothing(gateway, http, client):
    before = len(runs(gateway, http))
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**asked("x", model="gpt-9"))
    search = [{"type": "web_search_20250305", "name": "web_search"}]
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**asked("x", tools=search))
    assert "tools[0].type" in str(refused.value)
    assert len(runs(gateway, http)) == before


def test_tools_of_another_protocols_model_are_called_and_answered(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as provider:
        threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_port}/v1"
        gateway = Gateway(
            tmp_path, f'[[agents]]\nname = "demo"\nkind = "openai"\nmodel = "m"\nurl = "{url}"\n'
        )
        with client_for(gateway.url) as client:
            for is_streamed in (False, True):
                weather(client, is_streamed)
        gateway.stop()
        provider.shutdown()


def weather(client, is_streamed):
    def ask(messages):
        tools = [{"name": "weather", "input_schema": PARAMETERS}]
        request = {"model": "demo", "max_tokens": 99, "messages": messages, "tools": tools}
        if not is_streamed:
            return client.messages.create(**request)
        with client.messages.stream(**request) as stream:
            return stream.get_final_message()

    messages = [{"role": "user", "content": "How is it?"}]
    first = ask(messages)
    calls = [block for block in first.content if block.type == "tool_use"]
    assert first.stop_reason == "tool_use"
    assert [call.input for call in calls] == [json.loads(town) for town in TOWNS]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": word}
        for call, word in zip(calls, ("dry", "wet"))
    ]
    said = [block.model_dump(exclude_none=True) for block in first.content]
    more = [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
    second = ask([*messages, *more])
    assert (second.stop_reason, second.content[0].text) == ("end_turn", "It is dry and wet.")


def test_a_cut_is_never_an_answer(gateway):
    with CuttingProxy(gateway.port, [after_frames(n) for n in (1, 2, 4, 9)]) as proxy:
        for _ in range(4):
            with (
                client_for(proxy.url, max_retries=0) as cut,
                pytest.raises(Exception) as broken,  # noqa: PT011
                cut.messages.stream(**asked("/tokens 12")) as stream,
            ):
                stream.get_final_message()
            assert not isinstance(broken.value, AssertionError)


def test_an_answer_that_was_lost_is_asked_for_again_and_bills_no_second_run(gateway, http):
    before = len(runs(gateway, http))
    with LosingProxy(gateway.port) as proxy, client_for(proxy.url) as client:
        client.messages.create(**asked("/tokens 62 --delay 5ms"))
        assert proxy.connections == 2
    assert len(runs(gateway, http)) == before + 1

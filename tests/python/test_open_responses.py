"""Every event of Responses, against the models of the Open Responses specification (2026-04-24) as
they are published. Agents of each protocol answer in turn."""

import json
import re
import subprocess

import openresponses_types as spec
import pytest
from conftest import AT_ONCE, BINARY, Gateway
from openai import OpenAI

# Tools and events that OpenAI has and the specification has not.
BEYOND = {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}
ITEMS_BEYOND = {"custom_tool_call"}

SCRIPT = """
[answer]
reasoning = "A short think."
signed = true
text = "It is sunny."
[[replies]]
offers = "weather"
tool_results = 0
[replies.answer]
reasoning = "I look."
signed = true
text = "I look it up."
[[replies.answer.tool_calls]]
name = "weather"
arguments = { city = "Bern" }
"""
KINDS = {
    "responses": 'kind = "openai"\napi = "responses"\nurl = "{url}/v1"',
    "chat": 'kind = "openai"\nurl = "{url}/v1"',
    "messages": 'kind = "anthropic"\nurl = "{url}"',
}
TOOLS = [{"type": "function", "name": "weather"}, {"type": "custom", "name": "patch"}]
FULL = {
    "instructions": "Be brief.",
    "temperature": 0.5,
    "top_p": 0.9,
    "max_output_tokens": 100,
    "max_tool_calls": 2,
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "service_tier": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low"},
    "text": {"verbosity": "low"},
    "truncation": "auto",
    "store": False,
}


def models():
    """The model of each type of event."""
    for name, model in vars(spec).items():
        if name.endswith("StreamingEvent"):
            for kind in model.model_fields["type"].annotation:
                yield kind.value, model


MODELS = dict(models())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("provider")
    (folder / "script.toml").write_text(SCRIPT)
    provider = subprocess.Popen(
        [BINARY, "fake-provider", "--listen", "127.0.0.1:0", "--script", folder / "script.toml"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    url = re.search(r"http://[^,\s]+", provider.stderr.readline())[0]
    agents = [
        f'[[agents]]\nname = "{name}"\nmodel = "m"\n{kind.format(url=url)}\n'
        for name, kind in KINDS.items()
    ]
    env = {"OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-x"}
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), "".join(agents) + AT_ONCE, env)
    yield gateway
    gateway.stop()
    provider.kill()
    provider.communicate()


def events(gateway, http, body):
    request = {"input": "Hi", "stream": True, **body}
    answer = http.post(f"{gateway.url}/v1/responses", json=request, timeout=30).text
    return [
        json.loads(line.removeprefix("data: "))
        for line in answer.splitlines()
        if line.startswith("data: ")
    ]


def is_beyond(event):
    items = [event.get("item"), *event.get("response", {}).get("output", [])]
    return event["type"] in BEYOND or any(item and item["type"] in ITEMS_BEYOND for item in items)


def check(events):
    assert len(events) > 2
    for event in events:
        if is_beyond(event):
            continue
        # What the specification calls a response has its own tools alone.
        if "response" in event:
            tools = event["response"]["tools"]
            event["response"]["tools"] = [tool for tool in tools if tool["type"] == "function"]
        MODELS[event["type"]].model_validate_json(json.dumps(event), strict=True)


def test_the_specification_is_the_one_that_the_documents_name():
    assert spec.__spec_version__ == "2026-04-24"


@pytest.mark.parametrize("model", ["demo", *KINDS])
@pytest.mark.parametrize("body", [{}, FULL, {"tools": TOOLS}, {"tools": TOOLS, **FULL}])
def test_every_event_is_as_the_specification_has_it(gateway, http, model, body):
    body = {**body, "model": model}
    told = events(gateway, http, body)
    check(told)
    assert told[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    "text", ["/fault rate_limit_exceeded", "/fault content_refused", "/events", "/ask", "/diverge"]
)
def test_events_of_other_answers_are_as_the_specification_has_them(gateway, http, text):
    check(events(gateway, http, {"model": "demo", "input": text}))


def test_the_object_is_as_the_specification_has_it(gateway, http):
    for body in ({}, FULL):
        request = {"input": "Hi", "model": "chat", **body}
        answer = http.post(f"{gateway.url}/v1/responses", json=request, timeout=30).text
        spec.ResponseResource.model_validate_json(answer, strict=True)


def test_the_stream_helper_of_openai_reads_reasoning_and_calls(gateway):
    """It checks that an item has one id in all of its events."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-local") as client:
        tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
        with client.responses.stream(
            model="responses", input="Hi", tools=[{**tool, "strict": False}]
        ) as stream:
            kinds = [event.type for event in stream]
            response = stream.get_final_response()
    assert "response.reasoning_summary_text.delta" in kinds
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]

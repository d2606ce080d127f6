"""/openapi.json is complete: it describes every answer to every request."""

import hashlib
import os

import pytest
import schemathesis
from conftest import AT_ONCE, Gateway
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

# `make soak` wants many, lets chance in, and walks every boundary of every schema, which takes
# minutes.
SOAKS = "CAPSTAN_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("CAPSTAN_EXAMPLES", "2"))


def bounded(examples):
    return settings(
        max_examples=examples,
        derandomize=not SOAKS,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# A body that stays open longer than this without a byte is a hang; heartbeats come less often.
PATIENCE = 10
# It never ends, so all of the patience is spent on it.
FEED = "/v1/console/events"
KEY = "sk_test"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A gateway with a tenant."""
    folder = tmp_path_factory.mktemp("guarded")
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    gateway = Gateway(
        folder, f'{AT_ONCE}\n[[tenants]]\nname = "acme"\nkeys = ["sha256:{digest}"]\n'
    )
    yield gateway
    gateway.stop()


def api_of(gateway):
    config = schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": SOAKS}}})
    return schemathesis.openapi.from_url(f"{gateway.url}/openapi.json", config=config)


@pytest.fixture(scope="module")
def open_api(gateway):
    return api_of(gateway)


@pytest.fixture(scope="module")
def guarded_api(guarded):
    # Those of a named agent are the same handlers, and are asked in the open.
    api = api_of(guarded)
    return api if SOAKS else api.exclude(path_regex=r"^/v1/agents/\{name\}/")


in_the_open = schemathesis.pytest.from_fixture("open_api")
behind_a_key = schemathesis.pytest.from_fixture("guarded_api")


def test_the_document_is_valid_openapi(gateway, http):
    OpenAPIV31SpecValidator(http.get(f"{gateway.url}/openapi.json").json()).validate()


def patience(case):
    return 1 if case.operation.path == FEED else PATIENCE


@in_the_open.parametrize()
@bounded(EXAMPLES)
def test_every_answer_is_described(case):
    case.call_and_validate(checks=CHECKS, timeout=patience(case))


@behind_a_key.parametrize()
@bounded(EXAMPLES if SOAKS else 1)
def test_every_answer_to_a_tenant_is_described(case):
    headers = {"Authorization": f"Bearer {KEY}"}
    case.call_and_validate(checks=[*CHECKS, ignored_auth], headers=headers, timeout=patience(case))


@pytest.mark.parametrize("text", ["hello", "/events", "/warn", "/fault message_limit_exceeded"])
def test_every_answer_about_a_run_is_described(open_api, ask, text):
    """Requests that random tests do not find: with the ids of a stream and session that exist."""

    def call(method, path, **parts):
        case = open_api[path][method].Case(**parts)
        return case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

    request = ask(text)
    posted = {"body": request, "media_type": "application/json"}
    stream = call("POST", "/v1/assist", **posted).headers["x-stream-id"][0]
    call("POST", "/v1/assist", **posted, query={"profile": "v2"})
    call("POST", "/v1/assist", **posted, headers={"Accept": "application/json"})
    own = {"path_parameters": {"id": stream}}
    for query in [{}, {"profile": "v2"}, {"face": "ag-ui"}, {"after": 1}]:
        call("GET", "/v1/streams/{id}", **own, query=query)
    call("GET", "/v1/streams/{id}/packets", **own)
    call("POST", "/v1/streams/{id}/ticket", **own)
    call("GET", "/v1/streams")
    call("DELETE", "/v1/streams/{id}", **own)
    session = {"path_parameters": {"id": request["context"]["session_id"]}}
    call("GET", "/v1/sessions/{id}", **session)
    call("DELETE", "/v1/sessions/{id}", **session)
    assert call("GET", "/v1/streams/{id}", **own).status_code == 410


def test_every_answer_about_a_run_in_ag_ui_is_described(open_api):
    run = {
        "threadId": "t",
        "runId": "described",
        "messages": [{"id": "m", "role": "user", "content": "hello"}],
    }
    for query in [
        None,
        {"runId": "described"},
        {"runId": "described", "offset": "-1"},
        {"runId": "unknown"},
    ]:
        parts = {"query": query} if query else {"body": run, "media_type": "application/json"}
        case = open_api["/v1/ag-ui"]["GET" if query else "POST"].Case(**parts)
        assert case.call_and_validate(checks=CHECKS, timeout=PATIENCE).status_code == 200

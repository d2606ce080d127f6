"""Story 22-B2 in Python: each exception becomes its RUN_ERROR, from the Rust catalogue."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import fastapi.exceptions
import httpx
import pydantic
import pytest

from coreason_client import CAPConnectionError, CAPRuntimeError, StreamError, _core, agui
from coreason_client.agui import (
    AGUIErrorCode,
    AGUIErrorEvent,
    create_error_event,
    create_stream_error,
)


def status_error(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://up")
    return httpx.HTTPStatusError(
        "no", request=request, response=httpx.Response(status, headers=headers)
    )


def validation_error() -> pydantic.ValidationError:
    class Model(pydantic.BaseModel):
        count: int

    try:
        Model(count="secret")  # type: ignore[arg-type]
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


CASES: list[tuple[BaseException, str, int]] = [
    (agui.A2ARateLimitExceeded(), "RATE_LIMITED", 429),
    (agui.A2ASessionLimitExceeded(), "RATE_LIMITED", 429),
    (agui.A2AMessageLimitExceeded(), "RATE_LIMITED", 429),
    (agui.A2ARateLimitExceededError(), "RATE_LIMITED", 429),
    (agui.A2ASessionLimitExceededError(), "RATE_LIMITED", 429),
    (agui.A2AMessageLimitExceededError(), "RATE_LIMITED", 429),
    (TimeoutError(), "TIMEOUT", 504),
    (asyncio.TimeoutError(), "TIMEOUT", 504),
    (httpx.ReadTimeout("late"), "TIMEOUT", 504),
    (status_error(500), "UPSTREAM_ERROR", 502),
    (status_error(401), "UPSTREAM_ERROR", 502),
    (agui.A2AAgentNotFoundError(), "CAPABILITY_NOT_FOUND", 404),
    (agui.A2ACapabilityNotFoundError(), "CAPABILITY_NOT_FOUND", 404),
    (agui.TenantRequiredError(), "TENANT_REQUIRED", 401),
    (agui.A2APermissionError(), "TENANT_UNAUTHORIZED", 403),
    (validation_error(), "INVALID_REQUEST", 400),
    (agui.SessionNotFoundError(), "SESSION_NOT_FOUND", 404),
    (agui.A2AServiceUnavailableError(), "SERVICE_UNAVAILABLE", 503),
    (KeyError("session"), "AGENT_EXECUTION_ERROR", 500),
    (RuntimeError("boom"), "AGENT_EXECUTION_ERROR", 500),
    (CAPConnectionError("gone"), "UPSTREAM_ERROR", 502),
    (httpx.ConnectError("gone"), "UPSTREAM_ERROR", 502),
]


@pytest.mark.parametrize(("error", "code", "status"), CASES, ids=lambda v: type(v).__name__)
def test_an_exception_becomes_its_event(error: Any, code: str, status: int) -> None:
    event = create_error_event(error)
    assert (event.code, event.http_status) == (code, status)
    assert event.code is AGUIErrorCode(code) and event.message
    assert "secret" not in event.to_sse() and "boom" not in event.to_sse()


def test_the_ten_codes_are_the_catalogues() -> None:
    rows = _core.catalogue()
    assert {code.value for code in AGUIErrorCode} == {row["agui_code"] for row in rows}
    assert len(AGUIErrorCode) == 10
    for code in AGUIErrorCode:
        assert code.http_status == next(
            r["http_status"] for r in rows if r["agui_code"] == code.value
        )
    retryable = {code.value for code in AGUIErrorCode if code.is_retryable}
    assert retryable == {"RATE_LIMITED", "TIMEOUT", "SERVICE_UNAVAILABLE"}


def test_waits_are_told() -> None:
    assert create_error_event(agui.A2ARateLimitExceeded()).retry_after == 60
    assert create_error_event(agui.A2ARateLimitExceeded(retry_after=2.5)).retry_after == 3
    assert create_error_event(agui.A2ASessionLimitExceeded()).retry_after is None
    assert create_error_event(status_error(429, **{"Retry-After": "7"})).retry_after == 7


def test_a_validation_error_names_the_field_and_never_shows_the_value() -> None:
    class Inner(pydantic.BaseModel):
        size: int
        kind: Literal["a", "b"] = "a"

        @pydantic.field_validator("size")
        @classmethod
        def check(cls, size: int) -> int:
            raise ValueError(f"not {size}, which is secret")

    class Outer(pydantic.BaseModel):
        count: int
        inner: Inner
        late: str

    with pytest.raises(pydantic.ValidationError) as wrong:
        Outer.model_validate({"count": "secret", "inner": {"size": 7, "kind": "secret"}})
    event = create_error_event(wrong.value)
    assert event.code is AGUIErrorCode.INVALID_REQUEST
    assert event.message == (
        "The request is invalid. count: Input should be a valid integer, "
        "unable to parse string as an integer; inner.size: value_error; "
        "inner.kind: literal_error; late: Field required."
    )
    assert create_stream_error(wrong.value).message == event.message
    assert "secret" not in event.to_sse()
    theirs = fastapi.exceptions.RequestValidationError(wrong.value.errors())
    assert create_error_event(theirs) == event, "FastAPI tells the same in an exception of its own"


def test_causes_leave_in_debug_mode_only() -> None:
    error = RuntimeError("boom")
    assert create_error_event(error).details == {}
    details = create_error_event(error, is_debug=True).details
    assert details["error_type"] == "RuntimeError" and details["source_chain"] == [
        "RuntimeError: boom"
    ]


def test_an_explicit_cause_is_looked_at() -> None:
    try:
        try:
            raise TimeoutError
        except TimeoutError as late:
            raise RuntimeError("wrapped") from late
    except RuntimeError as error:
        assert create_error_event(error).code is AGUIErrorCode.TIMEOUT


def test_the_sse_frame_is_the_storys() -> None:
    head, data, *_ = create_error_event(agui.A2ARateLimitExceeded()).to_sse().split("\n")
    assert head == "event: RUN_ERROR"
    event = json.loads(data.removeprefix("data: "))
    assert (
        event["type"] == "RUN_ERROR"
        and event["metadata"]["capstan"]["kind"] == "rate_limit_exceeded"
    )
    assert {n: event[n] for n in ("code", "message", "http_status", "details", "retry_after")} == {
        "code": "RATE_LIMITED",
        "message": "Request rate limit exceeded. Please wait before retrying.",
        "http_status": 429,
        "details": {},
        "retry_after": 60,
    }
    assert "retry_after" not in create_error_event(TimeoutError()).data


def test_an_event_can_be_made_by_hand() -> None:
    event = AGUIErrorEvent(AGUIErrorCode.TIMEOUT, "Late.", http_status=504)
    assert event.data == {"code": "TIMEOUT", "message": "Late.", "http_status": 504, "details": {}}
    assert event == AGUIErrorEvent("TIMEOUT", "Late.", 504) and "TIMEOUT" in repr(event)
    with pytest.raises(AttributeError):
        event.code = "X"


def test_another_agents_failure_keeps_its_code() -> None:
    theirs = StreamError("their_code", "Theirs.", "FATAL")
    error = CAPRuntimeError("x", error=theirs)
    assert create_stream_error(error) == theirs

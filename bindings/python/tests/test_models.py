"""Models: frozen, readable, strict, and at home in pydantic."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pydantic
import pytest

from coreason_client import (
    AgentRequest,
    CAPClient,
    CAPValidationError,
    ChatMessage,
    ErrorDomain,
    ErrorSeverity,
    PresentationEvent,
    Role,
    ServiceRequest,
    SessionContext,
    StreamError,
    StreamOpCode,
    StreamPacket,
    UserError,
)
from coreason_client.definitions.presentation import CitationBlock, MarkdownBlock

STREAM = UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
T = "2026-02-03T10:15:37Z"


def packet(op: str, p: Any) -> StreamPacket:
    return StreamPacket(stream_id=STREAM, seq=1, op=op, t=T, p=p)


def request() -> ServiceRequest:
    return ServiceRequest(
        request_id=uuid4(),
        context=SessionContext(user_id="user_123", session_id=uuid4()),
        payload=AgentRequest(messages=[ChatMessage.user("/tokens 2")]),
    )


EVENT = {"id": str(uuid4()), "timestamp": T, "type": "CITATION_BLOCK", "data": {"citations": []}}
ERROR = StreamError(
    code="timeout", message="Late.", severity=ErrorSeverity.TRANSIENT, details={"retry_after": 2}
)
VALUES = [
    ERROR,
    UserError("Down", code=503, domain=ErrorDomain.TOOL, retryable=True),
    ChatMessage.user("Hi"),
    ChatMessage.tool("call_1", {"ok": True}),
    SessionContext(user_id="u", session_id=uuid4()),
    AgentRequest(query="Hi", session_id=uuid4()),
    request(),
    PresentationEvent("MARKDOWN_BLOCK", {"content": "*hi*"}),
    PresentationEvent("user_error", UserError("Down")),
    packet("DELTA", "Hel"),
    packet("EVENT", EVENT),
    packet("ERROR", ERROR),
    packet("CLOSE", {"reason": "completed", "usage": {"tokens": 3}}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_value_survives_every_way_out_and_back(value: Any) -> None:
    kind = type(value)
    assert kind.model_validate(value) is value
    if isinstance(value, PresentationEvent) and value.type == "user_error":
        return  # beyond the contract's list of types; packets carry it, the strict model does not
    for again in (
        kind.from_dict(value.to_dict()),
        kind.from_json(value.to_json()),
        kind.from_json(value.to_json().encode()),
        kind.model_validate(value.model_dump()),
        kind.model_validate_json(value.model_dump_json()),
        pickle.loads(pickle.dumps(value)),
        copy.deepcopy(value),
    ):
        assert again == value and hash(again) == hash(value)
    assert value.model_dump(mode="json") == value.to_dict()


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_are_frozen_and_read_well(value: Any) -> None:
    for name in ("op", "message", "role", "anything"):
        with pytest.raises(AttributeError):
            setattr(value, name, "x")
    assert repr(value).startswith(type(value).__name__ + "(")
    assert value != "something else"


def test_reprs_say_what_matters() -> None:
    assert repr(packet("DELTA", "Hel")) == (
        f"StreamPacket(seq=1, op=DELTA, p='Hel', t={T}, stream_id={STREAM})"
    )
    assert repr(ERROR) == (
        "StreamError(code='timeout', message='Late.', severity=TRANSIENT, "
        "details={'retry_after': 2})"
    )


def test_a_payload_has_its_ops_type() -> None:
    assert packet("DELTA", "").p == ""
    event = packet("EVENT", EVENT).p
    assert isinstance(event, PresentationEvent) and event["type"] == event.type == "CITATION_BLOCK"
    assert event == EVENT and dict(event) == EVENT and event.view() == CitationBlock([])
    error = packet("ERROR", ERROR.to_dict()).p
    assert isinstance(error, StreamError) and error.severity is ErrorSeverity.TRANSIENT
    assert packet("CLOSE", "length").p == "length"
    one = packet("DELTA", "a")
    assert one.p is one.p and one.op is StreamOpCode.DELTA and one.op == "DELTA"
    assert (
        one.t == datetime(2026, 2, 3, 10, 15, 37, tzinfo=timezone.utc) and one.stream_id == STREAM
    )
    assert one.cursor == f"{STREAM}:1"


@pytest.mark.parametrize("p", ["Error: Rate limit exceeded", ["x"], 1, None, {"error": "timeout"}])
def test_an_error_that_is_not_typed_raises_value_error(p: Any) -> None:
    """RFC 005, section 3."""
    with pytest.raises(ValueError):
        StreamPacket(op=StreamOpCode.ERROR, p=p)
    with pytest.raises(ValueError):
        packet("ERROR", p)


def test_errors_name_the_member() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: packet("ERROR", {**ERROR.to_dict(), "severity": "Transient"}), "p.severity"),
        (lambda: StreamPacket(op="DELTA", p="x"), "stream_id"),
        (lambda: StreamPacket.from_dict({"op": "DELTA"}), "stream_id"),
        (lambda: StreamError(code=1, message="m", severity="FATAL"), "code"),  # type: ignore[arg-type]
        (lambda: StreamError("c", "m", "LOUD"), "severity"),
        (lambda: StreamError("c", "m", "FATAL", {"x": float("nan")}), "details.x"),
        (lambda: ChatMessage("user", [{"type": "text"}]), "parts[0].content"),
        (lambda: SessionContext(session_id=7, user_id="u"), "session_id"),  # type: ignore[arg-type]
        (
            lambda: SessionContext(session_id="7c9e6679-7425-40de-944b-e07fc1f90ae", user_id="u"),
            "session_id",
        ),
        (lambda: AgentRequest(), "payload"),
    ]
    for build, path in cases:
        with pytest.raises(CAPValidationError) as wrong:
            build()
        assert wrong.value.path.startswith(path), (wrong.value, path)


def test_the_rest_is_filled_in() -> None:
    made = request()
    assert made.payload.session_id == made.context.session_id
    assert made.payload.root_request_id == made.payload.request_id
    assert made.context.user.user_id == "user_123"
    assert AgentRequest(query="Hi").session_id is None
    assert ChatMessage.user("Hi").role is Role.USER and ChatMessage.user("Hi").text == "Hi"


def test_offsets_are_kept() -> None:
    when = datetime(2026, 2, 3, 10, 15, 37, 500000, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    made = StreamPacket(stream_id=STREAM, seq=1, op="DELTA", t=when, p="")
    assert made.t == when and made.t.utcoffset() == when.utcoffset()


NUMBERS = (
    "0 -1 1.5 0.0 -0 -0.0 1e3 1e-9 5e-324 0.1 9007199254740993 9007199254740993.0 "
    "1e18 1e19 1e308 1e999 -1e999 "
    "9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 "
    "-9223372036854775808 -9223372036854775809"
)
TEXTS = r'"" "naïve…" "\"\\\/\b\f\n\r\t" "\u0000\u00e9\u2028" "\ud83d\ude00😀"'
DEEP = "[" * 120 + "]" * 120


@pytest.mark.parametrize(
    "value",
    [
        *NUMBERS.split(),
        *TEXTS.split(),
        "null",
        "true",
        "[false,[],{}]",
        '{"é":{"":1},"a":1,"a":2}',
        DEEP,
    ],
)
def test_events_are_read_as_python_reads_json(value: str) -> None:
    text = '{"type":"SHINY","value":%s}' % value  # noqa: UP031
    whole = f'{{"stream_id":"{STREAM}","seq":1,"op":"EVENT","t":"{T}","p":{text}}}'
    event = StreamPacket.from_json(whole).p
    # By their repr, which tells 1 from 1.0 and 0 from -0.0.
    assert repr(dict(event)) == repr(json.loads(text))


def test_unknown_events_are_kept_raw() -> None:
    odd = packet("EVENT", {"type": "SHINY", "size": 12345678901234567890123})
    assert odd.p["size"] == 12345678901234567890123 and odd.p.view() is None and odd.p.id is None
    with pytest.raises(KeyError):
        odd.p["data"]
    late = packet("EVENT", {"type": "user_error", "data": {"message": "Down", "code": 503}})
    assert late.p.view() == UserError("Down", code=503)
    assert packet(
        "EVENT", {"type": "markdown_block", "data": {"content": "x"}}
    ).p.view() == MarkdownBlock("x")


def test_our_models_are_pydantic_fields() -> None:
    class Record(pydantic.BaseModel):
        packet: StreamPacket
        error: StreamError | None = None

    record = Record(packet=packet("DELTA", "a"), error=ERROR.to_dict())  # type: ignore[arg-type]
    assert record.error == ERROR
    assert Record.model_validate_json(record.model_dump_json()) == record
    properties = Record.model_json_schema()["properties"]
    assert "oneOf" in properties["packet"]
    with pytest.raises(pydantic.ValidationError, match="expected a StreamError object"):
        Record.model_validate({"packet": {**packet("DELTA", "a").to_dict(), "op": "ERROR"}})


def test_requests_may_be_ours_dicts_or_pydantics(gateway: str) -> None:
    class Envelope(pydantic.BaseModel):
        request_id: UUID
        context: dict[str, Any]
        payload: dict[str, Any]

    with CAPClient(gateway, "") as client:
        for ask in (request(), request().to_dict(), Envelope(**request().to_dict())):
            assert [p.op for p in client.assist(ask)][-1] == "CLOSE"
        with pytest.raises(CAPValidationError) as wrong:
            client.assist({"request_id": "x"})
        assert wrong.value.path

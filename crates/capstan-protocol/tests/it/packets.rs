//! RFC 005: what an ERROR packet may carry, and that every refusal names its place.

use capstan_protocol::{
    Close, DecodeErrorKind, ErrorDomain, ErrorSeverity, Event, EventView, Payload, RawJson,
    RawObject, StreamError, StreamOpCode, StreamPacket, Timestamp, UserError, decode, event, v2,
};
use serde_json::{Value, json};

fn packet(op: &str, p: Value) -> Value {
    json!({ "stream_id": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "seq": 1, "op": op,
    "t": "2026-02-03T10:15:37Z", "p": p })
}

fn read(value: &Value) -> Result<StreamPacket, String> {
    StreamPacket::decode(&value.to_string()).map_err(|e| e.to_string())
}

fn of(payload: Payload) -> StreamPacket {
    StreamPacket { stream_id: uuid::Uuid::nil(), seq: 3, t: Timestamp::from_micros(0), payload }
}

#[test]
fn an_error_packet_refuses_a_string() {
    let error = read(&packet("ERROR", json!("Error: Rate limit exceeded"))).unwrap_err();
    assert_eq!(
        error,
        "p: expected a StreamError object {code, message, severity, details?}, found a string"
    );
}

#[test]
fn an_error_packet_turns_an_object_into_the_typed_form() {
    let p = json!({ "code": "rate_limit_exceeded", "message": "Slow down", "severity": "TRANSIENT",
    "details": { "retry_after": 60 } });
    let Payload::Error(error) = read(&packet("ERROR", p)).unwrap().payload else { panic!() };
    assert_eq!(error.severity, ErrorSeverity::Transient);
    assert_eq!(error.retry_after(), Some(60.0));
}

#[test]
fn an_error_packet_refuses_anything_else() {
    for (wrong, found) in [
        (json!(42), "a number"),
        (json!([]), "an array"),
        (json!(["c", "m", "FATAL", null]), "an array"),
        (json!(null), "null"),
        (json!(true), "a boolean"),
    ] {
        let error = read(&packet("ERROR", wrong)).unwrap_err();
        assert!(error.starts_with("p: ") && error.ends_with(found), "{error}");
    }
}

#[test]
fn a_refusal_names_the_member_and_the_remedy() {
    for (value, expected) in [
        (
            packet("ERROR", json!({ "code": "x", "message": "y", "severity": "Transient" })),
            r#"p.severity: unknown variant "Transient", expected FATAL, TRANSIENT or WARNING"#,
        ),
        (
            packet("ERROR", json!({ "message": "y", "severity": "FATAL" })),
            "p.code: required member is absent",
        ),
        (
            packet(
                "ERROR",
                json!({ "code": "x", "message": "y", "severity": "FATAL", "extra": 1 }),
            ),
            "p.extra: unknown member, expected code, message, severity or details",
        ),
        (
            packet("ERROR", json!({ "code": 429, "message": "y", "severity": "FATAL" })),
            "p.code: expected a string, found integer 429",
        ),
        (
            packet("HEARTBEAT", json!("x")),
            r#"op: unknown variant "HEARTBEAT", expected DELTA, EVENT, ERROR or CLOSE"#,
        ),
        (packet("DELTA", json!({})), "p: expected a string, found map"),
        (packet("EVENT", json!("x")), "p: expected an object, found a string"),
        (packet("CLOSE", json!(1)), "p: expected a string or an object, found a number"),
        (json!([]), "document: expected an object, found sequence"),
    ] {
        assert_eq!(read(&value).unwrap_err(), expected);
    }
}

#[test]
fn duplicate_members_of_a_typed_object_are_refused() {
    let text =
        packet("DELTA", json!("x")).to_string().replacen("\"seq\":1", "\"seq\":1,\"seq\":2", 1);
    let error = StreamPacket::decode(&text).unwrap_err();
    assert_eq!((error.kind(), error.path()), (DecodeErrorKind::Duplicate, "seq"));
}

#[test]
fn a_struct_is_never_filled_from_an_array() {
    let members =
        r#"["7c9e6679-7425-40de-944b-e07fc1f90ae7",1,"DELTA","2026-02-03T10:15:37Z","x"]"#;
    assert!(StreamPacket::decode(members).is_err());
    assert!(serde_json::from_str::<StreamPacket>(members).is_err());
    let trace = r#"{"trace":["0b9f3f0e-4b0e-4c7a-9d53-1f2f3c4d5e60","0b9f3f0e-4b0e-4c7a-9d53-1f2f3c4d5e60",null]}"#;
    #[derive(serde::Deserialize)]
    struct Outer {
        #[allow(dead_code)]
        trace: capstan_protocol::TraceContext,
    }
    assert!(serde_json::from_str::<Outer>(trace).is_ok(), "serde alone would");
    let error = decode::from_str::<Outer>(trace).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "trace: expected an object, found sequence");
}

#[test]
fn a_negative_seq_is_refused() {
    let mut value = packet("DELTA", json!("x"));
    value["seq"] = json!(-1);
    assert!(read(&value).unwrap_err().starts_with("seq: "));
}

#[test]
fn what_nests_deeper_than_128_is_refused() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for op in ["EVENT", "CLOSE"] {
        let text = packet(op, json!({ "v": "@" })).to_string().replace("\"@\"", &deep);
        assert_eq!(StreamPacket::decode(&text).unwrap_err().kind(), DecodeErrorKind::Depth, "{op}");
    }
}

#[test]
fn unknown_event_types_are_kept_raw() {
    let p = json!({ "type": "FROM_THE_FUTURE", "data": { "n": 12345678901234567890_u64 } });
    let Payload::Event(raw) = read(&packet("EVENT", p.clone())).unwrap().payload else { panic!() };
    assert_eq!(raw.get(), p.to_string());
    assert_eq!(Event::of(&raw).view(), EventView::Other);
}

#[test]
fn events_are_typed_on_demand_in_both_profiles() {
    let view = |value: Value| Event::of(&RawObject::parse(&value.to_string()).unwrap()).view();
    let progress = json!({ "label": "Indexing", "status": "running", "progress_percent": 0.5 });
    for kind in ["PROGRESS_INDICATOR", "progress_indicator"] {
        assert!(
            matches!(view(json!({ "type": kind, "data": progress })), EventView::Progress(_)),
            "{kind}"
        );
    }
    let v1 = json!({ "citations": [{ "source_id": "s", "uri": "https://e.org", "title": "t",
    "confidence": 1 }] });
    let v2 = json!({ "items": [{ "source_id": "s", "uri": "https://e.org", "title": "t" }] });
    assert_eq!(
        view(json!({ "type": "CITATION_BLOCK", "data": v1 })),
        view(json!({ "type": "citation_block", "data": v2 }))
    );
    let user = json!({ "type": "user_error", "data": { "message": "m", "code": 503,
    "domain": "tool", "retryable": true } });
    assert!(matches!(view(user), EventView::UserError(e) if e.retryable && e.code == Some(503)));
    let reset = json!({ "type": "stream_reset", "data": { "attempt": 2, "after_seq": 7 } });
    assert!(matches!(view(reset), EventView::Reset(r) if r.after_seq == 7));
    assert_eq!(view(json!({ "type": "MARKDOWN_BLOCK", "data": { "no": 1 } })), EventView::Other);
}

#[test]
fn a_user_error_travels_as_an_event() {
    let error = UserError {
        message: "The search tool is down.".into(),
        code: Some(503),
        domain: ErrorDomain::Tool,
        retryable: true,
    };
    let sent = of(Payload::Event(event::envelope(event::USER_ERROR, &error).unwrap()));
    let received = StreamPacket::decode(&sent.to_json()).unwrap();
    assert_eq!((received.op(), &received), (StreamOpCode::Event, &sent));
    let Payload::Event(raw) = received.payload else { panic!() };
    assert_eq!(Event::of(&raw).view(), EventView::UserError(error));
}

#[test]
fn a_user_error_needs_a_message() {
    let error = decode::from_str::<UserError>(r#"{"code":503}"#).unwrap_err();
    assert_eq!(error.to_string(), "message: required member is absent");
}

#[test]
fn an_envelope_has_id_time_type_and_data() {
    let raw = event::envelope(event::USER_ERROR, &json!({ "message": "m" })).unwrap();
    let at = |name: &str| raw.get().find(&format!("\"{name}\":"));
    assert!(["id", "timestamp", "type", "data"].map(at).is_sorted(), "{}", raw.get());
    assert_eq!(raw.to_map().len(), 4);
}

#[test]
fn the_payload_decides_the_op() {
    let error = StreamError::new("c", "m", ErrorSeverity::Fatal);
    assert_eq!(of(Payload::Error(error.into())).op(), StreamOpCode::Error);
    assert_eq!(of(Payload::Delta(String::new())).op(), StreamOpCode::Delta);
    assert_eq!(of(Payload::Event(RawObject::parse("{}").unwrap())).op(), StreamOpCode::Event);
    assert_eq!(of(Payload::Close(Close::Unstated)).op(), StreamOpCode::Close);
}

#[test]
fn text_that_was_checked_is_an_object_like_any_other() {
    let object = RawObject::from_checked(" {\"a\":\n [1, 2]}\t").unwrap();
    assert_eq!(object.get(), r#"{"a":[1,2]}"#);
    assert_eq!(serde_json::to_string(&object).unwrap(), object.get());
    assert_eq!(RawJson::from(object.clone()).get(), object.get());
    assert_eq!(object, RawObject::parse(r#"{"a": [1, 2]}"#).unwrap());
    let wrong = RawObject::from_checked("[1]").unwrap_err();
    assert_eq!(wrong.to_string(), "document: expected an object, found an array");
}

#[test]
fn pretty_printed_payloads_go_out_on_one_line() {
    let raw = RawObject::parse("{\n  \"a\": \"x\\n y\",\r\n  \"b\": [1,\n 2]\n}").unwrap();
    let json = of(Payload::Event(raw)).to_json();
    assert!(!json.contains('\n') && json.contains(r#""p":{"a":"x\n y","b":[1,2]}"#), "{json}");
}

#[test]
fn v2_says_the_same_in_lower_case() {
    let error = StreamError::new("c", "m", ErrorSeverity::Transient).with_detail("retry_after", 1);
    let json = of(Payload::Error(error.into())).to_v2_json();
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["op"], &value["p"]["severity"]), (&json!("error"), &json!("transient")));
    let place = (&value["stream_id"], &value["seq"], &value["t"]);
    let expected = (&json!(uuid::Uuid::nil()), &json!(3), &json!("1970-01-01T00:00:00Z"));
    assert_eq!(place, expected, "sent along, so that healing works");
    assert!(matches!(v2::StreamPacket::decode(&json).unwrap().payload,
        Payload::Error(e) if e.severity == ErrorSeverity::Transient));
}

#[test]
fn v2_sends_a_warning_as_a_user_error_event() {
    let warning = StreamError::new("c", "careful", ErrorSeverity::Warning);
    let value: Value =
        serde_json::from_str(&of(Payload::Error(warning.into())).to_v2_json()).unwrap();
    assert_eq!(
        (&value["op"], &value["p"]["type"], &value["p"]["data"]["domain"]),
        (&json!("event"), &json!("user_error"), &json!("system"))
    );
}

#[test]
fn v2_events_cannot_be_mistaken_for_another_block() {
    for kind in ["THOUGHT_TRACE", "user_error"] {
        let data = json!({ "content": "hm", "items": [], "label": "l", "status": "running" });
        let raw = RawObject::parse(&json!({ "type": kind, "data": data }).to_string()).unwrap();
        let value: Value = serde_json::from_str(&of(Payload::Event(raw)).to_v2_json()).unwrap();
        let data = value["p"]["data"].as_object().unwrap();
        assert!(!data.contains_key("content") && !data.contains_key("items"), "{kind}");
        assert!(!(data.contains_key("label") && data.contains_key("status")), "{kind}");
    }
    let plain = r#"{"type":"user_error","data":{"message":"m","n":12345678901234567890}}"#;
    let json = of(Payload::Event(RawObject::parse(plain).unwrap())).to_v2_json();
    assert!(json.contains(plain), "what cannot be mistaken stays as it is: {json}");
}

#[test]
fn v2_reads_a_close_without_p_and_ignores_junk_beside_it() {
    let packet = v2::StreamPacket::decode(r#"{"op":"close","seq":"no","stream_id":7}"#).unwrap();
    assert_eq!(
        (packet.payload, packet.seq, packet.stream_id),
        (Payload::Close(Close::Unstated), None, None)
    );
}

#[test]
fn a_close_reason_is_found_wherever_it_stands() {
    assert_eq!(Close::Reason("length".into()).reason(), "length");
    assert_eq!(
        Close::Report(RawObject::parse(r#"{"reason":"cancelled"}"#).unwrap()).reason(),
        "cancelled"
    );
    assert_eq!(Close::Unstated.reason(), "completed");
}

#[test]
fn nested_refusals_keep_their_path() {
    let request = json!({ "request_id": "e4eaaaf2-d142-11e1-b3e4-080027620cdd", "context": {
        "session_id": "sess_abc", "agent_id": "e4eaaaf2-d142-11e1-b3e4-080027620cdd" },
        "payload": {} });
    let error = decode::from_value::<capstan_protocol::ServiceRequest>(&request).unwrap_err();
    assert_eq!(error.path(), "context.session_id");
    let event = json!({ "type": "citation_block", "data": { "items": [{ "source_id": "a" }] } });
    let error = decode::from_str::<v2::PresentationEvent>(&event.to_string()).unwrap_err();
    assert_eq!(error.to_string(), "data.items[0].uri: required member is absent");
    let parts = json!({ "role": "user", "parts": [{ "type": "text", "content": "x" },
    { "type": "blob", "content": "x" }] });
    let error = decode::from_str::<capstan_protocol::ChatMessage>(&parts.to_string()).unwrap_err();
    assert_eq!(error.to_string(), "parts[1].modality: required member is absent");
}

//! ADR 0004: assistant frames, their errors, and whole transcripts, against the reference's
//! verdicts.

use crate::common::{text, vectors};
use capstan_protocol::assistant::{AdrError, Assembler, AssistantError, Frame, Line, Outcome};
use capstan_protocol::{DecodeError, ErrorSeverity, Fault, FaultKind};
use serde_json::{Value, json};

fn frame_of(value: &Value) -> Result<Frame, DecodeError> {
    match value.as_object() {
        Some(object) => Frame::from_object(object),
        None => Err(DecodeError::value("", "not an object")),
    }
}

fn error_of(frame: &Frame) -> Option<&AssistantError> {
    if let Frame::Assistant(message) = frame { message.error.as_ref() } else { None }
}

fn text_of(frame: &Frame) -> Option<String> {
    if let Frame::Assistant(message) = frame { Some(message.text()) } else { None }
}

fn check(case: &Value) -> Result<(), String> {
    let id = &case["id"];
    let frame = match (frame_of(&case["input"]), &case["accept"]) {
        (Err(_), Value::Bool(false)) => return Ok(()),
        (Err(e), _) => return Err(format!("{id}: refused ({e}), but {}", case["why"])),
        (Ok(_), Value::Bool(false)) => return Err(format!("{id}: accepted, but {}", case["why"])),
        (Ok(frame), _) => frame,
    };
    if json!(frame.class()) != case["type"] {
        return Err(format!("{id}: type {:?}", frame.class()));
    }
    if case["error"].is_string() || case["error"].is_null() {
        if json!(error_of(&frame).map(AssistantError::as_str)) != case["error"] {
            return Err(format!("{id}: error {:?}, expected {}", error_of(&frame), case["error"]));
        }
        let six = json!(error_of(&frame).and_then(AssistantError::adr));
        if six != case["error6"] {
            return Err(format!("{id}: six-value view {six}, expected {}", case["error6"]));
        }
    }
    if case["text"].is_string() && json!(text_of(&frame)) != case["text"] {
        return Err(format!("{id}: text {:?}", text_of(&frame)));
    }
    Ok(())
}

#[test]
fn every_strict_frame_gets_the_references_verdict() {
    let cases: Vec<Value> =
        vectors("claude/frames.jsonl").into_iter().filter(|c| c["lenient"] != true).collect();
    let failures: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(cases.len() > 200);
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn every_line_is_a_frame_noise_or_an_error_as_the_reference_has_it() {
    for case in vectors("claude/lines.jsonl") {
        let verdict = Line::decode(case["line"].as_str().unwrap());
        let outcome = match &verdict {
            Ok(Line::Object(_)) => "frame",
            Ok(Line::Noise) => "skip",
            Err(_) => "error",
        };
        assert_eq!(outcome, case["outcome"], "{}: {verdict:?}", case["id"]);
        if let Ok(Line::Object(object)) = verdict {
            assert_eq!(
                object.get("error").unwrap_or(&Value::Null),
                &case["error"],
                "{}",
                case["id"]
            );
        }
    }
}

fn assistant(error: Value) -> Value {
    let mut frame = json!({ "type": "assistant", "message": { "model": "m",
    "content": [{ "type": "text", "text": "hi" }] } });
    if error != json!("absent") {
        frame["error"] = error;
    }
    frame
}

#[test]
fn each_of_the_adrs_six_errors_is_typed() {
    for (word, expected) in [
        ("authentication_failed", AdrError::AuthenticationFailed),
        ("billing_error", AdrError::BillingError),
        ("rate_limit", AdrError::RateLimit),
        ("invalid_request", AdrError::InvalidRequest),
        ("server_error", AdrError::ServerError),
        ("unknown", AdrError::Unknown),
    ] {
        let frame = frame_of(&assistant(json!(word))).unwrap();
        let error = error_of(&frame).unwrap();
        assert_eq!(error.as_str(), word);
        assert!(!matches!(error, AssistantError::Other(_)), "{word} is typed");
        assert_eq!(error.adr(), Some(expected));
    }
}

#[test]
fn each_word_that_the_cli_sends_today_is_typed() {
    for word in AssistantError::KNOWN {
        let frame = frame_of(&assistant(json!(word.as_str()))).unwrap();
        assert_eq!(error_of(&frame), Some(&word));
    }
    assert_eq!(AssistantError::KNOWN.len(), 13);
}

#[test]
fn an_absent_error_is_none_and_so_is_null() {
    for absent in [json!("absent"), Value::Null] {
        assert_eq!(error_of(&frame_of(&assistant(absent)).unwrap()), None);
    }
}

#[test]
fn an_unknown_error_is_kept_as_it_came() {
    let frame = frame_of(&assistant(json!("quota_exhausted"))).unwrap();
    assert_eq!(error_of(&frame), Some(&AssistantError::Other("quota_exhausted".into())));
    assert_eq!(error_of(&frame).unwrap().adr(), Some(AdrError::Unknown));
}

#[test]
fn an_error_inside_the_message_is_a_fallback_for_older_clis() {
    let mut value = assistant(json!("absent"));
    value["message"]["error"] = json!("rate_limit");
    let Frame::Assistant(message) = frame_of(&value).unwrap() else { panic!() };
    assert_eq!(
        (message.error.as_ref(), message.any_error()),
        (None, Some(&AssistantError::RateLimit))
    );
    value["error"] = Value::Null;
    let Frame::Assistant(message) = frame_of(&value).unwrap() else { panic!() };
    assert_eq!(message.any_error(), None, "an explicit null at the top level wins");
}

fn stream_event(event: Value) -> Frame {
    frame_of(&json!({ "type": "stream_event", "uuid": "u", "session_id": "s", "event": event }))
        .unwrap()
}

fn assemble(frames: &[Frame]) -> Outcome {
    let mut assembler = Assembler::new();
    frames.iter().for_each(|frame| assembler.push(frame));
    assembler.finish()
}

#[test]
fn an_error_on_message_stop_is_preserved() {
    for stop in [
        json!({ "type": "message_stop", "error": "rate_limit" }),
        json!({ "type": "message_stop", "message": { "error": "rate_limit" } }),
    ] {
        let outcome = assemble(&[
            stream_event(json!({ "type": "message_start", "message": { "id": "m1" } })),
            stream_event(json!({ "type": "content_block_delta", "delta": { "type": "text_delta",
                "text": "half" } })),
            stream_event(stop),
        ]);
        assert_eq!(outcome.messages[0].error, Some(AssistantError::RateLimit));
        assert_eq!(outcome.messages[0].text, "half");
    }
}

#[test]
fn a_late_synthetic_error_is_joined_to_the_message_that_broke_off() {
    let mut late = assistant(json!("server_error"));
    late["message"]["model"] = json!("<synthetic>");
    let outcome = assemble(&[
        stream_event(json!({ "type": "message_start", "message": { "id": "m1" } })),
        stream_event(json!({ "type": "content_block_delta", "delta": { "type": "text_delta",
            "text": "The answer beg" } })),
        stream_event(json!({ "type": "message_stop" })),
        frame_of(&late).unwrap(),
    ]);
    assert_eq!(outcome.messages.len(), 1);
    let message = &outcome.messages[0];
    assert_eq!((message.id.as_deref(), message.text.as_str()), (Some("m1"), "The answer beg"));
    assert!(message.is_partial);
    assert_eq!(message.error, Some(AssistantError::ServerError));
    assert_eq!(message.error_text.as_deref(), Some("hi"));
}

fn transcript(name: &str) -> (Vec<Option<Frame>>, Outcome) {
    let text = text(&format!("claude/transcripts/{name}.jsonl"));
    let frames: Vec<Option<Frame>> = text
        .split('\n')
        .filter_map(|line| match Line::decode(line).unwrap() {
            Line::Object(object) => Some(Frame::from_object(&object).ok()),
            Line::Noise => None,
        })
        .collect();
    let outcome = assemble(&frames.iter().flatten().cloned().collect::<Vec<_>>());
    (frames, outcome)
}

#[test]
fn whole_transcripts_end_as_the_reference_says() {
    let expected: Value = serde_json::from_str(&text("claude/transcripts/expected.json")).unwrap();
    let expected = expected.as_object().unwrap();
    assert!(expected.len() >= 12);
    for (name, expected) in expected {
        let (frames, outcome) = transcript(name);
        let types: Vec<Value> =
            frames.iter().map(|f| json!(f.as_ref().and_then(Frame::class))).collect();
        assert_eq!(json!(types), expected["types"], "{name}");
        let errors: Vec<Value> = frames
            .iter()
            .enumerate()
            .filter_map(|(index, frame)| {
                let frame = frame.as_ref()?;
                let error = error_of(frame)?;
                Some(json!({ "frame": index, "error": error, "error6": error.adr(),
                "text": text_of(frame) }))
            })
            .collect();
        assert_eq!(json!(errors), expected["assistant_errors"], "{name}");
        let joined: usize = outcome.messages.iter().filter(|m| m.error.is_some()).count();
        assert!(
            joined >= errors.len().min(1),
            "{name}: no error is lost on the way to the messages"
        );
        let result = outcome.result.as_ref();
        assert_eq!(json!(result.map(|r| r.is_error)), expected["final"]["is_error"], "{name}");
        assert_eq!(
            json!(result.map(|r| r.subtype.clone())),
            expected["final"]["subtype"],
            "{name}"
        );
        assert_eq!(
            json!(result.and_then(|r| r.api_error_status)),
            expected["final"]["api_error_status"],
            "{name}"
        );
        assert_eq!(
            json!(result.and_then(|r| r.result.clone())),
            expected["final"]["result"],
            "{name}"
        );
    }
}

#[test]
fn a_results_is_error_decides_and_never_its_subtype() {
    let (_, outcome) = transcript("rate_limited");
    let result = outcome.result.as_ref().unwrap();
    assert_eq!((result.subtype.as_str(), result.is_error), ("success", true));
    assert_eq!(outcome.error(), Some(&AssistantError::RateLimit));
}

#[test]
fn assistant_errors_become_the_faults_of_the_contract() {
    use AssistantError as E;
    use ErrorSeverity::{Fatal, Transient};
    for (word, status, kind, severity) in [
        (E::AuthenticationFailed, None, FaultKind::UpstreamAuth, Fatal),
        (E::OauthOrgNotAllowed, None, FaultKind::UpstreamAuth, Fatal),
        (E::CloudCredentialError, None, FaultKind::UpstreamAuth, Fatal),
        (E::BillingError, None, FaultKind::UpstreamQuota, Fatal),
        (E::BillingError, Some(400), FaultKind::UpstreamQuota, Fatal),
        (E::AccountOnHold, None, FaultKind::UpstreamQuota, Fatal),
        (E::VerificationRequired, None, FaultKind::UpstreamQuota, Fatal),
        (E::RateLimit, None, FaultKind::UpstreamError, Transient),
        (E::RateLimit, Some(429), FaultKind::UpstreamError, Transient),
        (E::Overloaded, None, FaultKind::UpstreamError, Transient),
        (E::Overloaded, Some(529), FaultKind::UpstreamError, Transient),
        (E::ServerError, None, FaultKind::UpstreamError, Transient),
        (E::Unknown, Some(401), FaultKind::UpstreamAuth, Fatal),
        (E::Unknown, None, FaultKind::UpstreamError, Fatal),
        (E::InvalidRequest, None, FaultKind::UpstreamError, Fatal),
        (E::ModelNotFound, None, FaultKind::ModelNotFound, Fatal),
        (E::ModelNotFound, Some(404), FaultKind::ModelNotFound, Fatal),
        (E::MaxOutputTokens, None, FaultKind::UpstreamError, Fatal),
        (E::Other("quota_exhausted".into()), None, FaultKind::UpstreamError, Fatal),
    ] {
        let fault = Fault::from_assistant_error(&word, status);
        assert_eq!((fault.kind(), fault.severity()), (kind, severity), "{word} {status:?}");
        assert_eq!(fault.details()["assistant_error"], word.as_str(), "the wire string stays");
        assert_eq!(fault.to_assistant_error(), word, "and is read back");
    }
}

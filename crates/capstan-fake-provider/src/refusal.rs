//! Responses that are no stream: refusals, pages of proxies, and silence before the first byte.

use serde_json::{Value, json};

use crate::fault::Fault;
use crate::protocol::{Complaint, Shape};
use crate::question::Question;
use crate::rule::Rule;
use crate::step::Step;

/// Responses that are no stream.
pub(crate) fn refused(
    shape: Shape,
    question: &Question,
    fault: Option<Fault>,
    rule: &Rule,
) -> Option<Step> {
    let has_prefill = question.prefill.is_some();
    let step = match fault {
        Some(Fault::ResetBeforeHeaders) => Step::Reset,
        Some(Fault::CloseBeforeHeaders) => Step::Close,
        Some(Fault::Silent) => Step::Silence(rule.seconds),
        Some(Fault::ErrorIn200) => json_response(200, &shape.error(&complaint(500)), Vec::new()),
        Some(Fault::Html) => page(200),
        Some(Fault::Html502) => page(502),
        Some(Fault::Moderation) => json_response(403, &moderation(), Vec::new()),
        Some(Fault::ShouldNotRetry) => json_response(
            500,
            &shape.error(&complaint(500)),
            vec![("x-should-retry", "false".into())],
        ),
        Some(Fault::RetryDelay) => {
            json_response(429, &retry_delay(rule.retry_after.unwrap_or(2)), Vec::new())
        }
        Some(Fault::RefusesPrefill) if has_prefill => {
            refusal(shape, complaint_400(Some("invalid_prefill"), PREFILL), rule)
        }
        Some(fault) => refusal(shape, complaint_of(fault)?, rule),
        // The API refuses a prefill with whitespace at its end.
        None if shape == Shape::Messages
            && question.prefill.as_ref().is_some_and(|said| said.trim_end() != said) =>
        {
            refusal(shape, complaint_400(None, TRAILING), rule)
        }
        None => return None,
    };
    Some(step)
}

const PREFILL: &str = "This model does not support assistant message prefill. The conversation \
     must end with a user message.";
const TRAILING: &str = "messages: final assistant content cannot end with trailing whitespace";

fn complaint_400(code: Option<&'static str>, message: &'static str) -> Complaint {
    Complaint { status: 400, kind: "invalid_request_error", code, message: message.into() }
}

fn complaint_of(fault: Fault) -> Option<Complaint> {
    let invalid = |code, message| Some(complaint_400(code, message));
    #[allow(clippy::wildcard_enum_match_arm)] // All others are no refusals.
    match fault {
        Fault::Status(status) => Some(complaint(status)),
        Fault::WrongKey => Some(Complaint { code: Some("invalid_api_key"), ..complaint(401) }),
        Fault::Quota => Some(Complaint {
            status: 429,
            kind: "insufficient_quota",
            code: Some("insufficient_quota"),
            message: "You exceeded your current quota, please check your plan and billing details."
                .into(),
        }),
        Fault::ModelNotFound => Some(Complaint { code: Some("model_not_found"), ..complaint(404) }),
        Fault::InvalidRequest => invalid(None, "Invalid value for 'messages'."),
        Fault::ContextLength => invalid(
            Some("context_length_exceeded"),
            "This model's maximum context length is 8192 tokens; prompt is too long.",
        ),
        Fault::ContentFilter => invalid(
            Some("content_policy_violation"),
            "Refused as a result of our content filtering policy.",
        ),
        _ => None,
    }
}

/// A provider's error text for a status.
pub(crate) fn complaint(status: u16) -> Complaint {
    let (kind, code, message) = match status {
        401 | 403 => ("authentication_error", None, "Incorrect API key provided."),
        404 => ("invalid_request_error", None, "The model does not exist."),
        429 => ("rate_limit_error", Some("rate_limit_exceeded"), "Rate limit reached."),
        503 | 529 => ("server_error", Some("overloaded"), "The engine is currently overloaded."),
        500.. => ("server_error", None, "The server had an error while processing your request."),
        _ => ("invalid_request_error", None, "The request was refused."),
    };
    Complaint { status, kind, code, message: message.into() }
}

/// The error of a router that checks a moderation first.
fn moderation() -> Value {
    let metadata =
        json!({ "reasons": ["violence"], "flagged_input": "…", "provider_name": "fake" });
    json!({ "error": { "code": 403, "message": "Your chosen model requires moderation and your \
     input was flagged.", "metadata": metadata } })
}

/// The error of Google: in a list, with its wait in the details.
fn retry_delay(seconds: u64) -> Value {
    let details = json!([
        { "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [] },
        { "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": format!("{seconds}s") },
    ]);
    json!([{ "error": { "code": 429, "message": "Resource has been exhausted.",
    "status": "RESOURCE_EXHAUSTED", "details": details } }])
}

fn refusal(shape: Shape, complaint: Complaint, rule: &Rule) -> Step {
    let wait = rule.retry_after.map(|seconds| ("retry-after", seconds.to_string()));
    json_response(complaint.status, &shape.error(&complaint), wait.into_iter().collect())
}

pub(crate) fn json_response(
    status: u16,
    body: &Value,
    headers: Vec<(&'static str, String)>,
) -> Step {
    Step::Whole { status, kind: "application/json", headers, body: body.to_string().into_bytes() }
}

fn page(status: u16) -> Step {
    let body = b"<!doctype html><title>Gateway</title><h1>Something went wrong</h1>".to_vec();
    Step::Whole { status, kind: "text/html; charset=utf-8", headers: Vec::new(), body }
}

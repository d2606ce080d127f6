//! Faults in Anthropic's words. Its clients decide by status, by `error.type`, and by single words
//! of the message what they do next; so an error of the provider keeps its own.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::fault::Entry;
use capstan_protocol::{Close, Exposure, Fault, FaultKind};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::face::FaceContext;
use crate::face::RefusalTarget;
use crate::identity::caller::{Caller, LACKS};
use crate::openapi::{Content, Header, Refusals, model};
use crate::refusal::RequestId;

/// The body of a refusal, and the data of an `error` event.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorBody {
    /// Always `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    pub(super) error: ApiError,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
}

/// An error as the SDKs read it, and what we know beyond it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ApiError {
    /// Anthropic's word.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// For people; some clients look for words in it.
    message: String,
    /// The kind of fault in the gateway's own catalogue, at `/v1/errors`.
    code: String,
    /// Whether a new request may succeed.
    retryable: bool,
    /// What else is known.
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
}

/// How a fault is told.
struct Told {
    status: u16,
    kind: &'static str,
}

/// Anthropic's words, and the status that each has.
const WORDS: &[(&str, u16)] = &[
    (INVALID, 400),
    ("authentication_error", 401),
    ("billing_error", 402),
    ("permission_error", 403),
    ("not_found_error", 404),
    ("request_too_large", 413),
    ("rate_limit_error", 429),
    (API, 500),
    ("timeout_error", 504),
    (OVERLOADED, 529),
];

const INVALID: &str = "invalid_request_error";
const API: &str = "api_error";
/// The word after which clients send a request again.
const OVERLOADED: &str = "overloaded_error";

/// The words by which clients know that a conversation is too long.
const TOO_LONG: &str = "prompt is too long";

/// The detail in which an adapter hands on what a provider said about the caller's own request.
const UPSTREAM_MESSAGE: &str = "upstream_message";

impl ErrorBody {
    pub(super) fn of(fault: &Fault, exposure: Exposure) -> Self {
        Self::told(fault, fault.kind(), exposure)
    }

    fn told(fault: &Fault, kind: FaultKind, exposure: Exposure) -> Self {
        let error = ApiError {
            kind: told(fault, kind).kind,
            message: message_of(fault, kind),
            code: fault.code().to_owned(),
            retryable: may_be_repeated(fault, kind),
            details: fault.to_problem(exposure).details.unwrap_or_default(),
        };
        Self { kind: "error", error, request_id: None }
    }

    /// The end of a run that somebody stopped. It is no failure, and no answer; nobody should
    /// ask again by himself.
    pub(super) fn stopped() -> Self {
        let error = ApiError {
            kind: INVALID,
            message: "The run was stopped.".into(),
            code: Close::CANCELLED.into(),
            retryable: false,
            details: Map::new(),
        };
        Self { kind: "error", error, request_id: None }
    }

    /// What makes a client send its request again: it gets the run from its beginning, without
    /// what was taken back.
    pub(super) fn again(fault: &Fault, exposure: Exposure) -> Self {
        let mut body = Self::of(fault, exposure);
        body.error.kind = OVERLOADED;
        body.error.retryable = true;
        body
    }
}

/// The words for kinds of faults. Others are called by their status.
const KINDS: &[(&str, &[FaultKind])] = &[
    (
        "rate_limit_error",
        &[
            FaultKind::RateLimitExceeded,
            FaultKind::SessionLimitExceeded,
            FaultKind::StorageLimitExceeded,
        ],
    ),
    ("timeout_error", &[FaultKind::Timeout, FaultKind::UpstreamTimeout]),
    ("authentication_error", &[FaultKind::TenantRequired]),
    ("permission_error", &[FaultKind::TenantUnauthorized]),
    ("request_too_large", &[FaultKind::PayloadTooLarge]),
    (
        "not_found_error",
        &[
            FaultKind::AgentNotFound,
            FaultKind::ModelNotFound,
            FaultKind::RouteNotFound,
            FaultKind::StreamNotFound,
            FaultKind::SessionNotFound,
        ],
    ),
    ("billing_error", &[FaultKind::UpstreamQuota]),
    (
        OVERLOADED,
        &[FaultKind::ServiceUnavailable, FaultKind::RunInterrupted, FaultKind::JournalUnavailable],
    ),
    // The operator's to mend: the caller's key is right.
    (API, &[FaultKind::UpstreamAuth]),
    (INVALID, &[FaultKind::ContextLengthExceeded, FaultKind::ContentRefused]),
];

/// What a fault that is not the provider's own is called.
fn told_by_kind(kind: FaultKind) -> Told {
    let own = kind.entry().status;
    let usual = if (400..500).contains(&own) { INVALID } else { API };
    let row = KINDS.iter().find(|(_, kinds)| kinds.contains(&kind));
    let word = row.map_or(usual, |(word, _)| *word);
    // Those that have no word but a status of their own keep it.
    let status = match matches!(own, 405 | 409 | 415) && row.is_none() {
        true => own,
        false => WORDS.iter().find(|(known, _)| *known == word).map_or(500, |(_, status)| *status),
    };
    Told { status, kind: word }
}

fn told(fault: &Fault, kind: FaultKind) -> Told {
    own_word(fault).unwrap_or_else(|| told_by_kind(kind))
}

/// A provider's own word for its failure, if it speaks this protocol. Whose key was refused is
/// told in ours: the caller's was not.
fn own_word(fault: &Fault) -> Option<Told> {
    if matches!(fault.kind(), FaultKind::UpstreamAuth | FaultKind::UpstreamQuota) {
        return None;
    }
    let told = fault.details().get("upstream_status").and_then(Value::as_u64);
    let status = told.and_then(|status| u16::try_from(status).ok()).filter(|s| *s >= 400);
    let word = fault.details().get("upstream_error").and_then(Value::as_str);
    if let Some((kind, usual)) = WORDS.iter().find(|(known, _)| Some(*known) == word) {
        return Some(Told { status: status.unwrap_or(*usual), kind });
    }
    // Another protocol's provider about the client's own request.
    let status = status.filter(|_| fault.details().contains_key(UPSTREAM_MESSAGE))?;
    let row = WORDS.iter().find(|(_, usual)| *usual == status);
    Some(row.map_or(Told { status: 400, kind: INVALID }, |(kind, _)| Told { status, kind }))
}

/// Whether a new request may succeed. One that is wrong does not, whatever its kind allows.
fn may_be_repeated(fault: &Fault, kind: FaultKind) -> bool {
    let status = told(fault, kind).status;
    fault.is_retryable() && (status >= 500 || matches!(status, 408 | 429))
}

/// With the words that clients look for.
fn message_of(fault: &Fault, kind: FaultKind) -> String {
    let own = fault.details().get(UPSTREAM_MESSAGE).and_then(Value::as_str);
    let message = own.unwrap_or(fault.message());
    if kind == FaultKind::ContextLengthExceeded && !message.contains(TOO_LONG) {
        return format!("{TOO_LONG}: {message}");
    }
    if matches!(kind, FaultKind::AgentNotFound | FaultKind::ModelNotFound) {
        return format!("model: {message}");
    }
    message.to_owned()
}

/// The status of a kind, as `/openapi.json` lists it.
fn status_of(entry: &Entry) -> u16 {
    told_by_kind(entry.kind).status
}

/// A fault as an answer.
pub(super) fn response(cx: &FaceContext, fault: &Fault, asker: RefusalTarget<'_>) -> Response {
    // An unknown key is 401, one that may not do this 403.
    let is_stranger = matches!(asker, RefusalTarget::BeforeFace(_)) && !cx.is_local();
    let is_unknown_key = fault.kind() == FaultKind::TenantUnauthorized
        && is_stranger
        && !fault.details().contains_key(LACKS);
    let kind = if is_unknown_key { FaultKind::TenantRequired } else { fault.kind() };
    let mut body = ErrorBody::told(fault, kind, cx.engine.settings.exposure);
    let id = asker.parts().and_then(|parts| parts.extensions.get::<RequestId>());
    body.request_id = id.map(|RequestId(id)| id.clone());
    let status =
        StatusCode::from_u16(told(fault, kind).status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let should_retry = if may_be_repeated(fault, kind) { "true" } else { "false" };
    headers.insert(SHOULD_RETRY.name, HeaderValue::from_static(should_retry));
    if let Some(seconds) = fault.retry_after() {
        // A client waits as it is told, and the run that it repeats must still be there.
        if let Some(caller) = asker.parts().and_then(|parts| parts.extensions.get::<Caller>()) {
            cx.engine.readers.expect(&cx.engine, &caller.tenant, Duration::from_secs(seconds));
        }
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The answer to one who waits for a run that somebody stopped.
pub(super) fn stopped() -> Response {
    let mut response = (StatusCode::BAD_REQUEST, Json(ErrorBody::stopped())).into_response();
    response.headers_mut().insert(SHOULD_RETRY.name, HeaderValue::from_static("false"));
    response
}

pub(super) const SHOULD_RETRY: Header = Header {
    name: "x-should-retry",
    says: "Whether a new request may succeed; the SDKs believe it more than the status.",
    schema: || serde_json::json!({ "enum": ["true", "false"] }),
};

/// How rows describe all this.
pub(super) const REFUSALS: Refusals =
    Refusals { status: status_of, content: Content::Json(model::<ErrorBody>) };

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fault: &Fault) -> (u16, Value) {
        let body = ErrorBody::of(fault, Exposure::Production);
        (told(fault, fault.kind()).status, serde_json::to_value(body).unwrap()["error"].clone())
    }

    #[test]
    fn every_fault_has_one_of_anthropics_words_and_its_status() {
        for kind in FaultKind::ALL {
            let (status, error) = body(&Fault::new(*kind));
            let (_, usual) = WORDS.iter().find(|(word, _)| error["type"] == **word).unwrap();
            assert_eq!(*usual >= 500, status >= 500, "{kind}");
            assert_eq!(error["code"], kind.entry().code);
        }
    }

    #[test]
    fn a_providers_own_word_and_status_are_kept() {
        let fault = Fault::new(FaultKind::UpstreamError)
            .with_detail("upstream_error", "overloaded_error")
            .with_detail("upstream_status", 529);
        assert_eq!(body(&fault).0, 529);
        assert_eq!(body(&fault).1["type"], "overloaded_error");
        let fault = Fault::new(FaultKind::UpstreamAuth)
            .with_detail("upstream_error", "authentication_error")
            .with_detail("upstream_status", 401);
        assert_eq!((body(&fault).0, &body(&fault).1["type"]), (500, &Value::from("api_error")));
    }

    #[test]
    fn the_words_that_clients_look_for_are_there() {
        let (_, error) = body(&Fault::new(FaultKind::ContextLengthExceeded));
        assert!(error["message"].as_str().unwrap().starts_with("prompt is too long"));
        let (_, error) = body(&Fault::new(FaultKind::AgentNotFound));
        assert!(error["message"].as_str().unwrap().starts_with("model: "));
    }
}

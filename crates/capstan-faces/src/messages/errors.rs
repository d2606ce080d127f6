//! Translates faults into Anthropic's errors. Clients decide by the status, by `error.type` and by
//! words in the message what to do next, so an error of Anthropic's provider is handed on
//! unchanged.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::fault::Entry;
use capstan_protocol::{Close, Exposure, Fault, FaultKind};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
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

/// An error as the SDKs read it, with members of our own.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ApiError {
    /// Anthropic's type of error.
    #[serde(rename = "type")]
    pub(super) kind: Cow<'static, str>,
    /// For people. Some clients look for words in it.
    message: String,
    /// The kind of fault in the gateway's own catalogue, at `/v1/errors`.
    code: String,
    /// Whether a new request may succeed.
    retryable: bool,
    /// More details.
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
}

/// The status and the type of an error.
struct WireError {
    status: u16,
    kind: Cow<'static, str>,
}

/// Anthropic's types of errors, each with its usual status.
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
/// The type after which clients repeat a request.
const OVERLOADED: &str = "overloaded_error";

/// The words by which clients recognize that a conversation is too long.
const TOO_LONG: &str = "prompt is too long";

/// The detail in which an adapter hands on what a provider said about the caller's own request.
const UPSTREAM_MESSAGE: &str = "upstream_message";
/// The detail with the headers of an error that is handed on as its provider wrote it.
const UPSTREAM_HEADERS: &str = "upstream_headers";

impl ErrorBody {
    pub(super) fn of(fault: &Fault, exposure: Exposure) -> Self {
        Self::with_kind(fault, fault.kind(), exposure)
    }

    fn with_kind(fault: &Fault, kind: FaultKind, exposure: Exposure) -> Self {
        let error = ApiError {
            kind: wire_error(fault, kind).kind,
            message: message_of(fault, kind),
            code: fault.code().to_owned(),
            retryable: may_be_repeated(fault, kind),
            details: details_of(fault, exposure),
        };
        Self { kind: "error", error, request_id: None }
    }

    /// The end of a stopped run. It is neither a failure nor an answer, and no client should repeat
    /// the request by itself.
    pub(super) fn stopped() -> Self {
        let error = ApiError {
            kind: INVALID.into(),
            message: "The run was stopped.".into(),
            code: Close::CANCELLED.into(),
            retryable: false,
            details: Map::new(),
        };
        Self { kind: "error", error, request_id: None }
    }

    /// Makes a client repeat its request. It then gets the run from its beginning, without the part
    /// that was taken back.
    pub(super) fn to_repeat(fault: &Fault, exposure: Exposure) -> Self {
        let mut body = Self::of(fault, exposure);
        body.error.kind = OVERLOADED.into();
        body.error.retryable = true;
        body
    }
}

/// The types for kinds of faults. The others get a type by their status.
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
    // The operator has to fix it: the caller's key is right.
    (API, &[FaultKind::UpstreamAuth]),
    (INVALID, &[FaultKind::ContextLengthExceeded, FaultKind::ContentRefused]),
];

/// The type and status of a fault that is not the provider's own error.
fn wire_error_of_kind(kind: FaultKind) -> WireError {
    let own = kind.entry().status;
    let usual = if (400..500).contains(&own) { INVALID } else { API };
    let row = KINDS.iter().find(|(_, kinds)| kinds.contains(&kind));
    let word = row.map_or(usual, |(word, _)| *word);
    // Faults without a type that have a status of their own keep it.
    let status = match matches!(own, 405 | 409 | 415) && row.is_none() {
        true => own,
        false => WORDS.iter().find(|(known, _)| *known == word).map_or(500, |(_, status)| *status),
    };
    WireError { status, kind: word.into() }
}

fn wire_error(fault: &Fault, kind: FaultKind) -> WireError {
    provider_error(fault).unwrap_or_else(|| wire_error_of_kind(kind))
}

/// The details of an error.
fn details_of(fault: &Fault, exposure: Exposure) -> Map<String, Value> {
    let mut details = fault.to_problem(exposure).details.unwrap_or_default();
    // They are in the message and the headers already.
    if details.remove(UPSTREAM_HEADERS).is_some() {
        details.remove(UPSTREAM_MESSAGE);
    }
    details
}

/// The status of the provider's error response.
fn upstream_status(fault: &Fault) -> Option<u16> {
    let status = fault.details().get("upstream_status").and_then(Value::as_u64);
    status.and_then(|status| u16::try_from(status).ok()).filter(|status| *status >= 400)
}

/// Whether the error is handed on as its provider wrote it: status, type, message and headers.
fn is_handed_on(fault: &Fault) -> bool {
    fault.details().contains_key(UPSTREAM_HEADERS)
}

/// The type and the status of an error that is handed on. Only 401 becomes another error, because
/// the caller's key is right.
fn handed_on(fault: &Fault) -> Option<WireError> {
    let word = fault.details().get("upstream_error").and_then(Value::as_str)?.to_owned();
    let known = WORDS.iter().find(|(known, _)| *known == word);
    // A compatible server may use another protocol's types.
    if known.is_none() && !word.ends_with("_error") {
        return None;
    }
    let usual = known.map_or(500, |(_, usual)| *usual);
    Some(match upstream_status(fault).unwrap_or(usual) {
        401 => WireError { status: 500, kind: API.into() },
        status => WireError { status, kind: word.into() },
    })
}

/// The provider's own type for its failure, if it has one. A refused key gets a type of ours,
/// because it is not the caller's key.
fn provider_error(fault: &Fault) -> Option<WireError> {
    if let Some(error) = handed_on(fault).filter(|_| is_handed_on(fault)) {
        return Some(error);
    }
    if matches!(fault.kind(), FaultKind::UpstreamAuth | FaultKind::UpstreamQuota) {
        return None;
    }
    let status = upstream_status(fault);
    let word = fault.details().get("upstream_error").and_then(Value::as_str);
    if let Some((kind, usual)) = WORDS.iter().find(|(known, _)| Some(*known) == word) {
        return Some(WireError { status: status.unwrap_or(*usual), kind: (*kind).into() });
    }
    // Another protocol's provider about the client's own request.
    let status = status.filter(|_| fault.details().contains_key(UPSTREAM_MESSAGE))?;
    let row = WORDS.iter().find(|(_, usual)| *usual == status);
    Some(row.map_or(WireError { status: 400, kind: INVALID.into() }, |(kind, _)| WireError {
        status,
        kind: (*kind).into(),
    }))
}

/// Whether a new request may succeed. A wrong request does not, whatever its kind allows.
fn may_be_repeated(fault: &Fault, kind: FaultKind) -> bool {
    let status = wire_error(fault, kind).status;
    fault.is_retryable() && (status >= 500 || matches!(status, 408 | 429))
}

/// The message, with the words that clients look for.
fn message_of(fault: &Fault, kind: FaultKind) -> String {
    let own = fault.details().get(UPSTREAM_MESSAGE).and_then(Value::as_str);
    let message = own.unwrap_or(fault.message());
    if is_handed_on(fault) {
        return message.to_owned();
    }
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
    wire_error_of_kind(entry.kind).status
}

/// A fault as an answer.
pub(super) fn response(cx: &FaceContext, fault: &Fault, asker: RefusalTarget<'_>) -> Response {
    // An unknown key is 401, one that may not do this 403.
    let is_stranger = matches!(asker, RefusalTarget::BeforeFace(_)) && !cx.is_local();
    let is_unknown_key = fault.kind() == FaultKind::TenantUnauthorized
        && is_stranger
        && !fault.details().contains_key(LACKS);
    let kind = if is_unknown_key { FaultKind::TenantRequired } else { fault.kind() };
    let mut body = ErrorBody::with_kind(fault, kind, cx.engine.settings().exposure);
    let id = asker.parts().and_then(|parts| parts.extensions.get::<RequestId>());
    body.request_id = id.map(|RequestId(id)| id.clone());
    let status = StatusCode::from_u16(wire_error(fault, kind).status)
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let is_own = hand_on_headers(fault, headers);
    // Clients know themselves what to do after an error of Anthropic's.
    if !is_own || upstream_status(fault) == Some(401) {
        let should_retry = if may_be_repeated(fault, kind) { "true" } else { "false" };
        headers.insert(SHOULD_RETRY.name, HeaderValue::from_static(should_retry));
    }
    if let Some(seconds) = fault.retry_after() {
        // The client waits that long, and the run that it repeats must still exist then.
        if let Some(caller) = asker.parts().and_then(|parts| parts.extensions.get::<Caller>()) {
            cx.engine.expect_client(&caller.tenant, Duration::from_secs(seconds));
        }
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Copies the headers of an error that is handed on. False if it is none.
fn hand_on_headers(fault: &Fault, headers: &mut HeaderMap) -> bool {
    let given = fault.details().get(UPSTREAM_HEADERS).and_then(Value::as_object);
    for (name, value) in given.into_iter().flatten() {
        let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
        if let (Ok(name), Some(value)) = (HeaderName::try_from(name.as_str()), value) {
            headers.insert(name, value);
        }
    }
    given.is_some()
}

/// The answer to a client that waits for a run that was stopped.
pub(super) fn stopped() -> Response {
    let mut response = (StatusCode::BAD_REQUEST, Json(ErrorBody::stopped())).into_response();
    response.headers_mut().insert(SHOULD_RETRY.name, HeaderValue::from_static("false"));
    response
}

pub(super) const SHOULD_RETRY: Header = Header {
    name: "x-should-retry",
    says: "Whether a new request may succeed. The SDKs give it precedence over the status.",
    schema: || serde_json::json!({ "enum": ["true", "false"] }),
};

/// The description of refusals in OpenAPI rows.
pub(super) const REFUSALS: Refusals =
    Refusals { status: status_of, content: Content::Json(model::<ErrorBody>) };

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fault: &Fault) -> (u16, Value) {
        let body = ErrorBody::of(fault, Exposure::Production);
        (
            wire_error(fault, fault.kind()).status,
            serde_json::to_value(body).unwrap()["error"].clone(),
        )
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

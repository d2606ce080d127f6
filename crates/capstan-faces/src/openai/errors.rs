//! Faults as OpenAI's errors. The SDKs choose the exception by the status alone. They retry by the
//! status and `x-should-retry`, so a fault that a retry cannot fix must say so in both.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::fault::Entry;
use capstan_protocol::{ErrorSeverity, Exposure, Fault, FaultKind};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::face::FaceContext;
use crate::face::RefusalTarget;
use crate::identity::caller::{Caller, LACKS};
use crate::openapi::{Content, Header, Refusals, model};

/// The body of a refusal, and of an error in a stream.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorBody {
    pub(super) error: ApiError,
}

/// An error as the SDKs read it, with members of the gateway's own.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ApiError {
    /// A text for people.
    pub(super) message: String,
    /// `invalid_request_error`, `rate_limit_error`, `insufficient_quota` or `server_error`.
    #[serde(rename = "type")]
    kind_of: &'static str,
    /// The member of the request that is wrong.
    pub(super) param: Option<String>,
    /// OpenAI's or the provider's code where there is one, else the kind.
    pub(super) code: String,
    /// The kind of fault in the gateway's own catalogue, at `/v1/errors`.
    kind: String,
    /// Whether the run is over.
    severity: &'static str,
    /// Whether a new request may succeed.
    retryable: bool,
    /// Seconds to wait before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// Further facts.
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
}

impl ApiError {
    pub(super) fn of(fault: &Fault, exposure: Exposure) -> Self {
        Self::with_kind(fault, fault.kind(), exposure)
    }

    fn with_kind(fault: &Fault, kind: FaultKind, exposure: Exposure) -> Self {
        let details = fault.to_problem(exposure).details.unwrap_or_default();
        let param = ["path", "upstream_param"].into_iter().find_map(|name| word(fault, name));
        let param = param.or((kind == FaultKind::AgentNotFound).then_some("model"));
        Self {
            message: word(fault, UPSTREAM_MESSAGE).unwrap_or(fault.message()).to_owned(),
            kind_of: type_of(fault, kind),
            param: param.map(str::to_owned),
            code: code_of(fault, kind),
            kind: fault.code().to_owned(),
            severity: fault.severity().as_str(),
            retryable: fault.is_retryable(),
            retry_after: fault.retry_after(),
            details,
        }
    }
}

/// OpenAI's own codes.
const CODES: &[(FaultKind, &str)] = &[
    (FaultKind::AgentNotFound, "model_not_found"),
    (FaultKind::ModelNotFound, "model_not_found"),
    (FaultKind::UpstreamQuota, "insufficient_quota"),
    (FaultKind::TenantRequired, "invalid_api_key"),
];

/// The detail of a fault that names OpenAI's code for it.
pub(super) const CODE: &str = "code";

/// OpenAI's statuses where they differ from the catalogue's.
const STATUSES: &[(FaultKind, u16)] = &[
    // The SDKs have no exception for 410.
    (FaultKind::StreamExpired, 404),
    (FaultKind::StreamLost, 404),
    (FaultKind::ModelNotFound, 404),
    // The request is wrong, so clients must not retry.
    (FaultKind::ContextLengthExceeded, 400),
    (FaultKind::ContentRefused, 400),
    (FaultKind::AnswerTooLarge, 400),
    (FaultKind::StreamTooLong, 400),
    (FaultKind::InterruptNotOpen, 400),
    (FaultKind::UpstreamQuota, 429),
    // The operator has to fix it. Some clients retry a 502 whatever the headers say.
    (FaultKind::UpstreamAuth, 500),
];

/// The detail with the message of a provider about the client's own request.
const UPSTREAM_MESSAGE: &str = "upstream_message";

/// A detail that is a non-empty text.
fn word<'a>(fault: &'a Fault, name: &str) -> Option<&'a str> {
    fault.details().get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// The provider's status, if the fault is a provider's refusal of the request.
fn quoted_status(fault: &Fault) -> Option<u16> {
    word(fault, UPSTREAM_MESSAGE)?;
    let status = fault.details().get("upstream_status").and_then(Value::as_u64)?;
    u16::try_from(status).ok().filter(|status| (400..500).contains(status))
}

/// The provider's code, if the fault is a provider's refusal of the request. Values such as
/// `invalid_request_error` are types, not codes.
fn quoted_code(fault: &Fault) -> Option<&str> {
    quoted_status(fault)?;
    let code = word(fault, "upstream_error").filter(|word| !word.ends_with("_error"));
    let usual = FaultKind::InvalidRequest.entry().code;
    code.or((fault.kind() == FaultKind::UpstreamError).then_some(usual))
}

/// The code of an error.
fn code_of(fault: &Fault, kind: FaultKind) -> String {
    let known = || CODES.iter().find(|(known, _)| *known == kind).map(|(_, code)| *code);
    let given = word(fault, CODE).or_else(|| quoted_code(fault)).or_else(known);
    given.unwrap_or(fault.code()).to_owned()
}

fn type_of(fault: &Fault, kind: FaultKind) -> &'static str {
    match (kind, status_of_fault(fault, kind)) {
        (FaultKind::UpstreamQuota, _) => "insufficient_quota",
        (_, 429) => "rate_limit_error",
        (_, 500..) => "server_error",
        _ => "invalid_request_error",
    }
}

/// The status of a kind, as `/openapi.json` lists it.
fn status_of(entry: &Entry) -> u16 {
    status_of_kind(entry.kind)
}

fn status_of_fault(fault: &Fault, kind: FaultKind) -> u16 {
    quoted_status(fault).unwrap_or_else(|| status_of_kind(kind))
}

fn status_of_kind(kind: FaultKind) -> u16 {
    STATUSES
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or(kind.entry().status, |(_, status)| *status)
}

/// Encodes a fault as a response.
pub(super) fn response(cx: &FaceContext, fault: &Fault, target: RefusalTarget<'_>) -> Response {
    // OpenAI answers an unknown key with 401, and a key without permission with 403.
    let is_stranger = matches!(target, RefusalTarget::BeforeFace(_)) && !cx.is_local();
    let is_unknown_key = fault.kind() == FaultKind::TenantUnauthorized
        && is_stranger
        && !fault.details().contains_key(LACKS);
    let kind = if is_unknown_key { FaultKind::TenantRequired } else { fault.kind() };
    let error = ApiError::with_kind(fault, kind, cx.engine.settings().exposure);
    let status = StatusCode::from_u16(status_of_fault(fault, kind))
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(ErrorBody { error })).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(SHOULD_RETRY.name, HeaderValue::from_static(should_retry(fault)));
    if let Some(seconds) = fault.retry_after() {
        // The SDK waits that long before it retries. Its run must not be stopped before that.
        if let Some(caller) = target.parts().and_then(|parts| parts.extensions.get::<Caller>()) {
            cx.engine.expect_client(&caller.tenant, Duration::from_secs(seconds));
        }
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Whether the client should retry. A run that ended with a FATAL fault has had its attempts.
fn should_retry(fault: &Fault) -> &'static str {
    match fault.severity() {
        ErrorSeverity::Transient => "true",
        ErrorSeverity::Fatal | ErrorSeverity::Warning => "false",
    }
}

pub(super) const SHOULD_RETRY: Header = Header {
    name: "x-should-retry",
    says: "Whether a retry can help. The SDKs give it precedence over the status.",
    schema: || serde_json::json!({ "enum": ["true", "false"] }),
};

/// The description of refusals for `/openapi.json`.
pub(super) const REFUSALS: Refusals =
    Refusals { status: status_of, content: Content::Json(model::<ErrorBody>) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fatal_kind_is_an_upstream_failure_and_no_class_is_lost() {
        for kind in FaultKind::ALL {
            let status = status_of_kind(*kind);
            if kind.entry().severity == ErrorSeverity::Fatal {
                assert!(
                    status < 501,
                    "{kind}: {status} is repeated by clients that ignore x-should-retry"
                );
            } else {
                assert_eq!(status, kind.entry().status, "{kind}");
            }
            let error = ApiError::of(&Fault::new(*kind), Exposure::Production);
            assert_eq!(error.kind_of == "server_error", status >= 500, "{kind}");
            assert_eq!(error.kind, kind.entry().code);
        }
    }

    #[test]
    fn the_member_that_is_wrong_is_the_param() {
        let wrong = capstan_protocol::DecodeError::value("messages[0].role", "is none");
        let error = ApiError::of(&capstan_engine::ask::invalid(&wrong), Exposure::Production);
        assert_eq!(
            (error.param.as_deref(), error.code.as_str()),
            (Some("messages[0].role"), "invalid_request")
        );
        let error = ApiError::of(&Fault::new(FaultKind::AgentNotFound), Exposure::Production);
        assert_eq!(
            (error.param.as_deref(), error.code.as_str()),
            (Some("model"), "model_not_found")
        );
    }
}

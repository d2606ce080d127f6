//! A call: its version and binding, and the form of its answer or refusal.

use axum::body::Body;
use axum::response::Response;
use capstan_protocol::{Exposure, Fault, FaultKind};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::push_config::Config;
use super::version::{Version, with};
use crate::query;
use crate::refusal::ShapedByFace;

/// The call, as an extension of the request.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The id of a JSON-RPC call; none in HTTP+JSON.
    pub(super) id: Option<Value>,
    pub(super) version: Version,
    /// The client wants the task as one object.
    pub(super) wants_collected: bool,
    /// The client also waits for the task's end.
    pub(super) is_blocking: bool,
    /// The push notification config of the call.
    pub(super) push: Option<Config>,
}

impl Call {
    pub(super) fn of(parts: &Parts) -> Self {
        let none = Self {
            id: None,
            version: Version::V1,
            wants_collected: false,
            is_blocking: false,
            push: None,
        };
        parts.extensions.get::<Self>().cloned().unwrap_or(none)
    }

    /// A call to a path, before its body is decoded.
    pub(super) fn at(path: &str) -> Self {
        const REST: [&str; 5] =
            ["/message:", "/tasks", "/.well-known/", "/extendedAgentCard", "/a2a/v1/"];
        let is_rest = REST.iter().any(|part| path.contains(part));
        let id = (!is_rest).then_some(Value::Null);
        let version = if path.contains("/a2a/v1/") { Version::Rest03 } else { Version::V1 };
        Self { id, version, wants_collected: false, is_blocking: false, push: None }
    }

    /// Wraps a result for a stream or an answer.
    pub(super) fn result(&self, value: Value) -> Value {
        match &self.id {
            Some(id) => json!({ "jsonrpc": "2.0", "id": id, "result": value }),
            None => value,
        }
    }

    pub(super) fn answer(&self, value: Value) -> Response {
        json_response(StatusCode::OK, &self.result(value))
    }

    /// JSON-RPC errors have status 200, because clients drop the body of any other status. 401,
    /// 403, 429 and 503 keep their status, because no JSON-RPC code means the same.
    pub(super) fn refuse(&self, wrong: &Wrong) -> Response {
        let info = json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": wrong.reason,
            "domain": "a2a-protocol.org", "metadata": wrong.metadata });
        let (status, body) = match &self.id {
            Some(id) => {
                let error = json!({ "code": wrong.code, "message": wrong.message, "data": [info] });
                let status = if wrong.is_by_status { wrong.status } else { 200 };
                (status, json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
            None if self.version == Version::Rest03 => (
                wrong.status,
                json!({ "code": wrong.code, "message": wrong.message, "data": [info] }),
            ),
            None => {
                let error = json!({ "code": wrong.status, "status": wrong.rpc_status(),
                "message": wrong.message, "details": [info] });
                (wrong.status, json!({ "error": error }))
            }
        };
        let mut response = json_response(StatusCode::from_u16(status).unwrap_or_default(), &body);
        response.extensions_mut().insert(ShapedByFace);
        if let Some(seconds) = wrong.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The header that names a version; in the query it has the same name.
const VERSION: &str = "A2A-Version";

/// Refuses a request that names an unknown version. Otherwise the method or path decides the
/// version.
pub(super) fn unknown_version(parts: &Parts) -> Option<Wrong> {
    let named = parts
        .headers
        .get(VERSION)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let named = named.or_else(|| query::parse::<InQuery>(&parts.uri).ok()?.version)?;
    let is_known = named.trim().is_empty() || SPOKEN.iter().any(|known| is_of(named.trim(), known));
    (!is_known).then(|| {
        let message = format!(
            "Version {:?} is not supported. Supported are 1.0 and \
            0.3.",
            named.trim()
        );
        Wrong::new(-32009, 400, "VERSION_NOT_SUPPORTED", message)
    })
}

const SPOKEN: [&str; 2] = ["1.0", "0.3"];

#[derive(Deserialize)]
struct InQuery {
    #[serde(rename = "A2A-Version")]
    version: Option<String>,
}

/// Whether a version equals this one, apart from its patch number.
fn is_of(version: &str, known: &str) -> bool {
    version.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// An error of A2A.
#[derive(Debug)]
pub(super) struct Wrong {
    code: i32,
    status: u16,
    reason: &'static str,
    message: String,
    metadata: Value,
    retry_after: Option<u64>,
    /// The error keeps its HTTP status also in JSON-RPC.
    is_by_status: bool,
}

impl Wrong {
    fn new(code: i32, status: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            status,
            reason,
            message: message.into(),
            metadata: json!({}),
            retry_after: None,
            is_by_status: false,
        }
    }

    pub(super) fn unparsable(message: impl Into<String>) -> Self {
        Self::new(-32700, 400, "PARSE_ERROR", message)
    }

    pub(super) fn invalid_call(message: impl Into<String>) -> Self {
        Self::new(-32600, 400, "INVALID_REQUEST", message)
    }

    pub(super) fn unknown_method(name: &str) -> Self {
        Self::new(-32601, 404, "METHOD_NOT_FOUND", format!("There is no method {name:?}."))
    }

    pub(super) fn not_cancelable() -> Self {
        Self::new(
            -32002,
            409,
            "TASK_NOT_CANCELABLE",
            "The task has ended, so it cannot be cancelled.",
        )
    }

    pub(super) fn no_push() -> Self {
        Self::new(
            -32003,
            400,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
            "This server sends no push notifications.",
        )
    }

    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(-32004, 400, "UNSUPPORTED_OPERATION", message)
    }

    pub(super) fn of(fault: &Fault, exposure: Exposure) -> Self {
        let problem = fault.to_problem(exposure);
        let (code, status, reason) = words_of(fault.kind(), problem.status);
        let mut metadata = json!({ "code": problem.code, "severity": problem.severity });
        if let Some(details) = problem.details {
            metadata = with(metadata, "details", Value::Object(details).to_string());
        }
        let is_gone = matches!(fault.kind(), FaultKind::StreamNotFound | FaultKind::StreamExpired);
        // The catalogue's stream is a task here.
        let message = match is_gone && fault.message() == Fault::new(fault.kind()).message() {
            true => "The task was not found: it never existed, or it has expired.".to_owned(),
            false => problem.detail.unwrap_or(problem.title),
        };
        let is_by_status = matches!(status, 401 | 403 | 405 | 413 | 415 | 429 | 503)
            || fault.kind() == FaultKind::RouteNotFound;
        let retry_after = problem.retry_after;
        Self { metadata, retry_after, is_by_status, ..Self::new(code, status, reason, message) }
    }

    fn rpc_status(&self) -> &'static str {
        match self.status {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 | 410 => "NOT_FOUND",
            409 => "FAILED_PRECONDITION",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            504 => "DEADLINE_EXCEEDED",
            _ => "INTERNAL",
        }
    }
}

fn words_of(kind: FaultKind, status: u16) -> (i32, u16, &'static str) {
    #[allow(clippy::wildcard_enum_match_arm)] // What is not listed has no word of its own in A2A.
    match kind {
        FaultKind::StreamNotFound | FaultKind::StreamExpired => (-32001, 404, "TASK_NOT_FOUND"),
        FaultKind::InterruptNotOpen => (-32004, 400, "UNSUPPORTED_OPERATION"),
        FaultKind::InvalidRequest | FaultKind::RequestConflict => (-32602, 400, "INVALID_PARAMS"),
        FaultKind::UnsupportedMediaType => (-32005, 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        FaultKind::RouteNotFound | FaultKind::MethodNotAllowed => {
            (-32601, status, "METHOD_NOT_FOUND")
        }
        _ => (-32603, status, "INTERNAL_ERROR"),
    }
}

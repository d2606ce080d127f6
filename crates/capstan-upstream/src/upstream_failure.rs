//! The description of an upstream's failure, and its translation to a fault. One table serves all
//! providers, because compatible servers borrow codes from each other.

use std::time::{Duration, SystemTime};

use capstan_protocol::fault::Cause;
use capstan_protocol::{ErrorSeverity, Fault, FaultKind};
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;
use url::Url;

use crate::api_key::ApiKey;
use crate::failed_call::FailedCall;
use crate::http::short;

/// Codes and phrases that decide, whatever the 4xx status. The first matching row wins.
const KNOWN: &[(FaultKind, &[&str], &[&str])] = &[
    (
        FaultKind::ContextLengthExceeded,
        &[
            "context_length_exceeded",
            "exceed_context_size_error",
            "context_window_exceeded",
            "model_context_window_exceeded",
            "prompt_too_long",
        ],
        &[
            "maximum context length",
            "prompt is too long",
            "exceed context limit",
            "exceeds the context window",
            "context length exceeded",
            "exceeds the maximum number of tokens allowed",
            "reduce the length of the messages",
        ],
    ),
    (
        FaultKind::ContentRefused,
        &[
            "content_filter",
            "content_policy_violation",
            "responsibleaipolicyviolation",
            "refusal",
            "moderation",
            "moderation_blocked",
            "content_moderation",
            "data_inspection_failed",
            "prohibited_content",
        ],
        &[
            "content filtering policy",
            "content management policy",
            "content policy",
            "was flagged",
            "been flagged",
            "flagged as",
            "flagged by",
            "by our safety system",
            "blocked by moderation",
            "inappropriate content",
        ],
    ),
    (
        FaultKind::UpstreamQuota,
        &[
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "insufficient_balance",
            "insufficient_funds",
            "payment_required",
        ],
        &[
            "credit balance is too low",
            "api usage limits",
            "insufficient balance",
            "insufficient credits",
        ],
    ),
    (
        FaultKind::UpstreamAuth,
        &[
            "authentication_error",
            "invalid_api_key",
            "api_key_invalid",
            "permission_error",
            "account_deactivated",
            "unauthenticated",
            "unauthorized",
        ],
        &["api key not valid", "invalid api key", "incorrect api key"],
    ),
    (
        FaultKind::ModelNotFound,
        &[
            "model_not_found",
            "model_not_exist",
            "deploymentnotfound",
            "invalid_model",
            "unknown_model",
            "modelnotfound",
        ],
        &["no endpoints found for ", "model not found"],
    ),
];

/// Phrases which say that a model does not exist.
const NO_MODEL: &[&str] = &[
    "does not exist",
    "is not found",
    "not exist",
    "not a valid model",
    "invalid model",
    "unknown model",
    "model identifier is invalid",
];

/// The statuses of error codes in a stream, where no HTTP status is possible.
const STATUSES: &[(&str, u16)] = &[
    ("overloaded_error", 529),
    ("overloaded", 529),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("rate_limit", 429),
    ("ratelimiterror", 429),
    ("too_many_requests", 429),
    ("toomanyrequests", 429),
    ("resource_exhausted", 429),
    ("throttlingexception", 429),
    ("api_error", 500),
    ("server_error", 500),
    ("internal_server_error", 500),
    ("internalservererror", 500),
    ("internal_error", 500),
    ("internal", 500),
    ("timeout_error", 504),
    ("deadline_exceeded", 504),
    ("service_unavailable_error", 503),
    ("service_unavailable", 503),
    ("serviceunavailableerror", 503),
    ("serviceunavailableexception", 503),
    ("engine_overloaded", 503),
    ("engine_overloaded_error", 503),
    ("unavailable", 503),
    ("invalid_request_error", 400),
    ("invalid_argument", 400),
    ("failed_precondition", 400),
    ("bad_request", 400),
    ("badrequesterror", 400),
    ("validationexception", 400),
    ("permission_denied", 403),
    ("not_found_error", 404),
    ("notfounderror", 404),
    ("not_found", 404),
    ("model_not_found", 404),
    ("request_too_large", 413),
];

/// The wait after a rate limit without a wait of its own: an immediate call would be refused again,
/// and count.
const RATE_LIMIT_WAIT: f64 = 5.0;

/// A failure as the upstream describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// The HTTP status, or the status of an error code.
    pub status: Option<u16>,
    /// Machine-readable codes: type and code.
    pub words: Vec<String>,
    /// The message.
    pub text: String,
    /// The wrong member of the request.
    pub param: Option<String>,
    /// The requested wait.
    pub wait: Option<Duration>,
    /// Whether to retry, if the upstream says so explicitly.
    pub should_retry: Option<bool>,
}

impl UpstreamFailure {
    /// The type of a cause whose text comes from the upstream.
    pub(crate) const UPSTREAM_TEXT: &str = "UpstreamSaid";

    /// Reads a response that is no answer: its status, headers, and the beginning of its body.
    pub fn from_response(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut failure = Self::found_in(&json).unwrap_or_else(|| Self {
            // Problem details, which CAP servers send.
            words: json
                .get("code")
                .and_then(Value::as_str)
                .map(str::to_owned)
                .into_iter()
                .collect(),
            text: String::from_utf8_lossy(body).into_owned(),
            ..Self::default()
        });
        if status >= 300 {
            failure.status = Some(status);
        }
        if (300..400).contains(&status) {
            failure.text = redirected(headers);
        }
        failure.wait = wait_of(headers, SystemTime::now()).or(failure.wait);
        failure.should_retry = match headers.get("x-should-retry").map(|value| value.as_bytes()) {
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            _ => None,
        };
        failure
    }

    /// Converts the failure to a fault. The upstream's message becomes a cause, which only
    /// developers see, without the key.
    pub fn to_fault(&self, secret: &ApiKey) -> Fault {
        let fault = match self.kind() {
            Some(kind) => Fault::new(kind),
            None => self.by_status(),
        };
        let fault = match self.status {
            Some(status) => fault.with_detail("upstream_status", status),
            None => fault,
        };
        let fault = match self.words.iter().find(|word| is_plain(word)) {
            Some(word) => fault.with_detail("upstream_error", word.as_str()),
            None => fault,
        };
        let fault = match self.param.as_ref().filter(|param| is_path(param)) {
            Some(param) => fault.with_detail("upstream_param", param.as_str()),
            None => fault,
        };
        let fault = match (self.should_retry, fault.severity()) {
            (Some(false), ErrorSeverity::Transient) => {
                fault.with_severity(ErrorSeverity::Fatal).with_retryable(false)
            }
            (Some(true), ErrorSeverity::Fatal) if fault.kind() == FaultKind::UpstreamError => {
                fault.with_severity(ErrorSeverity::Transient).with_retryable(true)
            }
            _ => fault,
        };
        let text = short(&secret.scrub(&self.text));
        fault.with_cause(Cause { error_type: Self::UPSTREAM_TEXT.into(), chain: vec![text] })
    }

    pub(crate) fn to_failed_call(&self, secret: &ApiKey) -> FailedCall {
        let is_refusal = matches!(self.status, Some(408 | 425 | 429 | 503 | 529));
        FailedCall { fault: self.to_fault(secret), wait: self.wait, is_refusal }
    }

    /// The fault kind of a known code or phrase. Codes with a 5xx status do not count: the server
    /// itself failed.
    pub(crate) fn kind(&self) -> Option<FaultKind> {
        if self.status.is_some_and(|status| status >= 500) {
            return None;
        }
        let text = self.text.to_ascii_lowercase();
        let has_word = |known: &[&str]| {
            self.words.iter().any(|word| known.iter().any(|k| word.eq_ignore_ascii_case(k)))
        };
        let fits = |words: &[&str], phrases: &[&str]| {
            has_word(words) || phrases.iter().any(|phrase| text.contains(phrase))
        };
        let known = KNOWN.iter().find(|(_, words, phrases)| fits(words, phrases));
        known
            .map(|(kind, _, _)| *kind)
            .or_else(|| self.is_about_the_model(&text).then_some(FaultKind::ModelNotFound))
    }

    /// Whether the message says that the model does not exist.
    fn is_about_the_model(&self, text: &str) -> bool {
        let is_lookup = matches!(self.status, None | Some(400 | 403 | 404 | 422));
        let is_absent = NO_MODEL.iter().any(|phrase| text.contains(phrase))
            || self.status == Some(404) && text.contains("not found");
        let names_it = text.contains("model") && is_absent || text.starts_with("model:");
        is_lookup && names_it
    }

    fn by_status(&self) -> Fault {
        let word = |word: &String| {
            let known = STATUSES.iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
            known.map(|(_, status)| *status)
        };
        let seconds = self.wait.map(|wait| wait.as_secs_f64());
        match self.status.or_else(|| self.words.iter().find_map(word)) {
            Some(status @ (429 | 529)) => {
                Fault::from_upstream_status(status, Some(seconds.unwrap_or(RATE_LIMIT_WAIT)))
            }
            Some(401 | 403) => Fault::new(FaultKind::UpstreamAuth),
            Some(402) => Fault::new(FaultKind::UpstreamQuota),
            Some(status) => Fault::from_upstream_status(status, seconds),
            // An unexplained failure may be temporary.
            None => Fault::new(FaultKind::UpstreamError),
        }
    }
}

/// The target of a redirect, for the log: the server only, because the rest of an address may be a
/// secret.
fn redirected(headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location
        .and_then(|text| Url::parse(text).ok())
        .map(|url| url.origin().ascii_serialization());
    let target = target.map_or_else(String::new, |origin| format!(" to {origin}"));
    format!(
        "redirected{target}, which is not followed: another server gets neither the key nor the \
         request; if it is the right one, make it the agent's url"
    )
}

/// Whether a text looks like a code, and not like prose.
fn is_plain(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !word.is_empty() && word.len() <= 64 && word.chars().all(is_plain)
}

/// Whether a text looks like the path of a member.
fn is_path(param: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']');
    !param.is_empty() && param.len() <= 256 && param.chars().all(is_part)
}

/// `retry-after-ms`, else `Retry-After` in seconds or as a date.
fn wait_of(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let milliseconds = number("retry-after-ms").map(|ms| ms / 1000.0);
    if let Some(seconds) = milliseconds.or_else(|| number("retry-after")) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text("retry-after")?).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (name.parse().unwrap(), reqwest::header::HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn a_wait_comes_in_milliseconds_in_seconds_or_as_a_date() {
        let now = httpdate::parse_http_date("Mon, 16 Nov 2026 04:00:00 GMT").unwrap();
        let wait = |pairs: &[_]| wait_of(&headers(pairs), now).map(|wait| wait.as_millis());
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "9")]), Some(250));
        assert_eq!(wait(&[("retry-after", "1.5")]), Some(1500));
        assert_eq!(wait(&[("retry-after", "Mon, 16 Nov 2026 04:00:07 GMT")]), Some(7000));
        assert_eq!(wait(&[("retry-after", "Mon, 16 Nov 2026 03:00:00 GMT")]), Some(0));
        assert_eq!(wait(&[("retry-after", "soon")]), None);
        assert_eq!(wait(&[("retry-after", "-1")]), None);
    }

    #[test]
    fn a_key_that_a_server_repeats_does_not_reach_the_fault() {
        let body =
            br#"{"error":{"message":"Incorrect API key provided: sk-secret","code":"invalid_api_key"}}"#;
        let failure = UpstreamFailure::from_response(401, &HeaderMap::new(), body);
        let fault = failure.to_fault(&ApiKey::from("sk-secret"));
        assert_eq!(fault.kind(), FaultKind::UpstreamAuth);
        let shown =
            format!("{fault:?} {:?}", fault.to_stream_error(capstan_protocol::Exposure::Debug));
        assert!(!shown.contains("sk-secret") && shown.contains("[key]"), "{shown}");
    }

    #[test]
    fn a_servers_retry_advice_counts() {
        let severity = |status, pairs: &[_]| {
            UpstreamFailure::from_response(status, &headers(pairs), b"{}")
                .to_fault(&ApiKey::none())
                .severity()
        };
        assert_eq!(severity(500, &[]), ErrorSeverity::Transient);
        assert_eq!(severity(500, &[("x-should-retry", "false")]), ErrorSeverity::Fatal);
        assert_eq!(severity(400, &[("x-should-retry", "true")]), ErrorSeverity::Transient);
        assert_eq!(
            severity(401, &[("x-should-retry", "true")]),
            ErrorSeverity::Fatal,
            "a key stays wrong"
        );
    }

    #[test]
    fn a_missing_model_is_recognised_in_every_providers_error() {
        let of = |status, body: &str| {
            UpstreamFailure::from_response(status, &HeaderMap::new(), body.as_bytes())
                .to_fault(&ApiKey::none())
                .kind()
        };
        for (status, body) in [
            // OpenAI
            (
                404,
                r#"{"error":{"message":"The model `m` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            ),
            (
                403,
                r#"{"error":{"message":"Project `p` does not have access to model `m`","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"invalid model ID","type":"invalid_request_error","param":null,"code":null}}"#,
            ),
            // Anthropic
            (404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#),
            // Azure
            (
                404,
                r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
            ),
            (
                400,
                r#"{"error":{"code":"unknown_model","message":"Unknown model: m","details":"Unknown model: m"}}"#,
            ),
            // Ollama
            (
                404,
                r#"{"error":{"message":"model \"m\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
            ),
            (404, r#"{"error":"model 'm' not found"}"#),
            // vLLM
            (
                404,
                r#"{"object":"error","message":"The model `m` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
            ),
            // OpenRouter
            (400, r#"{"error":{"message":"m is not a valid model ID","code":400}}"#),
            (404, r#"{"error":{"message":"No endpoints found for m.","code":404}}"#),
            // Mistral, Groq, DeepSeek, Gemini
            (
                400,
                r#"{"object":"error","message":"Invalid model: m","type":"invalid_model","param":null,"code":"1500"}"#,
            ),
            (
                404,
                r#"{"error":{"message":"The model `m` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
            ),
            (
                404,
                r#"[{"error":{"code":404,"message":"models/m is not found for API version v1main, or is not supported for generateContent.","status":"NOT_FOUND"}}]"#,
            ),
        ] {
            assert_eq!(of(status, body), FaultKind::ModelNotFound, "{body}");
        }
        for (status, body) in [
            (404, r#"{"detail":"Not Found"}"#),
            (404, "<html>404 page not found</html>"),
            (
                404,
                r#"{"error":{"message":"Previous response with id 'resp_1' not found.","code":"previous_response_not_found"}}"#,
            ),
            (404, r#"{"error":{"message":"No endpoints found that support tool use."}}"#),
            (
                400,
                r#"{"error":{"message":"This model does not support image inputs","type":"invalid_request_error"}}"#,
            ),
            (500, r#"{"error":{"message":"model m does not exist"}}"#),
        ] {
            assert_ne!(of(status, body), FaultKind::ModelNotFound, "{body}");
        }
    }

    #[test]
    fn a_moderation_is_a_refusal_by_content_whatever_its_status() {
        let body = br#"{"error":{"code":403,"message":"Your input was flagged","metadata":{"reasons":["violence"]}}}"#;
        let failure = UpstreamFailure::from_response(403, &HeaderMap::new(), body);
        assert_eq!(failure.to_fault(&ApiKey::none()).kind(), FaultKind::ContentRefused);
    }

    #[test]
    fn prose_in_place_of_a_code_stays_inside() {
        let failure = UpstreamFailure::from_error(
            &serde_json::json!({ "type": "Oh no: /etc/passwd", "message": "m" }),
        );
        assert!(failure.to_fault(&ApiKey::none()).details().get("upstream_error").is_none());
    }
}

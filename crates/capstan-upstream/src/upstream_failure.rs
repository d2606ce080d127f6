//! What an upstream says about its failure, and what that means: one table for all providers, since servers that
//! are compatible with one of them borrow words from the others.

use std::time::{Duration, SystemTime};

use capstan_protocol::fault::Cause;
use capstan_protocol::{Fault, FaultKind};
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;
use url::Url;

use crate::api_key::ApiKey;
use crate::failed_call::FailedCall;
use crate::http::short;

/// Words and phrases that decide, whatever the status of 4xx. The first row that fits wins.
const KNOWN: &[(FaultKind, &[&str], &[&str])] = &[
    (
        FaultKind::ContextLengthExceeded,
        &["context_length_exceeded", "exceed_context_size_error"],
        &["maximum context length", "prompt is too long", "exceed context limit"],
    ),
    (
        FaultKind::ContentRefused,
        &["content_filter", "content_policy_violation", "responsibleaipolicyviolation"],
        &["content filtering policy", "content management policy"],
    ),
    (
        FaultKind::UpstreamQuota,
        &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"],
        &["credit balance is too low", "api usage limits"],
    ),
    (
        FaultKind::UpstreamAuth,
        &["authentication_error", "invalid_api_key", "permission_error", "account_deactivated"],
        &[],
    ),
];

/// The status that a word in a stream stands for: there is none on the wire once an answer has begun.
const STATUSES: &[(&str, u16)] = &[
    ("overloaded_error", 529),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("api_error", 500),
    ("server_error", 500),
    ("internal_server_error", 500),
    ("timeout_error", 504),
    ("service_unavailable_error", 503),
    ("invalid_request_error", 400),
    ("not_found_error", 404),
    ("model_not_found", 404),
    ("request_too_large", 413),
];

/// A failure in an upstream's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// The HTTP status, or the one that a word stands for.
    pub status: Option<u16>,
    /// Machine-readable words: type and code.
    pub words: Vec<String>,
    /// Prose.
    pub text: String,
    /// How long to wait.
    pub wait: Option<Duration>,
}

impl UpstreamFailure {
    /// An error object of either provider: `{type, code, message}`, or a bare string.
    pub fn from_error(error: &Value) -> Self {
        let mut words = Vec::new();
        let mut status = None;
        for name in ["code", "type"] {
            match error.get(name) {
                Some(Value::String(word)) => words.push(word.clone()),
                Some(Value::Number(code)) => status = code.as_u64().and_then(|code| u16::try_from(code).ok()),
                _ => {}
            }
        }
        words.extend(error.pointer("/innererror/code").and_then(Value::as_str).map(str::to_owned));
        let text = error.as_str().or_else(|| error.get("message")?.as_str()).unwrap_or_default().to_owned();
        let numeric = || words.iter().find_map(|word| word.parse().ok());
        let status = status.or_else(numeric).filter(|status| (400..=599).contains(status));
        Self { status, words, text, wait: None }
    }

    /// A response that is no answer: its status, its headers, the beginning of its body.
    pub fn from_response(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = json.get("error").filter(|error| !error.is_null());
        let mut told = match error {
            Some(error) => Self::from_error(error),
            // Problem details, as CAP servers send them.
            None => Self {
                words: json.get("code").and_then(Value::as_str).map(str::to_owned).into_iter().collect(),
                text: String::from_utf8_lossy(body).into_owned(),
                ..Self::default()
            },
        };
        if status >= 300 {
            told.status = Some(status);
        }
        if (300..400).contains(&status) {
            told.text = redirected(headers);
        }
        told.wait = wait_of(headers, SystemTime::now());
        told
    }

    /// What it means for this run. The upstream's prose is a cause, shown to developers only and without the key.
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
        let text = short(&secret.scrub(&self.text));
        fault.with_cause(Cause { error_type: "UpstreamSaid".into(), chain: vec![text] })
    }

    pub(crate) fn to_failed_call(&self, secret: &ApiKey) -> FailedCall {
        let is_refusal = matches!(self.status, Some(408 | 425 | 429 | 503 | 529));
        FailedCall { fault: self.to_fault(secret), wait: self.wait, is_refusal }
    }

    /// A word or a phrase that is known; a server that failed itself (5xx) is not taken at its word.
    fn kind(&self) -> Option<FaultKind> {
        if self.status.is_some_and(|status| status >= 500) {
            return None;
        }
        let text = self.text.to_ascii_lowercase();
        let has_word =
            |known: &[&str]| self.words.iter().any(|word| known.iter().any(|k| word.eq_ignore_ascii_case(k)));
        let fits = |words: &[&str], phrases: &[&str]| {
            has_word(words) || phrases.iter().any(|phrase| text.contains(phrase))
        };
        KNOWN.iter().find(|(_, words, phrases)| fits(words, phrases)).map(|(kind, _, _)| *kind)
    }

    fn by_status(&self) -> Fault {
        let word =
            |word: &String| STATUSES.iter().find(|(known, _)| word == known).map(|(_, status)| *status);
        let seconds = self.wait.map(|wait| wait.as_secs_f64());
        match self.status.or_else(|| self.words.iter().find_map(word)) {
            Some(401 | 403) => Fault::new(FaultKind::UpstreamAuth),
            Some(402) => Fault::new(FaultKind::UpstreamQuota),
            Some(status) => Fault::from_upstream_status(status, seconds),
            // Something broke, and nobody says what: it may pass.
            None => Fault::new(FaultKind::UpstreamError),
        }
    }
}

/// A redirect that is not followed, for the log. Only the server is told: the rest of an address may be a secret.
fn redirected(headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let target =
        location.and_then(|text| Url::parse(text).ok()).map(|url| url.origin().ascii_serialization());
    let target = target.map_or_else(String::new, |origin| format!(" to {origin}"));
    format!(
        "redirected{target}, which is not followed: another server gets neither the key nor the request; if it is the right one, make it the agent's url"
    )
}

/// A word of a protocol, not prose that ended up in its place.
fn is_plain(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !word.is_empty() && word.len() <= 64 && word.chars().all(is_plain)
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
            .map(|(name, value)| (name.parse().unwrap(), reqwest::header::HeaderValue::from_static(value)))
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
        let told = UpstreamFailure::from_response(401, &HeaderMap::new(), body);
        let fault = told.to_fault(&ApiKey::from("sk-secret"));
        assert_eq!(fault.kind(), FaultKind::UpstreamAuth);
        let shown = format!("{fault:?} {:?}", fault.to_stream_error(capstan_protocol::Exposure::Debug));
        assert!(!shown.contains("sk-secret") && shown.contains("[key]"), "{shown}");
    }

    #[test]
    fn prose_in_the_place_of_a_word_stays_inside() {
        let told =
            UpstreamFailure::from_error(&serde_json::json!({ "type": "Oh no: /etc/passwd", "message": "m" }));
        assert!(told.to_fault(&ApiKey::none()).details().get("upstream_error").is_none());
    }
}

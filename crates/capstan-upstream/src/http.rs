//! The HTTP client of all adapters: who is spoken to, how long, and what a failed connection means.

use std::error::Error;
use std::time::Duration;

use capstan_agent::{Endpoint, Timer, TraceParent, Turn};
use capstan_protocol::fault::{Cause, Upstream, is_tls_failure};
use capstan_protocol::{ErrorSeverity, Fault, FaultKind};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, StatusCode};
use url::{Position, Url};

use crate::api_key::ApiKey;
use crate::config::ConfigError;
use crate::failed_call::FailedCall;

/// A redirect within one server may be followed this often.
const REDIRECTS: usize = 3;

/// Under which name servers and the proxies before them tell their id of a request; the first that
/// is there counts.
const REQUEST_IDS: [&str; 5] =
    ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"];
/// A longer id is none.
const LONGEST_ID: usize = 128;
/// What is kept of an upstream's words, and of an error's.
const LONGEST_TEXT: usize = 500;

/// A client that never carries a key to another server. Each of its requests has these headers.
pub(crate) fn client(connect: Duration, headers: &HeaderMap) -> Result<Client, ConfigError> {
    // No time-out for the whole: an answer may take long. A call has its own.
    capstan_client::transport::http_client()
        .connect_timeout(connect)
        .default_headers(headers.clone())
        .tcp_nodelay(true)
        .redirect(Policy::custom(follow))
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| ConfigError::new(format!("the HTTP client cannot be built: {e}")))
}

/// Only to the same server, and only where POST stays POST. Anything else is an answer, and a
/// failure.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_body =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let is_same =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    let is_short = attempt.previous().len() <= REDIRECTS;
    if keeps_body && is_same && is_short { attempt.follow() } else { attempt.stop() }
}

/// Reads a configured address. A key inside it would end up in logs.
pub(crate) fn base_url(text: &str) -> Result<Url, ConfigError> {
    let wrong = |why: String| ConfigError::at("url", why);
    let url = Url::parse(text).map_err(|e| wrong(format!("{text:?}: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong(format!("{text:?}: expected http://host or https://host")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("a key must not stand in the address; use key_env or key_file".into()));
    }
    Ok(url)
}

/// A path below a base, whatever slashes there are.
pub(crate) fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let whole = format!("{}/{path}", url.path().trim_end_matches('/'));
    url.set_path(&whole);
    url
}

/// The trace that a call belongs to, in the headers that carry it.
pub(crate) fn trace_headers(turn: &Turn) -> HeaderMap {
    let header =
        |(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?));
    turn.trace.iter().flat_map(TraceParent::headers).filter_map(header).collect()
}

/// The server that a call goes to, for the log.
pub(crate) fn host_of(url: &Url) -> String {
    url[Position::BeforeHost..Position::AfterPort].to_owned()
}

/// The same, and whether it is shown a key, for whoever looks after the agent.
pub(crate) fn endpoint(url: &Url, key: &ApiKey) -> Endpoint {
    Endpoint { host: host_of(url), has_key: key.is_set() }
}

/// The server's id of a request, for the log. It is the server's word, so it may repeat a key.
pub(crate) fn request_id(headers: &HeaderMap, key: &ApiKey) -> Option<String> {
    let id = REQUEST_IDS.iter().find_map(|name| headers.get(*name)?.to_str().ok())?;
    let is_plain =
        !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|b| b.is_ascii_graphic());
    is_plain.then(|| key.scrub(id))
}

/// A fault with what the log tells of its upstream, without the key in anything that the upstream
/// said, and not at any length.
pub(crate) fn with_log_details(fault: Fault, upstream: Upstream, key: &ApiKey) -> Fault {
    let scrubbed = fault.cause().map(|cause| Cause {
        error_type: cause.error_type.clone(),
        chain: cause.chain.iter().map(|text| short(&key.scrub(text))).collect(),
    });
    let fault = fault.with_upstream(upstream);
    match scrubbed {
        Some(cause) => fault.with_cause(cause),
        None => fault,
    }
}

pub(crate) fn short(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

/// The request failed before a response came.
pub(crate) fn unsent(error: reqwest::Error) -> FailedCall {
    let error = error.without_url();
    let cause = cause_of(&error);
    let is_connect = error.is_connect();
    if error.is_timeout() {
        let failed = FailedCall::from(timed_out(Timer::Connect).with_cause(cause));
        return if is_connect { failed.refused() } else { failed };
    }
    // A certificate that does not verify will not verify next time either.
    let is_tls = is_tls_failure(&error);
    let fault = Fault::new(FaultKind::UpstreamUnreachable).with_cause(cause);
    if is_tls {
        return fault.with_severity(ErrorSeverity::Fatal).with_retryable(false).into();
    }
    let failed = FailedCall::from(fault);
    if is_connect { failed.refused() } else { failed }
}

/// The body broke off.
pub(crate) fn cut(error: reqwest::Error) -> Fault {
    Fault::new(FaultKind::UpstreamTruncated).with_cause(cause_of(&error.without_url()))
}

/// The same, seen through whoever unpacks it. Its words may hold an address.
pub(crate) fn cut_by(error: &std::io::Error) -> Fault {
    let chain = vec!["a compressed body broke off".into(), error.kind().to_string()];
    Fault::new(FaultKind::UpstreamTruncated)
        .with_cause(Cause { error_type: "io::Error".into(), chain })
}

fn cause_of(error: &reqwest::Error) -> Cause {
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(source) = next {
        chain.push(source.to_string());
        next = source.source();
    }
    Cause { error_type: "reqwest::Error".into(), chain }
}

/// A time-out, told by its name.
pub(crate) fn timed_out(limit: Timer) -> Fault {
    let fault = Fault::new(FaultKind::UpstreamTimeout).with_detail("timeout", limit.as_str());
    // Another attempt would take as long again.
    if limit == Timer::Total { fault.with_severity(ErrorSeverity::Fatal) } else { fault }
}

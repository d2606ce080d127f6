//! The HTTP client of all adapters, with its redirects, addresses and faults of failed connections.

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

/// The most redirects of a call, all within one server.
const REDIRECTS: usize = 3;

/// The headers in which servers and proxies send the id of a request. The first one that exists
/// counts.
const REQUEST_IDS: [&str; 5] =
    ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"];
/// The longest request id, in bytes. Longer ones are ignored.
const LONGEST_ID: usize = 128;
/// The most text of an upstream or an error that is logged, in bytes.
const LONGEST_TEXT: usize = 500;

/// Creates a client that never sends a key to another server. Each of its requests has these
/// headers.
pub(crate) fn client(connect: Duration, headers: &HeaderMap) -> Result<Client, ConfigError> {
    // No timeout for the whole response, because an answer may take long. Each call has its own.
    capstan_client::transport::http_client()
        .connect_timeout(connect)
        .default_headers(headers.clone())
        .tcp_nodelay(true)
        .redirect(Policy::custom(follow))
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| ConfigError::new(format!("the HTTP client cannot be built: {e}")))
}

/// Follows redirects within the same server if they keep POST. Any other redirect is returned as a
/// response, and counts as a failure.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_body =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let is_same =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    let is_short = attempt.previous().len() <= REDIRECTS;
    if keeps_body && is_same && is_short { attempt.follow() } else { attempt.stop() }
}

/// Parses a configured address. Refuses a key in it, because addresses are logged.
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

/// Appends a path to a base address, with exactly one slash in between.
pub(crate) fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let whole = format!("{}/{path}", url.path().trim_end_matches('/'));
    url.set_path(&whole);
    url
}

/// The trace headers of a call.
pub(crate) fn trace_headers(turn: &Turn) -> HeaderMap {
    let header =
        |(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?));
    turn.trace.iter().flat_map(TraceParent::headers).filter_map(header).collect()
}

/// The host and port of a call, for the log.
pub(crate) fn host_of(url: &Url) -> String {
    url[Position::BeforeHost..Position::AfterPort].to_owned()
}

/// The endpoint for the operator's overview, with whether it gets a key.
pub(crate) fn endpoint(url: &Url, key: &ApiKey) -> Endpoint {
    Endpoint { host: host_of(url), has_key: key.is_set() }
}

/// The server's id of a request, for the log. The key is removed from it, because the server
/// chooses it.
pub(crate) fn request_id(headers: &HeaderMap, key: &ApiKey) -> Option<String> {
    let id = REQUEST_IDS.iter().find_map(|name| headers.get(*name)?.to_str().ok())?;
    let is_plain =
        !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|b| b.is_ascii_graphic());
    is_plain.then(|| key.scrub(id))
}

/// Adds the log's details about the upstream to a fault. Limits their lengths, and removes the key.
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

/// The fault for a request that failed before a response came.
pub(crate) fn unsent(error: reqwest::Error) -> FailedCall {
    let error = error.without_url();
    let cause = cause_of(&error);
    let is_connect = error.is_connect();
    if error.is_timeout() {
        let failed = FailedCall::from(timed_out(Timer::Connect).with_cause(cause));
        return if is_connect { failed.refused() } else { failed };
    }
    // An invalid certificate will be invalid next time as well.
    let is_tls = is_tls_failure(&error);
    let fault = Fault::new(FaultKind::UpstreamUnreachable).with_cause(cause);
    if is_tls {
        return fault.with_severity(ErrorSeverity::Fatal).with_retryable(false).into();
    }
    let failed = FailedCall::from(fault);
    if is_connect { failed.refused() } else { failed }
}

/// The fault for a body that broke off.
pub(crate) fn cut(error: reqwest::Error) -> Fault {
    Fault::new(FaultKind::UpstreamTruncated).with_cause(cause_of(&error.without_url()))
}

/// The same for an error of a decompressor. Its text may contain an address.
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

/// The fault for a timeout, which it names.
pub(crate) fn timed_out(limit: Timer) -> Fault {
    let fault = Fault::new(FaultKind::UpstreamTimeout).with_detail("timeout", limit.as_str());
    // Another attempt would take as long.
    if limit == Timer::Total { fault.with_severity(ErrorSeverity::Fatal) } else { fault }
}

//! The one thing that a client needs of the network. `reqwest` is the usual one; anything else can take its place.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{HeaderMap, Method};
use reqwest::redirect;

/// More is a loop.
const MAX_REDIRECTS: usize = 3;

/// A request, ready to be sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// POST, GET or DELETE.
    pub method: Method,
    /// Where to.
    pub url: url::Url,
    /// All headers but the connection's own. The key is marked as sensitive, so that `Debug` does not show it.
    pub headers: HeaderMap,
    /// The same bytes each time.
    pub body: Bytes,
}

/// A body as it comes.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// The head of a response, and its body.
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// What follows.
    pub body: Body,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The network failed, in words. Whatever it was, it is worth another try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError(pub String);

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for TransportError {}

/// Sends requests.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Returns when the head of the response is there.
    async fn send(&self, request: Request) -> Result<Response, TransportError>;
}

/// The usual transport.
pub(crate) fn reqwest_client(connect_timeout: Duration) -> Result<reqwest::Client, TransportError> {
    // No time-out for the whole: a stream may take hours. Reading has one of its own.
    reqwest::Client::builder()
        .connect_timeout(connect_timeout)
        .redirect(redirect::Policy::custom(follow))
        .tcp_nodelay(true)
        .build()
        .map_err(from_reqwest)
}

/// Only within the origin: another server gets neither the key nor what is asked. And only where POST stays POST.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let asked = attempt.previous();
    let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
    let is_near = asked.first().is_some_and(|first| first.origin() == attempt.url().origin());
    let is_short = asked.len() <= MAX_REDIRECTS;
    if keeps_body && is_near && is_short { attempt.follow() } else { attempt.stop() }
}

#[async_trait]
impl Transport for reqwest::Client {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let sending = self.request(request.method, request.url).headers(request.headers).body(request.body);
        let response = sending.send().await.map_err(from_reqwest)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes_stream().map(|chunk| chunk.map_err(from_reqwest));
        Ok(Response { status, headers, body: Box::pin(body) })
    }
}

/// The innermost cause says most; the URL is left out, since it may hold what is nobody's business.
fn from_reqwest(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let mut cause: &(dyn Error + 'static) = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let words = cause.to_string();
    let outer = if error.is_connect() { "cannot connect" } else { "the connection broke" };
    TransportError(if words.is_empty() { outer.to_owned() } else { format!("{outer}: {words}") })
}

//! The usual transport.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use reqwest::redirect;
use rustls::InvalidMessage;

use super::{Request, Response, Transport, TransportError};

/// More is a loop.
const MAX_REDIRECTS: usize = 3;

pub(super) fn client(connect_timeout: Duration) -> Result<reqwest::Client, TransportError> {
    // No timeout for the complete response, because a stream may take hours. Reads have one of
    // their own.
    super::http_client()
        .connect_timeout(connect_timeout)
        .redirect(redirect::Policy::custom(follow))
        .tcp_nodelay(true)
        .build()
        .map_err(TransportError::from)
}

/// Follows a redirect only within the origin, because another server must get neither the key nor
/// the request. And only if POST stays POST.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let previous = attempt.previous();
    let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
    let is_near = previous.first().is_some_and(|first| first.origin() == attempt.url().origin());
    let is_short = previous.len() <= MAX_REDIRECTS;
    if keeps_body && is_near && is_short { attempt.follow() } else { attempt.stop() }
}

#[async_trait]
impl Transport for reqwest::Client {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let sending =
            self.request(request.method, request.url).headers(request.headers).body(request.body);
        Ok(sending.send().await?.into())
    }
}

/// For transports that inspect a response before they return it.
impl From<reqwest::Response> for Response {
    fn from(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes_stream().map(|chunk| chunk.map_err(TransportError::from));
        Self { status, headers, body: Box::pin(body) }
    }
}

/// The innermost cause says most. The text omits the URL, which may hold a secret.
impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut cause: &(dyn Error + 'static) = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let detail = match is_plain_http(&error) {
            true => "the server does not speak TLS on this port: try http:// instead of https://"
                .to_owned(),
            false => cause.to_string(),
        };
        let outer = if error.is_connect() { "cannot connect" } else { "the connection broke" };
        Self(if detail.is_empty() { outer.to_owned() } else { format!("{outer}: {detail}") })
    }
}

/// Whether the server answered a TLS handshake in plain text, as a server without TLS does.
fn is_plain_http(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return matches!(error, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
    }
    // An I/O error hides the error that it was made of from `source`.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| is_plain_http(inner)) || error.source().is_some_and(is_plain_http)
}

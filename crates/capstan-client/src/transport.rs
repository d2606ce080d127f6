//! The one thing that a client needs of the network. `reqwest` is the usual one, a feature that is
//! on unless it is turned off; anything else can take its place.

#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "reqwest")]
mod tls;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, Method};
#[cfg(feature = "reqwest")]
pub use tls::http_client;

/// A request, ready to be sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// POST, GET or DELETE.
    pub method: Method,
    /// The address.
    pub url: url::Url,
    /// All headers but the connection's own. The key is marked as sensitive, so that `Debug` hides
    /// it.
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
    /// The body.
    pub body: Body,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The network failed; the text says how. Every such failure is worth a retry.
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

/// The default transport.
#[cfg(feature = "reqwest")]
pub(crate) fn usual(connect_timeout: Duration) -> Result<Arc<dyn Transport>, TransportError> {
    Ok(Arc::new(reqwest::client(connect_timeout)?))
}

/// The default transport.
#[cfg(not(feature = "reqwest"))]
pub(crate) fn usual(_connect_timeout: Duration) -> Result<Arc<dyn Transport>, TransportError> {
    let what =
        "no transport: name one in the options, or build capstan-client with its feature `reqwest`";
    Err(TransportError(what.to_owned()))
}

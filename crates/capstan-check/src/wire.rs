//! One raw exchange with the server: status, headers, every byte of the body, and its end.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::evidence::Evidence;
use crate::frames::Frames;
use crate::outcome::NotPassed;

/// More than any check needs: a longer body is endless.
const LARGEST_BODY: usize = 16 * 1024 * 1024;

/// The credentials of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Who {
    /// The tenant with the given key, if there is one.
    #[default]
    Tenant,
    /// The other tenant.
    Other,
    /// A client without a key.
    Nobody,
    /// A client with an invalid key.
    Stranger,
}

/// A request to be made.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Bytes>,
    pub(crate) who: Who,
}

impl Ask {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None, who: Who::Tenant }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// A JSON body.
    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let ask = Self { body: Some(body.into()), ..Self::new(Method::POST, path) };
        ask.header("content-type", "application/json")
    }

    /// Sets a header, in place of one of that name.
    pub(crate) fn header(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_string()));
        self
    }

    pub(crate) fn after(self, cursor: impl fmt::Display) -> Self {
        self.header("last-event-id", cursor)
    }

    pub(crate) fn by(mut self, who: Who) -> Self {
        self.who = who;
        self
    }
}

impl fmt::Display for Ask {
    /// Without the body: its content seldom matters, and it may be long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        self.headers.iter().try_for_each(|(name, value)| write!(f, ", {name}: {value}"))?;
        match self.who {
            Who::Tenant => Ok(()),
            Who::Other => f.write_str(", with the other tenant's key"),
            Who::Nobody => f.write_str(", without a key"),
            Who::Stranger => f.write_str(", with an invalid key"),
        }
    }
}

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    /// The connection broke.
    Cut(String),
    /// The time limit came before its end.
    TimedOut,
    TooLong,
    /// The check closed the connection.
    Left,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("the body ended"),
            Self::Cut(why) => write!(f, "the connection broke: {why}"),
            Self::TimedOut => f.write_str("the body did not end in time"),
            Self::TooLong => f.write_str("the body did not end within 16 MiB"),
            Self::Left => f.write_str("we hung up"),
        }
    }
}

/// The result of a request.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) sent: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Exchange {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The media type, without its parameters.
    pub(crate) fn media_type(&self) -> String {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.status == 200 && self.media_type() == "text/event-stream"
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The `code` of a problem.
    pub(crate) fn code(&self) -> Option<String> {
        Some(self.json().get("code")?.as_str()?.to_owned())
    }

    pub(crate) fn frames(&self) -> Frames {
        Frames::read(&self.body)
    }

    /// Status, type and beginning of the body, in one line.
    pub(crate) fn summary(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let body = if body.is_empty() { "no body".into() } else { body };
        let kind = self.header("content-type").unwrap_or("no content type");
        format!("{}, {kind}: {body}", self.status)
    }

    pub(crate) fn broken(&self, expected: impl fmt::Display, came: impl fmt::Display) -> NotPassed {
        broken(&self.sent, expected, came)
    }

    /// Fails the check if the condition is false, with the complete answer as evidence.
    pub(crate) fn expect(&self, is_so: bool, expected: impl fmt::Display) -> Result<(), NotPassed> {
        if is_so { Ok(()) } else { Err(self.broken(expected, self.summary())) }
    }
}

pub(crate) fn broken(
    sent: impl fmt::Display,
    expected: impl fmt::Display,
    came: impl fmt::Display,
) -> NotPassed {
    NotPassed::Broken(Evidence {
        sent: sent.to_string(),
        expected: expected.to_string(),
        came: came.to_string(),
    })
}

/// A response whose body still arrives.
pub(crate) struct Live {
    pub(crate) response: reqwest::Response,
    pub(crate) seen: Exchange,
    pub(crate) deadline: Instant,
}

impl Live {
    /// Reads until the condition is true. Returns false if the body ended before.
    pub(crate) async fn read_until(&mut self, is_enough: impl Fn(&Exchange) -> bool) -> bool {
        while !is_enough(&self.seen) {
            if self.seen.body.len() > LARGEST_BODY {
                self.seen.end = End::TooLong;
                return false;
            }
            match timeout_at(self.deadline, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.seen.body.extend_from_slice(&bytes),
                ended => {
                    self.seen.end = match ended {
                        Ok(Ok(_)) => End::Clean,
                        Ok(Err(error)) => End::Cut(innermost(error)),
                        Err(_) => End::TimedOut,
                    };
                    return false;
                }
            }
        }
        true
    }

    /// Reads to the end.
    pub(crate) async fn finish(mut self) -> Exchange {
        self.read_until(|_| false).await;
        self.seen
    }
}

/// The innermost cause says most. The text omits the URL, which may hold a ticket.
pub(crate) fn innermost(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

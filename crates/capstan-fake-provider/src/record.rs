//! The record that a provider keeps of each call.

use serde::Serialize;
use serde_json::Value;

use crate::request::Request;

/// A call as the provider saw it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Call {
    /// The number of the call, from 1.
    pub number: usize,
    /// Its number among the calls of the same model; 0 if it is no call of a model.
    pub nth: usize,
    /// When it came, in seconds since the start.
    pub at: f64,
    /// `chat-completions`, `responses` or `messages`. Other requests are recorded too:
    /// `responses-resumed` for a resumed answer, `count-tokens`, `models`, `probe` for a HEAD, and
    /// `unknown`.
    pub api: &'static str,
    /// The request's method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
    /// The requested model.
    pub model: String,
    /// The fault that struck it.
    pub fault: Option<String>,
    /// Why the provider refused it without a fault: thinking did not come back unchanged.
    pub complaint: Option<String>,
    /// Tokens that were sent.
    pub tokens: usize,
    /// The end; none while the call is open.
    pub ending: Option<Ending>,
    /// The headers by name. Of a key, only its existence is recorded.
    pub headers: Vec<(String, String)>,
    /// The request.
    pub body: Value,
}

impl Call {
    /// A request that has just come.
    pub(crate) fn new(request: &Request, number: usize, at: f64) -> Self {
        Self {
            number,
            nth: 0,
            at,
            api: "unknown",
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            model: String::new(),
            fault: None,
            complaint: None,
            tokens: 0,
            ending: None,
            headers: request.headers.clone(),
            body: request.json(),
        }
    }
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The response was complete.
    Complete,
    /// The provider broke it off.
    Broken,
    /// The other side hung up first.
    HungUp,
}

/// Headers that hold a key.
const KEYS: [&str; 6] =
    ["authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

/// A header without the key in it.
pub(crate) fn header(name: &str, value: &[u8]) -> (String, String) {
    let name = name.to_ascii_lowercase();
    let is_key = KEYS.contains(&name.as_str());
    let value =
        if is_key { "[key]".to_owned() } else { String::from_utf8_lossy(value).into_owned() };
    (name, value)
}

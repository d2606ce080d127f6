//! What a provider remembers of each call.

use serde::Serialize;
use serde_json::Value;

/// A call as the provider saw it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Call {
    /// The number of the call, from 1.
    pub number: usize,
    /// Its number among those of the same model.
    pub nth: usize,
    /// When it came, in seconds since the start.
    pub at: f64,
    /// `chat-completions`, `responses`, `messages`, or `responses-resumed` for an answer that was
    /// read on.
    pub api: &'static str,
    /// The model that was asked for.
    pub model: String,
    /// The fault that struck it.
    pub fault: Option<String>,
    /// Tokens that were sent.
    pub tokens: usize,
    /// How it ended; nothing while it goes on.
    pub ending: Option<Ending>,
    /// The headers that came, by name; of a key it is only said that there was one.
    pub headers: Vec<(String, String)>,
    /// What was asked.
    pub body: Value,
}

/// How a call ended.
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
const KEYS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// A header without the key in it.
pub(crate) fn header(name: &str, value: &[u8]) -> (String, String) {
    let name = name.to_ascii_lowercase();
    let is_key = KEYS.contains(&name.as_str());
    let value =
        if is_key { "[key]".to_owned() } else { String::from_utf8_lossy(value).into_owned() };
    (name, value)
}

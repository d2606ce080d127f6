//! A parsed request.

use serde_json::Value;

/// A request.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Whether the client wants the connection to be closed after it.
    pub(crate) fn is_last(&self) -> bool {
        self.headers
            .iter()
            .any(|(name, value)| name == "connection" && value.eq_ignore_ascii_case("close"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

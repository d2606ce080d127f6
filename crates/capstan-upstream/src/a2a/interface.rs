//! The endpoint of an agent: its protocol version and its binding.

use serde::Deserialize;
use url::Url;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Version {
    /// 1.0: `SendStreamingMessage`, states in capitals.
    #[serde(rename = "1.0")]
    V1,
    /// 0.3: `message/stream`, `kind` members.
    #[serde(rename = "0.3")]
    V03,
}

impl Version {
    pub(super) fn is(self, word: &str) -> bool {
        let begins = |with: &str| word == with || word.starts_with(&format!("{with}."));
        match self {
            Self::V1 => begins("1"),
            Self::V03 => begins("0.3") || begins("0.2"),
        }
    }
}

/// The binding: how requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Binding {
    /// JSON-RPC calls to one address.
    #[default]
    #[serde(rename = "jsonrpc")]
    JsonRpc,
    /// HTTP with an address for each request.
    #[serde(rename = "http+json")]
    HttpJson,
}

impl Binding {
    pub(super) fn is(self, word: &str) -> bool {
        let name = match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
        };
        word.eq_ignore_ascii_case(name)
    }
}

/// The endpoint of an agent.
#[derive(Debug, Clone)]
pub(super) struct Interface {
    pub(super) url: Url,
    pub(super) binding: Binding,
    pub(super) version: Version,
    pub(super) streams: bool,
}

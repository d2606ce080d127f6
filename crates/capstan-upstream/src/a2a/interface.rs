//! Where an agent answers: which version of the protocol, and how requests are written.

use serde::Deserialize;
use url::Url;

/// Of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Version {
    /// `SendStreamingMessage`, states in capitals.
    #[serde(rename = "1.0")]
    V1,
    /// `message/stream`, `kind`s.
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

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Binding {
    /// Calls to one address.
    #[default]
    #[serde(rename = "jsonrpc")]
    JsonRpc,
    /// An address for each request.
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

/// Where an agent answers, and how.
#[derive(Debug, Clone)]
pub(super) struct Interface {
    pub(super) url: Url,
    pub(super) binding: Binding,
    pub(super) version: Version,
    pub(super) streams: bool,
}

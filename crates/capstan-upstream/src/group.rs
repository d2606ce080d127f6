//! The groups of OpenAI's routes that an agent can pass on without a run.

use serde::Deserialize;

/// A group of routes that an agent can pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// `/v1/audio/…`
    Audio,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/files`
    Files,
    /// `/v1/images/…`
    Images,
    /// `/v1/moderations`
    Moderations,
}

impl Group {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Files => "files",
            Self::Images => "images",
            Self::Moderations => "moderations",
        }
    }
}

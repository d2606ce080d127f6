//! The protocols that the provider speaks, and its checks of requests.

use std::borrow::Cow;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Shape {
    /// The protocol that is spoken at a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let path = path.trim_end_matches('/');
        [
            ("/chat/completions", Self::Chat),
            ("/responses", Self::Responses),
            ("/messages", Self::Messages),
        ]
        .into_iter()
        .find(|(end, _)| path.ends_with(end))
        .map(|(_, shape)| shape)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat-completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

/// An error in the form of a provider.
#[derive(Debug, Clone)]
pub(crate) struct Complaint {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    pub(crate) message: Cow<'static, str>,
}

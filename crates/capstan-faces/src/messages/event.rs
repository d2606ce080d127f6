//! The events of a streamed answer.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Members that only the provider knows.
pub(super) type Members = Map<String, Value>;

/// Takes the events of an answer, in order.
pub(super) trait Sink {
    fn take(&mut self, event: Event<'_>);
}

/// An event.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    MessageStart {
        message: &'a Value,
        #[serde(flatten)]
        beside: &'a Members,
    },
    ContentBlockStart {
        index: usize,
        content_block: &'a Value,
        #[serde(flatten)]
        beside: &'a Members,
    },
    ContentBlockDelta {
        index: usize,
        delta: &'a Piece<'a>,
        #[serde(flatten)]
        beside: &'a Members,
    },
    ContentBlockStop {
        index: usize,
        #[serde(flatten)]
        beside: &'a Members,
    },
    MessageStop {
        #[serde(flatten)]
        beside: &'a Members,
    },
    /// An event as its provider wrote it: the `message_delta` of an answer, or an unknown event.
    #[serde(untagged)]
    Raw(&'a Value),
}

/// A piece of a block.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub(super) enum Piece<'a> {
    #[serde(rename = "text_delta")]
    Text { text: Cow<'a, str> },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: Cow<'a, str> },
    #[serde(rename = "signature_delta")]
    Signature { signature: Cow<'a, str> },
    #[serde(rename = "input_json_delta")]
    Json { partial_json: Cow<'a, str> },
    #[serde(untagged)]
    Raw(Value),
}

impl<'a> Piece<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text { text: text.into() }
    }

    pub(super) fn thinking(thought: &'a str) -> Self {
        Self::Thinking { thinking: thought.into() }
    }

    pub(super) fn signature(signature: &'a str) -> Self {
        Self::Signature { signature: signature.into() }
    }

    pub(super) fn json(piece: &'a str) -> Self {
        Self::Json { partial_json: piece.into() }
    }

    /// The same piece with members that only the provider knows.
    pub(super) fn with(self, members: Members) -> Self {
        if members.is_empty() {
            return self;
        }
        let mut piece = serde_json::to_value(&self).unwrap_or_default();
        if let Some(known) = piece.as_object_mut() {
            known.extend(members);
        }
        Self::Raw(piece)
    }

    pub(super) fn into_owned(self) -> Piece<'static> {
        let own = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Text { text } => Piece::Text { text: own(text) },
            Self::Thinking { thinking } => Piece::Thinking { thinking: own(thinking) },
            Self::Signature { signature } => Piece::Signature { signature: own(signature) },
            Self::Json { partial_json } => Piece::Json { partial_json: own(partial_json) },
            Self::Raw(value) => Piece::Raw(value),
        }
    }
}

impl Event<'_> {
    /// The event's name on the wire.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageStop { .. } => "message_stop",
            Self::Raw(event) => event.get("type").and_then(Value::as_str).unwrap_or("message"),
        }
    }
}

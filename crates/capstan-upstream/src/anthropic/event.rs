//! An event of Messages on the wire, read without a tree of values.

use serde_json::{Map, Value};

use crate::json_object::object;
use crate::json_text::{Raw, value};

object! {
    /// An event of any type.
    Event {
        kind as "type": Raw<'a>,
        index: Option<u64>,
        delta: Option<Delta<'a>>,
        content_block: Raw<'a>,
        message: Raw<'a>,
        usage: Raw<'a>,
        -
    }
}

object! {
    /// A piece of a block, or of the message.
    Delta {
        kind as "type": Raw<'a>,
        text: Raw<'a>,
        thinking: Raw<'a>,
        estimated_tokens: Raw<'a>,
        partial_json: Raw<'a>,
        citation: Raw<'a>,
        signature: Raw<'a>,
        stop_reason: Raw<'a>,
        -
    }
}

impl Event<'_> {
    pub(super) fn index(&self) -> u64 {
        self.index.unwrap_or(0)
    }

    /// The members that stand beside the one that events of this type have.
    pub(super) fn beside(&self, own: &str) -> Map<String, Value> {
        let known = [
            ("content_block", self.content_block),
            ("message", self.message),
            ("usage", self.usage),
        ];
        let mut beside = self.others.to_map();
        for (name, raw) in known.into_iter().filter(|(name, _)| *name != own) {
            beside.extend(raw.map(|raw| (name.to_owned(), value(raw))));
        }
        beside
    }
}

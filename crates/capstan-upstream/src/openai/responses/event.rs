//! An event of a Responses stream, read without a tree.

use serde_json::{Map, Value};

use crate::json_object::object;
use crate::json_text::{Raw, value};
use crate::native::without;

object! {
    /// The members of an event as they stand on the wire. `obfuscation` pads the connection, no
    /// more.
    Event {
        kind as "type": Raw<'a>,
        sequence_number: Option<u64>,
        output_index: Option<u64>,
        /// The part of a reasoning item to which a delta belongs.
        summary_index: Option<u64>,
        content_index: Option<u64>,
        delta: Raw<'a>,
        item: Raw<'a>,
        response: Raw<'a>,
        annotation: Raw<'a>,
        part: Raw<'a>,
        - "item_id" | "obfuscation" | "annotation_index" | "text" | "arguments" | "input" | "name"
            | "call_id" | "refusal"
    }
}

impl Event<'_> {
    /// The part of its item to which the event belongs.
    pub(super) fn part_index(&self) -> u64 {
        self.summary_index.or(self.content_index).unwrap_or(0)
    }

    /// The members that only a client of the same protocol understands, without empty ones.
    pub(super) fn others(&self) -> Map<String, Value> {
        without_empty(self.others.to_map())
    }

    /// The same of its part.
    pub(super) fn part_others(&self) -> Map<String, Value> {
        let part = self.part.map(value).unwrap_or_default();
        without_empty(without(&part, &["type", "text", "annotations", "logprobs"]))
    }
}

/// Leaves out members that say nothing.
pub(super) fn without_empty(mut members: Map<String, Value>) -> Map<String, Value> {
    members.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    });
    members
}

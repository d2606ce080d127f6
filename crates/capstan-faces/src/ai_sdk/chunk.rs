//! The chunks of a UI message's stream. Clients end a chat at an unknown type, so all chunks of our
//! own are `data-…`.

use capstan_protocol::{Cursor, RawJson, sse};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A chunk: its type, and the members that the type has.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "UiMessageChunk")]
pub(crate) struct Chunk {
    /// The types of every version of the AI SDK since 5, and our own `data-…`.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delta: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_text_delta: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub(super) input: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub(super) output: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error_text: Option<String>,
    /// The page has no type for this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dynamic: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub(super) data: Option<RawJson>,
    /// Transient: it is no part of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transient: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// What follows the last chunk.
const DONE: &str = "[DONE]";

/// All types that the gateway writes, for metrics.
pub(super) const KINDS: &[&str] = &[
    "start",
    "start-step",
    "text-start",
    "text-delta",
    "text-end",
    "reasoning-start",
    "reasoning-delta",
    "reasoning-end",
    "source-url",
    "file",
    "tool-input-start",
    "tool-input-delta",
    "tool-input-available",
    "tool-output-available",
    "tool-output-error",
    "tool-approval-request",
    "data-progress",
    "data-citations",
    "data-media",
    "data-user-error",
    "data-event",
    "data-capstan-warning",
    "data-capstan-attempt",
    "data-capstan-close",
    "data-capstan-error",
    "error",
    "abort",
    "finish-step",
    "finish",
    DONE,
];

impl Chunk {
    /// A chunk that has only a type.
    pub(super) fn of(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }

    /// The end of the stream.
    pub(super) fn done() -> Self {
        Self::of(DONE)
    }

    pub(super) fn is_done(&self) -> bool {
        self.kind == DONE
    }

    pub(super) fn is_finish(&self) -> bool {
        self.kind == "finish"
    }

    /// The begin or end of a text or a thought.
    pub(super) fn edge(kind: &'static str, id: String) -> Self {
        Self { id: Some(id), ..Self::of(kind) }
    }

    /// A piece of a text or a thought.
    pub(super) fn piece(kind: &'static str, id: String, delta: impl Into<String>) -> Self {
        Self { delta: Some(delta.into()), ..Self::edge(kind, id) }
    }

    /// A chunk of a tool call.
    pub(super) fn call(kind: &'static str, id: impl Into<String>) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::of(kind) }
    }

    /// A part of our own, which stays in the message. A later one with the same type and id
    /// replaces it.
    pub(super) fn data(kind: &'static str, id: impl Into<String>, data: RawJson) -> Self {
        Self { id: Some(id.into()), data: Some(data), ..Self::of(kind) }
    }

    /// A transient part of our own.
    pub(super) fn transient(kind: &'static str, data: RawJson) -> Self {
        Self { data: Some(data), transient: Some(true), ..Self::of(kind) }
    }

    /// The error that ends a chat.
    pub(super) fn error(text: impl Into<String>) -> Self {
        Self { error_text: Some(text.into()), ..Self::of("error") }
    }

    pub(super) fn to_json(&self) -> String {
        if self.is_done() {
            DONE.to_owned()
        } else {
            serde_json::to_string(self).unwrap_or_default()
        }
    }

    /// Appends the frame. The SDK's readers ignore ids; our own transport resumes by them.
    pub(super) fn encode(&self, id: Option<&Cursor>, out: &mut Vec<u8>) {
        sse::encode_json(id, None, &self.to_json(), out);
    }
}

/// Encodes a value as JSON text; null if that fails.
pub(super) fn raw(value: &impl Serialize) -> RawJson {
    RawJson::from_serialize(value).unwrap_or_else(|_| Value::Null.into())
}

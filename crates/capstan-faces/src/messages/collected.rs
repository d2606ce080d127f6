//! Collects a run into one message.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{Payload, StreamError, StreamPacket};
use serde_json::{Map, Value, json};

use super::answer_events::{AnswerEvents, End};
use super::event::{Event, Piece, Sink};
use crate::face::reader::Fold;

/// The packets of the run after resets. The request decides how they become a message.
#[derive(Default)]
pub(super) struct Packets {
    all: Vec<StreamPacket>,
    error: Option<Box<StreamError>>,
}

impl Fold for Packets {
    fn add(&mut self, packet: &StreamPacket) {
        if let Some(after) = crate::face::taken_back::reset_of(packet) {
            self.all.retain(|packet| packet.seq <= after);
            return;
        }
        if let Payload::Error(error) = &packet.payload {
            self.error = Some(error.clone());
        }
        self.all.push(packet.clone());
    }

    fn error(&self) -> Option<&StreamError> {
        self.error.as_deref()
    }
}

/// Makes the message of the packets, or returns how the run ended otherwise. `None`: it is open.
pub(super) fn message(packets: &Packets, mut events: AnswerEvents) -> Option<Result<Value, End>> {
    let mut message = Message::default();
    let mut packets = packets.all.iter().cloned();
    let end = packets.find_map(|packet| events.take(packet, &mut message))?;
    Some(if matches!(end, End::Complete) { Ok(message.done()) } else { Err(end) })
}

/// The blocks that have begun so far.
pub(super) fn blocks(packets: &Packets, mut events: AnswerEvents) -> Vec<Value> {
    let mut message = Message::default();
    for packet in packets.all.iter().cloned() {
        if events.take(packet, &mut message).is_some() {
            break;
        }
    }
    message.content
}

pub(super) fn response(message: Value) -> Response {
    Json(message).into_response()
}

/// Builds a message from its events.
#[derive(Default)]
struct Message {
    head: Map<String, Value>,
    content: Vec<Value>,
    /// The arguments of a call, until it stops.
    arguments: String,
}

impl Message {
    fn done(mut self) -> Value {
        self.head.insert("content".into(), self.content.into());
        self.head.into()
    }

    fn add(&mut self, delta: &Piece<'_>) {
        let Some(Value::Object(block)) = self.content.last_mut() else { return };
        match delta {
            Piece::Text { text } => append(block, "text", text),
            Piece::Thinking { thinking } => append(block, "thinking", thinking),
            Piece::Signature { signature } => append(block, "signature", signature),
            Piece::Json { partial_json } => self.arguments.push_str(partial_json),
            Piece::Raw(delta) => {
                let piece = delta.get("partial_json").and_then(Value::as_str);
                self.arguments.push_str(piece.unwrap_or_default());
                add_raw(block, delta);
            }
        }
    }

    fn stop(&mut self) {
        let arguments = std::mem::take(&mut self.arguments);
        let Some(Value::Object(block)) = self.content.last_mut() else { return };
        if !arguments.is_empty() {
            // Arguments that were cut short are no JSON object, and the SDKs have no place for
            // them.
            let input = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            block.insert("input".into(), input);
        }
    }

    fn merge(&mut self, event: &Value) {
        let Some(members) = event.as_object() else { return };
        for (name, value) in members.iter().filter(|(name, _)| *name != "type") {
            match (name.as_str(), value) {
                ("delta", Value::Object(delta)) => {
                    self.head.extend(delta.clone());
                }
                ("usage", Value::Object(counts)) => {
                    let usage = self.head.entry("usage").or_insert_with(|| json!({}));
                    if let Some(usage) = usage.as_object_mut() {
                        usage.extend(counts.clone());
                    }
                }
                (name, value) => {
                    self.head.insert(name.to_owned(), value.clone());
                }
            }
        }
    }
}

impl Sink for Message {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::MessageStart { message, beside } => {
                self.head = beside.clone();
                self.head.extend(message.as_object().cloned().unwrap_or_default());
            }
            Event::ContentBlockStart { content_block, .. } => {
                self.content.push(content_block.clone());
            }
            Event::ContentBlockDelta { delta, .. } => self.add(delta),
            Event::ContentBlockStop { .. } => self.stop(),
            Event::Raw(event) if event.get("type").is_some_and(|kind| kind == "message_delta") => {
                self.merge(event);
            }
            Event::MessageStop { beside } => {
                for (name, value) in beside {
                    self.head.entry(name).or_insert_with(|| value.clone());
                }
            }
            Event::Raw(_) => {}
        }
    }
}

fn append(block: &mut Map<String, Value>, name: &str, text: &str) {
    match block.get_mut(name) {
        Some(Value::String(known)) => known.push_str(text),
        _ => {
            block.insert(name.to_owned(), text.into());
        }
    }
}

/// Adds a delta of an unknown type: its texts are appended, its other members replace.
fn add_raw(block: &mut Map<String, Value>, delta: &Value) {
    if let Some(citation) = delta.get("citation") {
        let all = block.entry("citations").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.push(citation.clone());
        } else {
            *all = json!([citation]);
        }
        return;
    }
    // The estimate of a thought's tokens is not part of the thought.
    let is_piece = |name: &str| !matches!(name, "type" | "estimated_tokens" | "partial_json");
    for (name, value) in delta.as_object().into_iter().flatten().filter(|(name, _)| is_piece(name))
    {
        if let Value::String(text) = value {
            append(block, name, text);
        } else {
            block.insert(name.clone(), value.clone());
        }
    }
}

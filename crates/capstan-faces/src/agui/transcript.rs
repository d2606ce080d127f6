//! The transcript of a stream: the conversation and the events on the screen. Only a reset or a
//! late joiner needs it.
//!
//! It is as large as the text. So it is read from the stream when it is needed, and `transcripts`
//! shares it.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_journal::JournalError;
use capstan_protocol::agui::{EventBody, MessageContent};
use capstan_protocol::{Event, Payload, RawJson, StreamPacket, sse};
use serde_json::{Value, json};

use super::facts::Facts;
use super::fold::{Fold, State, reset_of};
use super::input::Input;
use super::outgoing::OutgoingEvent;
use crate::face::FaceContext;

/// A message, or a part of one, and the packet that began it.
#[derive(Debug)]
struct Item {
    seq: u64,
    id: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Text, and for each packet where its text ends.
    Text(String, Vec<(u64, usize)>),
    Reasoning(String),
    Call {
        name: String,
        arguments: String,
        parent: Option<String>,
    },
    Result {
        call: String,
        content: MessageContent,
    },
}

/// The transcript of a stream.
#[derive(Debug)]
pub(crate) struct AguiTranscript {
    pub(super) fold: Fold,
    input: Input,
    items: Vec<Item>,
    customs: Vec<(u64, OutgoingEvent)>,
    states: Vec<OutgoingEvent>,
    /// Events that a reset does not remove, by their own ids.
    shown: Vec<Shown>,
    /// The last packet of the transcript.
    seq: u64,
    /// The bytes of its packets.
    size: usize,
    /// The result of the last packet, if it was a reset.
    cut: Option<Arc<Cut>>,
}

/// An event that is on the screen.
#[derive(Debug)]
struct Shown {
    seq: u64,
    id: String,
    /// The call of the event.
    call: Option<Value>,
}

/// The result of a reset.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) messages: Vec<Value>,
    /// The ids of presentation events that no longer count.
    pub(super) dropped: Vec<String>,
    /// The ids of events that stay on the screen although they are sent again.
    pub(super) again: BTreeSet<String>,
}

impl AguiTranscript {
    pub(super) fn new(facts: Arc<Facts>, input: Input) -> Self {
        let fold = Fold::new(facts, State::default());
        let (items, customs, states, shown) = (vec![], vec![], vec![], vec![]);
        let size = input.size();
        Self { fold, input, items, customs, states, shown, seq: 0, size, cut: None }
    }

    /// Reads a stream up to a packet.
    pub(super) async fn load(
        cx: &FaceContext,
        facts: &Arc<Facts>,
        upto: u64,
    ) -> Result<Self, JournalError> {
        let mut transcript = Self::new(Arc::clone(facts), Input::load(cx, facts.stream).await?);
        transcript.read_on(cx, upto).await?;
        Ok(transcript)
    }

    /// Reads further packets, up to this one.
    pub(super) async fn read_on(
        &mut self,
        cx: &FaceContext,
        upto: u64,
    ) -> Result<(), JournalError> {
        let (store, stream) = (cx.engine.store(), self.fold.facts.stream);
        while self.seq < upto {
            let frames = store.read(stream, self.seq, 1024, 1024 * 1024).await?;
            if frames.is_empty() {
                break;
            }
            for frame in frames.iter().filter(|frame| frame.seq <= upto) {
                if let Some(packet) = sse::decode_packet(&frame.bytes) {
                    self.take(&packet);
                }
                self.seq = frame.seq;
                self.size += frame.bytes.len();
            }
            if frames.last().is_some_and(|last| last.seq > upto) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// The memory that it takes, roughly.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The result of the last packet, if it was a reset.
    pub(super) fn last_cut(&self) -> Arc<Cut> {
        self.cut.clone().unwrap_or_default()
    }

    pub(super) fn take(&mut self, packet: &StreamPacket) {
        self.cut = None;
        if let Some(reset) = reset_of(packet) {
            let cut = Arc::new(self.cut(reset.after_seq));
            self.cut = Some(Arc::clone(&cut));
            let outgoing = self.fold.reset(packet, &reset, &cut);
            outgoing.into_iter().for_each(|outgoing| self.note(packet.seq, outgoing));
            return;
        }
        let outgoing = self.fold.take(packet);
        if let (Payload::Event(raw), true) =
            (&packet.payload, outgoing.iter().any(OutgoingEvent::stays))
            && let Event { id: Some(Value::String(id)), mut data, .. } = Event::of(raw)
        {
            let call = data.get_mut("toolCallId").map(Value::take);
            self.shown.push(Shown { seq: packet.seq, id, call });
        }
        outgoing.into_iter().for_each(|outgoing| self.note(packet.seq, outgoing));
    }

    fn note(&mut self, seq: u64, outgoing: OutgoingEvent) {
        let OutgoingEvent::Event(event) = &outgoing else { return };
        let mut begin = |id: &String, kind| self.items.push(Item { seq, id: id.clone(), kind });
        #[allow(clippy::wildcard_enum_match_arm)] // The others leave nothing behind.
        match &event.body {
            EventBody::TextMessageStart { message_id, .. } => {
                begin(message_id, Kind::Text(String::new(), Vec::new()));
            }
            EventBody::ReasoningMessageStart { message_id, .. } => {
                begin(message_id, Kind::Reasoning(String::new()));
            }
            EventBody::ToolCallStart { tool_call_id, tool_call_name, parent_message_id } => {
                let (name, parent) = (tool_call_name.clone(), parent_message_id.clone());
                begin(tool_call_id, Kind::Call { name, arguments: String::new(), parent });
            }
            EventBody::ToolCallResult { message_id, tool_call_id, content, .. } => {
                let (call, content) = (tool_call_id.clone(), content.clone());
                begin(message_id, Kind::Result { call, content });
            }
            EventBody::TextMessageContent { message_id: id, delta }
            | EventBody::ReasoningMessageContent { message_id: id, delta }
            | EventBody::ToolCallArgs { tool_call_id: id, delta } => self.append(seq, id, delta),
            EventBody::StateSnapshot { .. } => self.states = vec![outgoing],
            EventBody::StateDelta { .. } => self.states.push(outgoing),
            EventBody::Custom { .. }
            | EventBody::ActivitySnapshot { .. }
            | EventBody::ActivityDelta { .. } => {
                self.customs.push((seq, outgoing));
            }
            _ => {}
        }
    }

    fn append(&mut self, seq: u64, id: &str, delta: &str) {
        match self.items.iter_mut().rev().find(|item| item.id == id).map(|item| &mut item.kind) {
            Some(Kind::Text(text, marks)) => {
                text.push_str(delta);
                marks.push((seq, text.len()));
            }
            Some(Kind::Reasoning(text) | Kind::Call { arguments: text, .. }) => {
                text.push_str(delta)
            }
            Some(Kind::Result { .. }) | None => {}
        }
    }

    /// Removes text, presentation events and incomplete calls after a packet. Reasoning and
    /// complete calls stay: AG-UI has no event that removes them, so the fold does not repeat them
    /// either.
    pub(super) fn cut(&mut self, after_seq: u64) -> Cut {
        let calls = self.fold.state.calls.iter().filter(|call| call.began > after_seq);
        let open: BTreeSet<String> = calls.map(|call| call.id.clone()).collect();
        self.items.retain(|item| {
            let is_taken_back = match item.kind {
                Kind::Text(..) => true,
                Kind::Call { .. } => open.contains(&item.id),
                Kind::Reasoning(_) | Kind::Result { .. } => false,
            };
            item.seq <= after_seq || !is_taken_back
        });
        for item in &mut self.items {
            if let Kind::Text(text, marks) = &mut item.kind {
                marks.retain(|(seq, _)| *seq <= after_seq);
                text.truncate(marks.last().map_or(0, |(_, end)| *end));
            }
        }
        let mut cut = Cut::default();
        self.customs.retain(|(seq, outgoing)| {
            let id = outgoing.presented().filter(|_| *seq > after_seq);
            cut.dropped.extend(id.clone());
            id.is_none()
        });
        let is_open = |call: &Value| call.as_str().is_some_and(|id| open.contains(id));
        self.shown.retain(|shown| {
            let stays = shown.seq <= after_seq;
            if !stays && !shown.call.as_ref().is_some_and(is_open) {
                cut.again.insert(shown.id.clone());
            }
            stays
        });
        cut.messages = self.messages();
        cut
    }

    /// The conversation: the messages that the run was given, then its own.
    pub(super) fn messages(&self) -> Vec<Value> {
        let mut messages: Vec<Value> = self.input.messages.iter().map(RawJson::to_value).collect();
        for item in &self.items {
            let id = &item.id;
            match &item.kind {
                Kind::Text(text, _) => {
                    messages.push(json!({ "id": id, "role": "assistant", "content": text }));
                }
                Kind::Reasoning(text) => {
                    messages.push(json!({ "id": id, "role": "reasoning", "content": text }));
                }
                Kind::Call { name, arguments, parent } => {
                    let function = json!({ "name": name, "arguments": arguments });
                    let call = json!({ "id": id, "type": "function", "function": function });
                    add_call(&mut messages, parent.as_ref().unwrap_or(id), call);
                }
                Kind::Result { call, content } => {
                    messages.push(
                        json!({ "id": id, "role": "tool", "toolCallId": call, "content": content }),
                    );
                }
            }
        }
        messages
    }

    /// The events for a joiner that may have messages already. They replace everything and append
    /// nothing.
    pub(super) fn preamble(&self) -> Vec<OutgoingEvent> {
        let facts = &self.fold.facts;
        let t = facts.created;
        let mut out = vec![facts.started(t), OutgoingEvent::Messages(self.messages(), t)];
        let is_whole =
            matches!(self.states.first(), Some(first) if first.kind() == "STATE_SNAPSHOT");
        if let (false, Some(state)) = (is_whole, &self.input.state) {
            out.push(OutgoingEvent::event(
                EventBody::StateSnapshot { snapshot: state.to_value() },
                t,
            ));
        }
        out.extend(self.states.iter().cloned());
        out.extend(self.fold.open_steps(t));
        out.extend(self.customs.iter().map(|(_, outgoing)| outgoing.clone()));
        out.extend(self.fold.open_messages(t));
        out
    }
}

/// Adds a tool call to the assistant message that it names, or to a new one.
fn add_call(messages: &mut Vec<Value>, parent: &str, call: Value) {
    let is = |m: &Value, name, text: &str| m.get(name).and_then(Value::as_str) == Some(text);
    let is_parent = |m: &&mut Value| is(m, "id", parent) && is(m, "role", "assistant");
    if let Some(Value::Object(message)) = messages.iter_mut().find(is_parent) {
        if let Value::Array(calls) = message.entry("toolCalls").or_insert_with(|| json!([])) {
            calls.push(call);
        }
        return;
    }
    messages.push(json!({ "id": parent, "role": "assistant", "toolCalls": [call] }));
}

impl OutgoingEvent {
    /// Whether a reset keeps it, because AG-UI has no event that removes it.
    fn stays(&self) -> bool {
        ["REASONING_", "TOOL_CALL_", "STATE_", "ACTIVITY_"]
            .iter()
            .any(|kind| self.kind().starts_with(kind))
    }

    /// The id of the presentation event in this CUSTOM event.
    fn presented(&self) -> Option<String> {
        let Self::Event(event) = self else { return None };
        let EventBody::Custom { value, .. } = &event.body else { return None };
        value.get("id").and_then(Value::as_str).map(str::to_owned)
    }
}

//! The mapping: a pure fold over packets. The k-th event that a packet becomes has the id
//! `<stream_id>:<seq>.<k>`.
//!
//! The state is what AG-UI's rules ask for (what is open) and nothing else, so it stays small
//! however long the stream is; text is not part of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_protocol::agui::{EventBody, Interrupt};
use capstan_protocol::{
    Close, ErrorSeverity, Event, EventView, Fault, FaultKind, Payload, RawObject, StreamPacket,
    StreamReset,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::facts::Facts;
use super::outgoing::OutgoingEvent;
use super::transcript::Cut;
use super::{ending, event};

/// What is open at a place in the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The seq at which the open text message began.
    pub(super) text: Option<u64>,
    pub(super) steps: Vec<String>,
    pub(super) calls: Vec<Call>,
    /// Calls that nobody has answered yet, in order.
    #[serde(default)]
    pub(super) pending: Vec<String>,
    /// What the run asks; its end says so.
    #[serde(default)]
    pub(super) interrupts: Vec<Interrupt>,
    /// Activities that were shown: only these may be changed.
    pub(super) activities: BTreeSet<String>,
    /// Events that a reset took back on the wire but not from the screen: they are not shown a
    /// second time.
    pub(super) again: BTreeSet<String>,
    /// A terminal event was made; nothing may follow.
    pub(super) is_over: bool,
}

/// An open tool call, with what it takes to open it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) parent: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub(super) facts: Arc<Facts>,
    pub(super) state: State,
}

/// The reset that a packet carries.
pub(super) fn reset_of(packet: &StreamPacket) -> Option<StreamReset> {
    let Payload::Event(raw) = &packet.payload else { return None };
    if !raw.get().contains(capstan_protocol::event::STREAM_RESET) {
        return None;
    }
    if let EventView::Reset(reset) = Event::of(raw).view() { Some(reset) } else { None }
}

/// A TRANSIENT error: it ends the response if the run waits, and is history if another packet
/// follows.
pub(super) fn is_transient(packet: &StreamPacket) -> bool {
    matches!(&packet.payload, Payload::Error(error) if error.severity == ErrorSeverity::Transient)
}

impl Fold {
    pub(crate) fn new(facts: Arc<Facts>, state: State) -> Self {
        Self { facts, state }
    }

    /// The events of a packet; a TRANSIENT error is taken as superseded, a reset is
    /// [`Self::reset`]'s.
    pub(super) fn take(&mut self, packet: &StreamPacket) -> Vec<OutgoingEvent> {
        let mut out = Vec::new();
        if self.state.is_over {
            return out;
        }
        let (seq, t) = (packet.seq, packet.t.as_millis());
        match &packet.payload {
            Payload::Delta(text) => self.delta(seq, t, text, &mut out),
            Payload::Event(raw) => self.event(seq, t, raw, &mut out),
            Payload::Error(error) => match error.severity {
                ErrorSeverity::Warning => out.push(warning("capstan.warning", error, t)),
                ErrorSeverity::Transient => out.push(warning("capstan.attempt_failed", error, t)),
                ErrorSeverity::Fatal => {
                    out = ending::failure(self, seq, t, &Fault::from(*error.clone()));
                    self.state.is_over = true;
                }
            },
            Payload::Close(close) => out = self.close(seq, t, close),
        }
        out
    }

    fn delta(&mut self, seq: u64, t: i64, text: &str, out: &mut Vec<OutgoingEvent>) {
        // AG-UI knows no empty piece.
        if text.is_empty() {
            return;
        }
        let began = *self.state.text.get_or_insert_with(|| {
            out.push(self.facts.text_start(seq, t));
            seq
        });
        let message_id = self.facts.message_id(began);
        out.push(OutgoingEvent::event(
            EventBody::TextMessageContent { message_id, delta: text.to_owned() },
            t,
        ));
    }

    fn event(&mut self, seq: u64, t: i64, raw: &RawObject, out: &mut Vec<OutgoingEvent>) {
        let read = Event::of(raw);
        if read.id.as_ref().and_then(Value::as_str).is_some_and(|id| self.state.again.remove(id)) {
            return;
        }
        event::say(self, seq, t, &read, raw, out);
    }

    /// Ends the open text message: something follows that is a message of its own.
    pub(super) fn end_text(&mut self, t: i64, out: &mut Vec<OutgoingEvent>) {
        if let Some(began) = self.state.text.take() {
            out.push(self.facts.text_end(began, t));
        }
    }

    fn close(&mut self, seq: u64, t: i64, close: &Close) -> Vec<OutgoingEvent> {
        let out = if close.reason() == "error" {
            // Its ERROR would have ended the fold already.
            ending::failure(self, seq, t, &Fault::new(FaultKind::AgentExecutionError))
        } else {
            ending::finish(self, t, close)
        };
        self.state.is_over = true;
        out
    }

    /// A later attempt said something else: the messages are told anew, and go on from there.
    pub(super) fn reset(
        &mut self,
        packet: &StreamPacket,
        reset: &StreamReset,
        cut: &Cut,
    ) -> Vec<OutgoingEvent> {
        let mut out = Vec::new();
        if self.state.is_over {
            return out;
        }
        let t = packet.t.as_millis();
        if self.state.text.is_some_and(|began| began > reset.after_seq) {
            self.end_text(t, &mut out);
        }
        self.state.again.extend(cut.again.iter().cloned());
        out.push(OutgoingEvent::Messages(cut.messages.clone(), t));
        let value = json!({ "attempt": reset.attempt, "after_seq": reset.after_seq,
        "dropped": cut.dropped });
        out.push(OutgoingEvent::custom("capstan.reset", value, t));
        out
    }

    /// The steps that are open, for a reader whose rules begin anew.
    pub(super) fn open_steps(&self, t: i64) -> Vec<OutgoingEvent> {
        let steps =
            self.state.steps.iter().map(|name| EventBody::StepStarted { step_name: name.clone() });
        steps.map(|body| OutgoingEvent::event(body, t)).collect()
    }

    /// The tool calls and the text that are open, likewise.
    pub(super) fn open_messages(&self, t: i64) -> Vec<OutgoingEvent> {
        let calls = self.state.calls.iter().map(|call| EventBody::ToolCallStart {
            tool_call_id: call.id.clone(),
            tool_call_name: call.name.clone(),
            parent_message_id: call.parent.clone(),
        });
        let text = self.state.text.map(|began| self.facts.text_start(began, t));
        calls.map(|body| OutgoingEvent::event(body, t)).chain(text).collect()
    }
}

fn warning(name: &str, error: &capstan_protocol::StreamError, t: i64) -> OutgoingEvent {
    OutgoingEvent::custom(name, serde_json::to_value(error).unwrap_or_default(), t)
}

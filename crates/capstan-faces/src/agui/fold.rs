//! The state of the fold over packets. `mapping` has the fold itself.
//!
//! The state has what AG-UI's rules need: which messages, calls and steps are open. It has no text,
//! so it stays small in long streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_protocol::agui::{EventBody, Interrupt};
use capstan_protocol::{ErrorSeverity, Event, EventView, Payload, StreamPacket, StreamReset};
use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::outgoing::OutgoingEvent;

/// What is open after a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The seq at which the open text message began.
    pub(super) text: Option<u64>,
    pub(super) steps: Vec<String>,
    pub(super) calls: Vec<Call>,
    /// Calls without an answer, in order.
    #[serde(default)]
    pub(super) pending: Vec<String>,
    /// The questions of the run, which its end contains.
    #[serde(default)]
    pub(super) interrupts: Vec<Interrupt>,
    /// Activities that were shown. Only these may change.
    pub(super) activities: BTreeSet<String>,
    /// Events that a reset removed from the stream but not from the screen. They are not shown a
    /// second time.
    pub(super) again: BTreeSet<String>,
    /// The fold has made a terminal event. Nothing may follow.
    pub(super) is_over: bool,
}

/// An open tool call, with the values that open it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) parent: Option<String>,
    /// The packet that began it.
    #[serde(default)]
    pub(super) began: u64,
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

/// The TRANSIENT error that a packet carries. It ends the response if the run waits, and is history
/// if another packet follows.
pub(super) fn is_transient(packet: &StreamPacket) -> bool {
    matches!(&packet.payload, Payload::Error(error) if error.severity == ErrorSeverity::Transient)
}

impl Fold {
    pub(crate) fn new(facts: Arc<Facts>, state: State) -> Self {
        Self { facts, state }
    }

    /// Ends the open text message before another message.
    pub(super) fn end_text(&mut self, t: i64, out: &mut Vec<OutgoingEvent>) {
        if let Some(began) = self.state.text.take() {
            out.push(self.facts.text_end(began, t));
        }
    }

    /// The steps that are open, for a reader whose rules begin anew.
    pub(super) fn open_steps(&self, t: i64) -> Vec<OutgoingEvent> {
        let steps =
            self.state.steps.iter().map(|name| EventBody::StepStarted { step_name: name.clone() });
        steps.map(|body| OutgoingEvent::event(body, t)).collect()
    }

    /// The open tool calls and the open text, for the same reader.
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

//! What viewers have been sent: the text, the events and the tool calls with which a later attempt
//! is compared, and from which the session's messages are made.

use capstan_protocol::{ChatMessage, Event, EventView, Payload, RawObject};

use super::attempt_diff::AttemptDiff;
use super::call_diff::{CallDiff, Said};
use super::native_log::Placed;
use super::tool_log::ToolLog;

/// How the types of a tool call's events begin.
pub(super) const TOOL_CALL: &str = "TOOL_CALL_";

/// What was sent so far, resets applied.
pub(super) struct SentLog {
    pub(super) diff: AttemptDiff,
    pub(super) calls: CallDiff,
    tools: ToolLog,
    events: u64,
}

impl SentLog {
    /// Nothing yet. Only if it `compares`, all of it is remembered.
    pub(super) fn new(compares: bool) -> Self {
        Self {
            diff: AttemptDiff::new(compares),
            calls: CallDiff::default(),
            tools: ToolLog::default(),
            events: 0,
        }
    }

    /// From here on, what comes is compared with what was sent.
    pub(super) fn begin_attempt(&mut self) {
        self.diff.rewind();
        self.calls.rewind();
    }

    /// A packet that an earlier attempt sent.
    pub(super) fn remember(&mut self, seq: u64, payload: &Payload) {
        match payload {
            Payload::Delta(text) => {
                self.diff.sent_text(seq, text);
            }
            Payload::Event(raw) => {
                let event = Event::of(raw);
                if let EventView::Reset(reset) = event.view() {
                    self.diff.reset(reset.after_seq);
                    self.reset_calls(reset.after_seq);
                } else {
                    self.events += 1;
                    self.note_event(seq, raw, &event);
                }
            }
            Payload::Error(_) | Payload::Close(_) => {}
        }
    }

    /// An event that is being sent.
    pub(super) fn sent_event(&mut self, seq: u64, payload: &RawObject) {
        // Few events are about tools, and only these are looked into.
        if payload.get().contains(TOOL_CALL) {
            self.note_event(seq, payload, &Event::of(payload));
        } else {
            self.diff.sent_event(seq, payload);
        }
    }

    /// One more event that the agent meant for viewers.
    pub(super) fn count_event(&mut self) {
        self.events += 1;
    }

    /// Viewers drop what came after this packet. The text has been cut already.
    pub(super) fn reset_calls(&mut self, after_seq: u64) {
        self.calls.reset(after_seq);
        self.tools.reset(after_seq);
    }

    /// Calls are compared in a way of their own; what they were answered is an event like others.
    fn note_event(&mut self, seq: u64, raw: &RawObject, event: &Event) {
        let said = Said::of(event).map(|(_, said)| said);
        if matches!(said, None | Some(Said::Result)) {
            self.diff.sent_event(seq, raw);
        }
        if said.is_some() {
            if self.diff.compares() {
                self.calls.sent(seq, event, raw);
            }
            self.tools.note(seq, self.diff.len(), event);
        }
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.diff.bytes() + self.tools.bytes()
    }

    /// Whether a model could go on from the text.
    pub(super) fn can_continue(&self) -> bool {
        self.tools.is_empty() && self.diff.len() == self.diff.text().len()
    }

    /// What was said as messages, with this as its text and these parts in it.
    pub(super) fn take_messages(&mut self, text: &str, native: Vec<Placed>) -> Vec<ChatMessage> {
        std::mem::take(&mut self.tools).messages(text, native)
    }
}

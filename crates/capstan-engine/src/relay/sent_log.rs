//! The packets that viewers have: text, events and tool calls. A later attempt is compared with
//! them, and the session's messages are made of them.

use capstan_protocol::{
    Arguments, ChatMessage, Event, EventView, NATIVE, NativeEvent, Part, Payload, RawObject,
};

use super::attempt_diff::AttemptDiff;
use super::call_diff::CallDiff;
use super::call_event::{CallStep, TOOL_CALL};
use super::native_log::Placed;
use super::tool_log::ToolLog;

/// The sent packets, after resets.
pub(super) struct SentLog {
    pub(super) diff: AttemptDiff,
    pub(super) calls: CallDiff,
    tools: ToolLog,
    /// The ids of calls that have not ended.
    open_calls: Vec<String>,
    /// For each packet with a native part: its `seq`, and the length of all thoughts up to it.
    thought_ends: Vec<(u64, usize)>,
    events: u64,
}

impl SentLog {
    /// Creates an empty log. It stores everything only if a later attempt may be compared.
    pub(super) fn new(compares: bool) -> Self {
        Self {
            diff: AttemptDiff::new(compares),
            calls: CallDiff::default(),
            tools: ToolLog::default(),
            open_calls: Vec::new(),
            thought_ends: Vec::new(),
            events: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.diff.is_empty() && self.calls.is_empty()
    }

    /// Begins an attempt, which is compared with the sent packets.
    pub(super) fn begin_attempt(&mut self) {
        self.diff.rewind();
        self.calls.rewind();
    }

    /// Records a packet of an earlier attempt.
    pub(super) fn remember(&mut self, seq: u64, payload: &Payload) {
        match payload {
            Payload::Delta(text) => {
                self.diff.sent_text(seq, text);
            }
            Payload::Event(raw) => {
                let event = Event::of(raw);
                match event.view() {
                    EventView::Reset(reset) => {
                        self.diff.reset(reset.after_seq);
                        self.reset(reset.after_seq);
                    }
                    EventView::Thought(trace) => {
                        self.events += 1;
                        self.diff.sent_thought(seq, &trace.thought, raw);
                    }
                    EventView::Citations(_)
                    | EventView::Progress(_)
                    | EventView::Media(_)
                    | EventView::Markdown(_)
                    | EventView::UserError(_)
                    | EventView::Interrupt(_)
                    | EventView::Other => {
                        self.events += 1;
                        self.record_event(seq, raw, &event);
                    }
                }
            }
            Payload::Error(_) | Payload::Close(_) => {}
        }
    }

    /// Records an event that is being sent.
    pub(super) fn sent_event(&mut self, seq: u64, payload: &RawObject) {
        // Parse only events about tools or with native parts, which are few.
        if [TOOL_CALL, NATIVE].iter().any(|kind| payload.get().contains(kind)) {
            self.record_event(seq, payload, &Event::of(payload));
        } else {
            self.diff.sent_event(seq, payload);
        }
    }

    /// Counts an event that the agent sent to viewers.
    pub(super) fn count_event(&mut self) {
        self.events += 1;
    }

    /// Removes everything after this packet. The text and events are removed already.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.calls.reset(after_seq);
        self.tools.reset(after_seq);
        self.thought_ends.retain(|(seq, _)| *seq <= after_seq);
    }

    /// Records an event. Tool calls have their own comparison, but results are compared as events.
    fn record_event(&mut self, seq: u64, raw: &RawObject, event: &Event) {
        let Some((id, step)) = CallStep::of(event) else {
            self.diff.sent_event(seq, raw);
            if ends_thoughts(event) {
                self.thought_ends.push((seq, self.diff.thoughts().len()));
            }
            return;
        };
        match step {
            CallStep::Start => self.open_calls.push(id),
            CallStep::Arguments(_) => {}
            CallStep::End | CallStep::Result => self.open_calls.retain(|open| *open != id),
        }
        if matches!(step, CallStep::Result) {
            self.diff.sent_event(seq, raw);
        }
        if self.diff.compares() {
            self.calls.sent(seq, event, raw);
        }
        self.tools.record(seq, self.diff.len(), event);
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The length of all thoughts up to the last native part.
    pub(super) fn thoughts_done(&self) -> usize {
        self.thought_ends.last().map_or(0, |(_, length)| *length)
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.diff.bytes() + self.calls.bytes() + self.tools.bytes()
    }

    /// Whether a model could continue the text.
    pub(super) fn can_continue(&self) -> bool {
        self.tools.is_empty() && self.diff.len() == self.diff.text().len()
    }

    /// Whether the answer has a complete call, or a text with a call after it.
    pub(super) fn has_complete_part(&self) -> bool {
        self.calls.last_whole() > 0 || !self.diff.is_empty() && !self.tools.is_empty()
    }

    /// Takes the answer as messages, with this text and these native parts. Leaves out calls that
    /// broke off, because their arguments are incomplete.
    pub(super) fn take_messages(&mut self, text: &str, native: Vec<Placed>) -> Vec<ChatMessage> {
        let mut messages = std::mem::take(&mut self.tools).messages(text, native);
        let is_open = |part: &Part| {
            let Part::ToolCall { id: Some(id), arguments, .. } = part else { return false };
            self.open_calls.contains(id) && !is_json(arguments)
        };
        messages.iter_mut().for_each(|message| message.parts.retain(|part| !is_open(part)));
        messages.retain(|message| !message.parts.is_empty());
        messages
    }
}

/// Whether an event is a native part, which ends the thoughts before it.
fn ends_thoughts(event: &Event) -> bool {
    event.kind.as_deref() == Some(NATIVE)
        && serde_json::from_value::<NativeEvent>(event.data.clone())
            .is_ok_and(|native| native.part.is_some())
}

fn is_json(arguments: &Arguments) -> bool {
    match arguments {
        Arguments::Object(_) => true,
        Arguments::Text(text) => serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
    }
}

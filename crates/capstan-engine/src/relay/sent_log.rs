//! What viewers have been sent: the text, the events and the tool calls with which a later attempt
//! is compared, and from which the session's messages are made.

use capstan_protocol::{
    Arguments, ChatMessage, Event, EventView, NATIVE, NativeEvent, Part, Payload, RawObject,
};

use super::attempt_diff::AttemptDiff;
use super::call_diff::CallDiff;
use super::call_event::{Said, TOOL_CALL};
use super::native_log::Placed;
use super::tool_log::ToolLog;

/// What was sent so far, resets applied.
pub(super) struct SentLog {
    pub(super) diff: AttemptDiff,
    pub(super) calls: CallDiff,
    tools: ToolLog,
    /// Calls that were not told to their end.
    open_calls: Vec<String>,
    /// Packets that ended a piece of reasoning, and how long all thoughts were by then.
    thought_ends: Vec<(u64, usize)>,
    events: u64,
}

impl SentLog {
    /// Nothing yet. Only if it `compares`, all of it is remembered.
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
                        self.note_event(seq, raw, &event);
                    }
                }
            }
            Payload::Error(_) | Payload::Close(_) => {}
        }
    }

    /// An event that is being sent.
    pub(super) fn sent_event(&mut self, seq: u64, payload: &RawObject) {
        // Few events are about tools or for one provider alone, and only these are looked into.
        if [TOOL_CALL, NATIVE].iter().any(|kind| payload.get().contains(kind)) {
            self.note_event(seq, payload, &Event::of(payload));
        } else {
            self.diff.sent_event(seq, payload);
        }
    }

    /// One more event that the agent meant for viewers.
    pub(super) fn count_event(&mut self) {
        self.events += 1;
    }

    /// Viewers drop what came after this packet. Text and events have been cut already.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.calls.reset(after_seq);
        self.tools.reset(after_seq);
        self.thought_ends.retain(|(seq, _)| *seq <= after_seq);
    }

    /// Calls are compared in a way of their own; what they were answered is an event like others.
    fn note_event(&mut self, seq: u64, raw: &RawObject, event: &Event) {
        let Some((id, said)) = Said::of(event) else {
            self.diff.sent_event(seq, raw);
            if ends_thoughts(event) {
                self.thought_ends.push((seq, self.diff.thoughts().len()));
            }
            return;
        };
        match said {
            Said::Start => self.open_calls.push(id),
            Said::Arguments(_) => {}
            Said::End | Said::Result => self.open_calls.retain(|open| *open != id),
        }
        if matches!(said, Said::Result) {
            self.diff.sent_event(seq, raw);
        }
        if self.diff.compares() {
            self.calls.sent(seq, event, raw);
        }
        self.tools.note(seq, self.diff.len(), event);
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// How long all thoughts were when a part last ended a piece of reasoning.
    pub(super) fn thoughts_done(&self) -> usize {
        self.thought_ends.last().map_or(0, |(_, length)| *length)
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.diff.bytes() + self.calls.bytes() + self.tools.bytes()
    }

    /// Whether a model could go on from the text.
    pub(super) fn can_continue(&self) -> bool {
        self.tools.is_empty() && self.diff.len() == self.diff.text().len()
    }

    /// What was said as messages, with this as its text and these parts in it. Nobody can know what
    /// a call that broke off is about.
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

/// A part that holds the rest of the reasoning before it.
fn ends_thoughts(event: &Event) -> bool {
    event.kind.as_deref() == Some(NATIVE)
        && serde_json::from_value::<NativeEvent>(event.data.clone())
            .is_ok_and(|native| native.part.is_some() && native.text_at.is_some())
}

fn is_json(arguments: &Arguments) -> bool {
    match arguments {
        Arguments::Object(_) => true,
        Arguments::Text(text) => serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
    }
}

//! The native parts of an attempt's answer, which only their provider understands, for the session.
//!
//! Only the present attempt's parts count, because the reasoning of an abandoned answer does not
//! fit the one that replaced it. So they are recorded as the agent writes them, before the
//! comparison with earlier attempts.

use capstan_protocol::{Event, NATIVE, NativeEvent, NativePart, Part, PresentationEventType};
use capstan_protocol::{RawObject, ThoughtTrace};

/// A session stores at most this much of them.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// The native parts, each with its position in the answer.
#[derive(Default)]
pub(super) struct NativeLog {
    parts: Vec<Placed>,
    /// The text of the thoughts since the last part.
    thoughts: String,
    /// Tool calls and results so far.
    tools: usize,
    bytes: usize,
}

/// A part with its position.
#[derive(Debug)]
pub(super) struct Placed {
    /// Bytes of text before it.
    pub(super) at: usize,
    /// Tool calls and results before it.
    pub(super) tools: usize,
    pub(super) part: Part,
}

impl NativeLog {
    /// Records an event. `at` is the length of the text before it.
    pub(super) fn record(&mut self, kind: &str, at: usize, payload: &RawObject) {
        match kind {
            "TOOL_CALL_START" | "TOOL_CALL_RESULT" => self.tools += 1,
            NATIVE => self.native(at, payload),
            _ if kind == PresentationEventType::ThoughtTrace.as_str() => self.thought(payload),
            _ => {}
        }
    }

    fn thought(&mut self, payload: &RawObject) {
        let thought = serde_json::from_value::<ThoughtTrace>(Event::of(payload).data);
        if let Ok(ThoughtTrace { thought }) = thought
            && self.bytes + thought.len() <= MOST_BYTES
        {
            self.bytes += thought.len();
            self.thoughts.push_str(&thought);
        }
    }

    fn native(&mut self, at: usize, payload: &RawObject) {
        let native = serde_json::from_value::<NativeEvent>(Event::of(payload).data);
        let Ok(NativeEvent { origin, part: Some(part), text_at, .. }) = native else { return };
        // A part without a place for them holds its thoughts itself.
        let thoughts = std::mem::take(&mut self.thoughts);
        let text = text_at.as_ref().map(|_| thoughts).unwrap_or_default();
        if self.bytes + part.get().len() > MOST_BYTES {
            return;
        }
        self.bytes += part.get().len();
        let part = Part::Native(Box::new(NativePart { origin, part, text_at, text }));
        self.parts.push(Placed { at, tools: self.tools, part });
    }

    /// The agent restarts at an earlier position of its text.
    pub(super) fn rewind_to(&mut self, at: usize) {
        self.parts.retain(|placed| placed.at <= at);
        self.thoughts.clear();
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The parts, oldest first.
    pub(super) fn take(&mut self) -> Vec<Placed> {
        std::mem::take(&mut self.parts)
    }
}

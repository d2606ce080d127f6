//! The parts of an attempt's answer that only their provider understands, for the session.
//!
//! They count only as far as the present attempt wrote them: the reasoning of an abandoned answer
//! would not fit the one that replaced it. So they are noted as the agent writes them, before
//! anything is compared with what earlier attempts sent.

use capstan_protocol::{Event, NATIVE, NativeEvent, NativePart, Part, PresentationEventType};
use capstan_protocol::{RawObject, ThoughtTrace};

/// Beyond this a session remembers no more of them.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Native parts, each with its place in the answer.
#[derive(Default)]
pub(super) struct NativeLog {
    parts: Vec<Placed>,
    /// The text of thoughts since the last part.
    thoughts: String,
    calls: usize,
    bytes: usize,
}

/// A part and what the attempt had said before it.
#[derive(Debug)]
pub(super) struct Placed {
    /// Bytes of text.
    pub(super) at: usize,
    /// Tool calls.
    pub(super) calls: usize,
    pub(super) part: Part,
}

impl NativeLog {
    /// Takes note of an event; `at` is how much text stood before it.
    pub(super) fn note(&mut self, kind: &str, at: usize, payload: &RawObject) {
        match kind {
            "TOOL_CALL_START" => self.calls += 1,
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
        if self.bytes + part.get().len() > MOST_BYTES {
            return;
        }
        self.bytes += part.get().len();
        let text = text_at.as_ref().map(|_| std::mem::take(&mut self.thoughts));
        let text = text.unwrap_or_default();
        let part = Part::Native(Box::new(NativePart { origin, part, text_at, text }));
        self.parts.push(Placed { at, calls: self.calls, part });
    }

    /// The agent goes back to an earlier place of its text.
    pub(super) fn rewind_to(&mut self, at: usize) {
        self.parts.retain(|placed| placed.at <= at);
        self.thoughts.clear();
    }

    /// Memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The parts, oldest first.
    pub(super) fn take(&mut self) -> Vec<Placed> {
        std::mem::take(&mut self.parts)
    }
}

//! Reasoning, from tokens to thoughts: a paragraph is an event, a token would be too many.
//!
//! Thoughts joined together are the reasoning byte for byte: a provider checks it when it comes
//! back.

use capstan_agent::Output;
use capstan_protocol::{PresentationEventType, ThoughtTrace, event};

/// A paragraph that grows beyond this is cut, so that something is seen.
const LONGEST: usize = 240;

/// Collects pieces of reasoning.
#[derive(Debug, Default)]
pub(crate) struct Thoughts(String);

impl Thoughts {
    /// Adds a piece. Sends each paragraph with the blank line behind it.
    pub(crate) fn push(&mut self, piece: &str, out: &mut Vec<Output>) {
        self.0.push_str(piece);
        while let Some(at) = self.0.find("\n\n") {
            let rest = self.0.split_off(at + 2);
            self.flush(out);
            self.0 = rest;
        }
        if self.0.len() > LONGEST {
            self.flush(out);
        }
    }

    /// Sends the rest: the reasoning is over, or something else follows.
    pub(crate) fn flush(&mut self, out: &mut Vec<Output>) {
        let thought = std::mem::take(&mut self.0);
        if !thought.is_empty() {
            let kind = PresentationEventType::ThoughtTrace.as_str();
            out.extend(make(kind, &ThoughtTrace { thought }));
        }
    }
}

/// An event, ready to be written; what is no object makes none.
pub(crate) fn make(kind: &str, data: &impl serde::Serialize) -> Option<Output> {
    event::envelope(kind, data).ok().map(|payload| Output::Event { kind: kind.to_owned(), payload })
}

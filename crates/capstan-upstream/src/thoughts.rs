//! Joins pieces of reasoning to thoughts. Each paragraph is one event, because an event for each
//! token would be too many.
//!
//! The thoughts in a row are the reasoning byte for byte: a provider checks it when it comes back.

use capstan_agent::Output;
use capstan_protocol::{PresentationEventType, ThoughtTrace, event};

/// A longer paragraph is cut, so that viewers do not wait.
const LONGEST: usize = 240;

/// Collects pieces of reasoning.
#[derive(Debug, Default)]
pub(crate) struct Thoughts(String);

impl Thoughts {
    /// Adds a piece. Sends each paragraph together with the blank line after it.
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

    /// Sends the rest, at the end of the reasoning or before something else.
    pub(crate) fn flush(&mut self, out: &mut Vec<Output>) {
        let thought = std::mem::take(&mut self.0);
        if !thought.is_empty() {
            let kind = PresentationEventType::ThoughtTrace.as_str();
            out.extend(make(kind, &ThoughtTrace { thought }));
        }
    }
}

/// Makes an event. Returns none if the data is no object.
pub(crate) fn make(kind: &str, data: &impl serde::Serialize) -> Option<Output> {
    event::envelope(kind, data).ok().map(|payload| Output::Event { kind: kind.to_owned(), payload })
}

//! The parts of a reasoning item: pieces of its summary, or of its text.

use serde_json::{Map, Value};

/// A part that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThoughtPart {
    /// The type of the event with a piece of its text.
    pub(super) delta: String,
    pub(super) index: u64,
}

/// The type of the event that begins a part of a summary.
pub(super) const SUMMARY_PART: &str = "response.reasoning_summary_part.added";
/// The type of the event with a piece of a summary.
pub(super) const SUMMARY: &str = "response.reasoning_summary_text.delta";

impl Default for ThoughtPart {
    fn default() -> Self {
        Self { delta: SUMMARY.to_owned(), index: 0 }
    }
}

impl ThoughtPart {
    /// The part that an event of the provider begins.
    pub(super) fn of(kind: &str, event: &Map<String, Value>) -> Option<Self> {
        let (delta, index) = match kind {
            SUMMARY_PART => (SUMMARY, "summary_index"),
            "response.reasoning_text.delta" | "response.reasoning.delta" => (kind, "content_index"),
            _ => return None,
        };
        let index = event.get(index).and_then(Value::as_u64).unwrap_or(0);
        Some(Self { delta: delta.to_owned(), index })
    }

    pub(super) fn is_summary(&self) -> bool {
        self.delta == SUMMARY
    }

    /// The type of the event with its whole text.
    pub(super) fn done(&self) -> String {
        self.delta.strip_suffix("delta").unwrap_or_default().to_owned() + "done"
    }
}

/// The parts of an item in their order.
#[derive(Debug, Default)]
pub(super) struct ThoughtParts(Vec<Placed>);

#[derive(Debug)]
struct Placed {
    /// The packet that began it.
    seq: u64,
    /// The start of its text in the item's text.
    at: usize,
    part: ThoughtPart,
}

impl ThoughtParts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, seq: u64, at: usize, part: ThoughtPart) {
        self.0.push(Placed { seq, at, part });
    }

    /// Drops parts that began after a packet.
    pub(super) fn reset(&mut self, after: u64) {
        self.0.retain(|placed| placed.seq <= after);
    }

    /// The part that is written now.
    pub(super) fn last(&self) -> Option<&ThoughtPart> {
        self.0.last().map(|placed| &placed.part)
    }

    /// Each part with its text, out of the item's text.
    pub(super) fn texts<'a>(
        &'a self,
        text: &'a str,
    ) -> impl Iterator<Item = (&'a ThoughtPart, &'a str)> {
        let ends = self.0.iter().skip(1).map(|next| next.at).chain([text.len()]);
        self.0
            .iter()
            .zip(ends)
            .map(|(placed, end)| (&placed.part, text.get(placed.at..end).unwrap_or_default()))
    }
}

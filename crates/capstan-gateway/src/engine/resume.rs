//! Where a viewer reads on, as its request says.

use capstan_journal::Run;
use capstan_protocol::{Cursor, Fault, FaultKind, LastEventId};
use http::HeaderMap;

/// Where a viewer says it stands: its cursor, else a number, else nowhere yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResumePoint {
    pub(crate) cursor: Option<LastEventId>,
    /// A packet's seq.
    pub(crate) after: Option<u64>,
}

impl ResumePoint {
    /// `Last-Event-ID`, if there is one.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Self, Fault> {
        Ok(Self { cursor: last_event_id(headers)?, after: None })
    }

    /// After this place: of a packet, or of one among the parts that a face makes of it. So a face
    /// counts in numbers of its own, as long as they lead back to a packet.
    pub(crate) fn at(cursor: Cursor) -> Self {
        Self { cursor: Some(LastEventId::At(cursor)), after: None }
    }

    /// The same, unless the headers say nothing.
    pub(crate) fn or_after(mut self, after: Option<u64>) -> Self {
        self.after = after;
        self
    }

    /// The same, unless the headers say nothing. A reconnecting client repeats its URL, so the
    /// header is the newer word.
    pub(crate) fn or_cursor(mut self, cursor: Option<LastEventId>) -> Self {
        self.cursor = self.cursor.or(cursor);
        self
    }

    pub(crate) fn is_resume(self) -> bool {
        self.cursor.is_some() || self.after.is_some_and(|after| after > 0)
    }

    /// The packet after which it reads on in this run.
    pub(crate) fn in_run(self, run: &Run) -> Result<u64, Fault> {
        if let Some(id) = self.cursor.filter(|id| id.stream_id() != run.stream_id) {
            let (named, own) = (id.stream_id(), run.stream_id);
            let message =
                format!("Last-Event-ID: names stream {named}, but this request is about {own}");
            return Err(Fault::new(FaultKind::InvalidRequest).with_message(message));
        }
        let after = self.cursor.map(|id| id.cursor().seq).or(self.after).unwrap_or(0);
        if after > run.last_seq { Err(Fault::new(FaultKind::StreamLost)) } else { Ok(after) }
    }

    /// The cursor in this run, if the viewer was there before.
    pub(crate) fn cursor_in(self, run: &Run) -> Option<Cursor> {
        let numbered = || self.after.map(|seq| Cursor::new(run.stream_id, seq));
        self.cursor.map(LastEventId::cursor).or_else(numbered)
    }
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<LastEventId>, Fault> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    // An EventSource that has seen nothing sends an empty one.
    if text.is_empty() {
        return Ok(None);
    }
    let wrong =
        |e| Fault::new(FaultKind::InvalidRequest).with_message(format!("Last-Event-ID: {e}"));
    text.parse().map(Some).map_err(wrong)
}

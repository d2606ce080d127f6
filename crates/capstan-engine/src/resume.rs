//! Where a viewer reads on, as its request says.

use capstan_journal::Run;
use capstan_protocol::{Cursor, Fault, FaultKind, LastEventId};

/// Where a viewer says it stands: its cursor, else a number, else nowhere yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResumePoint {
    /// A cursor, which names its stream.
    pub cursor: Option<LastEventId>,
    /// A packet's seq.
    pub after: Option<u64>,
}

impl ResumePoint {
    /// After this place: of a packet, or of one among the parts that a face makes of it. So a face
    /// counts in numbers of its own, as long as they lead back to a packet.
    pub fn at(cursor: Cursor) -> Self {
        Self { cursor: Some(LastEventId::At(cursor)), after: None }
    }

    /// The same, unless the headers say nothing.
    pub fn or_after(mut self, after: Option<u64>) -> Self {
        self.after = after;
        self
    }

    /// The same, unless the headers say nothing. A reconnecting client repeats its URL, so the
    /// header is the newer word.
    pub fn or_cursor(mut self, cursor: Option<LastEventId>) -> Self {
        self.cursor = self.cursor.or(cursor);
        self
    }

    /// Whether the viewer was there before.
    pub fn is_resume(self) -> bool {
        self.cursor.is_some() || self.after.is_some_and(|after| after > 0)
    }

    /// The packet after which it reads on in this run.
    pub fn in_run(self, run: &Run) -> Result<u64, Fault> {
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
    pub fn cursor_in(self, run: &Run) -> Option<Cursor> {
        let numbered = || self.after.map(|seq| Cursor::new(run.stream_id, seq));
        self.cursor.map(LastEventId::cursor).or_else(numbered)
    }
}

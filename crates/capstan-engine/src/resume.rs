//! The place at which a viewer resumes, according to its request.

use capstan_journal::Run;
use capstan_protocol::{Cursor, Fault, FaultKind, LastEventId};

/// The place at which a viewer resumes: a cursor, else a sequence number, else the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResumePoint {
    /// A cursor. It contains its stream's id.
    pub cursor: Option<LastEventId>,
    /// The `seq` of the last packet that the client has.
    pub after: Option<u64>,
    /// The number of complete blocks or items that the client has, in protocols without cursors.
    /// The face leaves them out, and the viewer reads from the beginning.
    pub behind: u64,
}

impl ResumePoint {
    /// Resumes after a cursor. It may point between two parts that a face makes of one packet. This
    /// lets a face use numbers of its own, if it can map them to packets.
    pub fn at(cursor: Cursor) -> Self {
        Self { cursor: Some(LastEventId::At(cursor)), ..Self::default() }
    }

    /// Resumes behind so many complete blocks or items.
    pub fn behind(parts: usize) -> Self {
        Self { behind: u64::try_from(parts).unwrap_or(u64::MAX), ..Self::default() }
    }

    /// Sets the sequence number to use if there is no cursor.
    pub fn or_after(mut self, after: Option<u64>) -> Self {
        self.after = after;
        self
    }

    /// Sets the cursor to use if the headers have none. A client that reconnects repeats its URL,
    /// so the header is newer and wins.
    pub fn or_cursor(mut self, cursor: Option<LastEventId>) -> Self {
        self.cursor = self.cursor.or(cursor);
        self
    }

    /// Whether the viewer has read a part of the stream before.
    pub fn is_resume(self) -> bool {
        self.cursor.is_some() || self.after.is_some_and(|after| after > 0)
    }

    /// The `seq` of the packet after which the viewer reads on in this run.
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

    /// The cursor in this run, if the viewer has read a part of it before.
    pub fn cursor_in(self, run: &Run) -> Option<Cursor> {
        let numbered = || self.after.map(|seq| Cursor::new(run.stream_id, seq));
        self.cursor.map(LastEventId::cursor).or_else(numbered)
    }
}

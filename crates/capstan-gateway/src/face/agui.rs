//! The AG-UI face: the events of a run, from the same journal as CAP's packets.
//!
//! Live, replay and resume are one path here, too: packets are folded into events, and events up to the reader's
//! cursor are made but not sent. See `fold` for the mapping and `ending` for how a body ends.

mod ending;
mod event;
mod facts;
mod fold;
mod fold_states;
mod input;
mod outgoing;
#[cfg(test)]
mod tests;
mod transcript;

use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::{JournalError, Run, RunState};
use capstan_protocol::{Cursor, ErrorSeverity, Payload, StreamPacket, sse};

use super::Next;
use crate::app::App;
use crate::reader::View;

pub(crate) use facts::{Facts, declares_version, form};
use fold::{Fold, State, is_transient, reset_of};
pub(crate) use fold_states::FoldStates;
pub(crate) use outgoing::OutgoingEvent;
use transcript::AguiTranscript;

/// The name under which claims of this face are kept.
pub(crate) const NAME: &str = "ag-ui";

/// Parts from here on count the events with which a late joiner is brought up to date, not those of the packet: a cut
/// among them is resumed among them.
const PREAMBLE: u32 = 1 << 20;
/// Of a TRANSIENT error, part 1 is the CUSTOM event that tells of it once it is history; what follows ends a response.
const HISTORY: u32 = 1;
/// At most so many packets at the end of a stream tell how it ended, or that it waits.
const END_PACKETS: u64 = 2;

/// Where a reader begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begin {
    /// After an event that it has.
    After(Cursor),
    /// In the middle, with messages of its own: it is told the conversation as a whole.
    Join,
}

/// One response.
pub(crate) struct Agui {
    fold: Fold,
    /// The packet after which the journal is read.
    base: u64,
    /// The last event that the reader has.
    seen: (u64, u32),
    /// Events to be written, each under its id if it has one.
    due: Vec<(Option<Cursor>, OutgoingEvent)>,
    /// A TRANSIENT error whose meaning the next packet or the run's state decides.
    held: Option<StreamPacket>,
    /// The error after which the reader came back.
    reopened: Option<StreamPacket>,
    /// A terminal event that the reader has already.
    end: Option<OutgoingEvent>,
}

impl Agui {
    pub(crate) async fn open(app: &App, run: &Run, facts: Facts, place: Begin) -> Result<Self, JournalError> {
        let facts = Arc::new(facts);
        match place {
            Begin::Join => Self::join(app, facts, before_end(app, run).await?, PREAMBLE).await,
            Begin::After(Cursor { seq, part: Some(part), .. }) if part >= PREAMBLE => {
                Self::join(app, facts, seq, part).await
            }
            Begin::After(Cursor { seq, part, .. }) => Ok(Self::resume(app, facts, seq, part)),
        }
    }

    fn new(fold: Fold, base: u64, seen: (u64, u32), due: Vec<(Option<Cursor>, OutgoingEvent)>) -> Self {
        Self { fold, base, seen, due, held: None, reopened: None, end: None }
    }

    fn resume(app: &App, facts: Arc<Facts>, seq: u64, part: Option<u32>) -> Self {
        let stream = facts.stream;
        if seq == 0 && part.unwrap_or(0) == 0 {
            let started = (Some(Cursor::with_part(stream, 0, 1)), facts.started(facts.created));
            return Self::new(Fold::new(facts, State::default()), 0, (0, 1), vec![started]);
        }
        let (base, state) = app.fold_states.nearest(stream, seq.saturating_sub(1));
        // A cursor of CAP's has the packet as a whole.
        Self::new(Fold::new(facts, state), base, (seq, part.unwrap_or(u32::MAX)), Vec::new())
    }

    /// Tells the conversation up to packet `seq`, from the event after `part` on.
    async fn join(app: &App, facts: Arc<Facts>, seq: u64, part: u32) -> Result<Self, JournalError> {
        let told = AguiTranscript::load(app, &facts, seq).await?;
        let places = (PREAMBLE + 1..).map(|part| Cursor::with_part(facts.stream, seq, part));
        let all = places.zip(told.preamble()).filter(|(cursor, _)| cursor.part > Some(part));
        let due = all.map(|(cursor, said)| (Some(cursor), said)).collect();
        Ok(Self::new(told.fold, seq, (seq, u32::MAX), due))
    }

    /// The packet after which the journal is to be read.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// What the response begins with, at once.
    pub(crate) fn opening(&mut self, app: &App) -> Bytes {
        // A comment, if there is nothing else to say: proxies and clients see that the response has begun.
        let is_fresh = self.seen == (0, 1) && !self.due.is_empty();
        let mut out = if is_fresh { b"retry: 500\n".to_vec() } else { sse::HEARTBEAT.to_vec() };
        self.write_due(app, &mut out);
        out.into()
    }

    fn write_due(&mut self, app: &App, out: &mut Vec<u8>) {
        for (cursor, said) in self.due.drain(..) {
            write(app, cursor.as_ref(), &said, out);
        }
    }

    pub(crate) async fn frames(&mut self, app: &App, frames: &[Bytes]) -> Result<Next, JournalError> {
        let mut is_over = false;
        for packet in frames.iter().filter_map(|frame| sse::decode_packet(frame)) {
            is_over = is_over || self.take(app, packet).await?;
        }
        let mut out = Vec::new();
        self.write_due(app, &mut out);
        Ok(if is_over { Next::Last(out.into()) } else { Next::Write(out.into()) })
    }

    /// Takes one packet; true if the response is complete.
    async fn take(&mut self, app: &App, packet: StreamPacket) -> Result<bool, JournalError> {
        // Another packet follows, so the error was only an attempt's.
        if let Some(held) = self.held.take() {
            let said = self.fold.take(&held);
            self.send(held.seq, 0, said);
        }
        let (seq, is_seen) = (packet.seq, self.seen.0 == packet.seq && self.seen.1 > HISTORY);
        if is_transient(&packet) {
            if is_seen {
                return Ok(self.come_back(packet));
            }
            self.held = Some(packet);
            return Ok(false);
        }
        let said = match reset_of(&packet) {
            Some(reset) => {
                let cut = AguiTranscript::load(app, &self.fold.facts, seq - 1).await?.cut(reset.after_seq);
                self.fold.reset(&packet, &reset, &cut)
            }
            None => self.fold.take(&packet),
        };
        app.fold_states.note(self.fold.facts.stream, seq, &self.fold.state);
        Ok(self.send(seq, 0, said))
    }

    /// The reader has events of an end that was none: the rest of them, or what opens the run again.
    fn come_back(&mut self, packet: StreamPacket) -> bool {
        let ending = ending::interruption(&self.fold, &packet);
        let error_at = HISTORY + count(&ending);
        if self.seen.1 == u32::MAX {
            self.seen.1 = error_at;
        }
        if self.seen.1 < error_at {
            return self.send(packet.seq, HISTORY, ending);
        }
        let again = ending::reopening(&self.fold, &packet);
        self.send(packet.seq, error_at, again);
        self.reopened = Some(packet);
        false
    }

    /// All packets were read and the run stands still.
    pub(crate) fn caught_up(&mut self, app: &App, state: RunState, view: View) -> Next {
        match state {
            RunState::Running => return Next::Write(Bytes::new()),
            RunState::Waiting => {
                let came_back = self.reopened.take().filter(|_| view == View::Post);
                let Some(packet) = self.held.take().or(came_back) else { return Next::Write(Bytes::new()) };
                let ending = ending::interruption(&self.fold, &packet);
                // Whoever came back and finds the run still waiting is told so again.
                self.seen = (packet.seq, HISTORY);
                self.send(packet.seq, HISTORY, ending);
            }
            RunState::Closed => {
                // The reader has it all. It is told how it ended once more, under no id: ids never repeat.
                let Some(end) = self.end.take() else { return Next::Cut };
                self.due.push((None, end));
            }
        }
        let mut out = Vec::new();
        self.write_due(app, &mut out);
        Next::Last(out.into())
    }

    /// Makes due what the reader does not have yet, numbered after `part`; true if that ends the response.
    fn send(&mut self, seq: u64, part: u32, said: Vec<OutgoingEvent>) -> bool {
        let mut is_over = false;
        for (part, said) in (part + 1..).zip(said) {
            let is_new = (seq, part) > self.seen;
            if said.is_terminal() {
                is_over |= is_new;
                self.end = Some(said.clone());
            }
            if is_new {
                self.due.push((Some(Cursor::with_part(self.fold.facts.stream, seq, part)), said));
            }
        }
        is_over
    }
}

/// The last packet that is not about the end of the run. A joiner is told everything up to it as a whole, so that
/// nothing that it may hold already comes as an event.
async fn before_end(app: &App, run: &Run) -> Result<u64, JournalError> {
    let after = run.last_seq.saturating_sub(END_PACKETS);
    let frames = app.journal.store().read(run.stream_id, after, 1024, 1024 * 1024).await?;
    let due = frames.iter().filter(|frame| frame.seq <= run.last_seq);
    let packets: Vec<StreamPacket> = due.filter_map(|frame| sse::decode_packet(&frame.bytes)).collect();
    let last = packets.iter().rfind(|packet| match &packet.payload {
        Payload::Close(_) => false,
        Payload::Error(error) => error.severity == ErrorSeverity::Warning,
        Payload::Delta(_) | Payload::Event(_) => true,
    });
    Ok(last.map_or(after, |packet| packet.seq))
}

fn count(said: &[OutgoingEvent]) -> u32 {
    u32::try_from(said.len()).unwrap_or(u32::MAX)
}

/// Encodes and counts.
pub(crate) fn write(app: &App, id: Option<&Cursor>, said: &OutgoingEvent, out: &mut Vec<u8>) {
    app.metrics.agui(said.kind(), said.error_code());
    said.encode(id, out);
}

/// Whether a reader at `cursor` has all that a closed run will ever say.
pub(crate) async fn has_all(
    app: &App,
    run: &Run,
    facts: Facts,
    cursor: Cursor,
) -> Result<bool, JournalError> {
    if run.state != RunState::Closed || cursor.seq + END_PACKETS < run.last_seq {
        return Ok(false);
    }
    let mut agui = Agui::open(app, run, facts, Begin::After(cursor)).await?;
    loop {
        let frames = app.journal.store().read(run.stream_id, agui.base, 1024, 1024 * 1024).await?;
        let Some(last) = frames.last() else { return Ok(agui.end.is_some() && agui.due.is_empty()) };
        agui.base = last.seq;
        for packet in frames.iter().filter_map(|frame| sse::decode_packet(&frame.bytes)) {
            agui.take(app, packet).await?;
        }
    }
}

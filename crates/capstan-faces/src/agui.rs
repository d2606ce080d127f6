//! The AG-UI face: the events of a run, from the same journal as CAP's packets.
//!
//! Live, replay and resume are one path: packets are folded into events, and events up to the
//! reader's cursor are made but not sent. `mapping` has the mapping, and `ending` the end of a
//! body.

mod ask;
mod ending;
mod event;
mod facts;
mod fold;
mod fold_states;
mod input;
mod mapping;
mod outgoing;
mod routes;
#[cfg(test)]
mod tests;
mod transcript;
mod transcripts;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request as HttpRequest, State as AppState};
use axum::response::Response;
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{Frames, JournalError, Run, RunState};
use capstan_protocol::agui::{AguiEvent, EventBody};
use capstan_protocol::{
    Cursor, ErrorSeverity, Fault, FaultKind, Payload, StreamPacket, Timestamp, sse,
};
use http::request::Parts;
use uuid::Uuid;

use super::{BodyStep, Emit, Face, FaceWriter, RefusalTarget, ViewRequest};
use crate::face::FaceContext;
use crate::face::reader::{ViewerKind, sse_response};
use crate::identity::caller::Caller;
use crate::openapi::{Model, Routes, model};
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::faults::journal_fault;
use facts::{Facts, declares_version, form};
use fold::{Fold, State, is_transient, reset_of};
use fold_states::FoldStates;
use outgoing::OutgoingEvent;
use transcript::AguiTranscript;

/// The name of this face in the records of runs.
const NAME: &str = "ag-ui";

/// Parts from here on number the events that bring a late joiner up to date, not those of the
/// packet. A joiner that was cut among them resumes among them.
const PREAMBLE: u32 = 1 << 20;
/// Part 1 of a TRANSIENT error is the CUSTOM event that reports it after the run went on. Later
/// parts end a response.
const HISTORY: u32 = 1;
/// The number of packets at the end of a stream that show how it ended, or that it waits.
const END_PACKETS: u64 = 2;

/// Where a reader begins.
#[derive(Debug, Clone, Copy)]
enum Begin {
    /// After an event that the reader has.
    After(Cursor),
    /// In the middle, with messages of its own. It gets the whole conversation.
    Join,
}

/// The AG-UI face, with its caches.
#[derive(Default)]
pub(crate) struct Agui {
    /// Whether a failure is also sent as a text message.
    error_text: bool,
    /// Cached fold states of recent streams, for resumes.
    states: Arc<FoldStates>,
}

impl Agui {
    /// Whether a failure is also sent as a text message.
    pub(crate) fn new(error_text: bool) -> Self {
        Self { error_text, ..Self::default() }
    }
}

#[async_trait]
impl Face for Agui {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        let join = |agui: Arc<Self>| {
            async move |cx: AppState<FaceContext>,
                        caller: Extension<Caller>,
                        agent: Option<Path<String>>,
                        request: HttpRequest| {
                routes::join(agui, cx, caller, agent, request).await
            }
        };
        Routes::default()
            .start("/v1/ag-ui", self.clone(), &routes::POST)
            .get("/v1/ag-ui", join(self.clone()), &routes::JOIN)
            .start("/v1/agents/{name}/ag-ui", self.clone(), &routes::POST)
            .get("/v1/agents/{name}/ag-ui", join(self), &routes::JOIN)
    }

    fn events(&self) -> Model {
        model::<AguiEvent>
    }

    fn event_types(&self) -> &'static [&'static str] {
        EventBody::KINDS
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        ask::from_agui(body)
    }

    /// A reset becomes MESSAGES_SNAPSHOT, which every client knows.
    fn accepts_reset(&self, _: &Parts) -> bool {
        true
    }

    /// AG-UI clients read neither `Retry-After` nor problem details, but a stream whose only event
    /// is RUN_ERROR. A body that is not valid AG-UI is refused by HTTP status.
    fn refuse(
        &self,
        cx: &FaceContext,
        fault: &Fault,
        target: RefusalTarget<'_>,
    ) -> Option<Response> {
        let is_v1 = match target {
            RefusalTarget::BeforeFace(_) | RefusalTarget::Undecoded(_) => return None,
            RefusalTarget::Client(..) if fault.kind() == FaultKind::InvalidRequest => return None,
            RefusalTarget::Viewer(_) => false,
            RefusalTarget::Client(_, ask) => ask.protocol_version.is_some(),
        };
        let now = Some(Timestamp::now().as_millis());
        let error = fault.to_run_error(cx.engine.settings().exposure).to_event(form(is_v1), now);
        let mut frame = Vec::new();
        write(cx, None, &OutgoingEvent::from(error), &mut frame);
        Some(sse_response(Body::from(frame)))
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let (run, facts) = (opening.run, self.facts(cx, &opening).await?);
        // Without a cursor, a viewer of a stream that has begun may have a part of it already.
        let begin = match opening.point.cursor_in(run) {
            Some(cursor) => Begin::After(cursor),
            None if run.last_seq == 0 => Begin::After(Cursor::start(run.stream_id)),
            None => Begin::Join,
        };
        let writer =
            AguiWriter::open(cx, &self.states, run, facts, begin).await.map_err(journal_fault)?;
        Ok(Box::new(writer))
    }

    fn forget(&self, stream: Uuid) {
        self.states.forget(stream);
    }

    async fn has_all(&self, cx: &FaceContext, opening: &ViewRequest<'_>) -> Result<bool, Fault> {
        let run = opening.run;
        let Some(cursor) = opening.point.cursor_in(run) else { return Ok(false) };
        let facts = self.facts(cx, opening).await?;
        AguiWriter::has_all(cx, &self.states, run, facts, cursor).await.map_err(journal_fault)
    }
}

impl Agui {
    /// A viewer gets the same events as the client that started the run.
    async fn facts(&self, cx: &FaceContext, opening: &ViewRequest<'_>) -> Result<Facts, Fault> {
        let run = opening.run;
        let declares_version = match opening.posted {
            Some(ask) => ask.protocol_version.is_some(),
            None => {
                let body = cx.engine.store().body(run.stream_id).await.map_err(journal_fault)?;
                body.is_some_and(|body| declares_version(&body))
            }
        };
        Ok(Facts::new(run, declares_version, self.error_text))
    }
}

/// A response.
pub(super) struct AguiWriter {
    states: Arc<FoldStates>,
    fold: Fold,
    /// The packet after which the reader begins.
    base: u64,
    /// The last event that the reader has.
    seen: (u64, u32),
    /// Events to be written, each under its id if it has one.
    due: Vec<(Option<Cursor>, OutgoingEvent)>,
    /// A TRANSIENT error whose meaning the next packet or the run's state decides.
    held: Option<StreamPacket>,
    /// The error after which the reader came back.
    reopened: Option<StreamPacket>,
    /// A terminal event that the reader already has.
    end: Option<OutgoingEvent>,
}

impl AguiWriter {
    async fn open(
        cx: &FaceContext,
        states: &Arc<FoldStates>,
        run: &Run,
        facts: Facts,
        begin: Begin,
    ) -> Result<Self, JournalError> {
        let facts = Arc::new(facts);
        match begin {
            Begin::Join => {
                Self::join(cx, states, facts, before_end(cx, run).await?, PREAMBLE).await
            }
            Begin::After(Cursor { seq, part: Some(part), .. }) if part >= PREAMBLE => {
                Self::join(cx, states, facts, seq, part).await
            }
            Begin::After(Cursor { seq, part, .. }) => Ok(Self::resume(states, facts, seq, part)),
        }
    }

    fn new(
        states: &Arc<FoldStates>,
        fold: Fold,
        base: u64,
        seen: (u64, u32),
        due: Vec<(Option<Cursor>, OutgoingEvent)>,
    ) -> Self {
        Self {
            states: states.clone(),
            fold,
            base,
            seen,
            due,
            held: None,
            reopened: None,
            end: None,
        }
    }

    fn resume(states: &Arc<FoldStates>, facts: Arc<Facts>, seq: u64, part: Option<u32>) -> Self {
        let stream = facts.stream;
        if seq == 0 && part.unwrap_or(0) == 0 {
            let started = (Some(Cursor::with_part(stream, 0, 1)), facts.started(facts.created));
            return Self::new(states, Fold::new(facts, State::default()), 0, (0, 1), vec![started]);
        }
        let (base, state) = states.nearest(stream, seq.saturating_sub(1));
        // A cursor of CAP means that the reader has the whole packet.
        Self::new(
            states,
            Fold::new(facts, state),
            base,
            (seq, part.unwrap_or(u32::MAX)),
            Vec::new(),
        )
    }

    /// Sends the conversation up to packet `seq`, from the event after `part` on.
    async fn join(
        cx: &FaceContext,
        states: &Arc<FoldStates>,
        facts: Arc<Facts>,
        seq: u64,
        part: u32,
    ) -> Result<Self, JournalError> {
        let look = |transcript: &AguiTranscript| (transcript.preamble(), transcript.fold.clone());
        let (preamble, fold) = states.transcripts.at(cx, &facts, seq, look).await?;
        let places = (PREAMBLE + 1..).map(|part| Cursor::with_part(facts.stream, seq, part));
        let all = places.zip(preamble).filter(|(cursor, _)| cursor.part > Some(part));
        let due = all.map(|(cursor, outgoing)| (Some(cursor), outgoing)).collect();
        Ok(Self::new(states, fold, seq, (seq, u32::MAX), due))
    }

    fn write_due(&mut self, cx: &FaceContext, out: &mut Vec<u8>) {
        for (cursor, outgoing) in self.due.drain(..) {
            write(cx, cursor.as_ref(), &outgoing, out);
        }
    }

    async fn write_frames(
        &mut self,
        cx: &FaceContext,
        frames: &Frames,
    ) -> Result<BodyStep, JournalError> {
        let mut is_over = false;
        for packet in frames.iter().filter_map(sse::decode_packet) {
            is_over = is_over || self.take(cx, packet).await?;
        }
        let mut out = Vec::new();
        self.write_due(cx, &mut out);
        Ok(if is_over { BodyStep::Last(out.into()) } else { BodyStep::Write(out.into()) })
    }

    /// Encodes one packet. Returns true if the response is complete.
    async fn take(&mut self, cx: &FaceContext, packet: StreamPacket) -> Result<bool, JournalError> {
        // Another packet follows, so the error was only an attempt's.
        if let Some(held) = self.held.take() {
            let outgoing = self.fold.take(&held);
            self.send(held.seq, 0, outgoing);
        }
        let (seq, is_seen) = (packet.seq, self.seen.0 == packet.seq && self.seen.1 > HISTORY);
        if is_transient(&packet) {
            if is_seen {
                return Ok(self.come_back(packet));
            }
            self.held = Some(packet);
            return Ok(false);
        }
        let outgoing = match reset_of(&packet) {
            Some(reset) => {
                let reading =
                    self.states.transcripts.at(cx, &self.fold.facts, seq, AguiTranscript::last_cut);
                let cut = reading.await?;
                self.fold.reset(&packet, &reset, &cut)
            }
            None => self.fold.take(&packet),
        };
        self.states.note(self.fold.facts.stream, seq, &self.fold.state);
        Ok(self.send(seq, 0, outgoing))
    }

    /// The reader has events of an end, but the run went on. Makes the remaining events of that
    /// end, or the events that reopen the run.
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

    /// Whether a reader at `cursor` has all events of a closed run.
    async fn has_all(
        cx: &FaceContext,
        states: &Arc<FoldStates>,
        run: &Run,
        facts: Facts,
        cursor: Cursor,
    ) -> Result<bool, JournalError> {
        if run.state != RunState::Closed || cursor.seq + END_PACKETS < run.last_seq {
            return Ok(false);
        }
        let mut writer = Self::open(cx, states, run, facts, Begin::After(cursor)).await?;
        loop {
            let frames =
                cx.engine.store().read(run.stream_id, writer.base, 1024, 1024 * 1024).await?;
            let Some(last) = frames.last() else {
                return Ok(writer.end.is_some() && writer.due.is_empty());
            };
            writer.base = last.seq;
            for packet in frames.iter().filter_map(|frame| sse::decode_packet(&frame.bytes)) {
                writer.take(cx, packet).await?;
            }
        }
    }

    /// Queues the events that the reader does not have yet, numbered after `part`. Returns true if
    /// they end the response.
    fn send(&mut self, seq: u64, part: u32, outgoing: Vec<OutgoingEvent>) -> bool {
        let mut is_over = false;
        for (part, outgoing) in (part + 1..).zip(outgoing) {
            let is_new = (seq, part) > self.seen;
            if outgoing.is_terminal() {
                is_over |= is_new;
                self.end = Some(outgoing.clone());
            }
            if is_new {
                self.due
                    .push((Some(Cursor::with_part(self.fold.facts.stream, seq, part)), outgoing));
            }
        }
        is_over
    }
}

impl FaceWriter for AguiWriter {
    fn base(&self) -> u64 {
        self.base
    }

    fn opening(&mut self, cx: &FaceContext) -> Bytes {
        // A comment, if there is nothing else. It shows proxies and clients that the response has
        // begun.
        let is_fresh = self.seen == (0, 1) && !self.due.is_empty();
        let mut out = if is_fresh { b"retry: 500\n".to_vec() } else { sse::HEARTBEAT.to_vec() };
        self.write_due(cx, &mut out);
        out.into()
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        Emit::Later(Box::pin(async move { self.write_frames(cx, &frames).await }))
    }

    fn caught_up(&mut self, cx: &FaceContext, state: RunState, view: ViewerKind) -> BodyStep {
        match state {
            RunState::Running => return BodyStep::Write(Bytes::new()),
            RunState::Waiting => {
                let came_back = self.reopened.take().filter(|_| view == ViewerKind::Post);
                let Some(packet) = self.held.take().or(came_back) else {
                    return BodyStep::Write(Bytes::new());
                };
                let ending = ending::interruption(&self.fold, &packet);
                // A client that came back while the run still waits gets the same end again.
                self.seen = (packet.seq, HISTORY);
                self.send(packet.seq, HISTORY, ending);
            }
            RunState::Closed => {
                // The reader has all events. It gets the end once more, without an id, because ids
                // never repeat.
                let Some(end) = self.end.take() else { return BodyStep::Cut };
                self.due.push((None, end));
            }
        }
        let mut out = Vec::new();
        self.write_due(cx, &mut out);
        BodyStep::Last(out.into())
    }

    /// A clean end without a terminal event would be read as success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }
}

/// Returns the last packet before those about the end of the run. A joiner gets everything up to it
/// in one snapshot, so no event repeats what it already has.
async fn before_end(cx: &FaceContext, run: &Run) -> Result<u64, JournalError> {
    let after = run.last_seq.saturating_sub(END_PACKETS);
    let frames = cx.engine.store().read(run.stream_id, after, 1024, 1024 * 1024).await?;
    let due = frames.iter().filter(|frame| frame.seq <= run.last_seq);
    let packets: Vec<StreamPacket> =
        due.filter_map(|frame| sse::decode_packet(&frame.bytes)).collect();
    let last = packets.iter().rfind(|packet| match &packet.payload {
        Payload::Close(_) => false,
        Payload::Error(error) => error.severity == ErrorSeverity::Warning,
        Payload::Delta(_) | Payload::Event(_) => true,
    });
    Ok(last.map_or(after, |packet| packet.seq))
}

fn count(outgoing: &[OutgoingEvent]) -> u32 {
    u32::try_from(outgoing.len()).unwrap_or(u32::MAX)
}

/// Encodes and counts the queued events.
fn write(cx: &FaceContext, id: Option<&Cursor>, outgoing: &OutgoingEvent, out: &mut Vec<u8>) {
    cx.observer.event(NAME, outgoing.kind(), outgoing.error_code());
    outgoing.encode(id, out);
}

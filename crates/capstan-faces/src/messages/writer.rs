//! Writes the answer of a run as a stream of events. An event cannot be taken back, and a client
//! cannot resume: a repeated request gets all events.

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, RunState};
use capstan_protocol::{Exposure, StreamPacket, Transcript, sse};
use serde::Serialize;
use uuid::Uuid;

use super::answer_events::{AnswerEvents, End};
use super::cut_sessions::Watch;
use super::errors::ErrorBody;
use super::event::{Event, Sink};
use crate::face::FaceContext;
use crate::face::reader::ViewerKind;
use crate::face::sent_answers::SentAnswer;
use crate::face::taken_back::TakenBack;
use crate::face::{BodyStep, Emit, FaceWriter};

/// Writes one response.
pub(super) struct MessagesWriter {
    events: AnswerEvents,
    /// The packets that later attempts took back before this response.
    taken_back: TakenBack,
    exposure: Exposure,
    request_id: Option<String>,
    sent_answer: SentAnswer,
    /// Notes a connection that breaks off.
    watch: Watch,
}

const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

impl MessagesWriter {
    pub(super) fn new(
        events: AnswerEvents,
        taken_back: TakenBack,
        exposure: Exposure,
        request_id: Option<String>,
        sent_answer: SentAnswer,
        watch: Watch,
    ) -> Self {
        Self { events, taken_back, exposure, request_id, sent_answer, watch }
    }

    /// Takes packets up to the end of the answer, if it is among them.
    fn write_packets(
        &mut self,
        packets: &mut impl Iterator<Item = StreamPacket>,
        out: &mut Out,
    ) -> Option<End> {
        let mut packets = packets.filter(|packet| !self.taken_back.has(packet.seq));
        packets.find_map(|packet| self.events.take(packet, out))
    }

    /// Goes on after a reset, from which the client keeps its text.
    async fn go_back(
        &mut self,
        cx: &FaceContext,
        mut reset: u64,
        packets: Vec<StreamPacket>,
        mut out: Out,
    ) -> Result<BodyStep, JournalError> {
        let mut packets = packets.into_iter();
        loop {
            let (told, kept) = text_around(cx, self.events.stream(), reset).await?;
            self.events.go_back(told, kept);
            match self.write_packets(&mut packets, &mut out) {
                Some(End::TakenBack(seq)) => reset = seq,
                end => return Ok(self.step(end, out)),
            }
        }
    }

    fn step(&mut self, end: Option<End>, mut out: Out) -> BodyStep {
        let Some(end) = end else { return BodyStep::Write(out.0.into()) };
        self.watch.end();
        match end {
            End::Complete => self.sent_answer.record(),
            End::Failed(fault) => self.fail(ErrorBody::of(&fault, self.exposure), &mut out),
            End::Repeat(fault) => self.fail(ErrorBody::to_repeat(&fault, self.exposure), &mut out),
            End::Stopped => self.fail(ErrorBody::stopped(), &mut out),
            End::TakenBack(_) => {}
        }
        BodyStep::Last(out.0.into())
    }

    /// Ends without `message_stop`, which would mark the answer as complete.
    fn fail(&self, mut error: ErrorBody, out: &mut Out) {
        error.request_id.clone_from(&self.request_id);
        out.event("error", &error);
    }
}

/// The limit of one read, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// The text of an answer before a reset, and the length of what is left after it.
async fn text_around(
    cx: &FaceContext,
    stream: Uuid,
    reset: u64,
) -> Result<(String, usize), JournalError> {
    let (mut transcript, mut at, mut told) = (Transcript::default(), 0, String::new());
    while at < reset {
        let frames = cx.engine.store().read(stream, at, STEP.0, STEP.1).await?;
        let Some(last) = frames.last() else { break };
        at = last.seq;
        for packet in frames.iter().filter_map(|frame| sse::decode_packet(&frame.bytes)) {
            if packet.seq == reset {
                told = transcript.text().to_owned();
            }
            if packet.seq <= reset {
                transcript.take(&packet);
            }
        }
    }
    Ok((told, transcript.text().len()))
}

/// The bytes of a response.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn event(&mut self, name: &str, data: &impl Serialize) {
        let json = serde_json::to_string(data).unwrap_or_default();
        sse::encode_json(None, Some(name), &json, &mut self.0);
    }
}

impl Sink for Out {
    fn take(&mut self, event: Event<'_>) {
        self.event(event.name(), &event);
    }
}

impl FaceWriter for MessagesWriter {
    fn base(&self) -> u64 {
        0
    }

    fn opening(&mut self, _: &FaceContext) -> Bytes {
        Bytes::new()
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        let mut out = Out::default();
        let mut packets = frames.iter().filter_map(sse::decode_packet);
        match self.write_packets(&mut packets, &mut out) {
            Some(End::TakenBack(seq)) => {
                let packets = packets.collect();
                Emit::Later(Box::pin(self.go_back(cx, seq, packets, out)))
            }
            end => Emit::Now(self.step(end, out)),
        }
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            // The end would have been written.
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// Cuts the connection, because a client takes a clean end for success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }

    fn heartbeat(&self) -> &'static [u8] {
        PING
    }
}

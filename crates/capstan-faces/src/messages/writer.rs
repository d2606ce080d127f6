//! Writes the answer of a run as a stream of events. An event cannot be taken back, and a client
//! cannot resume: a repeated request gets all events.

use bytes::Bytes;
use capstan_journal::{Frames, RunState};
use capstan_protocol::{Exposure, sse};
use serde::Serialize;

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

    /// Takes frames up to the end of the answer, if it is among them.
    fn write_frames(&mut self, frames: &Frames, out: &mut Out) -> Option<End> {
        let packets = frames.iter().filter_map(sse::decode_packet);
        for packet in packets {
            if !self.taken_back.has(packet.seq)
                && let Some(end) = self.events.take(packet, out)
            {
                return Some(end);
            }
        }
        None
    }

    /// Ends without `message_stop`, which would mark the answer as complete.
    fn fail(&self, mut error: ErrorBody, out: &mut Out) {
        error.request_id.clone_from(&self.request_id);
        out.event("error", &error);
    }
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

    fn frames<'a>(&'a mut self, _: &'a FaceContext, frames: Frames) -> Emit<'a> {
        let mut out = Out::default();
        let Some(end) = self.write_frames(&frames, &mut out) else {
            return Emit::Now(BodyStep::Write(out.0.into()));
        };
        self.watch.end();
        match end {
            End::Complete => self.sent_answer.record(),
            End::Failed(fault) => self.fail(ErrorBody::of(&fault, self.exposure), &mut out),
            End::Repeat(fault) => self.fail(ErrorBody::to_repeat(&fault, self.exposure), &mut out),
            End::Stopped => self.fail(ErrorBody::stopped(), &mut out),
        }
        Emit::Now(BodyStep::Last(out.0.into()))
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

//! Writes a response: the task, then its updates. The body ends right after the last status.

use std::time::Duration;

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, RunState};
use capstan_protocol::{Cursor, Event, EventView, Payload, StreamPacket, Transcript, sse};
use serde_json::Value;

use super::call::Call;
use super::fold::Fold;
use crate::face::FaceContext;
use crate::face::reader::ViewerKind;
use crate::face::{BodyStep, Emit, FaceWriter};

/// The heartbeat interval. The official Python client gives up after five seconds of silence.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// The limit of one read, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

pub(super) struct A2aWriter {
    call: Call,
    fold: Fold,
    base: u64,
    /// The last event that the reader has.
    seen: (u64, u32),
    /// The task with which the body begins, and the event's id.
    task: Option<(Value, Cursor)>,
    /// The last status was sent, or is in the task.
    has_end: bool,
}

impl A2aWriter {
    /// Resumes after an event that the reader has.
    pub(super) fn resume(call: Call, fold: Fold, seen: (u64, u32)) -> Self {
        Self { call, fold, base: 0, seen, task: None, has_end: false }
    }

    /// Begins with the task after packet `base`, then sends updates.
    pub(super) fn join(call: Call, fold: Fold, base: u64, task: Value, has_end: bool) -> Self {
        let at = match base {
            0 => Cursor::with_part(fold.stream, 0, 1),
            seq => Cursor::new(fold.stream, seq),
        };
        Self { call, fold, base, seen: (base, u32::MAX), task: Some((task, at)), has_end }
    }

    fn write(&self, id: &Cursor, value: Value, out: &mut Vec<u8>) {
        sse::encode_json(Some(id), None, &self.call.result(value).to_string(), out);
    }

    async fn write_frames(
        &mut self,
        cx: &FaceContext,
        frames: &Frames,
    ) -> Result<BodyStep, JournalError> {
        let (mut out, mut is_over) = (Vec::new(), false);
        for packet in frames.iter().filter_map(sse::decode_packet) {
            let (events, is_last) = match is_reset(&packet) {
                true => (vec![self.replay_text(cx, packet.seq).await?], false),
                false => self.fold.take(&packet),
            };
            self.has_end |= is_last;
            for (part, value) in (1..).zip(events) {
                if (packet.seq, part) > self.seen {
                    is_over |= is_last;
                    let id = match is_last {
                        true => Cursor::new(self.fold.stream, packet.seq),
                        false => Cursor::with_part(self.fold.stream, packet.seq, part),
                    };
                    self.write(&id, value, &mut out);
                }
            }
        }
        Ok(if is_over { BodyStep::Last(out.into()) } else { BodyStep::Write(out.into()) })
    }

    /// The text after a reset, which replaces the artifact.
    async fn replay_text(&mut self, cx: &FaceContext, until: u64) -> Result<Value, JournalError> {
        let (mut transcript, mut at) = (Transcript::default(), 0);
        while at < until {
            let frames = cx.engine.store().read(self.fold.stream, at, STEP.0, STEP.1).await?;
            let Some(last) = frames.last() else { break };
            at = last.seq;
            let packets = frames.iter().filter(|frame| frame.seq <= until);
            packets
                .filter_map(|frame| sse::decode_packet(&frame.bytes))
                .for_each(|packet| transcript.take(&packet));
        }
        Ok(self.fold.replace(transcript.text()))
    }
}

fn is_reset(packet: &StreamPacket) -> bool {
    let Payload::Event(raw) = &packet.payload else { return false };
    raw.get().contains(capstan_protocol::event::STREAM_RESET)
        && matches!(Event::of(raw).view(), EventView::Reset(_))
}

impl FaceWriter for A2aWriter {
    fn base(&self) -> u64 {
        self.base
    }

    fn opening(&mut self, _: &FaceContext) -> Bytes {
        let mut out = sse::HEARTBEAT.to_vec();
        if let Some((task, id)) = self.task.take() {
            let task = self.fold.version.task_event(task);
            self.write(&id, task, &mut out);
        }
        out.into()
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        Emit::Later(Box::pin(async move { self.write_frames(cx, &frames).await }))
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            // The reader has all events.
            RunState::Closed if self.has_end => BodyStep::End,
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// A clean end would be read as the end of the task.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }

    fn heartbeat_interval(&self, set: Duration) -> Duration {
        set.min(HEARTBEAT)
    }
}

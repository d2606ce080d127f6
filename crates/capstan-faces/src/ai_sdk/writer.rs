//! Writes a response. Chunks up to the reader's cursor are made but not sent, so live, replay and
//! resume are one path.

use bytes::Bytes;
use capstan_journal::{Frames, RunState};
use capstan_protocol::{Cursor, sse};
use uuid::Uuid;

use super::chunk::Chunk;
use super::fold::{Facts, Fold};
use super::{NAME, replay};
use crate::face::FaceContext;
use crate::face::reader::ViewerKind;
use crate::face::{BodyStep, Emit, FaceWriter};

pub(super) struct AiSdkWriter {
    stream: Uuid,
    fold: Fold,
    /// The last chunk that the reader has, if any.
    seen: Option<(u64, u32)>,
    /// The reader has the message that the run continues.
    has_continued: bool,
    /// The first chunk that the reader wants, if it counts chunks, and how many were made so far.
    first: u64,
    made: u64,
}

/// The cursor of the chunk that opens the first step, which is the first with an id. A reader that
/// was cut before it begins again.
const OPENED: (u64, u32) = (0, 1);

impl AiSdkWriter {
    pub(super) fn new(
        stream: Uuid,
        facts: Facts,
        cursor: Option<Cursor>,
        has_continued: bool,
    ) -> Self {
        // A reader with a whole packet has all of its chunks.
        let seen = cursor.map(|cursor| {
            (cursor.seq, cursor.part.unwrap_or(if cursor.seq == 0 { 0 } else { u32::MAX }))
        });
        let seen = seen.filter(|seen| *seen >= OPENED);
        Self { stream, fold: Fold::new(facts), seen, has_continued, first: 0, made: 0 }
    }

    /// For a reader that has counted the chunks before `first`. So it has the message that the run
    /// continues.
    pub(super) fn counted(stream: Uuid, facts: Facts, first: u64) -> Self {
        Self { first, ..Self::new(stream, facts, None, true) }
    }

    /// Counts a chunk. Returns whether the reader has it. A `finish` is always sent, because the
    /// reader comes back until it gets one.
    fn is_counted(&mut self, chunk: &Chunk) -> bool {
        self.made += 1;
        self.made <= self.first && !chunk.is_finish()
    }

    /// Encodes and counts chunks.
    fn write(cx: &FaceContext, id: Option<&Cursor>, chunk: &Chunk, out: &mut Vec<u8>) {
        cx.observer.event(NAME, chunk.kind, None);
        chunk.encode(id, out);
    }

    fn write_frames(&mut self, cx: &FaceContext, frames: &Frames) -> BodyStep {
        let mut out = Vec::new();
        let mut is_over = false;
        for packet in frames.iter().filter_map(sse::decode_packet) {
            for (part, chunk) in (1..).zip(self.fold.take(&packet)) {
                if self.seen.is_some_and(|seen| (packet.seq, part) <= seen) {
                    continue;
                }
                if !chunk.is_done() && self.is_counted(&chunk) {
                    continue;
                }
                is_over |= chunk.is_done();
                // A reader with the last chunk has all.
                let id = match chunk.is_done() {
                    true => Cursor::new(self.stream, packet.seq),
                    false => Cursor::with_part(self.stream, packet.seq, part),
                };
                Self::write(cx, Some(&id), &chunk, &mut out);
            }
        }
        if is_over { BodyStep::Last(out.into()) } else { BodyStep::Write(out.into()) }
    }
}

impl FaceWriter for AiSdkWriter {
    fn base(&self) -> u64 {
        0
    }

    fn opening(&mut self, cx: &FaceContext) -> Bytes {
        if self.seen.is_some() {
            return Bytes::from_static(sse::HEARTBEAT);
        }
        let mut out = Vec::new();
        let start = self.fold.facts.start();
        if !self.is_counted(&start) {
            Self::write(cx, None, &start, &mut out);
        }
        if let Some(message) = self.fold.facts.continued.as_ref().filter(|_| !self.has_continued) {
            replay::chunks(message).iter().for_each(|chunk| Self::write(cx, None, chunk, &mut out));
        }
        let opened = Cursor::with_part(self.stream, OPENED.0, OPENED.1);
        let step = Chunk::of("start-step");
        if !self.is_counted(&step) {
            Self::write(cx, Some(&opened), &step, &mut out);
        }
        if out.is_empty() { Bytes::from_static(sse::HEARTBEAT) } else { out.into() }
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        Emit::Now(self.write_frames(cx, &frames))
    }

    fn caught_up(&mut self, cx: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            // The reader has all chunks.
            RunState::Closed if self.fold.is_over => {
                let mut out = Vec::new();
                Self::write(cx, None, &Chunk::done(), &mut out);
                BodyStep::Last(out.into())
            }
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// A clean end without `finish` would be read as success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }
}

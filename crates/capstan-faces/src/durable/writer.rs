//! A live response. Items and the offset after them are one write. If the body ended between them,
//! the reader would get the items twice.

use std::time::Duration;

use bytes::Bytes;
use capstan_journal::{Frames, RunState};
use capstan_protocol::{Payload, sse};
use serde_json::json;

use super::items::List;
use super::offset::Offset;
use crate::face::FaceContext;
use crate::face::reader::ViewerKind;
use crate::face::{BodyStep, Emit, FaceWriter};

/// After this time a reader connects again, as the protocol requires.
const LASTS: Duration = Duration::from_secs(60);

pub(super) struct DurableWriter {
    items: List,
    base: u64,
    /// The last packet that was sent.
    last: u64,
    /// The end of the stream when this reader came.
    tail: u64,
}

impl DurableWriter {
    pub(super) fn new(items: List, base: u64, tail: u64) -> Self {
        Self { items, base, last: base, tail }
    }

    fn control(&self, is_closed: bool, out: &mut Vec<u8>) {
        let next = Offset(self.last).to_string();
        let cursor = self.last.to_string();
        let control = match (is_closed, self.last >= self.tail) {
            (true, _) => {
                json!({ "streamNextOffset": next, "streamClosed": true, "upToDate": true })
            }
            (false, true) => {
                json!({ "streamNextOffset": next, "streamCursor": cursor, "upToDate": true })
            }
            (false, false) => json!({ "streamNextOffset": next, "streamCursor": cursor }),
        };
        sse::encode_json(None, Some("control"), &control.to_string(), out);
    }

    fn write_frames(&mut self, frames: &Frames) -> BodyStep {
        let mut out = Vec::new();
        let array = self.items.array(frames);
        sse::encode_json(None, Some("data"), &String::from_utf8_lossy(&array), &mut out);
        let last = frames.iter().last().and_then(sse::decode_packet);
        let is_closed =
            last.as_ref().is_some_and(|packet| matches!(packet.payload, Payload::Close(_)));
        self.last = last.map_or(self.last, |packet| packet.seq);
        self.control(is_closed, &mut out);
        if is_closed { BodyStep::Last(out.into()) } else { BodyStep::Write(out.into()) }
    }
}

impl FaceWriter for DurableWriter {
    fn base(&self) -> u64 {
        self.base
    }

    /// A reader at the end learns this at once.
    fn opening(&mut self, _: &FaceContext) -> Bytes {
        let mut out = sse::HEARTBEAT.to_vec();
        if self.base >= self.tail {
            self.control(false, &mut out);
        }
        out.into()
    }

    fn frames<'a>(&'a mut self, _: &'a FaceContext, frames: Frames) -> Emit<'a> {
        Emit::Now(self.write_frames(&frames))
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            RunState::Closed => {
                let mut out = Vec::new();
                self.control(true, &mut out);
                BodyStep::Last(out.into())
            }
        }
    }

    /// A clean end tells the reader to connect again. Every write ends with an offset.
    fn closing(&mut self) -> BodyStep {
        BodyStep::End
    }

    fn max_duration(&self) -> Option<Duration> {
        Some(LASTS)
    }
}

//! Recorded runs, which several checks use.

use capstan_protocol::{Cursor, StreamPacket, Transcript};
use uuid::Uuid;

use crate::frames::Frame;
use crate::outcome::NotPassed;
use crate::question::Question;
use crate::wire::{Ask, Exchange};

/// A recorded run.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) question: Question,
    pub(crate) ask: Ask,
    pub(crate) exchange: Exchange,
    pub(crate) frames: Vec<Frame>,
    /// The bytes after the last frame.
    pub(crate) rest: String,
}

impl Recording {
    /// Frames with data: packets, or events.
    pub(crate) fn packets(&self) -> Vec<&Frame> {
        self.frames.iter().filter(|frame| frame.has_data()).collect()
    }

    /// Their bytes.
    pub(crate) fn raw(&self) -> Vec<&str> {
        self.packets().into_iter().map(|frame| frame.raw.as_str()).collect()
    }

    pub(crate) fn stream(&self) -> Result<Uuid, NotPassed> {
        let packets = self.packets();
        let id = packets.first().and_then(|frame| frame.text("stream_id"));
        let id = id.as_deref().or_else(|| self.exchange.header("x-stream-id"));
        id.and_then(|id| id.parse().ok())
            .ok_or_else(|| NotPassed::skip("the stream's id is not known"))
    }

    pub(crate) fn seqs(&self) -> Result<Vec<u64>, NotPassed> {
        let seq = |frame: &&Frame| frame.json().get("seq").and_then(serde_json::Value::as_u64);
        let seqs: Option<Vec<u64>> = self.packets().iter().map(seq).collect();
        seqs.ok_or_else(|| NotPassed::skip("needs cap.packets"))
    }

    /// The result of the run.
    pub(crate) fn transcript(&self) -> Result<Transcript, NotPassed> {
        let mut transcript = Transcript::default();
        for frame in self.packets() {
            let packet = StreamPacket::decode(frame.data())
                .map_err(|_| NotPassed::skip("needs cap.packets"))?;
            transcript.take(&packet);
        }
        Ok(transcript)
    }
}

/// A resumed response.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) cursor: Cursor,
    pub(crate) exchange: Exchange,
}

/// A resumed response of AG-UI.
#[derive(Debug)]
pub(crate) struct AguiResumed {
    /// The number of its events.
    pub(crate) had: usize,
    pub(crate) exchange: Exchange,
}

/// A run whose client hung up, came back, and stopped it.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// The cursor at which the client hung up.
    pub(crate) left_at: Cursor,
    /// The response after its return, to the end.
    pub(crate) back: Exchange,
    /// The part of it before the stop.
    pub(crate) back_before: Vec<Frame>,
    pub(crate) stop: Exchange,
    /// The stream right after the stop was answered.
    pub(crate) replay: Exchange,
    pub(crate) again: Exchange,
    pub(crate) replay_again: Exchange,
}

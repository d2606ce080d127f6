//! The chunks of a run as items of a list, for other protocols such as Durable Streams.

use capstan_journal::{Frames, Run};
use capstan_protocol::{Fault, sse};

use super::chunk::Chunk;
use super::fold::{Facts, Fold};
use super::run_options;
use crate::face::{FaceContext, Items};
use capstan_engine::faults::journal_fault;

/// The limit of one read, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// How many chunks begin a message.
const BEGIN: u64 = 2;

pub(super) struct AiSdkItems {
    fold: Fold,
    is_begun: bool,
}

impl AiSdkItems {
    /// Begins after packet `after`. Earlier packets are folded but not returned.
    pub(super) async fn after(cx: &FaceContext, run: &Run, after: u64) -> Result<Self, Fault> {
        Ok(Self::fold_to(cx, run, after).await?.0)
    }

    /// How many items exist so far, including those that begin the message.
    pub(super) async fn count(cx: &FaceContext, run: &Run) -> Result<u64, Fault> {
        Ok(Self::fold_to(cx, run, u64::MAX).await?.1.max(BEGIN))
    }

    /// Folds the packets up to `last`, and counts their items.
    async fn fold_to(cx: &FaceContext, run: &Run, last: u64) -> Result<(Self, u64), Fault> {
        let facts = Facts::new(run, run_options(cx, run).await?);
        let mut items = Self { fold: Fold::new(facts), is_begun: false };
        let (mut at, mut count) = (0, 0);
        while at < last {
            let frames = cx.engine.store().read(run.stream_id, at, STEP.0, STEP.1).await;
            let frames = frames.map_err(journal_fault)?;
            let Some(newest) = frames.last() else { break };
            at = newest.seq;
            let frames = frames.into_iter().filter(|frame| frame.seq <= last).collect();
            count += items.encode(&frames).len() as u64;
        }
        Ok((items, count))
    }
}

impl Items for AiSdkItems {
    /// The first packet brings those that begin the message.
    fn encode(&mut self, frames: &Frames) -> Vec<String> {
        let mut chunks = Vec::new();
        for packet in frames.iter().filter_map(sse::decode_packet) {
            if !std::mem::replace(&mut self.is_begun, true) {
                chunks.push(self.fold.facts.start());
                chunks.push(Chunk::of("start-step"));
            }
            chunks.extend(self.fold.take(&packet));
        }
        chunks.iter().filter(|chunk| !chunk.is_done()).map(Chunk::to_json).collect()
    }
}

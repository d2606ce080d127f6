//! A long poll: one answer with what there is, or with what comes within a time.

use std::time::Duration;

use capstan_journal::{Frames, Run, RunState, Step};
use capstan_protocol::Fault;

use crate::face::FaceContext;
use capstan_engine::faults::journal_fault;
use capstan_engine::readers::ReaderGuard;

/// How much one answer holds, in packets and bytes.
const MOST: (usize, usize) = (1024, 1024 * 1024);

/// One answer.
pub struct Batch {
    /// Frames in order; none if nothing came.
    pub frames: Frames,
    /// The packet after which the next answer begins.
    pub last: u64,
    /// There is nothing beyond `last` for now.
    pub is_up_to_date: bool,
    /// There never will be.
    pub is_over: bool,
}

/// The frames after a packet; if there are none yet, those that come within `wait`. Who waits takes
/// a reader's place.
pub async fn poll(cx: &FaceContext, run: &Run, after: u64, wait: Duration) -> Result<Batch, Fault> {
    let _slot = cx.engine.limiter.take_reader(&run.tenant, &cx.engine.settings.limits)?;
    let _reading = ReaderGuard::new(&cx.engine, run);
    let found = cx.engine.journal.store().read_on(run.stream_id, after, MOST.0, MOST.1).await;
    let (mut frames, mut last) =
        found.map_err(journal_fault)?.unwrap_or_else(|| (Frames::none(), after));
    if frames.is_empty() && !wait.is_zero() {
        (frames, last) = tokio::select! {
            biased;
            news = news(cx, run, after) => news?,
            () = cx.engine.ended.cancelled() => (frames, last),
            () = tokio::time::sleep(wait) => (frames, last),
        };
    }
    // Looked at after the frames: what it says to be over is in them.
    let run = cx
        .engine
        .journal
        .store()
        .run(run.stream_id)
        .await
        .map_err(journal_fault)?
        .unwrap_or_else(|| run.clone());
    let is_up_to_date = last >= run.last_seq;
    Ok(Batch { frames, last, is_up_to_date, is_over: is_up_to_date && !run.is_open() })
}

/// What comes next; nothing if the run is over.
async fn news(cx: &FaceContext, run: &Run, after: u64) -> Result<(Frames, u64), Fault> {
    let mut reader = cx.engine.journal.reader_of(run, after);
    loop {
        match reader.next().await.map_err(journal_fault)? {
            Step::Frames(frames) => return Ok((frames, reader.cursor())),
            Step::State(RunState::Closed) => return Ok((Frames::none(), after)),
            Step::State(RunState::Running | RunState::Waiting) => {}
        }
    }
}

//! A long poll: one answer with the frames that exist, or that come within a timeout.

use std::time::Duration;

use capstan_journal::{Frames, Run, RunState, Step};
use capstan_protocol::Fault;

use crate::face::FaceContext;
use capstan_engine::faults::journal_fault;
use capstan_engine::readers::ReaderGuard;

/// The limit of one answer, in packets and bytes.
const MOST: (usize, usize) = (1024, 1024 * 1024);

/// The answer to a long poll.
pub struct Batch {
    /// The frames in order. Empty if none came.
    pub frames: Frames,
    /// The packet after which the next answer begins.
    pub last: u64,
    /// No packet follows `last` yet.
    pub is_up_to_date: bool,
    /// No packet will ever follow `last`.
    pub is_over: bool,
}

/// Returns the frames after a packet. If there are none, it waits up to `wait` for some. A waiting
/// request takes a reader's slot.
pub async fn poll(cx: &FaceContext, run: &Run, after: u64, wait: Duration) -> Result<Batch, Fault> {
    let _slot = cx.engine.take_reader(&run.tenant)?;
    let _reading = ReaderGuard::new(&cx.engine, run);
    let found = cx.engine.store().read_on(run.stream_id, after, MOST.0, MOST.1).await;
    let (mut frames, mut last) =
        found.map_err(journal_fault)?.unwrap_or_else(|| (Frames::none(), after));
    if frames.is_empty() && !wait.is_zero() {
        (frames, last) = tokio::select! {
            biased;
            news = news(cx, run, after) => news?,
            () = cx.engine.until_ended() => (frames, last),
            () = tokio::time::sleep(wait) => (frames, last),
        };
    }
    // Read the record after the frames, so that they include the end of a closed run.
    let run = cx
        .engine
        .store()
        .run(run.stream_id)
        .await
        .map_err(journal_fault)?
        .unwrap_or_else(|| run.clone());
    let is_up_to_date = last >= run.last_seq;
    Ok(Batch { frames, last, is_up_to_date, is_over: is_up_to_date && !run.is_open() })
}

/// Waits for the next frames. Returns none if the run has ended.
async fn news(cx: &FaceContext, run: &Run, after: u64) -> Result<(Frames, u64), Fault> {
    let mut reader = cx.engine.reader_of(run, after);
    loop {
        match reader.next().await.map_err(journal_fault)? {
            Step::Frames(frames) => return Ok((frames, reader.cursor())),
            Step::State(RunState::Closed) => return Ok((Frames::none(), after)),
            Step::State(RunState::Running | RunState::Waiting) => {}
        }
    }
}

//! A run as a whole, for answers that are one object.

use capstan_journal::{ArmedBy, Run, RunState, Step};
use capstan_protocol::{Fault, FaultKind, Transcript, sse};

use crate::app::App;
use crate::refusal::journal_fault;

/// How much is read at once, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// What a run has said.
pub(crate) struct Whole {
    pub(crate) transcript: Transcript,
    /// Its record, as it is now.
    pub(crate) run: Run,
    /// Where it stood when the last of it was read: somebody may have armed a waiting run since.
    pub(crate) state: RunState,
}

impl Whole {
    /// Why there is no answer, or none yet: the fault of a run that failed, or that waits.
    pub(crate) fn fault(&self) -> Option<Fault> {
        if self.state != RunState::Waiting && self.run.fault.is_none() {
            return None;
        }
        let told = self.transcript.error().cloned().map(Fault::from);
        Some(told.unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError)))
    }
}

/// Follows a run to its end, or until it waits for its client.
pub(crate) async fn follow(app: &App, run: &Run) -> Result<Whole, Fault> {
    let mut reader = app.journal.reader_of(run, 0);
    let mut transcript = Transcript::default();
    let state = loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = app.broken.cancelled() => return Err(Fault::new(FaultKind::JournalUnavailable)),
            () = app.closing.cancelled() => return Err(Fault::new(FaultKind::RunInterrupted).with_retry_after(1.0)),
        };
        match step {
            Step::Frames(frames) => {
                for packet in frames.iter().filter_map(|frame| sse::decode_packet(frame)) {
                    transcript.take(&packet);
                }
            }
            Step::State(RunState::Running) => {}
            // The gateway itself goes on with it.
            Step::State(RunState::Waiting) if run.armed_by == ArmedBy::Gateway => {}
            Step::State(state @ (RunState::Waiting | RunState::Closed)) => break state,
        }
    };
    let run = now(app, run).await?;
    Ok(Whole { transcript, run, state })
}

/// What a run has said so far. Nobody waits for it.
#[cfg_attr(not(test), allow(dead_code, reason = "CAP and AG-UI tell a run that is under way as a stream"))]
pub(crate) async fn so_far(app: &App, run: &Run) -> Result<Whole, Fault> {
    let (run, mut after) = (now(app, run).await?, 0);
    let mut transcript = Transcript::default();
    while after < run.last_seq {
        let frames = app.journal.store().read(run.stream_id, after, STEP.0, STEP.1).await;
        let frames = frames.map_err(journal_fault)?;
        let Some(last) = frames.last() else { break };
        after = last.seq;
        let told = frames.iter().filter(|frame| frame.seq <= run.last_seq);
        for packet in told.filter_map(|frame| sse::decode_packet(&frame.bytes)) {
            transcript.take(&packet);
        }
    }
    Ok(Whole { transcript, state: run.state, run })
}

async fn now(app: &App, run: &Run) -> Result<Run, Fault> {
    let found = app.journal.store().run(run.stream_id).await.map_err(journal_fault)?;
    Ok(found.unwrap_or_else(|| run.clone()))
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use capstan_protocol::{Payload, StreamPacket, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_that_was_seen_waiting_is_no_success_even_if_it_goes_on_since() {
        let run = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        let mut transcript = Transcript::default();
        let error = Fault::new(FaultKind::UpstreamTruncated).to_stream_error(Default::default());
        for (seq, payload) in [(1, Payload::Delta("half".into())), (2, Payload::Error(error))] {
            transcript.take(&StreamPacket { stream_id: run.stream_id, seq, t: Timestamp::now(), payload });
        }
        let whole = Whole { transcript, run, state: RunState::Waiting };
        assert_eq!(whole.fault().unwrap().kind(), FaultKind::UpstreamTruncated);
    }
}

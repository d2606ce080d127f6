//! A run as a whole, for answers that are one object.

use capstan_journal::{ArmedBy, Frames, Run, RunState, Step};
use capstan_protocol::{Fault, FaultKind, StreamError, StreamPacket, Transcript, sse};
use uuid::Uuid;

use crate::face::FaceContext;
use capstan_engine::cpu_offload;
use capstan_engine::faults::journal_fault;
use capstan_engine::limits::MemoryReservation;

/// How much is read at once, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// What a byte of the journal takes here: as a packet's payload, as a member of the answer, as the
/// answer's text.
const COPIES: usize = 3;

/// What a run amounts to, as one who reads it to the end sees it.
pub trait Fold: Default + Send {
    /// Takes the next packet.
    fn take(&mut self, packet: &StreamPacket);

    /// The last error, of whatever severity.
    fn error(&self) -> Option<&StreamError>;
}

impl Fold for Transcript {
    fn take(&mut self, packet: &StreamPacket) {
        Self::take(self, packet);
    }

    fn error(&self) -> Option<&StreamError> {
        Self::error(self)
    }
}

/// What a run has said.
pub struct Whole<T = Transcript> {
    pub transcript: T,
    /// Its record, as it is now.
    pub run: Run,
    /// Where it stood when the last of it was read: somebody may have armed a waiting run since.
    pub state: RunState,
    /// What all of it takes.
    pub load: MemoryReservation,
}

impl<T: Fold> Whole<T> {
    /// What is made of it, which may take a while.
    pub fn told<R: Send>(&self, tell: impl FnOnce(&Self) -> R + Send) -> R
    where
        T: Sync,
    {
        cpu_offload::run(self.load.held(), || tell(self))
    }

    /// Why there is no answer, or none yet: the fault of a run that failed, or that waits.
    pub fn fault(&self) -> Option<Fault> {
        if self.state != RunState::Waiting && self.run.fault.is_none() {
            return None;
        }
        let told = self.transcript.error().cloned().map(Fault::from);
        Some(told.unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError)))
    }
}

/// Follows a run to its end, or until it waits for its client.
pub async fn follow<T: Fold>(cx: &FaceContext, run: &Run) -> Result<Whole<T>, Fault> {
    let mut reader = cx.engine.journal.reader_of(run, 0);
    let mut whole = Gathering::new(cx, run);
    let state = loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = cx.engine.broken.cancelled() => {
                return Err(Fault::new(FaultKind::JournalUnavailable));
            }
            () = cx.engine.closing.cancelled() => {
                return Err(Fault::new(FaultKind::RunInterrupted).with_retry_after(1.0));
            }
        };
        match step {
            Step::Frames(frames) => whole.take(&frames)?,
            Step::State(RunState::Running) => {}
            // The gateway itself goes on with it.
            Step::State(RunState::Waiting) if run.armed_by == ArmedBy::Gateway => {}
            Step::State(state @ (RunState::Waiting | RunState::Closed)) => break state,
        }
    };
    let run = now(cx, run).await?;
    Ok(whole.done(run, state))
}

/// What a run has said so far. Nobody waits for it.
pub async fn so_far<T: Fold>(cx: &FaceContext, run: &Run) -> Result<Whole<T>, Fault> {
    let (run, mut after) = (now(cx, run).await?, 0);
    let mut whole = Gathering::new(cx, &run);
    while after < run.last_seq {
        let frames = cx.engine.journal.store().read(run.stream_id, after, STEP.0, STEP.1).await;
        let frames = frames.map_err(journal_fault)?;
        let Some(last) = frames.last() else { break };
        after = last.seq;
        let told = frames.into_iter().filter(|frame| frame.seq <= run.last_seq);
        whole.take(&told.collect())?;
    }
    let state = run.state;
    Ok(whole.done(run, state))
}

/// What is read, within what one object may hold and the tenant's requests may take: both before it
/// is kept.
struct Gathering<'a, T> {
    cx: &'a FaceContext,
    stream: Uuid,
    transcript: T,
    bytes: usize,
    load: MemoryReservation,
}

impl<'a, T: Fold> Gathering<'a, T> {
    fn new(cx: &'a FaceContext, run: &Run) -> Self {
        let load = cx.engine.limiter.load(&run.tenant);
        Self { cx, stream: run.stream_id, transcript: T::default(), bytes: 0, load }
    }

    fn take(&mut self, frames: &Frames) -> Result<(), Fault> {
        let limits = &self.cx.engine.settings.limits;
        let more = frames.size();
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes > limits.whole_bytes {
            return Err(too_large(self.stream, limits.whole_bytes));
        }
        self.load.grow(more.saturating_mul(COPIES), limits)?;
        for packet in frames.iter().filter_map(sse::decode_packet) {
            self.transcript.take(&packet);
        }
        Ok(())
    }

    fn done(self, run: Run, state: RunState) -> Whole<T> {
        Whole { transcript: self.transcript, run, state, load: self.load }
    }
}

/// The run goes on, and its stream tells all of it.
fn too_large(stream: Uuid, most: usize) -> Fault {
    Fault::new(FaultKind::AnswerTooLarge)
        .with_message(format!(
            "The answer is larger than {most} bytes, so it is not put into one object: read it at \
             /v1/streams/{stream}."
        ))
        .with_detail("stream_id", stream.to_string())
}

async fn now(cx: &FaceContext, run: &Run) -> Result<Run, Fault> {
    let found = cx.engine.journal.store().run(run.stream_id).await.map_err(journal_fault)?;
    Ok(found.unwrap_or_else(|| run.clone()))
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use capstan_protocol::{Payload, Timestamp};

    use super::*;
    use capstan_engine::limits::Limiter;

    #[test]
    fn a_run_that_was_seen_waiting_is_no_success_even_if_it_goes_on_since() {
        let run = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        let mut transcript = Transcript::default();
        let error = Fault::new(FaultKind::UpstreamTruncated).to_stream_error(Default::default());
        for (seq, payload) in
            [(1, Payload::Delta("half".into())), (2, Payload::Error(error.into()))]
        {
            transcript.take(&StreamPacket {
                stream_id: run.stream_id,
                seq,
                t: Timestamp::now(),
                payload,
            });
        }
        let load = Limiter::default().load("t");
        let whole = Whole { transcript, run, state: RunState::Waiting, load };
        assert_eq!(whole.fault().unwrap().kind(), FaultKind::UpstreamTruncated);
    }
}

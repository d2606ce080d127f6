//! Collects a run's packets, for answers in one object.

use capstan_journal::{ArmedBy, Frames, Run, RunState, Step};
use capstan_protocol::{Fault, FaultKind, StreamError, StreamPacket, Transcript, sse};
use uuid::Uuid;

use crate::face::FaceContext;
use capstan_engine::cpu_offload;
use capstan_engine::faults::journal_fault;
use capstan_engine::limits::MemoryReservation;

/// How much one read of the store returns at most, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// How many bytes of memory one byte of the journal takes: in the packet's payload, in the answer's
/// member, and in the answer's text.
const COPIES: usize = 3;

/// Accumulates the packets of a run into one value.
pub trait Fold: Default + Send {
    /// Adds the next packet.
    fn add(&mut self, packet: &StreamPacket);

    /// The last error, of any severity.
    fn error(&self) -> Option<&StreamError>;
}

impl Fold for Transcript {
    fn add(&mut self, packet: &StreamPacket) {
        Self::take(self, packet);
    }

    fn error(&self) -> Option<&StreamError> {
        Self::error(self)
    }
}

/// A run's packets, collected into one value.
pub struct Collected<T = Transcript> {
    pub transcript: T,
    /// The run's record after the last read.
    pub run: Run,
    /// The run's state when its last packet was read. A waiting run may have gone on since.
    pub state: RunState,
    /// The memory that the value takes.
    pub load: MemoryReservation,
}

impl<T: Fold> Collected<T> {
    /// Calls `encode`, in a blocking thread if the value is large.
    pub fn encode<R: Send>(&self, encode: impl FnOnce(&Self) -> R + Send) -> R
    where
        T: Sync,
    {
        cpu_offload::run(self.load.held(), || encode(self))
    }

    /// The fault of a run that failed or waits, so that there is no answer yet.
    pub fn fault(&self) -> Option<Fault> {
        if self.state != RunState::Waiting && self.run.fault.is_none() {
            return None;
        }
        let fault = self.transcript.error().cloned().map(Fault::from);
        Some(fault.unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError)))
    }
}

/// Collects a run until it ends, or until it waits for its client.
pub async fn collect_to_end<T: Fold>(cx: &FaceContext, run: &Run) -> Result<Collected<T>, Fault> {
    let mut reader = cx.engine.reader_of(run, 0);
    let mut collector = Collector::new(cx, run);
    let state = loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = cx.engine.until_broken() => {
                return Err(Fault::new(FaultKind::JournalUnavailable));
            }
            () = cx.engine.until_closing() => {
                return Err(Fault::new(FaultKind::RunInterrupted).with_retry_after(1.0));
            }
        };
        match step {
            Step::Frames(frames) => collector.add(&frames)?,
            Step::State(RunState::Running) => {}
            // The gateway itself starts the next attempt.
            Step::State(RunState::Waiting) if run.armed_by == ArmedBy::Gateway => {}
            Step::State(state @ (RunState::Waiting | RunState::Closed)) => break state,
        }
    };
    let run = current(cx, run).await?;
    Ok(collector.finish(run, state))
}

/// Collects the packets that a run has now, without waiting for more.
pub async fn collect_so_far<T: Fold>(cx: &FaceContext, run: &Run) -> Result<Collected<T>, Fault> {
    let (run, mut after) = (current(cx, run).await?, 0);
    let mut collector = Collector::new(cx, &run);
    while after < run.last_seq {
        let frames = cx.engine.store().read(run.stream_id, after, STEP.0, STEP.1).await;
        let frames = frames.map_err(journal_fault)?;
        let Some(last) = frames.last() else { break };
        after = last.seq;
        let frames = frames.into_iter().filter(|frame| frame.seq <= run.last_seq);
        collector.add(&frames.collect())?;
    }
    let state = run.state;
    Ok(collector.finish(run, state))
}

/// Collects frames. It checks the limit of one object and the tenant's memory limit before it
/// decodes them.
struct Collector<'a, T> {
    cx: &'a FaceContext,
    stream: Uuid,
    transcript: T,
    bytes: usize,
    load: MemoryReservation,
}

impl<'a, T: Fold> Collector<'a, T> {
    fn new(cx: &'a FaceContext, run: &Run) -> Self {
        let load = cx.engine.reserve(&run.tenant);
        Self { cx, stream: run.stream_id, transcript: T::default(), bytes: 0, load }
    }

    fn add(&mut self, frames: &Frames) -> Result<(), Fault> {
        let limits = &self.cx.engine.settings().limits;
        let more = frames.size();
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes > limits.whole_bytes {
            return Err(too_large(self.stream, limits.whole_bytes));
        }
        self.load.grow(more.saturating_mul(COPIES))?;
        for packet in frames.iter().filter_map(sse::decode_packet) {
            self.transcript.add(&packet);
        }
        Ok(())
    }

    fn finish(self, run: Run, state: RunState) -> Collected<T> {
        Collected { transcript: self.transcript, run, state, load: self.load }
    }
}

/// The fault for an answer that is too large for one object. The client can read its stream.
fn too_large(stream: Uuid, most: usize) -> Fault {
    Fault::new(FaultKind::AnswerTooLarge)
        .with_message(format!(
            "The answer is larger than {most} bytes, so it is not put into one object: read it at \
             /v1/streams/{stream}."
        ))
        .with_detail("stream_id", stream.to_string())
}

async fn current(cx: &FaceContext, run: &Run) -> Result<Run, Fault> {
    let found = cx.engine.store().run(run.stream_id).await.map_err(journal_fault)?;
    Ok(found.unwrap_or_else(|| run.clone()))
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use capstan_protocol::{Payload, Timestamp};

    use super::*;
    use std::sync::Arc;

    use capstan_engine::Engine;
    use capstan_journal::{Journal, MemoryStore, TailLimits};

    #[test]
    fn a_waiting_run_is_no_success_even_if_it_went_on_since() {
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
        let journal = Journal::new(Arc::new(MemoryStore::default()), TailLimits::default());
        let load = Engine::builder(journal).build().reserve("t");
        let collected = Collected { transcript, run, state: RunState::Waiting, load };
        assert_eq!(collected.fault().unwrap().kind(), FaultKind::UpstreamTruncated);
    }
}

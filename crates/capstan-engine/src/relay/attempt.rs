//! One attempt. The agent runs in its own task, and the relay commits its outputs in batches.

use std::sync::Arc;
use std::time::Instant;

use capstan_agent::{Cancel, Failure, Inbox, Outcome, Output, TraceParent, Turn, channel};
use capstan_journal::JournalError;
use capstan_protocol::fault::Cause;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use super::{Ended, Relay, ledger};
use crate::cpu_offload;
use crate::events::Happened;

/// Capacity of the queue between agent and relay: enough to keep both busy, small enough that a
/// slow journal slows the agent down.
const IN_FLIGHT: usize = 256;
/// A running agent. Dropping it aborts its task.
struct Work {
    task: JoinHandle<Outcome>,
    inbox: Inbox,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    pub(super) async fn attempt(&mut self, turn: &Turn) -> Result<Ended, JournalError> {
        self.engine.emit(&self.run, Happened::AttemptBegan);
        if self.run.last_seq > 0 && self.packets.is_fresh() {
            self.packets.replay().await?;
        }
        self.packets.begin_attempt(self.run.attempt);
        let trace = match &self.engine.tracer {
            Some(tracer) => tracer.begin_attempt(&self.run),
            None => self.request.clone(),
        };
        ledger::begins(&mut self.run, self.engine.wall.now(), trace.as_ref());
        let mut work = self.start(turn.clone(), trace);
        let began = Instant::now();
        let ended = self.drive(&mut work).await;
        self.budget = self.budget.saturating_sub(began.elapsed());
        let code = match &ended {
            Ok(ended) => ended.code().map(str::to_owned),
            Err(_) => Some(FaultKind::JournalUnavailable.entry().code.to_owned()),
        };
        let (model, usage) = self.answered();
        self.engine.emit(&self.run, Happened::AttemptEnded { code, model, usage });
        ended
    }

    /// The model that answers in this attempt, and what it has used.
    pub(super) fn answered(&self) -> (Option<String>, Option<Map<String, Value>>) {
        (self.packets.summary().model().cloned(), self.packets.summary().attempt_usage())
    }

    fn start(&mut self, mut turn: Turn, trace: Option<TraceParent>) -> Work {
        let (mut writer, inbox) = channel(IN_FLIGHT);
        let (canceller, cancel) = Cancel::new(self.engine.agents_at_work.clone());
        self.canceller = Some(canceller);
        turn.attempt = self.run.attempt;
        turn.sent = self.sent();
        turn.made = ledger::made(&self.run);
        turn.trace = trace;
        turn.cancel = cancel;
        let agent = Arc::clone(&self.agent.agent);
        // Track the task, because an agent may clean up when its future is dropped. Keep the
        // request's span, so that the agent's log lines and its panic can be found.
        let work = async move { agent.run(turn, &mut writer).await };
        let task = self
            .engine
            .agents_at_work
            .spawn(self.engine.of_tenant(&self.run.tenant, work.in_current_span()));
        Work { task, inbox }
    }

    async fn drive(&mut self, work: &mut Work) -> Result<Ended, JournalError> {
        let idle = tokio::time::sleep(self.engine.settings.timeouts.idle);
        let deadline = tokio::time::sleep(self.budget);
        tokio::pin!(idle, deadline);
        let stopped = self.engine.stopped.clone();
        let mut batch = Vec::new();
        loop {
            let goes_on = tokio::select! {
                biased;
                Some(done) = self.stop.recv() => return Ok(Ended::Stopped(done)),
                () = stopped.cancelled() => return Ok(Ended::Drained),
                // Check this before the inbox, because a busy agent could keep the inbox full
                // forever.
                () = &mut deadline => return Ok(timed_out("The run took longer than it \
                 may.").fatal()),
                goes_on = work.inbox.take(&mut batch) => goes_on,
                () = &mut idle => return Ok(timed_out("The agent said nothing for too long.")),
            };
            if !goes_on {
                break;
            }
            idle.as_mut().reset(tokio::time::Instant::now() + self.engine.settings.timeouts.idle);
            self.engine.passed(&self.run.tenant, batch.len(), batch.iter().map(text_bytes).sum());
            if let Some(fault) = self.write(&mut batch).await? {
                return Ok(Ended::Failed(fault, false));
            }
        }
        Ok(self.outcome((&mut work.task).await))
    }

    /// Encodes a batch of outputs and commits them together.
    async fn write(&mut self, batch: &mut Vec<Output>) -> Result<Option<Fault>, JournalError> {
        let mut fault = None;
        for output in batch.drain(..) {
            match &output {
                Output::Warning(error) => self.warned(&error.code),
                Output::FarId(id) => self.store_far_id(id).await?,
                Output::CallBegan(call) => self.call_began(call).await?,
                Output::CallEnded(call) => self.call_ended(call),
                Output::Again { .. } if !self.packets.compares() => {
                    self.flush().await?;
                    self.packets.compare().await?;
                }
                Output::Again { .. }
                | Output::Continued(_)
                | Output::Delta(_)
                | Output::Event { .. }
                | Output::Model(_)
                | Output::Usage(_)
                | Output::Reason(_)
                | Output::Member(_)
                | Output::Interrupt(_) => {}
            }
            fault = cpu_offload::run(text_bytes(&output), || self.packets.take(output)).err();
            if fault.is_some() {
                break;
            }
        }
        self.flush().await?;
        Ok(fault.or(self.count_remembered().err()))
    }

    fn warned(&self, code: &str) {
        if let Some(tracer) = &self.engine.tracer {
            tracer.warned(self.run.stream_id, code);
        }
    }

    /// Adds the stored answer to the run's memory reservation, in large steps.
    fn count_remembered(&mut self) -> Result<(), Fault> {
        const STEP: usize = 256 * 1024;
        let remembered = self.packets.remembered();
        if remembered < self.counted + STEP {
            return Ok(());
        }
        self.room.load.grow(remembered - self.counted)?;
        self.counted = remembered;
        Ok(())
    }

    /// Stores the id of the agent's remote work, so that a stop can reach it even after a crash.
    async fn store_far_id(&mut self, id: &str) -> Result<(), JournalError> {
        if self.run.far_id.as_deref() == Some(id) {
            return Ok(());
        }
        self.run.far_id = Some(id.to_owned());
        let here = (self.run.state, self.run.attempt);
        self.engine.journal.transition(here, self.run.clone(), Vec::new(), None).await.map(|_| ())
    }

    /// Commits the packets that were encoded.
    pub(super) async fn flush(&mut self) -> Result<(), JournalError> {
        let frames = self.packets.take_frames();
        if frames.is_empty() {
            return Ok(());
        }
        let first_at = self.packets.first_at();
        if self.is_silent && first_at.is_some() {
            self.is_silent = false;
            self.engine.emit(&self.run, Happened::FirstPacket { after: self.started.elapsed() });
        }
        let began = Instant::now();
        self.engine.journal.append(self.run.stream_id, self.run.attempt, frames).await?;
        self.engine.observers.appended(began.elapsed());
        self.facts.appended(self.packets.latest());
        if let Some(at) = first_at {
            ledger::first_packet(&mut self.run, at);
        }
        self.run.last_seq = self.packets.seq();
        Ok(())
    }

    fn outcome(&mut self, joined: Result<Outcome, tokio::task::JoinError>) -> Ended {
        let failed = |failure: Failure| {
            let is_final = failure.is_final();
            Ended::Failed(failure.into_fault(), is_final)
        };
        match joined {
            Ok(Ok(())) => match self.packets.end_attempt() {
                Ok(()) => Ended::Completed,
                Err(fault) => Ended::Failed(fault, false),
            },
            Ok(Err(failure)) => failed(failure),
            Err(error) if error.is_panic() => {
                Ended::Failed(Fault::from_panic(error.into_panic().as_ref()), false)
            }
            Err(_) => Ended::Failed(Fault::new(FaultKind::AgentExecutionError), false),
        }
    }
}

fn text_bytes(output: &Output) -> usize {
    if let Output::Delta(text) = output { text.len() } else { 0 }
}

fn timed_out(message: &str) -> Ended {
    let cause = Cause { error_type: "Timeout".into(), chain: vec![message.to_owned()] };
    Ended::Failed(Fault::new(FaultKind::Timeout).with_message(message).with_cause(cause), false)
}

impl Ended {
    /// The code of the fault that ended the attempt.
    fn code(&self) -> Option<&str> {
        match self {
            Self::Failed(fault, _) => Some(fault.code()),
            Self::Drained => Some(FaultKind::RunInterrupted.entry().code),
            Self::Completed | Self::Stopped(_) => None,
        }
    }

    /// Makes the failure fatal: the run has no time left for another attempt.
    fn fatal(self) -> Self {
        match self {
            Self::Failed(fault, is_final) => {
                Self::Failed(fault.with_severity(capstan_protocol::ErrorSeverity::Fatal), is_final)
            }
            other @ (Self::Completed | Self::Stopped(_) | Self::Drained) => other,
        }
    }
}

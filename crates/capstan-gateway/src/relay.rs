//! The relay: the only writer of a stream. It drives the agent through its attempts and writes what they say.

mod attempt;
mod ending;
mod pen;
mod swallow;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use capstan_agent::{Sent, TraceContext};
use capstan_journal::{JournalError, Run};
use capstan_protocol::{ChatMessage, ErrorSeverity, Fault, FaultKind, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::app::{App, Registered};
use crate::ask::Ask;
use crate::limits::Slot;
use crate::traces::{self, RunTrace};
use ending::Said;
pub(crate) use ending::{Ending, close_waiting, interrupt, lose};
use pen::Pen;
pub(crate) use pen::packet_of;

/// A wait up to this is slept through by the gateway itself; a longer one is the client's to come back after.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// The least wait before a second attempt; it doubles from there.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// How an attempt ended.
enum Ended {
    /// The agent is done.
    Completed,
    /// It failed; `true` if the gateway itself must not try again: another attempt is the client's to ask for.
    Failed(Fault, bool),
    /// Somebody stopped the run and waits for its end.
    Stopped(oneshot::Sender<()>),
    /// The server is going down.
    Drained,
}

/// Everything about one run that lives while this process works on it.
struct Relay {
    app: App,
    agent: Registered,
    run: Run,
    /// The request's.
    body: Bytes,
    stop: mpsc::Receiver<oneshot::Sender<()>>,
    pen: Pen,
    trace: RunTrace,
    /// What is left of the run's total time.
    budget: Duration,
    started: Instant,
}

/// Sets a relay to work on a run that this process has just claimed or armed.
pub(crate) fn spawn(
    app: &App,
    agent: Registered,
    run: Run,
    body: Bytes,
    request: Option<TraceContext>,
    slot: Slot,
) {
    let (sender, stop) = mpsc::channel(1);
    app.runs.register(run.stream_id, sender);
    let app = app.clone();
    let tasks = app.tasks.clone();
    let work = async move {
        app.metrics.active_runs.inc();
        let (stream, budget) = (run.stream_id, app.settings.timeouts.run);
        let pen = Pen::new(&app, &run);
        let trace = app.traces.begin(&run, agent.agent.about(), request);
        let span = trace.span().clone();
        let relay =
            Relay { app: app.clone(), agent, run, body, stop, pen, trace, budget, started: Instant::now() };
        if let Err(error) = relay.work().await {
            // What was seen is safe; the stream ends on recovery. Bodies must not look finished.
            tracing::error!(%stream, %error, "the journal failed; open responses are cut");
            traces::failed(&span, FaultKind::JournalUnavailable.entry().code);
            app.break_off();
        }
        app.runs.forget(stream);
        app.metrics.active_runs.dec();
        drop(slot);
    };
    // Its lines carry the id of the request that started it.
    tasks.spawn(work.in_current_span());
}

impl Relay {
    async fn work(mut self) -> Result<(), JournalError> {
        let ask = match Ask::decode(&self.run.face, &self.body) {
            Ok(ask) => ask,
            Err(fault) => return self.finish(Ending::Failed(fault)).await,
        };
        let history = Arc::new(self.history(&ask).await?);
        loop {
            let ended = match self.wait().await {
                Some(ended) => ended,
                None => self.attempt(&ask, Arc::clone(&history)).await?,
            };
            match ended {
                Ended::Completed => return self.finish(Ending::Completed).await,
                Ended::Stopped(done) => {
                    self.finish(Ending::Cancelled).await?;
                    drop(done);
                    return Ok(());
                }
                Ended::Drained => return self.interrupted().await,
                Ended::Failed(fault, is_final) => {
                    if !self.next_attempt(fault, is_final).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The conversation before this turn: the request's own account of it, else the turns closed before it began.
    async fn history(&self, ask: &Ask) -> Result<Vec<ChatMessage>, JournalError> {
        if let Some(history) = &ask.history {
            return Ok(history.clone());
        }
        let Run { tenant, session, turns_before, .. } = &self.run;
        let turns = self.app.journal.store().turns(tenant, session, 0, usize::MAX).await?;
        let mut messages = Vec::new();
        // By their numbers: what clocks say may step.
        for turn in turns.into_iter().filter(|turn| turn.number <= *turns_before) {
            let Ok(said) = serde_json::from_value::<Said>(turn.said) else { continue };
            if !said.is_partial {
                messages.extend(serde_json::from_value(said.user).ok());
                messages.push(ChatMessage::assistant(said.assistant));
            }
        }
        Ok(messages)
    }

    /// Sleeps until the attempt may begin. Something else may happen first.
    async fn wait(&mut self) -> Option<Ended> {
        let wait = until(self.run.not_before?);
        tokio::select! {
            biased;
            Some(done) = self.stop.recv() => Some(Ended::Stopped(done)),
            () = self.app.stopped.cancelled() => Some(Ended::Drained),
            () = tokio::time::sleep(wait) => None,
        }
    }

    /// The three rules for a failed attempt. True if another attempt follows right here.
    async fn next_attempt(&mut self, fault: Fault, is_final: bool) -> Result<bool, JournalError> {
        self.app.metrics.fault(fault.kind());
        tracing::info!(stream = %self.run.stream_id, tenant = %self.run.tenant, attempt = self.run.attempt, code = fault.code(),
            severity = %fault.severity(), cause = self.app.loggable(&fault), "attempt failed");
        let is_last = self.run.attempt >= self.run.max_attempts;
        if fault.severity() != ErrorSeverity::Transient || is_last {
            self.finish(Ending::Failed(fault)).await?;
            return Ok(false);
        }
        let wait = wait_after(&fault, self.run.attempt);
        if wait > SHORT_WAIT || is_final {
            self.suspend(fault, wait).await?;
            return Ok(false);
        }
        self.retry(fault, wait).await
    }

    async fn interrupted(mut self) -> Result<(), JournalError> {
        let fault = Fault::new(FaultKind::RunInterrupted);
        if self.run.attempt >= self.run.max_attempts {
            return self.finish(Ending::Failed(fault)).await;
        }
        self.suspend(fault, FIRST_BACKOFF).await
    }

    /// What earlier attempts sent, for the agent's eyes.
    fn sent(&self) -> Sent {
        Sent { text: self.pen.text().to_owned(), events: self.pen.events() }
    }
}

/// A fault's own wait, or backoff that doubles with each attempt; whichever is longer.
pub(crate) fn wait_after(fault: &Fault, attempt: u32) -> Duration {
    let backoff = FIRST_BACKOFF * 2_u32.saturating_pow(attempt.saturating_sub(1).min(8));
    fault.retry_after().map_or(backoff, |seconds| Duration::from_secs(seconds).max(backoff))
}

pub(crate) fn later(wait: Duration) -> Timestamp {
    Timestamp::from_micros(
        Timestamp::now().as_micros() + i64::try_from(wait.as_micros()).unwrap_or(i64::MAX / 2),
    )
}

fn until(moment: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(moment.as_micros() - Timestamp::now().as_micros()).unwrap_or(0))
}

//! How a run ends, waits, or goes on with the next attempt: the transitions of its record.

use std::time::Duration;

use capstan_journal::{Frame, JournalError, Run, RunState, Turn};
use capstan_protocol::cursor::LOST_TAIL_GAP;
use capstan_protocol::{Close, ErrorSeverity, Fault, FaultKind, Payload, Timestamp};

use super::pen::Pen;
use super::{Relay, later, wait_after};
use crate::app::App;
use crate::ask::Ask;
use crate::refusal::journal_fault;
use crate::traces;

/// Why a run ends.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// The answer is complete.
    Completed,
    /// Somebody stopped it.
    Cancelled,
    /// It failed and cannot be tried again.
    Failed(Fault),
}

impl Ending {
    fn reason(&self) -> &'static str {
        match self {
            Self::Completed => Close::COMPLETED,
            Self::Cancelled => Close::CANCELLED,
            Self::Failed(_) => "error",
        }
    }
}

impl Relay {
    /// Commits what the pen has written.
    pub(super) async fn flush(&mut self) -> Result<(), JournalError> {
        let frames = self.pen.take_frames();
        if frames.is_empty() {
            return Ok(());
        }
        if self.run.last_seq == 0 {
            self.app.metrics.first_packet_seconds.observe(self.started.elapsed().as_secs_f64());
        }
        let began = std::time::Instant::now();
        self.app.journal.append(self.run.stream_id, self.run.attempt, frames).await?;
        self.app.metrics.append_seconds.observe(began.elapsed().as_secs_f64());
        self.run.last_seq = self.pen.seq();
        Ok(())
    }

    /// Writes the end and the turn, together.
    pub(super) async fn finish(&mut self, ending: Ending) -> Result<(), JournalError> {
        self.flush().await?;
        let from = (self.run.state, self.run.attempt);
        write_end(&self.app, &mut self.pen, &mut self.run, &ending);
        let frames = self.pen.take_frames();
        let turn = turn_of(&self.run, &self.body, self.pen.take_text(), !matches!(ending, Ending::Completed));
        if self.app.journal.transition(from, self.run.clone(), frames, turn).await? {
            traces::ended(self.trace.span(), &self.run);
            log_end(&self.app, &self.run);
        }
        Ok(())
    }

    /// Rule 1: the gateway tries again by itself; viewers see a warning.
    pub(super) async fn retry(&mut self, fault: Fault, wait: Duration) -> Result<bool, JournalError> {
        let warning = fault.with_severity(ErrorSeverity::Warning).with_detail("attempt", self.run.attempt);
        self.pen.write(Payload::Error(warning.to_stream_error(self.app.settings.exposure)));
        self.flush().await?;
        let from = (self.run.state, self.run.attempt);
        self.run.attempt += 1;
        self.run.not_before = Some(later(wait));
        self.run.updated_at = Timestamp::now();
        self.app.journal.transition(from, self.run.clone(), Vec::new(), None).await
    }

    /// Rule 2: the run waits for its client to come back.
    pub(super) async fn suspend(&mut self, fault: Fault, wait: Duration) -> Result<(), JournalError> {
        self.flush().await?;
        let from = (self.run.state, self.run.attempt);
        write_wait(&self.app, &mut self.pen, &mut self.run, &fault, wait);
        let frames = self.pen.take_frames();
        // Before it can be armed again, which goes on with this span.
        self.app.traces.keep(self.run.stream_id, &self.trace);
        self.app.journal.transition(from, self.run.clone(), frames, None).await.map(|_| ())
    }
}

fn write_end(app: &App, pen: &mut Pen, run: &mut Run, ending: &Ending) {
    if let Ending::Failed(fault) = ending {
        let fatal = fault.clone().with_severity(ErrorSeverity::Fatal);
        pen.write(Payload::Error(fatal.to_stream_error(app.settings.exposure)));
    }
    // A run that was healed has no fault.
    run.fault = if let Ending::Failed(fault) = ending { Some(fault.code().to_owned()) } else { None };
    let close = pen.close(ending.reason(), &run.agent);
    run.reason = Some(close.reason());
    pen.write(Payload::Close(close));
    let now = Timestamp::now();
    (run.state, run.updated_at, run.closed_at) = (RunState::Closed, now, Some(now));
    (run.model, run.usage) = (pen.model().cloned(), pen.usage().cloned());
    (run.last_seq, run.bytes) = (pen.seq(), pen.bytes());
}

fn write_wait(app: &App, pen: &mut Pen, run: &mut Run, fault: &Fault, wait: Duration) {
    let told = fault.clone().with_severity(ErrorSeverity::Transient).with_retry_after(wait.as_secs_f64());
    pen.write(Payload::Error(told.to_stream_error(app.settings.exposure)));
    run.state = RunState::Waiting;
    run.fault = Some(fault.code().to_owned());
    run.not_before = Some(later(wait));
    run.updated_at = Timestamp::now();
    (run.last_seq, run.bytes) = (pen.seq(), pen.bytes());
}

/// Ends a run that waits: stopped, or waiting for too long. Whoever is first wins.
pub(crate) async fn close_waiting(app: &App, run: &Run, ending: Ending) -> Result<(), Fault> {
    let from = (run.state, run.attempt);
    let mut run = run.clone();
    let mut pen = Pen::new(app, &run);
    write_end(app, &mut pen, &mut run, &ending);
    let frames = pen.take_frames();
    let turn = turn_so_far(app, &run).await.map_err(journal_fault)?;
    if app.journal.transition(from, run.clone(), frames, turn).await.map_err(journal_fault)? {
        if let Some(span) = app.traces.take(run.stream_id) {
            traces::ended(&span, &run);
        }
        log_end(app, &run);
    }
    Ok(())
}

/// A run whose process died: it waits for its client, or ends if no attempt is left.
pub(crate) async fn interrupt(app: &App, run: &Run) -> Result<(), Fault> {
    let fault = Fault::new(FaultKind::RunInterrupted);
    if run.attempt >= run.max_attempts {
        return close_waiting(app, run, Ending::Failed(fault)).await;
    }
    let from = (run.state, run.attempt);
    let (mut run, mut pen) = (run.clone(), Pen::new(app, run));
    let wait = wait_after(&fault, run.attempt);
    write_wait(app, &mut pen, &mut run, &fault, wait);
    let frames: Vec<Frame> = pen.take_frames();
    app.journal.transition(from, run, frames, None).await.map(|_| ()).map_err(journal_fault)
}

/// A run whose last packets may be missing is never continued: it is closed beyond the gap.
pub(crate) async fn lose(app: &App, run: &Run) -> Result<(), Fault> {
    let beyond = Run { last_seq: run.last_seq + LOST_TAIL_GAP - 1, ..run.clone() };
    close_waiting(app, &beyond, Ending::Failed(Fault::new(FaultKind::StreamLost))).await
}

/// The turn of a run that nobody is at work on, with what its viewers have seen.
async fn turn_so_far(app: &App, run: &Run) -> Result<Option<Turn>, JournalError> {
    let Some(body) = app.journal.store().body(run.stream_id).await? else { return Ok(None) };
    let mut pen = Pen::new(app, run);
    pen.replay().await?;
    Ok(turn_of(run, &body, pen.take_text(), true))
}

/// What a turn says.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Said {
    /// The user's message.
    pub(super) user: serde_json::Value,
    /// The whole answer.
    pub(super) assistant: String,
    /// The run failed or was stopped: shown, but not sent to agents.
    pub(super) is_partial: bool,
}

impl Said {
    const VERSION: u32 = 1;
}

/// What the session remembers of a run that ends.
fn turn_of(run: &Run, body: &[u8], text: String, is_partial: bool) -> Option<Turn> {
    let ask = Ask::decode(&run.face, body).ok()?;
    let user = serde_json::to_value(&ask.message).unwrap_or_default();
    let said = serde_json::to_value(Said { user, assistant: text, is_partial }).ok()?;
    let closed_at = run.closed_at.unwrap_or_else(Timestamp::now);
    Some(Turn::new(run.stream_id, closed_at, Said::VERSION, said))
}

fn log_end(app: &App, run: &Run) {
    let reason = run.reason.as_deref().unwrap_or_default();
    app.metrics.run_ended(reason);
    tracing::info!(stream = %run.stream_id, tenant = %run.tenant, key = %run.key, agent = %run.agent, attempts = run.attempt,
        packets = run.last_seq, reason, fault = run.fault.as_deref().unwrap_or("none"), "run ended");
}

#[cfg(test)]
mod tests {
    use capstan_journal::{Claim, Durability, Journal, TailLimits, open};
    use uuid::Uuid;

    use super::*;
    use crate::Gateway;
    use crate::relay::packet_of;

    #[tokio::test]
    async fn a_lost_tail_is_closed_beyond_the_gap_and_never_continued() {
        let journal = Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
        let app = Gateway::new(journal.clone()).into_app();
        let claim = Claim { max_attempts: 3, ..Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()) };
        let mut run = journal.claim(claim).await.unwrap().run;
        let mut pen = Pen::new(&app, &run);
        pen.write(Payload::Delta("half".into()));
        journal.append(run.stream_id, 1, pen.take_frames()).await.unwrap();
        run.last_seq = 1;
        lose(&app, &run).await.unwrap();
        let frames = journal.store().read(run.stream_id, 1, 10, 10_000).await.unwrap();
        let packets: Vec<_> = frames.iter().filter_map(|frame| packet_of(&frame.bytes)).collect();
        assert_eq!(packets.iter().map(|p| p.seq).collect::<Vec<_>>(), [1 + (1 << 20), 2 + (1 << 20)]);
        assert!(
            matches!(&packets[0].payload, Payload::Error(e) if e.code == "stream_lost" && e.severity == ErrorSeverity::Fatal)
        );
        assert_eq!(journal.store().run(run.stream_id).await.unwrap().unwrap().state, RunState::Closed);
    }
}

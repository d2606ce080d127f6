//! The transitions of a run's record: it ends, waits, or begins its next attempt.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use capstan_agent::{CancelReason, END_LIMIT};
use capstan_journal::{
    ErrorKind, Frame, JournalError, Questions, Quota, Run, RunState, StoredTurn, TurnRange,
};
use capstan_protocol::cursor::LOST_TAIL_GAP;
use capstan_protocol::{ChatMessage, Close, ErrorSeverity, Fault, FaultKind, Payload};
use futures_util::FutureExt as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::Relay;
use super::ledger::{self, Origin};
use super::packet_writer::PacketWriter;
use crate::Engine;
use crate::ask::Ask;
use crate::conversation::{self, TurnRecord};
use crate::cpu_offload;
use crate::events::Happened;
use crate::faults::journal_fault;
use crate::wall_clock::later;

/// The reason why a run ends.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// The answer is complete.
    Completed,
    /// A client stopped it.
    Cancelled,
    /// It failed, and no attempt may follow.
    Failed(Fault),
}

impl Ending {
    /// The fault of this ending, with severity FATAL.
    fn fault(&self) -> Option<Fault> {
        match self {
            Self::Completed | Self::Cancelled => None,
            Self::Failed(fault) => Some(fault.clone().with_severity(ErrorSeverity::Fatal)),
        }
    }

    fn reason(&self, packets: &PacketWriter) -> &'static str {
        match self {
            Self::Completed if !packets.asked().is_empty() => Close::INTERRUPT,
            Self::Completed => Close::COMPLETED,
            Self::Cancelled => Close::CANCELLED,
            Self::Failed(_) => "error",
        }
    }

    /// The reason for which remote work has to end. After a complete answer there is none.
    fn cancel_reason(&self) -> Option<CancelReason> {
        match self {
            Self::Completed => None,
            Self::Cancelled => Some(CancelReason::Stopped),
            Self::Failed(fault) if fault.kind() == FaultKind::Timeout => {
                Some(CancelReason::TimedOut)
            }
            Self::Failed(_) => Some(CancelReason::Failed),
        }
    }
}

impl Relay {
    /// Writes the end of the run and the session's turn in one transition.
    pub(super) async fn finish(&mut self, ending: Ending) -> Result<(), JournalError> {
        self.flush().await?;
        let failed = FailedAttempt::of_ending(&self.run, &ending);
        let from = (self.run.state, self.run.attempt);
        let now = self.engine.stamp(&self.run);
        ledger::ends(&mut self.run, &self.packets, now, ending.fault().as_ref());
        self.run.viewers = self.engine.live.close(self.run.stream_id);
        write_end(&self.engine, &mut self.packets, &mut self.run, &ending);
        let frames = self.packets.take_frames();
        let turn = Some(self.remembered(!matches!(ending, Ending::Completed)).await?);
        if self.engine.journal.transition(from, self.run.clone(), frames, turn).await? {
            FailedAttempt::emit(failed, &self.engine);
            self.engine.emit(&self.run, Happened::Ended);
            end_elsewhere(&self.engine, &self.run, &ending);
        }
        if let Some(reason) = ending.cancel_reason() {
            self.cancel(reason);
        }
        Ok(())
    }

    /// Tells remote work of the attempt why it has to end.
    fn cancel(&mut self, reason: CancelReason) {
        if let Some(canceller) = self.canceller.take() {
            canceller.cancel(reason);
        }
    }

    /// Builds the session's turn.
    async fn remembered(&mut self, is_partial: bool) -> Result<StoredTurn, JournalError> {
        let last = last_messages(&self.engine, &self.run, &self.ask).await?;
        let said = self.packets.take_messages().await?;
        let asked = self.packets.asked().iter().filter(|_| !is_partial);
        let interrupts: Vec<_> =
            asked.map(|asked| serde_json::to_value(asked).unwrap_or_default()).collect();
        let closed_at = self.run.closed_at.unwrap_or(self.run.updated_at);
        let turn = || {
            let mut record = turn_record(&self.ask, &last, &said, is_partial);
            record.interrupts = interrupts;
            record.into_turn(self.run.stream_id, closed_at)
        };
        Ok(cpu_offload::run(self.room.load.held(), turn))
    }

    /// Rule 1: the relay makes another attempt itself. Viewers see a WARNING.
    pub(super) async fn retry(
        &mut self,
        fault: Fault,
        wait: Duration,
    ) -> Result<bool, JournalError> {
        let failed = FailedAttempt::new(&self.run, &fault);
        let warning =
            fault.with_severity(ErrorSeverity::Warning).with_detail("attempt", self.run.attempt);
        let now = self.engine.stamp(&self.run);
        ledger::ends(&mut self.run, &self.packets, now, Some(&warning));
        self.packets
            .write(Payload::Error(warning.to_stream_error(self.engine.settings.exposure).into()));
        self.flush().await?;
        let from = (self.run.state, self.run.attempt);
        self.run.attempt += 1;
        self.run.usage = self.packets.summary().usage();
        self.run.updated_at = self.engine.stamp(&self.run);
        let begins_at = later(self.run.updated_at, wait);
        self.run.not_before = Some(begins_at);
        ledger::add(&mut self.run, begins_at, &Origin::default());
        self.ready = Some(Instant::now() + wait);
        self.cancel(CancelReason::Retried);
        let is_done =
            self.engine.journal.transition(from, self.run.clone(), Vec::new(), None).await?;
        if is_done {
            FailedAttempt::emit(Some(failed), &self.engine);
            self.engine.emit(&self.run, Happened::Retried);
        }
        Ok(is_done)
    }

    /// Rule 2: the run waits for its client. If too many runs of the tenant wait already, rule 3
    /// applies: the run ends.
    pub(super) async fn suspend(
        &mut self,
        fault: Fault,
        wait: Duration,
    ) -> Result<(), JournalError> {
        let quota = self.engine.quota_of(&self.run.tenant);
        self.wait_for_client(fault, wait, CancelReason::Retried, &quota).await
    }

    /// The server shuts down, so the run waits for the next process. Here the limit on waiting runs
    /// does not apply.
    pub(super) async fn hand_over(
        &mut self,
        fault: Fault,
        wait: Duration,
    ) -> Result<(), JournalError> {
        self.wait_for_client(fault, wait, CancelReason::Drained, &Quota::UNLIMITED).await
    }

    async fn wait_for_client(
        &mut self,
        fault: Fault,
        wait: Duration,
        reason: CancelReason,
        quota: &Quota,
    ) -> Result<(), JournalError> {
        self.flush().await?;
        let failed = FailedAttempt::new(&self.run, &fault);
        let before = (self.run.clone(), self.packets.seq(), self.packets.bytes());
        let from = (self.run.state, self.run.attempt);
        let now = self.engine.stamp(&self.run);
        ledger::ends(&mut self.run, &self.packets, now, Some(&waiting_fault(&fault)));
        let ready = write_wait(&self.engine, &mut self.packets, &mut self.run, &fault, wait);
        let frames = self.packets.take_frames();
        match self.engine.journal.suspend(from, self.run.clone(), frames, quota).await {
            Ok(true) => {
                self.engine.waits.add(&self.run, ready, self.engine.settings.timeouts.waiting);
                FailedAttempt::emit(Some(failed), &self.engine);
                self.engine.emit(&self.run, Happened::Waiting);
            }
            Ok(false) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Refused(_)) => {
                let (seq, bytes);
                (self.run, seq, bytes) = before;
                self.packets.take_back(seq, bytes);
                return self.finish(Ending::Failed(fault)).await;
            }
            Err(error) => return Err(error),
        }
        self.cancel(reason);
        Ok(())
    }
}

fn write_end(engine: &Engine, packets: &mut PacketWriter, run: &mut Run, ending: &Ending) {
    if let Ending::Failed(fault) = ending {
        let fatal = fault.clone().with_severity(ErrorSeverity::Fatal);
        packets.write(Payload::Error(fatal.to_stream_error(engine.settings.exposure).into()));
    }
    // A run that recovered from a failed attempt has no fault.
    run.fault =
        if let Ending::Failed(fault) = ending { Some(fault.code().to_owned()) } else { None };
    if matches!(ending, Ending::Completed) && !packets.asked().is_empty() {
        packets.write_asked();
        let questions =
            packets.asked().iter().map(|asked| (asked.id.clone(), asked.deadline())).collect();
        run.asked = Some(Questions::new(questions));
    }
    let close = packets.close(ending.reason(packets), &run.agent, ledger::calls(run));
    run.reason = Some(close.reason());
    packets.write(Payload::Close(close));
    let now = engine.stamp(run);
    (run.state, run.updated_at, run.closed_at) = (RunState::Closed, now, Some(now));
    (run.model, run.usage) = (packets.summary().model().cloned(), packets.summary().usage());
    (run.last_seq, run.bytes) = (packets.seq(), packets.bytes());
}

/// The fault as viewers of a waiting run see it.
fn waiting_fault(fault: &Fault) -> Fault {
    fault.clone().with_severity(ErrorSeverity::Transient)
}

/// Writes that the run waits. Returns the time at which it may go on.
fn write_wait(
    engine: &Engine,
    packets: &mut PacketWriter,
    run: &mut Run,
    fault: &Fault,
    wait: Duration,
) -> Instant {
    let fault_sent = waiting_fault(fault).with_retry_after(wait.as_secs_f64());
    packets.write(Payload::Error(fault_sent.to_stream_error(engine.settings.exposure).into()));
    run.state = RunState::Waiting;
    run.fault = Some(fault.code().to_owned());
    run.usage = packets.summary().usage();
    // Read the clock once for both, so that their difference is exactly the wait.
    run.updated_at = engine.stamp(run);
    run.not_before = Some(later(run.updated_at, wait));
    (run.last_seq, run.bytes) = (packets.seq(), packets.bytes());
    Instant::now() + wait
}

/// Ends a run without a relay: it waits, was stopped, or has waited too long. If another process
/// ends it at the same time, the first one wins.
pub(crate) async fn close_waiting(engine: &Engine, run: &Run, ending: Ending) -> Result<(), Fault> {
    let turn = turn_so_far(engine, run).await.map_err(journal_fault)?;
    close(engine, run, ending, turn, None).await
}

/// Ends a run whose process has died. Its last attempt has failed with this fault.
async fn close_orphan(engine: &Engine, run: &Run, fault: Fault) -> Result<(), Fault> {
    let turn = turn_so_far(engine, run).await.map_err(journal_fault)?;
    let failed = FailedAttempt::new(run, &fault);
    close(engine, run, Ending::Failed(fault), turn, Some(failed)).await
}

/// An attempt that failed. Observers receive it only after the transition is stored: of several
/// processes that try to store it, one reports it.
struct FailedAttempt {
    /// The run's record before the transition.
    run: Run,
    fault: Fault,
}

impl FailedAttempt {
    fn new(run: &Run, fault: &Fault) -> Self {
        Self { run: run.clone(), fault: fault.clone() }
    }

    /// The attempt of a relay that ends its run like this.
    fn of_ending(run: &Run, ending: &Ending) -> Option<Self> {
        match ending {
            Ending::Failed(fault) => Some(Self::new(run, fault)),
            Ending::Completed | Ending::Cancelled => None,
        }
    }

    fn emit(failed: Option<Self>, engine: &Engine) {
        if let Some(Self { run, fault }) = failed {
            engine.emit(&run, Happened::AttemptFailed { fault });
        }
    }
}

async fn close(
    engine: &Engine,
    run: &Run,
    ending: Ending,
    turn: Option<StoredTurn>,
    failed: Option<FailedAttempt>,
) -> Result<(), Fault> {
    let from = (run.state, run.attempt);
    let mut run = run.clone();
    let mut packets = PacketWriter::after_last(engine, &run).await;
    ledger::recover_first_packet(engine, &mut run).await;
    // The time of the last packet is the last sign of the relay, so the attempt ended then.
    ledger::ends(&mut run, &packets, packets.latest(), ending.fault().as_ref());
    run.viewers = engine.live.close(run.stream_id);
    write_end(engine, &mut packets, &mut run, &ending);
    let frames = packets.take_frames();
    let turn = turn.map(|turn| StoredTurn { closed_at: run.updated_at, ..turn });
    if engine.journal.transition(from, run.clone(), frames, turn).await.map_err(journal_fault)? {
        FailedAttempt::emit(failed, engine);
        engine.emit(&run, Happened::Ended);
        end_elsewhere(engine, &run, &ending);
    }
    Ok(())
}

/// Ends the remote work of the run's agent. Only a shutdown waits for it.
fn end_elsewhere(engine: &Engine, run: &Run, ending: &Ending) {
    let Some(reason) = ending.cancel_reason() else { return };
    let (Some(far_id), Some(agent)) = (run.far_id.clone(), engine.agent(&run.agent).cloned())
    else {
        return;
    };
    let stream = run.stream_id;
    engine.agents_at_work.spawn(async move {
        match tokio::time::timeout(END_LIMIT, agent.agent.end(&far_id, reason)).await {
            Ok(Ok(())) => tracing::debug!(%stream, far_id, ?reason, "ended what ran elsewhere"),
            Ok(Err(fault)) => {
                tracing::warn!(%stream, far_id, code = fault.code(),
                cause = fault.cause().map(tracing::field::display),
                "what runs elsewhere could not be ended");
            }
            Err(_) => tracing::warn!(%stream, far_id, "what runs elsewhere did not end in time"),
        }
    });
}

/// Ends a run whose relay has failed. Leaves the turn out if building it panics.
pub(super) async fn close_abandoned(
    engine: &Engine,
    stream: Uuid,
    fault: Fault,
) -> Result<(), Fault> {
    let mut failed = Ok(());
    // A write that the relay began may reach the journal after the first read.
    for _ in 0..3 {
        let Some(run) = engine.journal.store().run(stream).await.map_err(journal_fault)? else {
            return Ok(());
        };
        if run.state != RunState::Running {
            return Ok(());
        }
        let turn = AssertUnwindSafe(turn_so_far(engine, &run)).catch_unwind().await;
        let turn = turn.unwrap_or(Ok(None)).map_err(journal_fault)?;
        failed = close(engine, &run, Ending::Failed(fault.clone()), turn, None).await;
        if failed.is_ok() {
            break;
        }
    }
    failed
}

/// Handles a run whose process has died: it waits for its client, or ends if no attempts are left.
pub(crate) async fn interrupt(engine: &Engine, run: &Run) -> Result<(), Fault> {
    let fault = Fault::new(FaultKind::RunInterrupted);
    if run.attempt >= run.max_attempts {
        return close_orphan(engine, run, fault).await;
    }
    let failed = FailedAttempt::new(run, &fault);
    let from = (run.state, run.attempt);
    let (mut run, mut packets) = (run.clone(), PacketWriter::after_last(engine, run).await);
    let wait = engine.wait_after(&fault, run.attempt);
    ledger::recover_first_packet(engine, &mut run).await;
    ledger::ends(&mut run, &packets, packets.latest(), Some(&waiting_fault(&fault)));
    let ready = write_wait(engine, &mut packets, &mut run, &fault, wait);
    let frames: Vec<Frame> = packets.take_frames();
    if engine.journal.transition(from, run.clone(), frames, None).await.map_err(journal_fault)? {
        engine.waits.add(&run, ready, engine.settings.timeouts.waiting);
        FailedAttempt::emit(Some(failed), engine);
        engine.emit(&run, Happened::Waiting);
    }
    Ok(())
}

/// Ends a run whose last packets may be missing. It never goes on. Its CLOSE leaves a gap in the
/// numbers.
pub(crate) async fn lose(engine: &Engine, run: &Run) -> Result<(), Fault> {
    let fault = Fault::new(FaultKind::StreamLost);
    let last_seq = run.last_seq + LOST_TAIL_GAP - 1;
    let mut beyond = run.clone();
    ledger::recover_first_packet(engine, &mut beyond).await;
    beyond.last_seq = last_seq;
    let at = PacketWriter::after_last(engine, run).await.latest();
    ledger::ends_after(&mut beyond, run.last_seq, at, Some((&fault, last_seq + 1)));
    close_orphan(engine, &beyond, fault).await
}

/// The final packets for a reader when nothing can be read after a packet: the stream is lost. They
/// are not stored, and their numbers are beyond all others.
pub fn last_words_of_lost(engine: &Engine, run: &Run, after: u64) -> Vec<Frame> {
    let last_seq = run.last_seq.max(after).saturating_add(LOST_TAIL_GAP - 1);
    let mut beyond = Run { last_seq, ..run.clone() };
    let mut packets = PacketWriter::new(engine, &beyond);
    write_end(
        engine,
        &mut packets,
        &mut beyond,
        &Ending::Failed(Fault::new(FaultKind::StreamLost)),
    );
    packets.take_frames()
}

/// Builds the turn of a run without a relay from the packets that viewers have seen.
async fn turn_so_far(engine: &Engine, run: &Run) -> Result<Option<StoredTurn>, JournalError> {
    let body = match engine.journal.store().body(run.stream_id).await {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
        body => body?,
    };
    let Some(body) = body else { return Ok(None) };
    let Ok(ask) = engine.asked(run, body) else { return Ok(None) };
    let mut packets = PacketWriter::new(engine, run);
    // Replay applies the resets among the packets.
    let so_far = match packets.compare().await {
        // A lost run is closed with the packets that can still be read.
        Err(error) if error.kind() == ErrorKind::Corrupt => packets.messages_so_far(),
        compared => {
            compared?;
            packets.take_messages().await?
        }
    };
    let last = last_messages(engine, run, &ask).await?;
    let record = turn_record(&ask, &last, &so_far, true);
    Ok(Some(record.into_turn(run.stream_id, engine.stamp(run))))
}

/// Few turns end while a run is at work, and only the last one is needed.
const LAST_TURNS: usize = 4 * 1024 * 1024;

/// The messages of the session's last turn. Only a request with answers may repeat them.
async fn last_messages(
    engine: &Engine,
    run: &Run,
    ask: &Ask,
) -> Result<Vec<ChatMessage>, JournalError> {
    if ask.extras.answers.is_empty() {
        return Ok(Vec::new());
    }
    let turns = engine
        .journal
        .store()
        .turns(TurnRange {
            from: run.turns_before,
            max_bytes: LAST_TURNS,
            ..TurnRange::all(&run.tenant, &run.session)
        })
        .await?;
    Ok(turns
        .into_iter()
        .next_back()
        .map(|turn| TurnRecord::of(turn).into_messages())
        .unwrap_or_default())
}

/// Builds the turn: the messages that the request adds, and the agent's messages.
fn turn_record(
    ask: &Ask,
    last: &[ChatMessage],
    said: &[ChatMessage],
    is_partial: bool,
) -> TurnRecord {
    let added = conversation::added(ask, last);
    let is_abridged = ask.extras.is_abridged && added.len() == ask.messages.iter().count();
    let abridged = is_abridged.then_some(added.len());
    TurnRecord::new(added.into_iter().chain(said), is_partial)
        .after(ask.previous)
        .abridging(abridged)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
    use capstan_journal::{Claim, Journal, TailLimits};
    use capstan_protocol::Timestamp;
    use capstan_stores::{Durability, open};
    use tokio::sync::Notify;
    use uuid::Uuid;

    use super::*;
    use crate::events::{RunEvent, RunObserver};
    use crate::{Registered, runs};

    /// The fault codes that an observer received.
    #[derive(Default)]
    struct Faults(Mutex<Vec<String>>);

    impl RunObserver for Faults {
        fn name(&self) -> &'static str {
            "faults"
        }

        fn observe(&self, event: &RunEvent) {
            if let Happened::AttemptFailed { fault } = &event.what {
                self.0.lock().unwrap().push(fault.code().to_owned());
            }
        }
    }

    #[tokio::test]
    async fn a_lost_tail_is_closed_beyond_the_gap_and_never_continued() {
        let journal =
            Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
        let seen = Arc::new(Faults::default());
        let engine = Engine::builder(journal.clone()).observer(seen.clone()).build();
        let claim =
            Claim { max_attempts: 3, ..Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()) };
        let mut run = journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
        let mut packets = PacketWriter::new(&engine, &run);
        packets.write(Payload::Delta("half".into()));
        journal.append(run.stream_id, 1, packets.take_frames()).await.unwrap();
        run.last_seq = 1;
        lose(&engine, &run).await.unwrap();
        let frames = journal.store().read(run.stream_id, 1, 10, 10_000).await.unwrap();
        let packets: Vec<_> = frames
            .iter()
            .filter_map(|frame| capstan_protocol::sse::decode_packet(&frame.bytes))
            .collect();
        assert_eq!(
            packets.iter().map(|p| p.seq).collect::<Vec<_>>(),
            [1 + (1 << 20), 2 + (1 << 20)]
        );
        assert!(matches!(&packets[0].payload,
            Payload::Error(e) if e.code == "stream_lost" && e.severity == ErrorSeverity::Fatal));
        assert_eq!(
            journal.store().run(run.stream_id).await.unwrap().unwrap().state,
            RunState::Closed
        );
        engine.observed().await;
        assert_eq!(*seen.0.lock().unwrap(), ["stream_lost"]);
        // Another process may have read the same record before.
        lose(&engine, &run).await.unwrap();
        engine.observed().await;
        assert_eq!(*seen.0.lock().unwrap(), ["stream_lost"], "the one that stored it reports it");
    }

    #[tokio::test]
    async fn an_orphans_failed_attempt_is_reported_by_one_process() {
        for max_attempts in [1, 3] {
            let store = open("memory:", Durability::default()).unwrap();
            let journal = Journal::new(store, TailLimits::default());
            let seen = Arc::new(Faults::default());
            let engine = Engine::builder(journal.clone()).observer(seen.clone()).build();
            let claim = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now());
            let claim = Claim { max_attempts, ..claim };
            let run = journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
            interrupt(&engine, &run).await.unwrap();
            interrupt(&engine, &run).await.unwrap();
            engine.observed().await;
            assert_eq!(*seen.0.lock().unwrap(), ["run_interrupted"], "{max_attempts} attempts");
        }
    }

    /// An agent that fails when the test lets it.
    struct FailsLater(Arc<Notify>);

    #[async_trait]
    impl Agent for FailsLater {
        async fn run(&self, _: Turn, _: &mut Writer) -> Outcome {
            self.0.notified().await;
            Err(Fault::new(FaultKind::UpstreamTruncated).into())
        }
    }

    #[tokio::test]
    async fn a_relay_that_lost_its_run_reports_no_failed_attempt() {
        for is_lost in [true, false] {
            let store = open("memory:", Durability::default()).unwrap();
            let journal = Journal::new(store, TailLimits::default());
            let (seen, fails) = (Arc::new(Faults::default()), Arc::new(Notify::new()));
            let agent = Registered::new("fails", FailsLater(Arc::clone(&fails)));
            let engine = Engine::builder(journal.clone()).internal_agent(agent);
            let engine = engine.observer(seen.clone()).build();
            let claim = Claim {
                agent: "fails".into(),
                ..Claim::new("t", "k", Uuid::now_v7(), Timestamp::now())
            };
            let (stream, ask) = (claim.stream_id, Ask::new("k".into(), "s".into(), Vec::new()));
            runs::start_internal(&engine, claim, &Quota::UNLIMITED, ask).await.unwrap();
            if is_lost {
                let run = journal.store().run(stream).await.unwrap().unwrap();
                close_waiting(&engine, &run, Ending::Cancelled).await.unwrap();
            }
            fails.notify_one();
            engine.tasks.close();
            engine.tasks.wait().await;
            engine.observed().await;
            assert_eq!(seen.0.lock().unwrap().is_empty(), is_lost);
        }
    }
}

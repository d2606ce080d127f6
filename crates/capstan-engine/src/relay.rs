//! The relay is the only writer of a stream. It runs the agent's attempts and writes their outputs.

mod attempt;
mod attempt_diff;
mod call_diff;
mod call_event;
mod calls;
mod ending;
mod frame_encoder;
mod ledger;
mod marks;
mod native_log;
mod packet_writer;
mod past;
mod run_summary;
mod sent_log;
mod spending;
mod text_diff;
mod tool_log;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_agent::{Canceller, Sent, Timer, TraceParent, Turn};
use capstan_journal::{ArmedBy, Cluster, ErrorKind, Health, JournalError, LeaseEpoch, Run};
use capstan_protocol::{Backoff, ErrorSeverity, Fault, FaultKind};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::ask::Ask;
use crate::conversation::{self, Whole};
use crate::events::Happened;
use crate::faults::journal_fault;
use crate::interrupts;
use crate::limits::{MemoryReservation, Slot};
use crate::live::Facts;
use crate::relays::StopSender;
use crate::{Engine, Registered};
pub use ending::last_words_of_lost;
pub(crate) use ending::{Ending, close_waiting, interrupt, lose};
pub use ledger::Origin;
pub(crate) use ledger::add as add_attempt;
use packet_writer::PacketWriter;
use past::PastError;

/// The relay itself sleeps through a retry delay up to this long. For a longer one, the client has
/// to come back.
const SHORT_WAIT: Duration = Duration::from_secs(5);

/// How an attempt ended.
enum Ended {
    /// The agent has returned without an error.
    Completed,
    /// The attempt failed. `true`: only a request of the client may start another attempt.
    Failed(Fault, bool),
    /// A client stopped the run and waits for its end.
    Stopped(oneshot::Sender<()>),
    /// The server shuts down.
    Drained,
}

/// The state of one run while this process writes it.
struct Relay {
    engine: Engine,
    agent: Registered,
    run: Run,
    ask: Arc<Ask>,
    stop: mpsc::Receiver<oneshot::Sender<()>>,
    packets: PacketWriter,
    /// The trace of the request that started the relay.
    request: Option<TraceParent>,
    /// Cancels what the present or last attempt has started elsewhere.
    canceller: Option<Canceller>,
    /// The rest of the run's total time.
    budget: Duration,
    started: Instant,
    /// When the next attempt may begin, if it has to wait.
    ready: Option<Instant>,
    room: RunReservation,
    /// How many bytes of the answer `room` contains.
    counted: usize,
    /// The live facts of the stream, for the console.
    facts: Arc<Facts>,
    /// The agent has written no packet yet.
    is_silent: bool,
}

/// The resources of a run. A run without a slot waits for one before its attempt begins.
pub struct RunReservation {
    /// The slot among the running runs.
    pub slot: Option<Slot>,
    /// The memory that it reserves.
    pub load: MemoryReservation,
}

/// Starts the relay of a run that this process has just claimed or armed. The attempt begins at
/// `ready`.
pub fn spawn(
    engine: &Engine,
    agent: Registered,
    run: Run,
    ask: Arc<Ask>,
    request: Option<TraceParent>,
    room: RunReservation,
    ready: Option<Instant>,
) {
    let (sender, stop) = mpsc::channel(1);
    let (at_work, tenant) = (AtWork::new(engine, &run, sender), run.tenant.clone());
    let cluster = engine.journal.store().cluster_of(run.stream_id);
    let (tasks, lease_epoch) = (engine.tasks.clone(), cluster.map(Cluster::lease_epoch));
    let work = async move {
        let (engine, stream, name) =
            (&at_work.engine, at_work.run.stream_id, Arc::clone(&agent.name));
        // Catch a panic: without its relay the run would never end, and a stop would have no
        // effect.
        let working =
            AssertUnwindSafe(work(engine.clone(), agent, run, ask, request, stop, (room, ready)));
        let worked = tokio::select! {
            biased;
            // Write nothing more, not even an end: the process that takes the run over decides its
            // outcome.
            () = lost_lease(lease_epoch) => {
                tracing::info!(%stream, agent = %name, "this process has lost the run's lease");
                return;
            }
            worked = working.catch_unwind() => worked,
        };
        if let Err(panic) = worked {
            let fault = Fault::from_panic(panic.as_ref());
            let cause = engine.loggable(&fault);
            tracing::error!(%stream, agent = %name, cause, "the relay panicked; its run is ended");
            if let Err(fault) = ending::close_abandoned(engine, stream, fault).await {
                let cause = engine.loggable(&fault);
                tracing::error!(%stream, code = fault.code(), cause, "the run could not be ended");
            }
        }
    };
    // Log lines carry the id of the request that started the relay.
    tasks.spawn(engine.of_tenant(&tenant, work.in_current_span()));
}

/// Waits until this process loses its lease. A run without a lease is never lost.
async fn lost_lease(epoch: Option<LeaseEpoch>) {
    if let Some(mut epoch) = epoch
        && epoch.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn work(
    engine: Engine,
    agent: Registered,
    run: Run,
    ask: Arc<Ask>,
    request: Option<TraceParent>,
    stop: mpsc::Receiver<oneshot::Sender<()>>,
    (room, ready): (RunReservation, Option<Instant>),
) {
    let (stream, name, budget) =
        (run.stream_id, Arc::clone(&agent.name), engine.settings.timeouts.run);
    let record = run.clone();
    let packets = PacketWriter::new(&engine, &run);
    let about = agent.agent.about();
    if let Some(tracer) = &engine.tracer {
        tracer.begin_run(&run, &about, request.as_ref());
    }
    let here = engine.clone();
    let started = Instant::now();
    let facts = engine.live.of(&run);
    let is_silent = run.last_seq == 0;
    let relay = Relay {
        engine,
        agent,
        run,
        ask,
        stop,
        packets,
        request,
        canceller: None,
        budget,
        started,
        ready,
        room,
        counted: 0,
        facts,
        is_silent,
    };
    if let Err(error) = Box::pin(relay.work()).await {
        if error.kind() == ErrorKind::Fenced && here.journal.store().is_shared() {
            // The packets that viewers saw are safe. The new owner decides the run's outcome.
            tracing::info!(%stream, agent = %name, "another process owns the run now");
            return;
        }
        // The packets that viewers saw are safe. If the journal is healthy, it refuses this run
        // alone, so end the run. If not, leave the run to recovery.
        tracing::error!(%stream, agent = %name, %error, "the journal refused what the run wrote");
        here.emit(&record, Happened::JournalRefused { kind: FaultKind::JournalUnavailable });
        if here.journal_health() == Health::Well
            && let Err(fault) = ending::close_abandoned(&here, stream, journal_fault(error)).await
        {
            tracing::error!(%stream, code = fault.code(), cause = here.loggable(&fault),
            "the run could not be ended");
        }
    }
}

/// Marks a run as running for as long as this value lives, whatever happens to the work.
struct AtWork {
    engine: Engine,
    run: Run,
    facts: Arc<Facts>,
}

impl AtWork {
    fn new(engine: &Engine, run: &Run, stop: StopSender) -> Self {
        let facts = engine.live.of(run);
        facts.is_at_work.store(true, Ordering::Relaxed);
        engine.relays.register(run.stream_id, stop);
        engine.emit(run, Happened::TakenUp);
        Self { engine: engine.clone(), run: run.clone(), facts }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.facts.is_at_work.store(false, Ordering::Relaxed);
        self.engine.relays.forget(self.run.stream_id);
        self.engine.emit(&self.run, Happened::LetGo);
    }
}

impl Relay {
    async fn work(mut self) -> Result<(), JournalError> {
        let turn = match self.turn().await {
            Ok(turn) => turn,
            Err(PastError::Journal(error)) => return Err(error),
            Err(PastError::Fault(fault)) => return self.finish(Ending::Failed(fault)).await,
        };
        loop {
            let ended = match self.wait().await {
                Some(ended) => ended,
                None => self.attempt(&turn).await?,
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

    /// Builds the agent's input, which is the same in all attempts.
    async fn turn(&mut self) -> Result<Turn, PastError> {
        let stored = match conversation::needs_stored(&self.ask) {
            true => past::before(&self.engine, &self.run, &mut self.room.load).await,
            false => Ok(Vec::new()),
        };
        let stored = match stored {
            // A request with the whole conversation can go on without a history that is too large.
            Err(PastError::Fault(_)) if self.ask.is_whole => Vec::new(),
            stored => stored?,
        };
        let Whole { messages, stored } =
            conversation::whole(&self.ask, &stored, |dialect| self.agent.agent.reads(dialect))?;
        let load = &mut self.room.load;
        let earlier = interrupts::earlier_answers(&self.engine, &self.run, &self.ask, load).await?;
        let extras = &self.ask.extras;
        let mut turn = Turn::talk(Vec::new());
        (turn.history, turn.messages) = (messages.history, messages.turn);
        turn.stored = 0..stored;
        if let Some(instructions) = &extras.instructions {
            turn.history =
                std::iter::once(instructions).chain(turn.history.iter()).cloned().collect();
            turn.stored = 1..stored + 1;
        }
        turn.run = self.run.stream_id;
        turn.agent = Arc::clone(&self.agent.name);
        turn.session.clone_from(&self.run.session);
        turn.tools = Arc::clone(&extras.tools);
        turn.context = Arc::clone(&extras.context);
        turn.state.clone_from(&extras.state);
        turn.forwarded.clone_from(&extras.forwarded);
        turn.answers = extras.answers.iter().map(interrupts::for_agent).collect();
        turn.earlier_answers = earlier.into();
        turn.parameters = Arc::clone(&extras.parameters);
        turn.payload = Arc::clone(&extras.payload);
        turn.dialect = extras.dialect;
        turn.untranslatable.clone_from(&extras.untranslatable);
        Ok(turn)
    }

    /// Sleeps until the attempt may begin and a slot is free. Returns early if the run is stopped
    /// or the server shuts down.
    async fn wait(&mut self) -> Option<Ended> {
        let wait = self.ready.take().map(|ready| ready.saturating_duration_since(Instant::now()));
        if wait.is_none() && self.room.slot.is_some() {
            return None;
        }
        let engine = self.engine.clone();
        let slot = &mut self.room.slot;
        let ready = async {
            if let Some(wait) = wait {
                engine.clock.sleep(Timer::Again, wait).await;
            }
            if slot.is_none() {
                *slot = Some(engine.limiter.wait_for_run(&self.run.tenant).await);
            }
        };
        tokio::select! {
            biased;
            Some(done) = self.stop.recv() => Some(Ended::Stopped(done)),
            () = engine.stopped.cancelled() => Some(Ended::Drained),
            () = ready => None,
        }
    }

    /// Applies the three rules for a failed attempt. Returns true if this relay makes another
    /// attempt.
    async fn next_attempt(&mut self, fault: Fault, is_final: bool) -> Result<bool, JournalError> {
        let is_last = self.run.attempt >= self.run.max_attempts || self.client_asks_for_rest();
        let wait = self.engine.wait_after(&fault, self.run.attempt);
        // Do not promise a retry at a time when the wait has ended the run already.
        let is_too_long = wait > self.engine.settings.timeouts.waiting;
        if fault.severity() != ErrorSeverity::Transient || is_last || is_too_long {
            self.finish(Ending::Failed(fault)).await?;
            return Ok(false);
        }
        match self.run.armed_by {
            ArmedBy::Client if wait > SHORT_WAIT || is_final => {
                self.suspend(fault, wait).await?;
            }
            // No client will come, so the relay sleeps itself, unless the failure is final.
            ArmedBy::Gateway if is_final => self.finish(Ending::Failed(fault)).await?,
            ArmedBy::Client | ArmedBy::Gateway => return self.retry(fault, wait).await,
        }
        Ok(false)
    }

    /// Whether the client has complete parts of the answer, and asks for the rest by itself.
    /// Another attempt would probably differ from those parts.
    fn client_asks_for_rest(&self) -> bool {
        let is_seen = !self.run.is_unseen && self.packets.has_complete_part();
        is_seen && self.engine.protocols.asks_for_rest(&self.run)
    }

    async fn interrupted(mut self) -> Result<(), JournalError> {
        let fault = Fault::new(FaultKind::RunInterrupted);
        if self.run.attempt >= self.run.max_attempts || self.client_asks_for_rest() {
            return self.finish(Ending::Failed(fault)).await;
        }
        let wait = self.engine.settings.timeouts.backoff;
        self.hand_over(fault, wait).await
    }

    /// The packets of earlier attempts, as the agent sees them.
    fn sent(&self) -> Sent {
        let can_continue = self.packets.can_continue();
        Sent { text: self.packets.text().to_owned(), events: self.packets.events(), can_continue }
    }
}

impl Engine {
    /// The delay before the next attempt: the fault's own, or the exponential backoff, whichever is
    /// longer.
    fn wait_after(&self, fault: &Fault, attempt: u32) -> Duration {
        let first = self.settings.timeouts.backoff;
        // No jitter: clients rely on the delay that they receive.
        let backoff = Backoff { first, least: Duration::ZERO, jitter: false, ..Backoff::DEFAULT };
        let backoff = backoff.delay(attempt.saturating_sub(1), 1.0);
        fault.retry_after().map_or(backoff, |seconds| Duration::from_secs(seconds).max(backoff))
    }
}

//! Starts, attaches to and arms runs for requests.

use std::sync::Arc;

use capstan_journal::{ArmedBy, Claim, ErrorKind, Found, JournalError, Quota, Run, RunState};
use capstan_protocol::{Fault, FaultKind};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::ask::{Ask, RequestBody};
use crate::events::Happened;
use crate::faults::{JOURNAL_RETRY, journal_fault};
use crate::limits::{MemoryReservation, Slot};
use crate::readers::ReaderGuard;
use crate::readiness::UNWELL;
use crate::relay::{self, Origin, RunReservation};
use crate::resume::ResumePoint;
use crate::wall_clock::later;
use crate::{Engine, Registered};
use crate::{conversation, interrupts};

/// Starts a run of the internal agent, once per key. These runs mostly wait, so they take none of
/// their tenant's slots.
pub async fn start_internal(
    engine: &Engine,
    claim: Claim,
    quota: &Quota,
    ask: Ask,
) -> Result<(), JournalError> {
    let Some(agent) = engine.worker(&claim.agent).cloned() else { return Ok(()) };
    let claimed = engine.journal.claim(claim, quota).await?;
    if claimed.is_new {
        let tenant = claimed.run.tenant.clone();
        let slot = Some(engine.limiter.uncounted_run(&tenant));
        let room = RunReservation { slot, load: engine.reserve(&tenant) };
        relay::spawn(engine, agent, claimed.run, Arc::new(ask), None, room, None);
    }
    Ok(())
}

/// The parts of a POST that starts a run.
pub struct Start<'a> {
    /// The tenant of the request.
    pub tenant: &'a str,
    /// The idempotency key.
    pub key: String,
    /// The decoded request.
    pub ask: &'a Arc<Ask>,
    /// The body. The gateway decodes it again to start a later attempt itself.
    pub body: &'a RequestBody,
    /// The hash that identifies a repeated request.
    pub hash: [u8; 32],
    /// The agent that the path names.
    pub agent: Option<&'a str>,
    /// The protocol of the request.
    pub face: &'static str,
    /// The client can take a `stream_reset`.
    pub accepts_reset: bool,
    /// The client collects the whole run before it shows anything.
    pub is_unseen: bool,
    /// Who starts the next attempt.
    pub armed_by: ArmedBy,
    /// Where the client resumes. If it has read packets before, its run must exist.
    pub point: ResumePoint,
    /// The origin of the request.
    pub origin: Origin,
    /// The caller's name for the log.
    pub started_by: Option<String>,
    /// The memory that the request and its run take.
    pub load: MemoryReservation,
}

/// The result of a claim.
// The large variant is the usual one.
#[allow(clippy::large_enum_variant)]
enum Begun {
    New(Run, ReaderGuard),
    /// The key belongs to an existing run. The request keeps its memory reservation.
    Held(Run, MemoryReservation),
}

/// Finds or starts the run of a request, and counts the caller as its reader. A new run has its
/// reader before it is claimed; otherwise a repeated request could take it for unread.
pub async fn start_or_attach(
    engine: &Engine,
    start: Start<'_>,
) -> Result<(Run, ReaderGuard), Fault> {
    engine.is_open().await;
    let hash = start.hash;
    match engine.journal.store().find(start.tenant, &start.key).await.map_err(journal_fault)? {
        Some(Found::Run(run)) => {
            let again = Repeat {
                ask: start.ask,
                point: start.point,
                origin: start.origin,
                load: start.load,
            };
            return attach(engine, run, hash, again).await.map(|run| read(engine, run));
        }
        Some(Found::Expired) => return Err(Fault::new(FaultKind::StreamExpired)),
        None if start.point.is_resume() => return Err(Fault::new(FaultKind::StreamExpired)),
        None => {}
    }
    let agent = engine.agent_for(start.agent, start.ask)?.clone();
    let answers = interrupts::asker(engine, start.tenant, start.ask).await?;
    let slot = admit(engine, &start).await?;
    let mut claim = Claim { answers, ..claim_of(engine, &start, &agent) };
    let reading = ReaderGuard::of_claim(engine, &mut claim);
    let trace = start.origin.trace.clone();
    let (here, ask, load) = (engine.clone(), Arc::clone(start.ask), start.load);
    let claimed = run_detached(engine, start.tenant, async move {
        let tenant = claim.tenant.clone();
        let quota = here.quota_of(&tenant);
        let claimed = match here.journal.claim(claim, &quota).await {
            Ok(claimed) => claimed,
            Err(error) => {
                reading.void();
                if let ErrorKind::Refused(refused) = error.kind() {
                    here.limiter.note_refusal(&tenant, refused);
                }
                return Err(journal_fault(error));
            }
        };
        if claimed.is_new {
            // Before the relay starts: so the end of the run is always delivered, and after a crash
            // recovery finds the run open.
            here.prepare(&claimed.run, &ask).await;
            here.emit(&claimed.run, Happened::Started);
            relay::spawn(
                &here,
                agent,
                claimed.run.clone(),
                ask,
                trace,
                RunReservation { slot: Some(slot), load },
                None,
            );
            return Ok(Begun::New(claimed.run, reading));
        }
        reading.void();
        Ok(Begun::Held(claimed.run, load))
    });
    match claimed.await? {
        Begun::New(run, reading) => Ok((run, reading)),
        Begun::Held(run, load) => {
            let again = Repeat { ask: start.ask, point: start.point, origin: start.origin, load };
            attach(engine, run, hash, again).await.map(|run| read(engine, run))
        }
    }
}

/// Counts the caller as a reader of an existing run.
fn read(engine: &Engine, run: Run) -> (Run, ReaderGuard) {
    let reading = ReaderGuard::new(engine, &run);
    (run, reading)
}

/// A request for a run that exists already.
struct Repeat<'a> {
    ask: &'a Arc<Ask>,
    point: ResumePoint,
    origin: Origin,
    load: MemoryReservation,
}

/// Does the work in a separate task. A client that disconnects drops its request future at any
/// await point. Without the task, a run that was just claimed or armed would stay open without a
/// relay.
///
/// While the journal accepts no writes, the caller gets an error instead of a long wait. The task
/// goes on, and a repeated request finds its result.
async fn run_detached<T: Send + 'static>(
    engine: &Engine,
    tenant: &str,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    let work = engine.tasks.spawn(engine.of_tenant(tenant, work.in_current_span()));
    tokio::select! {
        biased;
        done = work => done.unwrap_or_else(|_| Err(Fault::new(FaultKind::ServiceUnavailable))),
        () = engine.unwell_for(UNWELL) => {
            Err(Fault::new(FaultKind::JournalUnavailable).with_retry_after(JOURNAL_RETRY))
        }
    }
}

/// Checks everything that can refuse a new run before its claim does.
async fn admit(engine: &Engine, start: &Start<'_>) -> Result<Slot, Fault> {
    if let Some(fault) = engine.unready() {
        return Err(fault);
    }
    engine.limiter.check_rate(start.tenant)?;
    let turns = engine.journal.store().turn_count(start.tenant, &start.ask.session).await;
    conversation::check_results(engine, start.tenant, start.ask, turns.map_err(journal_fault)?)
        .await?;
    engine.limiter.take_run(start.tenant)
}

fn claim_of(engine: &Engine, start: &Start<'_>, agent: &Registered) -> Claim {
    let (stream, session) = (Uuid::now_v7(), &start.ask.session);
    let supported_events = start.ask.supported_events.clone();
    let announced = supported_events
        .as_ref()
        .is_some_and(|e| e.iter().any(|e| e == capstan_protocol::event::STREAM_RESET));
    Claim {
        agent: agent.name.to_string(),
        session: if session.is_empty() { stream.to_string() } else { session.clone() },
        chat: start.ask.chat.clone(),
        previous_response: start.ask.previous.map(|stream| stream.to_string()),
        face: start.face.to_owned(),
        body_hash: start.hash,
        body: start.body.bytes().clone(),
        max_attempts: agent.agent.max_attempts(),
        accepts_reset: start.accepts_reset || announced,
        is_unseen: start.is_unseen,
        supported_events,
        armed_by: start.armed_by,
        request_id: start.origin.request_id.clone(),
        trace_id: start.origin.trace_id(),
        started_by: start.started_by.clone(),
        ..Claim::new(start.tenant, start.key.clone(), stream, engine.wall.now())
    }
}

/// Attaches a request to the run of its key, in any state. A different body is a conflict.
async fn attach(
    engine: &Engine,
    run: Run,
    hash: [u8; 32],
    again: Repeat<'_>,
) -> Result<Run, Fault> {
    if run.body_hash != hash {
        return Err(Fault::new(FaultKind::RequestConflict));
    }
    // Check the cursor first: an invalid one must not start an attempt.
    let after = again.point.in_run(&run)?;
    engine.emit(&run, Happened::Attached { after, behind: again.point.behind });
    if run.state != RunState::Waiting {
        return Ok(run);
    }
    // The journal would hold the write back. Tell the client to retry later instead.
    if let Some(fault) = engine.journal_unwell() {
        return Err(fault);
    }
    arm(engine, run, Some((again.ask, again.load)), again.origin).await
}

/// Starts the next attempt of a waiting run. If another request was faster, this one attaches to
/// that attempt.
pub(crate) async fn arm(
    engine: &Engine,
    run: Run,
    asked: Option<(&Arc<Ask>, MemoryReservation)>,
    origin: Origin,
) -> Result<Run, Fault> {
    let Some(agent) = engine.worker(&run.agent).cloned() else { return Ok(run) };
    if engine.draining.is_cancelled() {
        return Ok(run);
    }
    let store = engine.journal.store();
    let (ask, load) = match asked {
        Some((ask, load)) => (Arc::clone(ask), load),
        None => {
            let body = store.body(run.stream_id).await.map_err(journal_fault)?.unwrap_or_default();
            let mut load = engine.reserve(&run.tenant);
            load.grow_anyway(body.len().saturating_mul(3));
            let ask = engine.asked(&run, body)?;
            engine.prepare(&run, &ask).await;
            (Arc::new(ask), load)
        }
    };
    // The run was admitted when it started, so it is not refused. The attempt begins when a slot is
    // free.
    let room = RunReservation { slot: None, load };
    let from = (run.state, run.attempt);
    let ready = engine.waits.ready(&run, engine.wall.now());
    let updated_at = engine.stamp(&run);
    let mut armed = Run { state: RunState::Running, attempt: run.attempt + 1, updated_at, ..run };
    let wait = ready.saturating_duration_since(tokio::time::Instant::now());
    relay::add_attempt(&mut armed, later(updated_at, wait), &origin);
    let (here, next, stream) = (engine.clone(), armed.clone(), armed.stream_id);
    let is_armed = run_detached(engine, &armed.tenant, async move {
        let is_armed = here
            .journal
            .transition(from, next.clone(), Vec::new(), None)
            .await
            .map_err(journal_fault)?;
        if is_armed {
            here.waits.forget(next.stream_id);
            here.emit(&next, Happened::Resumed);
            relay::spawn(&here, agent, next, ask, origin.trace, room, Some(ready));
        }
        Ok(is_armed)
    });
    if is_armed.await? {
        return Ok(armed);
    }
    let now = store.run(stream).await.map_err(journal_fault)?;
    now.ok_or_else(|| Fault::new(FaultKind::StreamExpired))
}

/// Claims a run and closes it at once as cancelled. `before` stores what must be on record before
/// the run ends. Returns `None` if the key has a run already, or the interrupt is answered. If this
/// process crashes in between, recovery handles the run like any other.
pub async fn give_up<B>(
    engine: &Engine,
    claim: Claim,
    before: impl FnOnce(Run) -> B + Send + 'static,
) -> Result<Option<Run>, Fault>
where
    B: Future<Output = Result<(), Fault>> + Send + 'static,
{
    engine.is_open().await;
    let (here, tenant) = (engine.clone(), claim.tenant.clone());
    let given_up = run_detached(engine, &tenant, async move {
        let run = match here.journal.claim(claim, &Quota::UNLIMITED).await {
            Ok(claimed) if claimed.is_new => claimed.run,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Answered => return Ok(None),
            Err(error) => return Err(journal_fault(error)),
        };
        here.emit(&run, Happened::Started);
        let recorded = before(run.clone()).await;
        // The run has no relay, so close it even if `before` failed.
        relay::close_waiting(&here, &run, relay::Ending::Cancelled).await?;
        recorded?;
        here.journal.store().run(run.stream_id).await.map_err(journal_fault)
    });
    given_up.await
}

//! Starting, attaching, arming, stopping: what a request does to a run.

use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::{ArmedBy, Claim, ErrorKind, Found, JournalError, Quota, Run, RunState};
use capstan_protocol::{Fault, FaultKind};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::ask::Ask;
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

/// Starts a run of the internal agent, once for its key. It mostly waits, so it takes no place of
/// its tenant's runs.
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
        let slot = Some(Slot::none(&engine.limiter, &tenant));
        let room = RunReservation { slot, load: engine.limiter.load(&tenant) };
        relay::spawn(engine, agent, claimed.run, Arc::new(ask), None, room, None);
    }
    Ok(())
}

/// A POST, taken apart.
pub struct Start<'a> {
    /// Whose it is.
    pub tenant: &'a str,
    /// Under which it runs at most once.
    pub key: String,
    /// What is asked.
    pub ask: &'a Arc<Ask>,
    /// The body as it came; it is read again when the gateway goes on with the run.
    pub body: Bytes,
    /// By which repeats of the body are known.
    pub hash: [u8; 32],
    /// The agent that the path names.
    pub agent: Option<&'a str>,
    /// The protocol in which it is asked.
    pub face: &'static str,
    /// The client can take a `stream_reset`.
    pub accepts_reset: bool,
    /// The client waits for the whole run.
    pub is_unseen: bool,
    /// Who starts the next attempt.
    pub armed_by: ArmedBy,
    /// Where the client reads on; one that was somewhere before must find its run.
    pub point: ResumePoint,
    /// Where the request came from.
    pub origin: Origin,
    /// By what logs know the caller.
    pub started_by: Option<String>,
    /// What the request takes, and the run that it starts.
    pub load: MemoryReservation,
}

/// What became of a claim.
// The large variant is the usual one.
#[allow(clippy::large_enum_variant)]
enum Begun {
    New(Run, ReaderGuard),
    /// Somebody else's run has the key, and the request takes what it took.
    Held(Run, MemoryReservation),
}

/// The run that a request is about, started or found, and whoever asks as its reader. A new one has
/// its reader from the start: in between a repeat could take it for unread.
pub async fn start_or_attach(
    engine: &Engine,
    start: Start<'_>,
) -> Result<(Run, ReaderGuard), Fault> {
    engine.is_open().await;
    let hash = start.hash;
    match engine.journal.store().find(start.tenant, &start.key).await.map_err(journal_fault)? {
        Some(Found::Run(run)) => {
            let again = Again {
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
    let claimed = carry_out(engine, start.tenant, async move {
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
            // Before anybody works on it: so no end comes unnoticed, and whoever goes on after a
            // crash finds it open.
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
            let again = Again { ask: start.ask, point: start.point, origin: start.origin, load };
            attach(engine, run, hash, again).await.map(|run| read(engine, run))
        }
    }
}

/// A run that was there, with one reader more.
fn read(engine: &Engine, run: Run) -> (Run, ReaderGuard) {
    let reading = ReaderGuard::new(engine, &run);
    (run, reading)
}

/// A request whose run is there already.
struct Again<'a> {
    ask: &'a Arc<Ask>,
    point: ResumePoint,
    origin: Origin,
    load: MemoryReservation,
}

/// Does the work in a task of its own. A client that hangs up drops its request wherever it stands;
/// a run that was claimed or armed by then would run for good, with nobody at work on it. Nobody is
/// kept waiting by a journal that takes no writes: the work is done when it does, and whoever asks
/// again finds it.
async fn carry_out<T: Send + 'static>(
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

/// Everything that may stand in the way of a new run, as far as the claim itself does not tell.
async fn admit(engine: &Engine, start: &Start<'_>) -> Result<Slot, Fault> {
    if let Some(fault) = engine.unready() {
        return Err(fault);
    }
    engine.limiter.check_rate(start.tenant)?;
    let turns = engine.journal.store().turn_count(start.tenant, &start.ask.session).await;
    conversation::check_results(engine, start.tenant, start.ask, turns.map_err(journal_fault)?)
        .await?;
    engine.limiter.take_run(start.tenant, &engine.settings.limits)
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
        body: start.body.clone(),
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

/// The same key: the same body attaches in whatever state the run is, another body is a conflict.
async fn attach(engine: &Engine, run: Run, hash: [u8; 32], again: Again<'_>) -> Result<Run, Fault> {
    if run.body_hash != hash {
        return Err(Fault::new(FaultKind::RequestConflict));
    }
    // A cursor that leads nowhere must not wake a run.
    again.point.in_run(&run)?;
    engine.emit(&run, Happened::Attached);
    if run.state != RunState::Waiting {
        return Ok(run);
    }
    // The write would be held back until the journal is well: the client had better come back then.
    if let Some(fault) = engine.journal_unwell() {
        return Err(fault);
    }
    arm(engine, run, Some((again.ask, again.load)), again.origin).await
}

/// Arms the next attempt of a waiting run. Whoever loses the race attaches to the winner's.
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
            let mut load = engine.limiter.load(&run.tenant);
            load.grow_anyway(body.len().saturating_mul(3));
            let ask = engine.asked(&run, &body)?;
            engine.prepare(&run, &ask).await;
            (Arc::new(ask), load)
        }
    };
    // Never refused, since it was admitted when it started; the attempt begins when there is room
    // for it.
    let room = RunReservation { slot: None, load };
    let from = (run.state, run.attempt);
    let ready = engine.waits.ready(&run, engine.wall.now());
    let updated_at = engine.stamp(&run);
    let mut armed = Run { state: RunState::Running, attempt: run.attempt + 1, updated_at, ..run };
    let wait = ready.saturating_duration_since(tokio::time::Instant::now());
    relay::add_attempt(&mut armed, later(updated_at, wait), &origin);
    let (here, next, stream) = (engine.clone(), armed.clone(), armed.stream_id);
    let is_armed = carry_out(engine, &armed.tenant, async move {
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

/// Claims a run that is over at once, as if somebody had stopped it; `None` if there is one, or
/// what it answers is answered. `before` is what has to be on record when it ends. Should this
/// process die in between, whoever goes on works on it as on any other.
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
    let given_up = carry_out(engine, &tenant, async move {
        let run = match here.journal.claim(claim, &Quota::UNLIMITED).await {
            Ok(claimed) if claimed.is_new => claimed.run,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Answered => return Ok(None),
            Err(error) => return Err(journal_fault(error)),
        };
        here.emit(&run, Happened::Started);
        let noted = before(run.clone()).await;
        // Nobody works on it, so that it must not stay open, whatever could not be noted.
        relay::close_waiting(&here, &run, relay::Ending::Cancelled).await?;
        noted?;
        here.journal.store().run(run.stream_id).await.map_err(journal_fault)
    });
    given_up.await
}

//! Background work: recovery after a restart, orphaned runs of other processes, waits that end, and
//! retention.

use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::{Cluster, Retention, Run, RunState};
use capstan_protocol::{Fault, FaultKind, Timestamp};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::Engine;
use crate::faults::journal_fault;
use crate::relay::{self, Ending, Origin};
use crate::waits::Wait;
use crate::{readers, runs};

/// How many runs are recovered concurrently.
const AT_ONCE: usize = 1024;
/// The usual interval of retention.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(60);
/// How often the sweep checks whether retention has to run earlier.
const EXPIRE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How often this process looks for runs that other processes have left.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After this idle time a session leaves the history cache.
const HISTORY_IDLE: Duration = Duration::from_secs(600);
/// Retention runs early if the journal has grown by this much: fast streams can fill a disk within
/// a minute.
const GROWTH: u64 = 64 * 1024 * 1024;
/// The delay before the end of a waiting run is tried again. Other runs do not wait for it.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Interrupts every run that was running before a restart. A new attempt needs a request of the
/// client. For faces whose clients never repeat a request, the gateway starts the attempt itself.
///
/// With a shared journal there is no such moment. The sweep looks for orphaned runs all the time.
pub async fn recover(engine: &Engine) -> Result<usize, Fault> {
    let store = engine.journal.store();
    engine.wall.compare(store.newest());
    if store.is_shared() {
        engine.recovered.cancel();
        return Ok(0);
    }
    let mut running = store.orphans(usize::MAX).await.map_err(journal_fault)?;
    let waiting =
        store.waiting(Timestamp::from_micros(i64::MAX), usize::MAX).await.map_err(journal_fault)?;
    // A waiting run that lost packets cannot go on: the new attempt would not match what viewers
    // saw.
    let (lost, waiting): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|run| run.lost_after.is_some());
    running.extend(lost);
    let now = engine.wall.now();
    waiting.iter().for_each(|run| engine.waits.recover(run, engine.settings.timeouts.waiting, now));
    engine.unrecovered.store(running.len(), Ordering::Relaxed);
    let (mut interrupted, mut lost, waiting) = (0, 0, waiting.len());
    let mut outcomes = end_orphans(engine, running);
    while let Some(outcome) = outcomes.next().await {
        engine.unrecovered.fetch_sub(1, Ordering::Relaxed);
        if outcome? { interrupted += 1 } else { lost += 1 }
    }
    if interrupted + lost + waiting > 0 {
        tracing::info!(
            interrupted,
            lost,
            waiting,
            "recovered the runs that the previous process left open"
        );
    }
    engine.recovered.cancel();
    start_unarmed(engine).await?;
    Ok(interrupted + lost)
}

/// Ends orphaned runs concurrently: the journal syncs them in groups, and the tasks use all cores.
fn end_orphans(
    engine: &Engine,
    runs: Vec<Run>,
) -> impl Stream<Item = Result<bool, Fault>> + Unpin + use<> {
    let engine = engine.clone();
    let ending = runs
        .into_iter()
        .map(move |run| AbortOnDropHandle::new(tokio::spawn(recover_one(engine.clone(), run))));
    let outcomes = stream::iter(ending).buffer_unordered(AT_ONCE);
    outcomes.map(|outcome| outcome.unwrap_or_else(|panic| Err(Fault::from_error(panic))))
}

/// Ends an orphaned run. It is closed as lost if packets may be missing, cancelled if a client has
/// stopped it, and interrupted otherwise. Returns false if it is lost.
async fn recover_one(engine: Engine, run: Run) -> Result<bool, Fault> {
    let store = engine.journal.store();
    engine.prepare_again(&run).await?;
    if !store.is_tail_certain(run.stream_id).await.map_err(journal_fault)? {
        relay::lose(&engine, &run).await?;
        return Ok(false);
    }
    let is_stopped = match store.cluster_of(run.stream_id) {
        Some(cluster) => cluster.has_stop_request(run.stream_id).await.map_err(journal_fault)?,
        None => false,
    };
    if is_stopped {
        relay::close_waiting(&engine, &run, Ending::Cancelled).await?;
    } else {
        relay::interrupt(&engine, &run).await?;
    }
    Ok(true)
}

/// Starts the next attempts that the gateway owes. Their relays sleep until the attempt may begin.
async fn start_unarmed(engine: &Engine) -> Result<(), Fault> {
    for run in engine.journal.store().unarmed(usize::MAX).await.map_err(journal_fault)? {
        continue_run(engine, run).await?;
    }
    Ok(())
}

/// Starts the next attempt of a run without a request. The run may have no readers.
async fn continue_run(engine: &Engine, run: Run) -> Result<(), Fault> {
    let armed = runs::arm(engine, run, None, Origin::default()).await?;
    readers::stop_if_unread(engine, &armed);
    Ok(())
}

/// With a shared journal: takes over runs that other processes have left, for as long as this
/// process holds its lease.
async fn take_over(engine: &Engine) {
    let Some(cluster) = engine.journal.store().cluster() else {
        return std::future::pending().await;
    };
    let mut lease_epoch = cluster.lease_epoch();
    loop {
        tokio::select! {
            biased;
            // The relays notice the lost lease themselves and leave their runs unchanged.
            Ok(()) = lease_epoch.changed() => {
                tracing::warn!("this process has lost its lease: it no longer writes its runs");
            }
            () = tokio::time::sleep(ORPHAN_CHECK_INTERVAL) => {
                if !engine.draining.is_cancelled()
                    && let Err(fault) = take_over_once(engine).await
                {
                    tracing::warn!(code = fault.code(), cause = engine.loggable(&fault),
                    "runs that other processes left could not be taken over");
                }
            }
        }
    }
}

async fn take_over_once(engine: &Engine) -> Result<(), Fault> {
    let store = engine.journal.store();
    let orphans = store.orphans(AT_ONCE).await.map_err(journal_fault)?;
    let mut outcomes = end_orphans(engine, orphans);
    let (mut interrupted, mut lost) = (0, 0);
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(true) => interrupted += 1,
            Ok(false) => lost += 1,
            // This process keeps the run, and the store lists it again.
            Err(fault) => tracing::warn!(
                code = fault.code(),
                cause = engine.loggable(&fault),
                "a run that another process left could not be ended"
            ),
        }
    }
    if interrupted + lost > 0 {
        tracing::info!(interrupted, lost, "took over runs that another process left");
    }
    for run in store.unarmed(AT_ONCE).await.map_err(journal_fault)? {
        continue_run(engine, run).await?;
    }
    // The process that suspended these runs may be gone.
    let (now, timeout) = (engine.wall.now(), engine.settings.timeouts.waiting);
    let before = Timestamp::from_micros(
        now.as_micros().saturating_sub(i64::try_from(timeout.as_micros()).unwrap_or(i64::MAX)),
    );
    for run in store.waiting(before, AT_ONCE).await.map_err(journal_fault)? {
        engine.waits.recover(&run, timeout, now);
    }
    Ok(())
}

/// Forwards stop requests from other processes to the relays of this one.
async fn forward_stops(engine: &Engine) {
    let cluster = engine.journal.store().cluster();
    let Some(mut stops) = cluster.and_then(Cluster::stop_requests) else {
        return std::future::pending().await;
    };
    while let Some(stream) = stops.recv().await {
        engine.relays.request_stop(stream);
    }
    std::future::pending().await
}

/// Runs the background work until the server stops.
pub async fn sweep(engine: Engine) {
    tokio::select! {
        () = engine.stopped.cancelled() => {}
        why = engine.journal_broken() => {
            tracing::error!(why, "the journal is broken; only a restart can fix it");
            engine.break_off();
        }
        () = end_waits(&engine) => {}
        () = take_over(&engine) => {}
        () = forward_stops(&engine) => {}
        () = expire(&engine) => {}
    }
}

/// Ends runs whose client did not come back in time, as each becomes due.
async fn end_waits(engine: &Engine) {
    loop {
        let wait = engine.waits.due().await;
        if let Err(fault) = end_wait(engine, wait).await {
            tracing::warn!(stream = %wait.stream, code = fault.code(),
            cause = engine.loggable(&fault), "a run that waits for too long could not be ended");
            engine.waits.postpone(wait, RETRY_DELAY);
        }
    }
}

async fn end_wait(engine: &Engine, wait: Wait) -> Result<(), Fault> {
    let run = engine.journal.store().run(wait.stream).await.map_err(journal_fault)?;
    let is_the_one = |run: &Run| (run.state, run.attempt) == (RunState::Waiting, wait.attempt);
    let Some(run) = run.filter(is_the_one) else { return Ok(()) };
    let kind = run.fault.as_deref().and_then(FaultKind::parse).unwrap_or(FaultKind::RunInterrupted);
    relay::close_waiting(engine, &run, Ending::Failed(Fault::new(kind))).await
}

/// Applies retention periodically.
async fn expire(engine: &Engine) {
    let store = engine.journal.store();
    let mut last = (Instant::now(), store.stats().live_bytes);
    loop {
        tokio::time::sleep(EXPIRE_CHECK_INTERVAL).await;
        let stats = store.stats();
        let has_grown = stats.live_bytes.saturating_sub(last.1) >= GROWTH;
        if last.0.elapsed() < EXPIRE_INTERVAL && !has_grown && !stats.is_low_on_space {
            continue;
        }
        // Three times the longest wait: the spans of runs that waited here have ended by then.
        engine.forget_waiting_spans(engine.settings.timeouts.waiting.saturating_mul(3));
        if let Some(then) = Instant::now().checked_sub(HISTORY_IDLE) {
            engine.histories.drop_unused_since(then);
        }
        expire_now(engine).await;
        last = (Instant::now(), store.stats().live_bytes);
    }
}

async fn expire_now(engine: &Engine) {
    let retention = Retention {
        steps: engine.wall.steps(),
        ..engine.tenants.retention(&engine.settings.retention, &engine.settings.limits)
    };
    if let Err(error) = engine.journal.store().expire(&retention, engine.wall.now()).await {
        tracing::warn!(%error, "old streams could not be dropped");
    }
}

#[cfg(test)]
mod tests {
    use capstan_agent::Clock;
    use capstan_journal::{Claim, Found, Journal, Quota, TailLimits};
    use capstan_stores::{Durability, open};
    use uuid::Uuid;

    use super::*;
    use crate::wall_clock::later;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    async fn closed(engine: &Engine, key: &str, at: Timestamp) -> Run {
        let claim = Claim { session: key.into(), ..Claim::new("t", key, Uuid::now_v7(), at) };
        let run = engine.journal.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
        let to = Run { state: RunState::Closed, closed_at: Some(at), ..run.clone() };
        assert!(
            engine.journal.transition((RunState::Running, 1), to, Vec::new(), None).await.unwrap()
        );
        run
    }

    async fn is_kept(engine: &Engine, run: &Run) -> bool {
        engine.journal.store().run(run.stream_id).await.unwrap().is_some()
    }

    /// Whether the claim of a deleted run is still held.
    async fn is_claimed(engine: &Engine, key: &str) -> bool {
        matches!(engine.journal.store().find("t", key).await.unwrap(), Some(Found::Expired))
    }

    #[tokio::test]
    async fn retention_does_not_act_on_a_clock_that_was_set() {
        let folder = tempfile::tempdir().unwrap();
        for url in ["memory:".to_owned(), format!("disk:{}", folder.path().display())] {
            let clock = Clock::by_hand();
            let journal =
                Journal::new(open(&url, Durability::default()).unwrap(), TailLimits::default());
            let engine = Engine::builder(journal).clock(clock.clone()).build();
            let now = engine.wall.now();
            let old = closed(
                &engine,
                "old",
                Timestamp::from_micros(now.as_micros() - DAY.as_micros() as i64 * 8),
            )
            .await;
            let (fresh, gone) =
                (closed(&engine, "fresh", now).await, closed(&engine, "gone", now).await);
            assert!(engine.journal.purge(gone.stream_id, now).await.unwrap());
            for days in [8, -30, 60] {
                clock.set_by(days * 24 * 3600);
                expire_now(&engine).await;
                assert!(is_kept(&engine, &fresh).await, "a stream of seconds, {days} days later");
                assert!(engine.journal.store().has_session("t", "fresh").await.unwrap());
                assert!(is_claimed(&engine, "gone").await, "a duplicate would run a second time");
                assert!(!is_kept(&engine, &old).await, "what is old goes all the same");
            }
            assert_eq!(engine.wall.step_count(), 3);
        }
    }

    #[tokio::test]
    async fn a_clock_far_ahead_of_the_journal_is_not_believed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::by_hand();
        let open = || {
            let store =
                open(&format!("disk:{}", folder.path().display()), Durability::default()).unwrap();
            Engine::builder(Journal::new(store, TailLimits::default())).clock(clock.clone()).build()
        };
        let engine = open();
        let fresh = closed(&engine, "fresh", engine.wall.now()).await;
        let gone = closed(&engine, "gone", engine.wall.now()).await;
        assert!(engine.journal.purge(gone.stream_id, engine.wall.now()).await.unwrap());
        engine.journal.store().close().await.unwrap();
        drop(engine);
        clock.set_by(30 * 24 * 3600);
        let engine = open();
        recover(&engine).await.unwrap();
        expire_now(&engine).await;
        assert!(is_kept(&engine, &fresh).await && is_claimed(&engine, "gone").await);
        // Times that were stamped in this process expire by this process's clock.
        let now = later(engine.wall.now(), Duration::ZERO);
        assert!(engine.wall.steps().is_past(now, Duration::ZERO, now));
    }
}

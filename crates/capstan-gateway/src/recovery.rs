//! What happens without being asked: after a restart, and when something is due.

use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::{ArmedBy, Run, RunState};
use capstan_protocol::{Fault, FaultKind, Timestamp};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};

use crate::app::App;
use crate::refusal::journal_fault;
use crate::relay::{self, Ending};
use crate::runs;
use crate::waits::Wait;

/// How many runs are recovered at once.
const AT_ONCE: usize = 256;
/// How often old streams are dropped.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);
/// After a run that could not be ended, it is tried again in a while; the others do not wait for it.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// After a restart every stream that was running is interrupted. An agent is never run again unasked, except for clients
/// of a face in which nobody asks again: there the gateway goes on.
pub(crate) async fn recover(app: &App) -> Result<usize, Fault> {
    let open = app.journal.store().open_runs().await.map_err(journal_fault)?;
    let (running, waiting): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|run| run.state == RunState::Running);
    waiting.iter().for_each(|run| app.waits.add(run, app.settings.timeouts.waiting));
    app.unrecovered.store(running.len(), Ordering::Relaxed);
    let (mut interrupted, mut lost, waiting) = (0, 0, waiting.len());
    // Together, so that the journal writes and syncs them in groups.
    let recovering = running.into_iter().map(|run| recover_one(app.clone(), run).boxed());
    let mut outcomes = stream::iter(recovering).buffer_unordered(AT_ONCE);
    while let Some(is_certain) = outcomes.try_next().await? {
        app.unrecovered.fetch_sub(1, Ordering::Relaxed);
        if is_certain { interrupted += 1 } else { lost += 1 }
    }
    if interrupted + lost + waiting > 0 {
        tracing::info!(interrupted, lost, waiting, "recovered the runs that an earlier life left open");
    }
    app.recovered.cancel();
    arm_own(app).await?;
    Ok(interrupted + lost)
}

/// Interrupts a run that nobody is at work on, or ends it if some of it may be lost; true if it was interrupted.
async fn recover_one(app: App, run: Run) -> Result<bool, Fault> {
    let is_certain = app.journal.store().is_tail_certain(run.stream_id).await.map_err(journal_fault)?;
    if is_certain {
        relay::interrupt(&app, &run).await?
    } else {
        relay::lose(&app, &run).await?
    }
    Ok(is_certain)
}

/// Arms the runs that wait for the gateway itself. Their relays sleep until the attempt may begin.
async fn arm_own(app: &App) -> Result<(), Fault> {
    for run in app.journal.store().open_runs().await.map_err(journal_fault)? {
        if run.state == RunState::Waiting && run.armed_by == ArmedBy::Gateway {
            runs::arm(app, run, None, None).await?;
        }
    }
    Ok(())
}

/// Keeps house until the server stops.
pub(crate) async fn sweep(app: App) {
    tokio::select! {
        () = app.stopped.cancelled() => {}
        why = app.journal_broken() => {
            tracing::error!(why, "the journal is broken: only a new process can mend that");
            app.break_off();
        }
        () = end_waits(&app) => {}
        () = expire(&app) => {}
    }
}

/// Ends runs that wait for too long, one by one as they are due.
async fn end_waits(app: &App) {
    loop {
        let wait = app.waits.due().await;
        if let Err(fault) = end_wait(app, wait).await {
            tracing::warn!(stream = %wait.stream, code = fault.code(), cause = app.loggable(&fault), "a run that waits for too long could not be ended");
            app.waits.postpone(wait, AGAIN_AFTER);
        }
    }
}

async fn end_wait(app: &App, wait: Wait) -> Result<(), Fault> {
    let run = app.journal.store().run(wait.stream).await.map_err(journal_fault)?;
    let is_the_one = |run: &Run| (run.state, run.attempt) == (RunState::Waiting, wait.attempt);
    let Some(run) = run.filter(is_the_one) else { return Ok(()) };
    let kind = run.fault.as_deref().and_then(FaultKind::parse).unwrap_or(FaultKind::RunInterrupted);
    relay::close_waiting(app, &run, Ending::Failed(Fault::new(kind))).await
}

/// Drops what retention no longer covers, every now and then.
async fn expire(app: &App) {
    loop {
        tokio::time::sleep(EXPIRE_EVERY).await;
        // Longer than any wait: who waits too long is ended with its span.
        app.traces.forget(app.settings.timeouts.waiting.saturating_mul(3));
        let retention = app.settings.tenants.retention(&app.settings.retention);
        if let Err(error) = app.journal.store().expire(&retention, Timestamp::now()).await {
            tracing::warn!(%error, "old streams could not be dropped");
        }
    }
}

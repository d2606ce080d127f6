//! What happens without being asked: after a restart, and every now and then.

use std::time::Duration;

use capstan_journal::{ArmedBy, RunState};
use capstan_protocol::{Fault, FaultKind, Timestamp};

use crate::app::App;
use crate::refusal::journal_fault;
use crate::relay::{self, Ending};
use crate::runs;

/// How often runs that wait for too long are ended and old streams are dropped.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// After a restart every stream that was running is interrupted. An agent is never run again unasked, except for clients
/// of a face in which nobody asks again: there the gateway goes on.
pub(crate) async fn recover(app: &App) -> Result<usize, Fault> {
    let open = app.journal.store().open_runs().await.map_err(journal_fault)?;
    let (mut interrupted, mut lost) = (0, 0);
    for run in open.iter().filter(|run| run.state == RunState::Running) {
        if app.journal.store().is_tail_certain(run.stream_id).await.map_err(journal_fault)? {
            relay::interrupt(app, run).await?;
            interrupted += 1;
        } else {
            relay::lose(app, run).await?;
            lost += 1;
        }
    }
    if !open.is_empty() {
        let waiting = open.len() - interrupted - lost;
        tracing::info!(interrupted, lost, waiting, "recovered the runs that an earlier life left open");
    }
    arm_own(app).await?;
    Ok(interrupted + lost)
}

/// Arms the runs that wait for the gateway itself. Their relays sleep until the attempt may begin.
async fn arm_own(app: &App) -> Result<(), Fault> {
    for run in app.journal.store().open_runs().await.map_err(journal_fault)? {
        if run.state == RunState::Waiting && run.armed_by == ArmedBy::Gateway {
            runs::arm(app, run, None).await?;
        }
    }
    Ok(())
}

/// Sweeps until the server stops.
pub(crate) async fn sweep(app: App) {
    loop {
        tokio::select! {
            () = app.stopped.cancelled() => return,
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
        if let Err(fault) = sweep_once(&app).await {
            tracing::warn!(code = fault.code(), cause = app.loggable(&fault), "sweeping failed");
        }
    }
}

async fn sweep_once(app: &App) -> Result<(), Fault> {
    let store = app.journal.store();
    let patience = i64::try_from(app.settings.timeouts.waiting.as_micros()).unwrap_or(i64::MAX);
    for run in store.open_runs().await.map_err(journal_fault)? {
        let waited = Timestamp::now().as_micros() - run.updated_at.as_micros();
        if run.state == RunState::Waiting && waited > patience {
            let kind = run.fault.as_deref().and_then(FaultKind::parse).unwrap_or(FaultKind::RunInterrupted);
            relay::close_waiting(app, &run, Ending::Failed(Fault::new(kind))).await?;
        }
    }
    // Twice as long: who waits too long is ended above, with its span.
    app.traces.forget(app.settings.timeouts.waiting.saturating_mul(2));
    let retention = app.settings.tenants.retention(&app.settings.retention);
    store.expire(&retention, Timestamp::now()).await.map_err(journal_fault)?;
    Ok(())
}

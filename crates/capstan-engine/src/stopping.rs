//! Stopping a run, wherever it is worked on.

use std::time::Duration;

use capstan_journal::{Run, RunState, Step};
use capstan_protocol::{Fault, FaultKind};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::Engine;
use crate::faults::{JOURNAL_RETRY, journal_fault};
use crate::readiness::UNWELL;
use crate::relay;

/// How long a stop looks for the relay of a run that is under way.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a stop waits for a run that another process works on.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// Stops a run; returns when its CLOSE is in the journal. A finished one stays as it is.
///
/// While the journal takes no writes nobody is kept waiting: the run ends when it takes them again.
pub async fn stop(engine: &Engine, run: Run) -> Result<Run, Fault> {
    if run.state == RunState::Closed {
        return Ok(run);
    }
    tokio::select! {
        biased;
        stopped = end(engine, run) => stopped,
        () = engine.unwell_for(UNWELL) => {
            Err(Fault::new(FaultKind::JournalUnavailable).with_retry_after(JOURNAL_RETRY))
        }
    }
}

async fn end(engine: &Engine, mut run: Run) -> Result<Run, Fault> {
    engine.is_open().await;
    // It was there a moment ago.
    let gone = || Fault::new(FaultKind::StreamExpired);
    let mut is_news = false;
    loop {
        // Without a relay it may have ended since it was looked at, which is sooner told than
        // waited for.
        if run.state == RunState::Running
            && !engine.relays.has(run.stream_id)
            && !std::mem::replace(&mut is_news, true)
        {
            run = engine
                .journal
                .store()
                .run(run.stream_id)
                .await
                .map_err(journal_fault)?
                .ok_or_else(gone)?;
            continue;
        }
        let was_asked = match run.state {
            RunState::Closed => return Ok(run),
            // Whoever is first wins; the next look tells.
            RunState::Waiting => {
                relay::close_waiting(engine, &run, relay::Ending::Cancelled).await.map(|()| true)?
            }
            RunState::Running
                if engine.journal.store().is_shared() && !engine.relays.has(run.stream_id) =>
            {
                stop_elsewhere(engine, &run).await?
            }
            RunState::Running => stop_relay(engine, run.stream_id).await,
        };
        let now = engine
            .journal
            .store()
            .run(run.stream_id)
            .await
            .map_err(journal_fault)?
            .ok_or_else(gone)?;
        // A relay that is not there may have ended since the run was looked at. If it still runs,
        // it runs elsewhere.
        if !was_asked && (now.state, now.attempt) == (run.state, run.attempt) {
            return Err(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
        }
        run = now;
    }
}

/// Asks whoever works on the run to stop it; returns when the run stands still, or false if it does
/// not for too long. What was asked stays asked.
async fn stop_elsewhere(engine: &Engine, run: &Run) -> Result<bool, Fault> {
    if !engine.journal.store().ask_stop(run.stream_id, run.attempt).await.map_err(journal_fault)? {
        return Ok(false);
    }
    let mut reader = engine.journal.reader_of(run, run.last_seq);
    let ended = async {
        // Who cannot read on is told by the next look.
        while matches!(reader.next().await, Ok(Step::Frames(_))) {}
    };
    Ok(tokio::time::timeout(ELSEWHERE, ended).await.is_ok())
}

/// Asks the relay to end; returns when it has, or false if there is none. A relay that has written
/// its end has left `Running` behind.
async fn stop_relay(engine: &Engine, stream: Uuid) -> bool {
    let mut is_ending = false;
    loop {
        // A relay registers right after its claim; one of another process never does.
        let found = tokio::time::timeout(PATIENCE, engine.relays.wait_for(stream, is_ending)).await;
        let Ok(Some(relay)) = found else { return false };
        let (done, stopped) = oneshot::channel();
        if relay.send(done).await.is_ok() {
            // The relay answers by dropping the sender.
            let _ = stopped.await;
            return true;
        }
        is_ending = true;
    }
}

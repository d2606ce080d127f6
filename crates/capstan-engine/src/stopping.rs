//! Stops a run, whichever process owns it.

use std::time::Duration;

use capstan_journal::{Run, RunState, Step};
use capstan_protocol::{Fault, FaultKind};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::Engine;
use crate::faults::{JOURNAL_RETRY, journal_fault};
use crate::ports::{Act, Requester};
use crate::readiness::UNWELL;
use crate::relay;

/// How long a stop waits for the relay of a running run to register.
const RELAY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a stop waits for a run that another process owns.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Stops a run, and returns when its CLOSE is in the journal. A closed run stays as it is.
///
/// While the journal accepts no writes, the caller gets an error instead of a long wait. The run
/// still ends as soon as writes are possible.
pub async fn stop(engine: &Engine, run: Run, by: &dyn Requester) -> Result<Run, Fault> {
    if run.state == RunState::Closed {
        return Ok(run);
    }
    let stopped = tokio::select! {
        biased;
        stopped = end(engine, run) => stopped?,
        () = engine.unwell_for(UNWELL) => {
            return Err(Fault::new(FaultKind::JournalUnavailable).with_retry_after(JOURNAL_RETRY));
        }
    };
    by.acted(&Act::Stopped(&stopped));
    Ok(stopped)
}

async fn end(engine: &Engine, mut run: Run) -> Result<Run, Fault> {
    engine.is_open().await;
    // The run existed a moment ago.
    let gone = || Fault::new(FaultKind::StreamExpired);
    let mut is_refreshed = false;
    loop {
        // Without a relay here the run may have ended already. A fresh read is cheaper than the
        // wait for a relay.
        if run.state == RunState::Running
            && !engine.relays.has(run.stream_id)
            && !std::mem::replace(&mut is_refreshed, true)
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
            // Another request may win this race. The next read of the record shows it.
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
        // A missing relay may mean that the run ended after it was read. If its record is
        // unchanged, another process owns it.
        if !was_asked && (now.state, now.attempt) == (run.state, run.attempt) {
            return Err(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
        }
        run = now;
    }
}

/// Asks the owner of the run to stop it. Returns true when the run has stopped, or false after a
/// timeout. The stop request stays in the store.
async fn stop_elsewhere(engine: &Engine, run: &Run) -> Result<bool, Fault> {
    let Some(cluster) = engine.journal.store().cluster_of(run.stream_id) else { return Ok(false) };
    if !cluster.request_stop(run.stream_id, run.attempt).await.map_err(journal_fault)? {
        return Ok(false);
    }
    let mut reader = engine.journal.reader_of(run, run.last_seq);
    let ended = async {
        // If the stream cannot be read, the caller's next read of the record decides.
        while matches!(reader.next().await, Ok(Step::Frames(_))) {}
    };
    Ok(tokio::time::timeout(REMOTE_TIMEOUT, ended).await.is_ok())
}

/// Asks the relay of this process to stop. Returns true when it has, or false if there is no relay.
/// A relay that has written its end has changed the run's state from `Running`.
async fn stop_relay(engine: &Engine, stream: Uuid) -> bool {
    let mut is_ending = false;
    loop {
        // A relay registers right after its claim, but only in the process that owns the run.
        let found =
            tokio::time::timeout(RELAY_TIMEOUT, engine.relays.wait_for(stream, is_ending)).await;
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

//! Erasing for good what a tenant no longer wants kept. Claims stay, so that a duplicate starts no
//! second run.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_journal::{NameKind, Named, Run};
use capstan_protocol::{Fault, FaultKind};

use crate::Engine;
use crate::faults::journal_fault;
use crate::stopping;

/// Runs are looked through in pages of this many.
const PAGE: usize = 1000;

/// Stops a run if it is under way, then erases its stream and its turn.
pub async fn stream(engine: &Engine, run: Run) -> Result<Run, Fault> {
    let run = stopping::stop(engine, run).await?;
    let purged = engine.journal.purge(run.stream_id, engine.wall.now()).await;
    // Afterwards, so that nobody remembers what was read before; and whatever became of it.
    engine.histories.forget(&run.tenant, &run.session);
    purged.map_err(journal_fault)?;
    engine.protocols.forget(run.stream_id);
    tracing::info!(stream = %run.stream_id, tenant = %run.tenant, "purged");
    Ok(run)
}

/// Erases a session, its turns and its streams; how many these were.
pub async fn session(engine: &Engine, tenant: &str, session: &str) -> Result<usize, Fault> {
    let store = engine.journal.store();
    let (mut before, mut count) = (None, 0);
    loop {
        let page = store
            .named(Named { tenant, kind: NameKind::Session, name: session, before, limit: PAGE })
            .await
            .map_err(journal_fault)?;
        let Some(last) = page.last() else { break };
        before = Some(last.stream_id);
        for run in page {
            match stream(engine, run).await {
                Ok(_) => count += 1,
                // Somebody else erases it at the same time.
                Err(fault) if fault.kind() == FaultKind::StreamExpired => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    engine.erased.add(tenant, session);
    let purged = store.purge_session(tenant, session).await;
    engine.histories.forget(tenant, session);
    purged.map_err(journal_fault)?;
    Ok(count)
}

/// Sessions that were erased a moment ago: whoever asked for it at the same time is told so. They
/// leave no trace in the journal, and here no more than a number.
#[derive(Default)]
pub struct Erased {
    latest: Mutex<VecDeque<(Instant, u64)>>,
    hasher: RandomState,
}

impl Erased {
    const MOMENT: Duration = Duration::from_secs(60);
    const MOST: usize = 4096;

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, u64)>> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        while latest.front().is_some_and(|(at, _)| at.elapsed() > Self::MOMENT)
            || latest.len() > Self::MOST
        {
            latest.pop_front();
        }
        latest
    }

    fn add(&self, tenant: &str, session: &str) {
        let number = self.hasher.hash_one((tenant, session));
        self.lock().push_back((Instant::now(), number));
    }

    /// Whether this session is being erased.
    pub fn has(&self, tenant: &str, session: &str) -> bool {
        let number = self.hasher.hash_one((tenant, session));
        self.lock().iter().any(|(_, erased)| *erased == number)
    }
}

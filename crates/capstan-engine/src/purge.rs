//! Erases data of a tenant. Claims stay, so that a repeated request starts no second run.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_journal::{NameKind, Named, Run};
use capstan_protocol::{Fault, FaultKind};

use crate::Engine;
use crate::faults::journal_fault;
use crate::ports::{Act, ByGateway, Requester};
use crate::stopping;

/// How many runs of a session are read at once.
const PAGE: usize = 1000;

/// Stops a run if it is open, then erases its stream and its turn.
pub async fn stream(engine: &Engine, run: Run, by: &dyn Requester) -> Result<Run, Fault> {
    let run = stopping::stop(engine, run, &ByGateway).await?;
    let purged = engine.journal.purge(run.stream_id, engine.wall.now()).await;
    // Drop the cache after the purge, so that a concurrent read cannot restore it. Drop it even if
    // the purge failed, because it may have erased a part.
    engine.histories.forget(&run.tenant, &run.session);
    purged.map_err(journal_fault)?;
    engine.protocols.forget(run.stream_id);
    tracing::info!(stream = %run.stream_id, tenant = %run.tenant, "purged");
    by.acted(&Act::PurgedStream(&run));
    Ok(run)
}

/// Erases a session with its turns and streams. Returns the number of streams.
pub async fn session(
    engine: &Engine,
    tenant: &str,
    session: &str,
    by: &dyn Requester,
) -> Result<usize, Fault> {
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
            match stream(engine, run, &ByGateway).await {
                Ok(_) => count += 1,
                // A concurrent request has erased this stream.
                Err(fault) if fault.kind() == FaultKind::StreamExpired => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    engine.erased.add(tenant, session);
    let purged = store.purge_session(tenant, session).await;
    engine.histories.forget(tenant, session);
    purged.map_err(journal_fault)?;
    by.acted(&Act::PurgedSession { tenant, session, streams: count });
    Ok(count)
}

/// Sessions that were erased within the last minute, so that concurrent requests to erase them get
/// the same answer. The journal has no trace of an erased session, and this cache only has a hash.
#[derive(Default)]
pub(crate) struct Erased {
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

    /// Whether this session was erased within the last minute.
    pub(crate) fn has(&self, tenant: &str, session: &str) -> bool {
        let number = self.hasher.hash_one((tenant, session));
        self.lock().iter().any(|(_, erased)| *erased == number)
    }
}

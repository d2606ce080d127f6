//! Finds a tenant's run by its stream, its key, or another name.

use capstan_journal::{Found, NameKind, Named, Run};
use capstan_protocol::{Fault, FaultKind};
use uuid::Uuid;

use crate::Engine;
use crate::faults::journal_fault;

/// Finds the run of a stream. For another tenant's stream the answer is the same as for an unknown
/// one.
pub async fn by_stream(engine: &Engine, tenant: &str, id: &str) -> Result<Run, Fault> {
    let unknown = || Fault::new(FaultKind::StreamNotFound);
    let stream: Uuid = id.parse().map_err(|_| unknown())?;
    let store = engine.journal.store();
    let run = store.run(stream).await.map_err(journal_fault)?;
    if let Some(run) = run.filter(|run| run.tenant == tenant) {
        return Ok(run);
    }
    let is_expired = store.is_expired(tenant, stream).await.map_err(journal_fault)?;
    Err(if is_expired { Fault::new(FaultKind::StreamExpired) } else { unknown() })
}

/// Finds the run of a key.
pub async fn by_key(engine: &Engine, tenant: &str, key: &str) -> Result<Run, Fault> {
    match engine.journal.store().find(tenant, key).await.map_err(journal_fault)? {
        Some(Found::Run(run)) => Ok(run),
        Some(Found::Expired) => Err(Fault::new(FaultKind::StreamExpired)),
        None => Err(Fault::new(FaultKind::StreamNotFound)),
    }
}

/// Finds the newest run with a name: the id of a chat or a session, or the hash of a body.
pub async fn newest(
    engine: &Engine,
    tenant: &str,
    kind: NameKind,
    name: &str,
) -> Result<Option<Run>, Fault> {
    let named = engine
        .journal
        .store()
        .named(Named { limit: 1, ..Named::all(tenant, kind, name) })
        .await
        .map_err(journal_fault)?;
    Ok(named.into_iter().next())
}

//! Ids of conversations. An id proves that a gateway of this store gave it to the tenant, so
//! nothing has to be stored for a conversation without items.

use capstan_engine::Engine;
use capstan_engine::faults::journal_fault;
use capstan_protocol::{Fault, FaultKind};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

/// The start of an id. Clients may use any other id for a conversation.
const PREFIX: &str = "conv_";
/// The length of a UUID in an id.
const UUID: usize = 32;
/// Distinguishes these signatures from others with the same secret.
const PURPOSE: &[u8] = b"capstan conversation";

/// Issues a new id.
pub(super) async fn issue(engine: &Engine, tenant: &str, id: Uuid) -> Result<String, Fault> {
    let proof = signed(engine, tenant, id).await?.finalize().into_bytes();
    let (proof, _) = proof.split_at(8);
    let proof: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{}{proof}", id.simple()))
}

/// The UUID of an id, if it was issued to this tenant.
pub(super) async fn issued(engine: &Engine, tenant: &str, id: &str) -> Result<Option<Uuid>, Fault> {
    let parts = id.strip_prefix(PREFIX).and_then(|id| id.split_at_checked(UUID));
    let Some(uuid) = parts.and_then(|(uuid, _)| uuid.parse().ok()) else { return Ok(None) };
    Ok((issue(engine, tenant, uuid).await? == id).then_some(uuid))
}

async fn signed(engine: &Engine, tenant: &str, id: Uuid) -> Result<Hmac<Sha256>, Fault> {
    let secret = engine.store().secret().await.map_err(journal_fault)?;
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .map_err(|_| Fault::new(FaultKind::JournalUnavailable))?;
    Ok(mac.chain_update(PURPOSE).chain_update(id.as_bytes()).chain_update(tenant))
}

//! How values are laid out. Each begins with its format version.

use bytes::Bytes;
use capstan_protocol::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::keys;
use crate::{ErrorKind, JournalError, Run};

const VERSION: u8 = 1;

/// A run as it is stored. `last_seq` and `bytes` are right unless it runs: then its last frame knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: Run,
    pub(crate) body_bytes: u64,
    /// During which uptime of which machine it was written; `None` if frames are synced or nobody can tell.
    #[serde(default)]
    pub(crate) boot: Option<String>,
}

impl Record {
    /// What the stream takes.
    pub(crate) fn size(&self) -> u64 {
        self.run.bytes.saturating_add(self.body_bytes)
    }
}

/// A claim as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) stream: Uuid,
    /// When retention deleted the stream.
    pub(crate) gone_at: Option<Timestamp>,
}

/// A frame: version, length of all frames up to this one, bytes. The running length makes a stream's size one seek.
pub(crate) fn frame(total: u64, bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(9 + bytes.len());
    value.push(VERSION);
    value.extend(total.to_be_bytes());
    value.extend(bytes);
    value
}

pub(crate) fn read_frame(value: &[u8]) -> Result<(u64, Bytes), JournalError> {
    let parts = versioned(value)?.split_first_chunk::<8>();
    let (total, bytes) = parts.ok_or_else(|| corrupt("a frame is too short"))?;
    // A copy, because the engine's slice would keep a whole block alive for as long as a slow reader holds it.
    Ok((u64::from_be_bytes(*total), Bytes::copy_from_slice(bytes)))
}

pub(crate) fn held(held: Held) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend(held.stream.as_bytes());
    value.extend(held.gone_at.map(keys::time).iter().flatten());
    value
}

pub(crate) fn read_held(value: &[u8]) -> Result<Held, JournalError> {
    let parts = versioned(value)?.split_first_chunk::<16>();
    let (stream, gone_at) = parts.ok_or_else(|| corrupt("a claim is too short"))?;
    Ok(Held { stream: Uuid::from_bytes(*stream), gone_at: keys::read_time(gone_at) })
}

/// Records and turns are JSON, so that members can be added.
pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, JournalError> {
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, value)
        .map_err(|error| JournalError::new(ErrorKind::Unsupported, "cannot be stored").caused_by(error))?;
    Ok(bytes)
}

pub(crate) fn read_json<T: DeserializeOwned>(value: &[u8]) -> Result<T, JournalError> {
    serde_json::from_slice(versioned(value)?)
        .map_err(|error| corrupt("a record cannot be read").caused_by(error))
}

/// A closed stream's entry: its size and its tenant, so that retention need not look at records.
pub(crate) fn closed(size: u64, tenant: &str) -> Vec<u8> {
    [&size.to_be_bytes(), tenant.as_bytes()].concat()
}

/// The tenant of a closed stream's entry.
pub(crate) fn read_tenant(value: &[u8]) -> &str {
    value.get(8..).and_then(|tenant| std::str::from_utf8(tenant).ok()).unwrap_or_default()
}

pub(crate) fn read_number(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

pub(crate) fn corrupt(what: &str) -> JournalError {
    JournalError::new(ErrorKind::Corrupt, format!("the journal is damaged: {what}"))
}

fn versioned(value: &[u8]) -> Result<&[u8], JournalError> {
    match value.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((version, _)) => Err(corrupt(&format!("unknown format version {version}"))),
        None => Err(corrupt("an empty value")),
    }
}

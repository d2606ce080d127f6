//! Backends by URL. A new one is a file and a row in `open`.

use std::path::Path;
use std::sync::Arc;

use crate::disk::DiskStore;
use crate::memory::MemoryStore;
use crate::{ErrorKind, JournalError, Store};

/// What an acknowledged append survives. Claims and transitions are always synced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of this process, kill -9 included: the operating system has the bytes.
    #[default]
    Process,
    /// A power cut: the disk has the bytes. Costs an fsync for every group of appends.
    Power,
}

/// Opens the store that a URL names: `memory:` or `disk:<folder>`.
///
/// Blocks while a folder recovers from a crash, so call it before serving.
pub fn open(url: &str, durability: Durability) -> Result<Arc<dyn Store>, JournalError> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" if rest.is_empty() => Ok(Arc::new(MemoryStore::default())),
        "disk" if !rest.is_empty() => Ok(Arc::new(DiskStore::open(Path::new(rest), durability)?)),
        _ => Err(unknown(url)),
    }
}

fn unknown(url: &str) -> JournalError {
    let message = format!("unknown journal {url:?}: expected memory: or disk:<folder>");
    JournalError::new(ErrorKind::Unsupported, message)
}

//! Opens stores by URL. A new store needs a file, and a row in `parse` and in `open_with` or
//! `connect`.

use std::path::Path;
use std::sync::Arc;

use capstan_journal::{ErrorKind, JournalError, MemoryStore, Replica, Store};

use crate::disk::DiskStore;
use crate::options::{Durability, Options};

/// Opens the store of a URL: `memory:` or `disk:<folder>`.
///
/// Blocks while a folder recovers from a crash, so call it before serving.
pub fn open(url: &str, durability: Durability) -> Result<Arc<dyn Store>, JournalError> {
    open_with(url, Options { durability, ..Options::default() })
}

/// Opens the store of a URL, including one that several processes share: `postgres://…`, with the
/// feature `postgres`.
///
/// For a folder it blocks like [`open`]. Call it within a runtime.
pub async fn connect(
    url: &str,
    options: Options,
    replica: Replica,
) -> Result<Arc<dyn Store>, JournalError> {
    match parse(url)? {
        #[cfg(feature = "postgres")]
        Backend::Postgres(url) => {
            Ok(Arc::new(crate::postgres::PostgresStore::open(url, options, replica).await?))
        }
        _ => {
            drop(replica);
            open_with(url, options)
        }
    }
}

/// Opens the store of a URL with options. Shared stores need [`connect`].
pub fn open_with(url: &str, options: Options) -> Result<Arc<dyn Store>, JournalError> {
    match parse(url)? {
        Backend::Memory => Ok(Arc::new(MemoryStore::default())),
        Backend::Disk(folder) => Ok(Arc::new(DiskStore::open(folder, options)?)),
        #[cfg(feature = "postgres")]
        Backend::Postgres(_) => Err(JournalError::new(
            ErrorKind::Unsupported,
            "open a journal in PostgreSQL with `connect`",
        )),
    }
}

/// Checks a URL without opening its store.
pub fn check_url(url: &str) -> Result<(), JournalError> {
    parse(url).map(drop)
}

enum Backend<'a> {
    Memory,
    Disk(&'a Path),
    #[cfg(feature = "postgres")]
    Postgres(&'a str),
}

fn parse(url: &str) -> Result<Backend<'_>, JournalError> {
    match url.split_once(':').unwrap_or((url, "")) {
        ("memory", "") => Ok(Backend::Memory),
        ("disk", folder) if !folder.is_empty() => Ok(Backend::Disk(Path::new(folder))),
        #[cfg(feature = "postgres")]
        ("postgres" | "postgresql", _) => Ok(Backend::Postgres(url)),
        // The message does not contain the URL, which may have a password.
        #[cfg(not(feature = "postgres"))]
        ("postgres" | "postgresql", _) => Err(JournalError::new(
            ErrorKind::Unsupported,
            "this build cannot use PostgreSQL: it lacks the feature postgres",
        )),
        _ => Err(unknown(url)),
    }
}

fn unknown(url: &str) -> JournalError {
    let message =
        format!("unknown journal {url:?}: expected memory:, disk:<folder> or postgres://…");
    JournalError::new(ErrorKind::Unsupported, message)
}

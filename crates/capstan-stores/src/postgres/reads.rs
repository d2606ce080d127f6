//! Connections for everything that is asked, and for what is written without a lane.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::JournalError;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_postgres::Row;

use super::link::{Failure, FailureKind, Link, Params};
use super::target::Target;

/// Reads at once; more would only queue at the server.
const READS: usize = 8;
/// A server that restarts is waited for this long.
const PATIENCE: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Reads {
    target: Target,
    idle: Mutex<Vec<Link>>,
    room: Semaphore,
}

impl Reads {
    pub(super) fn new(target: Target) -> Self {
        Self { target, idle: Mutex::default(), room: Semaphore::new(READS) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of a statement that may be carried out twice: it is tried again for a while.
    pub(super) async fn query(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, JournalError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.try_query(statement, params).await {
                Ok(rows) => return Ok(rows),
                Err(failure) if failure.kind == FailureKind::Never || Instant::now() >= until => {
                    return Err(failure.into_error());
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The rows of a statement, or why there are none.
    pub(super) async fn try_query(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let _room =
            self.room.acquire().await.map_err(|_| Failure::odd("there are no reads any more"))?;
        let idle = self.lock().pop().filter(|link| !link.is_closed());
        let link = match idle {
            Some(link) => link,
            None => Link::open(&self.target).await?,
        };
        let rows = link.query(statement, params).await;
        // A lost one is dropped.
        if !matches!(&rows, Err(failure) if failure.kind.is_unsure()) {
            self.lock().push(link);
        }
        rows
    }
}

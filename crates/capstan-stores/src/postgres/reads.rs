//! A pool of connections for all reads, and for writes that have no writer task.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::JournalError;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_postgres::Row;

use super::connection::{Connection, Failure, FailureKind, Params};
use super::target::Target;

/// The most concurrent reads. More would only queue in the server.
const READS: usize = 8;
/// How long reads are retried, for example while the server restarts.
const RETRY_TIMEOUT: Duration = Duration::from_secs(8);
/// The pause before a retry.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Reads {
    target: Target,
    idle: Mutex<Vec<Connection>>,
    room: Semaphore,
}

impl Reads {
    pub(super) fn new(target: Target) -> Self {
        Self { target, idle: Mutex::default(), room: Semaphore::new(READS) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement that may run twice, with retries. Returns its rows.
    pub(super) async fn query(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, JournalError> {
        let until = Instant::now() + RETRY_TIMEOUT;
        loop {
            match self.try_query(statement, params).await {
                Ok(rows) => return Ok(rows),
                Err(failure)
                    if failure.kind == FailureKind::Permanent || Instant::now() >= until =>
                {
                    return Err(failure.into_error());
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Runs a statement once. Returns its rows.
    pub(super) async fn try_query(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let _room = self
            .room
            .acquire()
            .await
            .map_err(|_| Failure::unexpected("the pool of read connections is closed"))?;
        let idle = self.lock().pop().filter(|connection| !connection.is_closed());
        let connection = match idle {
            Some(connection) => connection,
            None => Connection::open(&self.target).await?,
        };
        let rows = connection.query(statement, params).await;
        // A connection that may be broken is dropped.
        if !matches!(&rows, Err(failure) if failure.kind.is_uncertain()) {
            self.lock().push(connection);
        }
        rows
    }
}

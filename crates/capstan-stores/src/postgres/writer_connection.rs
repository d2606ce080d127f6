//! The connection of a writer task, which reconnects after a failure.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::connection::{Connection, Failure, FailureKind};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The first timeout of a statement, as a share of the lease.
const FIRST_TIMEOUT: f64 = 0.5;
const LONGEST_FIRST_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

fn first_timeout(shared: &Shared) -> Duration {
    shared.part_of_lease(FIRST_TIMEOUT).min(LONGEST_FIRST_TIMEOUT)
}

/// The connection of one writer task.
pub(super) struct WriterConnection {
    pub(super) shared: Arc<Shared>,
    connection: Option<Connection>,
    /// The statements that each new connection begins with.
    set_up: &'static str,
    /// The pause after the next failure.
    pause: Duration,
    /// The timeout of a statement, which doubles after each one. A server that waits for its
    /// standby answers late, and continues after the client has given up.
    timeout: Duration,
}

impl WriterConnection {
    pub(super) fn new(shared: Arc<Shared>, set_up: &'static str) -> Self {
        let timeout = first_timeout(&shared);
        Self { shared, connection: None, set_up, pause: FIRST_PAUSE, timeout }
    }

    /// Whether the next use opens a new connection.
    pub(super) fn is_down(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::is_closed)
    }

    /// The connection. If there is none, opens one, without retries.
    pub(super) async fn connection(&mut self) -> Result<&Connection, Failure> {
        if self.is_down() {
            self.connection = None;
            let connection = Connection::open_with(&self.shared.target, self.timeout, None).await?;
            if !self.set_up.is_empty() {
                connection.batch(self.set_up).await?;
            }
            self.connection = Some(connection);
        }
        self.connection.as_ref().ok_or_else(|| Failure::unexpected("there is no connection"))
    }

    /// Resets pause and timeout after a success.
    pub(super) fn succeeded(&mut self) {
        (self.pause, self.timeout) = (FIRST_PAUSE, first_timeout(&self.shared));
    }

    /// Waits after a failure, before the caller retries.
    pub(super) async fn failed(&mut self, failure: &Failure) {
        if failure.kind.is_uncertain() {
            self.connection = None;
        }
        if failure.kind == FailureKind::TimedOut {
            self.timeout = (self.timeout * 2).min(LONGEST_TIMEOUT);
        }
        self.shared.report_failure(failure);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

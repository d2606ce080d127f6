//! A connection with its prepared statements.

use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification, Row, Statement};
use tokio_util_abort::AbortOnDrop;

pub(super) use super::failure::{Failure, FailureKind};
use super::target::{CONNECT, Target};
use super::unanswered::Unanswered;

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The default timeout of a statement.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, which runs in a task of its own and ends when this value is dropped.
pub(super) struct Connection {
    client: Client,
    /// A network may lose an answer silently, so the connection is closed after this time.
    timeout: Duration,
    statements: Mutex<HashMap<&'static str, Statement>>,
    unanswered: Unanswered,
    _connection: AbortOnDrop,
}

impl Connection {
    pub(super) async fn open(target: &Target) -> Result<Self, Failure> {
        Self::open_with(target, TIMEOUT, None).await
    }

    /// Opens a connection, and forwards its notifications.
    pub(super) async fn open_with(
        target: &Target,
        timeout: Duration,
        messages: Option<mpsc::UnboundedSender<Notification>>,
    ) -> Result<Self, Failure> {
        // This waits for the TCP connection first, and then for the server's first message.
        let opening = target.config.connect(target.tls.clone());
        let unanswered = target.unanswered.clone();
        let (client, mut connection) = unanswered.within(timeout.max(CONNECT), opening).await?;
        let connection = AbortOnDrop::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let (AsyncMessage::Notification(peer_message), Some(messages)) =
                    (message, &messages)
                    && messages.send(peer_message).is_err()
                {
                    break;
                }
            }
        });
        Ok(Self {
            client,
            timeout,
            statements: Mutex::default(),
            unanswered,
            _connection: connection,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) async fn batch(&self, statements: &str) -> Result<(), Failure> {
        self.unanswered.within(self.timeout, self.client.batch_execute(statements)).await
    }

    pub(super) async fn query(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let prepared = self.prepared(statement).await?;
        self.unanswered.within(self.timeout, self.client.query(&prepared, params).boxed()).await
    }

    pub(super) async fn one(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Row, Failure> {
        let rows = self.query(statement, params).await?;
        rows.into_iter().next().ok_or_else(|| Failure::unexpected("a statement returned no row"))
    }

    /// Runs a statement. Returns the number of changed rows.
    pub(super) async fn execute(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<u64, Failure> {
        let prepared = self.prepared(statement).await?;
        self.unanswered.within(self.timeout, self.client.execute(&prepared, params).boxed()).await
    }

    async fn prepared(&self, statement: &'static str) -> Result<Statement, Failure> {
        let mut statements = self.statements.lock().await;
        if let Some(prepared) = statements.get(statement) {
            return Ok(prepared.clone());
        }
        let prepared = self.unanswered.within(self.timeout, self.client.prepare(statement)).await?;
        statements.insert(statement, prepared.clone());
        Ok(prepared)
    }
}

mod tokio_util_abort {
    use std::future::Future;

    use tokio::task::AbortHandle;

    /// A task that ends when this value is dropped.
    pub(crate) struct AbortOnDrop(AbortHandle);

    impl AbortOnDrop {
        pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
            Self(tokio::spawn(work).abort_handle())
        }
    }

    impl Drop for AbortOnDrop {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
}
pub(super) use tokio_util_abort::AbortOnDrop as Task;

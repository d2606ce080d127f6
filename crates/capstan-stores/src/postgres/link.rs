//! One connection, with the statements that were prepared on it.

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

/// How long an answer is waited for where nothing else is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that works in a task of its own, and ends with this.
pub(super) struct Link {
    client: Client,
    /// A network may swallow an answer and say nothing: after so long the connection is given up.
    patience: Duration,
    statements: Mutex<HashMap<&'static str, Statement>>,
    unanswered: Unanswered,
    _connection: AbortOnDrop,
}

impl Link {
    pub(super) async fn open(target: &Target) -> Result<Self, Failure> {
        Self::open_with(target, PATIENCE, None).await
    }

    /// A connection that passes on what others notify.
    pub(super) async fn open_with(
        target: &Target,
        patience: Duration,
        notices: Option<mpsc::UnboundedSender<Notification>>,
    ) -> Result<Self, Failure> {
        // What is waited for first is the connection, then its first word.
        let opening = target.config.connect(target.tls.clone());
        let unanswered = target.unanswered.clone();
        let (client, mut connection) = unanswered.within(patience.max(CONNECT), opening).await?;
        let connection = AbortOnDrop::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let (AsyncMessage::Notification(notice), Some(notices)) = (message, &notices)
                    && notices.send(notice).is_err()
                {
                    break;
                }
            }
        });
        Ok(Self {
            client,
            patience,
            statements: Mutex::default(),
            unanswered,
            _connection: connection,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) async fn batch(&self, statements: &str) -> Result<(), Failure> {
        self.unanswered.within(self.patience, self.client.batch_execute(statements)).await
    }

    pub(super) async fn query(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let prepared = self.prepared(statement).await?;
        self.unanswered.within(self.patience, self.client.query(&prepared, params).boxed()).await
    }

    pub(super) async fn one(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Row, Failure> {
        let rows = self.query(statement, params).await?;
        rows.into_iter().next().ok_or_else(|| Failure::odd("a statement brought no row"))
    }

    /// How many rows it changed.
    pub(super) async fn execute(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<u64, Failure> {
        let prepared = self.prepared(statement).await?;
        self.unanswered.within(self.patience, self.client.execute(&prepared, params).boxed()).await
    }

    async fn prepared(&self, statement: &'static str) -> Result<Statement, Failure> {
        let mut statements = self.statements.lock().await;
        if let Some(prepared) = statements.get(statement) {
            return Ok(prepared.clone());
        }
        let prepared =
            self.unanswered.within(self.patience, self.client.prepare(statement)).await?;
        statements.insert(statement, prepared.clone());
        Ok(prepared)
    }
}

mod tokio_util_abort {
    use std::future::Future;

    use tokio::task::AbortHandle;

    /// A task that ends with this.
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

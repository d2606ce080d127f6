//! One connection, with the statements that were prepared on it.

use std::collections::HashMap;
use std::error::Error as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_journal::{ErrorKind, JournalError};
use futures_util::FutureExt as _;
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification, Row, Statement};
use tokio_util_abort::AbortOnDrop;

use super::target::{CONNECT, Target};

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

/// How many questions a server has not answered yet, connections included.
#[derive(Debug, Clone, Default)]
pub(super) struct Unanswered(Arc<AtomicUsize>);

impl Unanswered {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// What the server answers, if it answers.
    async fn within<T>(
        &self,
        patience: Duration,
        asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let _one = Question(&self.0);
        match tokio::time::timeout(patience, asking).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::silent()),
        }
    }
}

/// One of them, until it is answered or nobody wants to know any more.
struct Question<'a>(&'a AtomicUsize);

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a statement was not carried out, or is not known to have been.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The connection is gone: it may have been carried out or not.
    Unknown,
    /// No answer has come for too long: it may have been carried out or not, or be under way.
    Silent,
    /// It was not carried out, and may be tried again.
    Again,
    /// What it would have inserted is there.
    Exists,
    /// It was not carried out, and never will be.
    Never,
}

impl FailureKind {
    /// Whether the connection is of no use any more, and what was asked may have been done.
    pub(super) fn is_unsure(self) -> bool {
        matches!(self, Self::Unknown | Self::Silent)
    }
}

impl Failure {
    pub(super) fn odd(message: &str) -> Self {
        Self { kind: FailureKind::Never, message: message.to_owned() }
    }

    /// Something that mends itself.
    pub(super) fn again(message: &str) -> Self {
        Self { kind: FailureKind::Again, message: message.to_owned() }
    }

    /// Somebody else's patience is over.
    pub(super) fn silent() -> Self {
        Self { kind: FailureKind::Silent, message: "it does not answer".into() }
    }

    /// For a caller outside. The server's words may hold data, so they are for the log.
    pub(super) fn into_error(self) -> JournalError {
        let kind = match self.kind {
            FailureKind::Unknown
            | FailureKind::Silent
            | FailureKind::Again
            | FailureKind::Exists => ErrorKind::Unavailable,
            FailureKind::Never => ErrorKind::Unsupported,
        };
        JournalError::new(kind, format!("PostgreSQL: {}", self.message))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(told) = error.as_db_error() else {
            // Down to the operating system's own words.
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            let is_ours = error.to_string().starts_with("error serializing");
            let kind = if is_ours { FailureKind::Never } else { FailureKind::Unknown };
            return Self { kind, message: format!("{error}{cause}") };
        };
        Self {
            kind: kind_of(told.code()),
            message: format!("{} ({})", told.message(), told.code().code()),
        }
    }
}

fn kind_of(code: &SqlState) -> FailureKind {
    if *code == SqlState::UNIQUE_VIOLATION {
        return FailureKind::Exists;
    }
    match code.code().get(..2).unwrap_or_default() {
        // The server is stopping, or has lost the connection: it may have committed.
        "57" | "08" => FailureKind::Unknown,
        // Data that it cannot take, statements that it does not know, what it does not allow.
        "22" | "23" | "42" | "0A" | "28" | "3D" | "3F" | "54" => FailureKind::Never,
        _ => FailureKind::Again,
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

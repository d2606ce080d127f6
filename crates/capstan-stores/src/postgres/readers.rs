//! Records which runs have readers, for runs that end without readers: one row for each run and
//! process. A task with its own connection writes the updates in groups and in order. It writes
//! them again whenever the server or the lease may have lost them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{JournalError, RemoteReaders};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::connection::{Connection, Failure};
use super::rows::{column, is_name};
use super::writer_connection::WriterConnection;
use super::{Shared, closed};

/// The most updates of a group.
const GROUP: usize = 1024;
/// How often this task checks whether the process has another lease.
const LEASE_CHECK: Duration = Duration::from_secs(1);
/// How often `take_unread` retries while a process with readers is silent, as a share of the lease.
const RETRY_INTERVAL: f64 = 0.05;
/// When `take_unread` stops to retry, in leases.
const RETRY_LEASES: f64 = 2.0;

const SET_READ: &str = "insert into capstan.readers \
    select stream, $1, null from unnest($2::uuid[]) stream \
    on conflict (stream, replica) do update set left_at = null";
const SET_UNREAD: &str = "select capstan.mark_unread($1, $2)";
const TAKE: &str = "select capstan.take_unread($1, $2)";
const EXPECT: &str = "insert into capstan.expected_clients as e \
    values ($1, clock_timestamp() + $2::bigint * interval '1 millisecond') \
    on conflict (tenant) do update set until = greatest(e.until, excluded.until)";
const REMOTE_READERS: &str = "select is_read, unread_for, \
    (select (extract(epoch from until - clock_timestamp()) * 1000)::bigint \
    from capstan.expected_clients where tenant = $3) from capstan.remote_readers($1, $2)";
const IS_READ: &str = "select exists (select 1 from capstan.readers m \
    join capstan.replicas p on p.id = m.replica where m.stream = $2 and m.replica <> $1 \
    and m.left_at is null and p.state < 3 \
    and p.heartbeat_at > clock_timestamp() - $3::bigint * interval '1 millisecond')";
/// Delete rows that no query needs any more. The rows of a deleted replica are deleted with it.
pub(super) const DELETE_OLD: [&str; 2] = [
    "delete from capstan.readers where left_at < clock_timestamp() - interval '1 hour'",
    "delete from capstan.expected_clients where until < clock_timestamp()",
];

/// A change of this process's readers.
pub(super) enum ReaderUpdate {
    /// The first reader of a run came (true), or the last one left.
    Read(Uuid, bool),
    /// A claim has recorded a reader of the run, under this lease.
    Claimed(Uuid, Uuid),
    /// A caller wants the run, if it has no reader.
    TakeUnread(Uuid, oneshot::Sender<bool>),
    /// A client of the tenant was told to retry after this delay.
    ExpectClients(String, Duration),
}

impl Shared {
    /// Takes a run, unless a live process reads it. A process that has just died still has its
    /// rows. So this waits for its next heartbeat, or until its lease has ended.
    pub(super) async fn take_unread(&self, stream: Uuid) -> Result<bool, JournalError> {
        let began = Instant::now();
        while !self.take(stream).await? {
            let is_over = began.elapsed() > self.part_of_lease(RETRY_LEASES);
            if is_over || self.is_read_since(stream, began).await? {
                return Ok(false);
            }
            tokio::time::sleep(self.part_of_lease(RETRY_INTERVAL).min(LEASE_CHECK)).await;
        }
        Ok(true)
    }

    /// Whether a process with a reader has sent a heartbeat since this time.
    async fn is_read_since(&self, stream: Uuid, since: Instant) -> Result<bool, JournalError> {
        let millis = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        let rows = self.reads.query(IS_READ, &[&self.me(), &stream, &millis]).await?;
        rows.first().map_or(Ok(false), |row| column(row, 0)).map_err(Failure::into_error)
    }

    /// Tries once to take a run. Without an answer the run is not taken.
    async fn take(&self, stream: Uuid) -> Result<bool, JournalError> {
        let (reply, taken) = oneshot::channel();
        self.reader_updates.send(ReaderUpdate::TakeUnread(stream, reply)).map_err(|_| closed())?;
        Ok(taken.await.unwrap_or(false))
    }

    pub(super) async fn remote_readers(
        &self,
        stream: Uuid,
        tenant: &str,
    ) -> Result<RemoteReaders, JournalError> {
        let rows = self.reads.query(REMOTE_READERS, &[&self.me(), &stream, &tenant]).await?;
        let millis = |row: &tokio_postgres::Row, at: usize| -> Result<Option<Duration>, Failure> {
            let millis: Option<i64> = column(row, at)?;
            Ok(millis.map(|millis| Duration::from_millis(millis.max(0).cast_unsigned())))
        };
        let read = |row: &tokio_postgres::Row| -> Result<RemoteReaders, Failure> {
            let expected = millis(row, 2)?.unwrap_or_default();
            Ok(RemoteReaders { is_read: column(row, 0)?, unread_for: millis(row, 1)?, expected })
        };
        rows.first().map_or(Ok(RemoteReaders::default()), read).map_err(Failure::into_error)
    }
}

pub(super) async fn run(
    shared: Arc<Shared>,
    mut reader_updates: mpsc::UnboundedReceiver<ReaderUpdate>,
) {
    let lease = shared.me();
    // Not synced: after a crash of the server the task writes all readers again.
    let writer = WriterConnection::new(shared, "set synchronous_commit = off");
    let mut task =
        ReaderWriter { writer, lease, read: HashSet::new(), pending: Pending::default() };
    let mut group = Vec::new();
    loop {
        match tokio::time::timeout(LEASE_CHECK, reader_updates.recv_many(&mut group, GROUP)).await {
            Ok(0) => return,
            Ok(_) | Err(_) => group.drain(..).for_each(|update| task.add(update)),
        }
        task.write_pending().await;
    }
}

/// Updates that are not written yet.
#[derive(Default)]
struct Pending {
    set_read: HashSet<Uuid>,
    set_unread: HashSet<Uuid>,
    takes: Vec<(Uuid, oneshot::Sender<bool>)>,
    expected: HashMap<String, Duration>,
}

struct ReaderWriter {
    writer: WriterConnection,
    /// The lease under which the rows were written.
    lease: Uuid,
    /// All runs that have a reader in this process.
    read: HashSet<Uuid>,
    pending: Pending,
}

impl ReaderWriter {
    fn add(&mut self, update: ReaderUpdate) {
        match update {
            ReaderUpdate::Claimed(stream, lease) if lease == self.lease => {
                _ = self.read.insert(stream)
            }
            ReaderUpdate::Claimed(stream, _) => self.add(ReaderUpdate::Read(stream, true)),
            ReaderUpdate::Read(stream, true) => {
                self.read.insert(stream);
                self.pending.set_unread.remove(&stream);
                self.pending.set_read.insert(stream);
            }
            ReaderUpdate::Read(stream, false) => {
                self.read.remove(&stream);
                self.pending.set_read.remove(&stream);
                self.pending.set_unread.insert(stream);
            }
            ReaderUpdate::TakeUnread(stream, reply) => self.pending.takes.push((stream, reply)),
            ReaderUpdate::ExpectClients(tenant, within) if is_name(&tenant) => {
                let known = self.pending.expected.entry(tenant).or_default();
                *known = within.max(*known);
            }
            ReaderUpdate::ExpectClients(..) => {}
        }
    }

    async fn write_pending(&mut self) {
        let me = self.writer.shared.me();
        if me != self.lease || self.writer.is_down() {
            self.pending.set_read.clone_from(&self.read);
            self.lease = me;
        }
        match self.write().await {
            Ok(()) => self.writer.succeeded(),
            Err(failure) => {
                // The caller starts a run of its own instead.
                self.pending.takes.clear();
                self.writer.failed(&failure).await;
            }
        }
    }

    async fn write(&mut self) -> Result<(), Failure> {
        let Self { writer, lease, read, pending } = self;
        if pending.set_read.is_empty()
            && pending.set_unread.is_empty()
            && pending.takes.is_empty()
            && pending.expected.is_empty()
        {
            return Ok(());
        }
        let connection = writer.connection().await?;
        write_all(connection, SET_READ, *lease, &mut pending.set_read).await?;
        write_all(connection, SET_UNREAD, *lease, &mut pending.set_unread).await?;
        while let Some((stream, reply)) =
            pending.takes.pop().filter(|(_, reply)| !reply.is_closed())
        {
            let taken = take(connection, *lease, stream).await;
            let is_received = reply.send(matches!(taken, Ok(true))).is_ok();
            match taken {
                Ok(true) if is_received => _ = read.insert(stream),
                Ok(false) => {}
                // The caller is gone, or the outcome is unknown: release the run.
                Ok(true) | Err(_) => _ = pending.set_unread.insert(stream),
            }
            taken?;
        }
        for (tenant, within) in pending.expected.drain() {
            let millis = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
            connection.query(EXPECT, &[&tenant, &millis]).await?;
        }
        write_all(connection, SET_UNREAD, *lease, &mut pending.set_unread).await
    }
}

/// Runs a statement for all of these streams at once, unless there are none.
async fn write_all(
    connection: &Connection,
    statement: &'static str,
    lease: Uuid,
    streams: &mut HashSet<Uuid>,
) -> Result<(), Failure> {
    if !streams.is_empty() {
        let all: Vec<Uuid> = streams.iter().copied().collect();
        connection.query(statement, &[&lease, &all]).await?;
        streams.clear();
    }
    Ok(())
}

async fn take(connection: &Connection, lease: Uuid, stream: Uuid) -> Result<bool, Failure> {
    column(&connection.one(TAKE, &[&lease, &stream]).await?, 0)
}

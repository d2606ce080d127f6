//! Keeps this process's lease by heartbeats, timed by the database's clock. Another process fences
//! one whose heartbeats stay out. A process that cannot send any gives up its lease before that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::{Load, Replica};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Shared;
use super::connection::{Connection, Failure};
use super::rows::column;
use super::schema::Schema;
use super::writer_connection::WriterConnection;

/// The interval between heartbeats, as a share of the lease.
const INTERVAL: f64 = 0.1;
/// The longest such interval.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of a heartbeat, as a share of the lease.
const TIMEOUT: f64 = 0.3;
/// Without a heartbeat for this share of the lease, this process gives up its lease.
const GIVE_UP_AFTER: f64 = 0.7;
/// How often this process looks for expired leases, as a share of the lease.
const FENCE_INTERVAL: f64 = 0.3;

const HEARTBEAT: &str = "select capstan.heartbeat($1, $2, $3, $4), \
    array(select stream from capstan.runs where owner = $1 and state = 1 and is_stop_asked \
    limit 1000), \
    (select count(*) from capstan.replicas where id <> $1 and state < 3), \
    (select min_writer from capstan.meta)";
const FENCE: &str = "select capstan.fence_expired($1, $2)";
const BEGIN_LEASE: &str = "select capstan.begin_lease($1, $2, $3, $4, $5)";
const MOVE_TENANTS: &str = "select capstan.move_tenants($1, $2)";
const END_LEASE: &str = "select capstan.end_lease($1)";

/// Begins the lease `me`, and ends the earlier lease of this process, if it had one.
pub(super) async fn begin_lease(
    connection: &Connection,
    me: Uuid,
    earlier: Option<Uuid>,
    replica: &Replica,
) -> Result<(), Failure> {
    let (name, url, version) = (&replica.name, &replica.url, env!("CARGO_PKG_VERSION"));
    connection.query(BEGIN_LEASE, &[&me, &earlier, name, url, &version]).await.map(drop)
}

/// Ends the lease. When it returns, nothing more is written under it.
pub(super) async fn end_lease(shared: &Shared) -> Result<(), Failure> {
    shared.reads.try_query(END_LEASE, &[&shared.me()]).await.map(drop)
}

pub(super) async fn run(shared: Arc<Shared>) {
    let writer = WriterConnection::new(Arc::clone(&shared), "");
    let now = Instant::now();
    Heartbeats { shared, writer, last_sent: now, steady_since: now, last_fencing: now }.run().await;
}

/// The load as SQL parameters: open responses, and the 95th percentile of appends in microseconds.
fn load_params(load: Option<Load>) -> (Option<i64>, Option<i64>) {
    let responses = load.map(|load| i64::try_from(load.responses).unwrap_or(i64::MAX));
    let p95 = load.and_then(|load| load.append_p95);
    (responses, p95.map(|p95| i64::try_from(p95.as_micros()).unwrap_or(i64::MAX)))
}

struct Heartbeats {
    shared: Arc<Shared>,
    writer: WriterConnection,
    /// When the last successful heartbeat was sent.
    last_sent: Instant,
    /// The time since which every heartbeat has succeeded.
    steady_since: Instant,
    last_fencing: Instant,
}

impl Heartbeats {
    async fn run(mut self) {
        loop {
            if self.shared.is_closed() {
                return;
            }
            let timeout = self.shared.part_of_lease(TIMEOUT);
            let done = tokio::time::timeout(timeout, self.send()).await;
            if let Err(failure) = done.unwrap_or_else(|_| Err(Failure::timed_out())) {
                self.steady_since = Instant::now();
                self.writer.failed(&failure).await;
                self.give_up_if_late(&failure);
                continue;
            }
            tokio::time::sleep(self.shared.part_of_lease(INTERVAL).min(LONGEST_INTERVAL)).await;
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        if !self.shared.has_lease() {
            return self.rejoin().await;
        }
        let (sent, me) = (Instant::now(), self.shared.me());
        let is_draining = self.shared.is_draining.load(Ordering::Relaxed);
        let (responses, p95) = load_params(*self.shared.lock_load());
        let connection = self.writer.connection().await?;
        let row = connection.one(HEARTBEAT, &[&me, &is_draining, &responses, &p95]).await?;
        if !column::<bool>(&row, 0)? {
            self.shared.lose_lease(FENCED);
            return self.rejoin().await;
        }
        // However long this process was stopped: if it was not fenced, it keeps its lease.
        self.last_sent = sent;
        *self.shared.lock_last_heartbeat() = sent;
        self.apply(&row)?;
        self.writer.succeeded();
        // The id spreads the checks of different processes over time.
        let spread = f64::from(me.as_bytes()[0]) / 512.0;
        let interval = self.shared.part_of_lease(FENCE_INTERVAL * (1.0 + spread));
        if self.last_fencing.elapsed() >= interval {
            self.last_fencing = Instant::now();
            self.fence_expired(me).await?;
        }
        Ok(())
    }

    /// Applies what a heartbeat returns: stop requests, the number of peers, the required build.
    fn apply(&self, row: &Row) -> Result<(), Failure> {
        for stream in column::<Vec<Uuid>>(row, 1)? {
            let _ = self.shared.stop_requests.try_send(stream);
        }
        self.shared.peers.store(column::<i64>(row, 2)?.try_into().unwrap_or(0), Ordering::Relaxed);
        let min_writer: u32 = column::<i32>(row, 3)?.try_into().unwrap_or(u32::MAX);
        if min_writer > Schema::NEWEST && !self.shared.outdated.send_replace(true) {
            tracing::warn!(min_writer, "the journal requires a newer build; this process stops");
        }
        self.shared.report_healthy();
        Ok(())
    }

    /// Fences a process whose lease has expired. This process does so only if its own heartbeats
    /// succeeded for a whole lease: after an outage, every process then had time for a heartbeat.
    async fn fence_expired(&mut self, me: Uuid) -> Result<(), Failure> {
        if self.steady_since.elapsed() < self.shared.replica.lease {
            return Ok(());
        }
        let lease = i64::try_from(self.shared.replica.lease.as_millis()).unwrap_or(i64::MAX);
        let row = self.writer.connection().await?.one(FENCE, &[&me, &lease]).await?;
        if let Some(replica) = column::<Option<Uuid>>(&row, 0)? {
            tracing::warn!(%replica, "a process sent no heartbeat in time and is fenced");
        }
        Ok(())
    }

    /// Gives up the lease before another process may take over its runs.
    fn give_up_if_late(&self, failure: &Failure) {
        let limit = self.shared.part_of_lease(GIVE_UP_AFTER);
        if self.last_sent.elapsed() > limit && self.shared.has_lease() {
            self.shared.lose_lease(&format!("no heartbeat could be sent: {failure}"));
        }
    }

    async fn rejoin(&mut self) -> Result<(), Failure> {
        let (earlier, next, sent) = (self.shared.me(), Uuid::new_v4(), Instant::now());
        let connection = self.writer.connection().await?;
        begin_lease(connection, next, Some(earlier), &self.shared.replica).await?;
        connection.query(MOVE_TENANTS, &[&next, &earlier]).await?;
        (self.last_sent, self.steady_since) = (sent, sent);
        self.shared.begin_lease(next);
        self.shared.reconcile.notify_one();
        tracing::info!(replica = %next, "this process has a lease again");
        Ok(())
    }
}

/// Why a lease was lost, if a statement finds it fenced.
pub(super) const FENCED: &str = "another process has fenced this one";

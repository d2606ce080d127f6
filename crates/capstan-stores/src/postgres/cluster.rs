//! The PostgreSQL store as a [`Cluster`]: stop requests, readers, breakers and replicas.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use capstan_journal::{
    BreakerState, Cluster, LeaseEpoch, Load, Notification, RemoteReaders, ReplicaState, Result,
    Standing, TenantHosts, Watch,
};
use tokio::sync::{mpsc, watch};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Failure;
use super::peer_message::PeerMessage;
use super::readers::ReaderUpdate;
use super::rows::column;

const REQUEST_STOP: &str = "update capstan.runs set is_stop_asked = true \
    where stream = $1 and state = 1 and attempt = $2 returning true";
const HAS_STOP_REQUEST: &str = "select is_stop_asked from capstan.runs where stream = $1";
const REPLICAS: &str = "select p.id, p.name, p.url, p.version, p.state, \
    (extract(epoch from clock_timestamp() - p.since) * 1000)::bigint, \
    (extract(epoch from clock_timestamp() - p.heartbeat_at) * 1000)::bigint, \
    (select count(*) from capstan.runs r where r.owner = p.id and r.state = 1), \
    p.responses, p.append_p95_us from capstan.replicas p \
    where p.state < 3 or p.heartbeat_at > clock_timestamp() - interval '10 minutes' \
    order by p.since";

#[async_trait]
impl Cluster for PostgresStore {
    fn notifications(&self) -> Option<mpsc::Receiver<Notification>> {
        self.notifications.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn watch(&self, stream: Uuid) -> Watch {
        self.shared.watched.watch(stream)
    }

    fn lease_epoch(&self) -> LeaseEpoch {
        self.shared.lease_epoch.subscribe()
    }

    async fn request_stop(&self, stream: Uuid, attempt: u32) -> Result<bool> {
        let rows = self.rows(REQUEST_STOP, &[&stream, &attempt.cast_signed()]).await?;
        let is_running = !rows.is_empty();
        if is_running {
            // If this notification is lost, the owner sees the request at its next heartbeat.
            self.shared.notify(PeerMessage::Stop(stream));
        }
        Ok(is_running)
    }

    async fn has_stop_request(&self, stream: Uuid) -> Result<bool> {
        Ok(self.first(HAS_STOP_REQUEST, &[&stream]).await?.unwrap_or(false))
    }

    fn stop_requests(&self) -> Option<mpsc::Receiver<Uuid>> {
        self.stop_requests.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn mark_read(&self, stream: Uuid, is_read: bool) {
        let _ = self.shared.reader_updates.send(ReaderUpdate::Read(stream, is_read));
    }

    async fn take_unread(&self, stream: Uuid) -> Result<bool> {
        self.shared.take_unread(stream).await
    }

    async fn remote_readers(&self, stream: Uuid, tenant: &str) -> Result<RemoteReaders> {
        self.shared.remote_readers(stream, tenant).await
    }

    fn expect_clients(&self, tenant: &str, within: Duration) {
        let update = ReaderUpdate::ExpectClients(tenant.to_owned(), within);
        let _ = self.shared.reader_updates.send(update);
    }

    async fn breakers(&self) -> Result<Vec<BreakerState>> {
        self.shared.breakers().await
    }

    async fn set_breaker(&self, state: &BreakerState) -> Result<()> {
        self.shared.set_breaker(state).await
    }

    fn outdated(&self) -> watch::Receiver<bool> {
        self.shared.outdated.subscribe()
    }

    fn replica_name(&self) -> &str {
        &self.shared.replica.name
    }

    async fn replicas(&self) -> Result<Vec<ReplicaState>> {
        let me = self.shared.me();
        let rows = self.rows(REPLICAS, &[]).await?;
        rows.iter().map(|row| replica(row, me).map_err(Failure::into_error)).collect()
    }

    fn set_load(&self, load: Load) {
        *self.shared.lock_load() = Some(load);
    }

    fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
    }

    fn tenant_hosts(&self) -> &dyn TenantHosts {
        self
    }
}

/// Reads a row of [`REPLICAS`]. `me` is the id of this process's lease.
fn replica(row: &Row, me: Uuid) -> Result<ReplicaState, Failure> {
    let millis = |at: usize| {
        column::<i64>(row, at).map(|ms| Duration::from_millis(ms.max(0).cast_unsigned()))
    };
    let id = column(row, 0)?;
    let standing = match column::<i16>(row, 4)? {
        1 => Standing::Live,
        2 => Standing::Draining,
        _ => Standing::Gone,
    };
    Ok(ReplicaState {
        id,
        name: column(row, 1)?,
        url: column(row, 2)?,
        version: column(row, 3)?,
        standing,
        is_self: id == me,
        age: millis(5)?,
        silent_for: millis(6)?,
        runs: column::<i64>(row, 7)?.cast_unsigned(),
        // A replica that is gone has no load any more.
        load: load(row)?.filter(|_| standing != Standing::Gone),
    })
}

/// Reads the reported load from a row of [`REPLICAS`].
fn load(row: &Row) -> Result<Option<Load>, Failure> {
    let Some(responses) = column::<Option<i64>>(row, 8)? else { return Ok(None) };
    let p95 = column::<Option<i64>>(row, 9)?;
    let append_p95 = p95.map(|us| Duration::from_micros(us.max(0).cast_unsigned()));
    Ok(Some(Load { responses: responses.max(0).cast_unsigned(), append_p95 }))
}

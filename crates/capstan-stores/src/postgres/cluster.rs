//! What processes tell each other through the database.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use capstan_journal::{
    BreakerNotice, Cluster, Elsewhere, Home, Load, News, Noted, ReplicaState, Result, Standing,
    Tenure, Watch,
};
use capstan_protocol::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::link::Failure;
use super::notice::Notice;
use super::readers::Mark;
use super::rows::column;

const ASK_STOP: &str = "update capstan.runs set is_stop_asked = true where stream = $1 and state \
 = 1 and attempt = $2 returning true";
const IS_STOP_ASKED: &str = "select is_stop_asked from capstan.runs where stream = $1";
const REPLICAS: &str = "select p.id, p.name, p.url, p.version, p.state, \
    (extract(epoch from clock_timestamp() - p.since) * 1000)::bigint, \
    (extract(epoch from clock_timestamp() - p.seen_at) * 1000)::bigint, \
    (select count(*) from capstan.runs r where r.owner = p.id and r.state = 1), p.responses, \
    p.append_p95_us from capstan.replicas p \
    where p.state < 3 or p.seen_at > clock_timestamp() - interval '10 minutes' order by p.since";

/// What a process has said that it has to do, in the row of [`REPLICAS`].
fn load(row: &tokio_postgres::Row) -> Result<Option<Load>, Failure> {
    let Some(responses) = column::<Option<i64>>(row, 8)? else { return Ok(None) };
    let p95 = column::<Option<i64>>(row, 9)?;
    let append_p95 = p95.map(|us| Duration::from_micros(us.max(0).cast_unsigned()));
    Ok(Some(Load { responses: responses.max(0).cast_unsigned(), append_p95 }))
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Cluster for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn watch(&self, stream: Uuid) -> Option<Watch> {
        Some(self.shared.watched.watch(stream))
    }

    fn tenure(&self) -> Tenure {
        self.shared.tenure.subscribe()
    }

    fn tenure_of(&self, _stream: Uuid) -> Tenure {
        self.tenure()
    }

    async fn ask_stop(&self, stream: Uuid, attempt: u32) -> Result<bool> {
        let is_asked = !self.rows(ASK_STOP, &[&stream, &attempt.cast_signed()]).await?.is_empty();
        if is_asked {
            // Whoever works on it hears it now, or with its next sign of life.
            self.shared.tell(Notice::Stop(stream));
        }
        Ok(is_asked)
    }

    async fn is_stop_asked(&self, stream: Uuid) -> Result<bool> {
        Ok(self.first(IS_STOP_ASKED, &[&stream]).await?.unwrap_or(false))
    }

    fn stops(&self) -> Option<mpsc::Receiver<Uuid>> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn mark_read(&self, stream: Uuid, is_read: bool) {
        let _ = self.shared.marks.send(Mark::Reads(stream, is_read));
    }

    async fn take_unread(&self, stream: Uuid) -> Result<bool> {
        self.shared.take_unread(stream).await
    }

    async fn elsewhere(&self, stream: Uuid, tenant: &str) -> Result<Elsewhere> {
        self.shared.elsewhere(stream, tenant).await
    }

    fn expect(&self, tenant: &str, within: Duration) {
        let _ = self.shared.marks.send(Mark::Expects(tenant.to_owned(), within));
    }

    async fn home(&self, tenant: &str, may_move_in: bool) -> Result<Home> {
        self.shared.home(tenant, may_move_in).await
    }

    async fn note(&self, tenant: &str, key: &str, stream: Uuid, now: Timestamp) -> Result<Noted> {
        self.shared.note(tenant, key, stream, now).await
    }

    async fn unnote(&self, tenant: &str, key: &str, stream: Uuid) -> Result<()> {
        self.shared.unnote(tenant, key, stream).await
    }

    async fn breakers(&self) -> Result<Vec<BreakerNotice>> {
        self.shared.breakers().await
    }

    async fn set_breaker(&self, notice: &BreakerNotice) -> Result<()> {
        self.shared.set_breaker(notice).await
    }

    fn outdated(&self) -> watch::Receiver<bool> {
        self.shared.outdated.subscribe()
    }

    fn replica_name(&self) -> Option<&str> {
        Some(&self.shared.replica.name)
    }

    async fn replicas(&self) -> Result<Vec<ReplicaState>> {
        let me = self.shared.me();
        let read = |row: &Row| -> Result<ReplicaState, Failure> {
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
                // Whoever is gone has nothing to do any more.
                load: load(row)?.filter(|_| standing != Standing::Gone),
            })
        };
        let rows = self.rows(REPLICAS, &[]).await?;
        rows.iter().map(|row| read(row).map_err(Failure::into_error)).collect()
    }

    fn set_load(&self, load: Load) {
        *self.shared.lock_load() = Some(load);
    }

    fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
    }
}

//! The lease: a sign of life every now and then, by the database's clock. Who gives none for too
//! long is fenced by another; who could give none stops by itself before that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::{Load, Replica};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Shared;
use super::link::{Failure, Link};
use super::rows::column;
use super::schema::Schema;
use super::wire::Wire;

/// As shares of the lease: how often a sign of life is given, how long one may take, when this
/// process stops by itself, and how often it looks for others that are gone.
const EVERY: f64 = 0.1;
const PATIENCE: f64 = 0.3;
const DOUBT: f64 = 0.7;
const LOOK: f64 = 0.3;
/// Signs of life are not given more often than this.
const LONGEST: Duration = Duration::from_secs(1);

const PULSE: &str = "select capstan.pulse_1($1, $2, $3, $4), \
    array(select stream from capstan.runs where owner = $1 and state = 1 and is_stop_asked limit \
    1000), \
    (select count(*) from capstan.replicas where id <> $1 and state < 3), (select min_writer from \
    capstan.meta)";
const FENCE: &str = "select capstan.fence_1($1, $2)";
const JOIN: &str = "select capstan.join_1($1, $2, $3, $4, $5)";
const FOLLOW: &str = "select capstan.follow_1($1, $2)";
const LEAVE: &str = "select capstan.leave_1($1)";

/// Takes a seat, in the place of one that this process had.
pub(super) async fn join(
    link: &Link,
    me: Uuid,
    was: Option<Uuid>,
    replica: &Replica,
) -> Result<(), Failure> {
    let (name, url, version) = (&replica.name, &replica.url, env!("CARGO_PKG_VERSION"));
    link.query(JOIN, &[&me, &was, name, url, &version]).await.map(drop)
}

/// Gives the seat up: when it returns, nothing more is written under it.
pub(super) async fn leave(shared: &Shared) -> Result<(), Failure> {
    shared.reads.try_query(LEAVE, &[&shared.me()]).await.map(drop)
}

pub(super) async fn run(shared: Arc<Shared>) {
    let wire = Wire::new(Arc::clone(&shared), "");
    let now = Instant::now();
    Pulse { shared, wire, last: now, steady_since: now, looked: now }.run().await;
}

/// Open responses, and in how many microseconds appends are done, as the database has them.
fn counted(load: Option<Load>) -> (Option<i64>, Option<i64>) {
    let responses = load.map(|load| i64::try_from(load.responses).unwrap_or(i64::MAX));
    let p95 = load.and_then(|load| load.append_p95);
    (responses, p95.map(|p95| i64::try_from(p95.as_micros()).unwrap_or(i64::MAX)))
}

struct Pulse {
    shared: Arc<Shared>,
    wire: Wire,
    /// When the last sign of life that arrived was sent.
    last: Instant,
    /// From when on every one has arrived.
    steady_since: Instant,
    looked: Instant,
}

impl Pulse {
    async fn run(mut self) {
        loop {
            if self.shared.is_closed() {
                return;
            }
            let patience = self.shared.part_of_lease(PATIENCE);
            let done = tokio::time::timeout(patience, self.beat()).await;
            if let Err(failure) = done.unwrap_or_else(|_| Err(Failure::silent())) {
                self.steady_since = Instant::now();
                self.wire.failed(&failure).await;
                self.doubt(&failure);
                continue;
            }
            tokio::time::sleep(self.shared.part_of_lease(EVERY).min(LONGEST)).await;
        }
    }

    async fn beat(&mut self) -> Result<(), Failure> {
        if !self.shared.is_seated() {
            return self.rejoin().await;
        }
        let (sent, me) = (Instant::now(), self.shared.me());
        let is_draining = self.shared.is_draining.load(Ordering::Relaxed);
        let (responses, p95) = counted(*self.shared.lock_load());
        let row =
            self.wire.link().await?.one(PULSE, &[&me, &is_draining, &responses, &p95]).await?;
        if !column::<bool>(&row, 0)? {
            self.shared.lose_seat("another process has fenced this one");
            return self.rejoin().await;
        }
        // However long this process was stopped: who has not been fenced goes on.
        self.last = sent;
        *self.shared.lock_pulsed() = sent;
        self.heard(&row)?;
        self.wire.rest();
        if self.looked.elapsed()
            >= self.shared.part_of_lease(LOOK + LOOK * f64::from(me.as_bytes()[0]) / 512.0)
        {
            self.looked = Instant::now();
            self.look_for_the_dead(me).await?;
        }
        Ok(())
    }

    fn heard(&self, row: &Row) -> Result<(), Failure> {
        for stream in column::<Vec<Uuid>>(row, 1)? {
            let _ = self.shared.stops.try_send(stream);
        }
        self.shared.peers.store(column::<i64>(row, 2)?.try_into().unwrap_or(0), Ordering::Relaxed);
        let min_writer: u32 = column::<i32>(row, 3)?.try_into().unwrap_or(u32::MAX);
        if min_writer > Schema::NEWEST && !self.shared.outdated.send_replace(true) {
            tracing::warn!(
                min_writer,
                "the journal asks for a newer build than this one, which leaves"
            );
        }
        self.shared.well();
        Ok(())
    }

    /// Only who has been steady for a whole lease may fence others: after an outage everybody has
    /// had the time for a sign of life.
    async fn look_for_the_dead(&mut self, me: Uuid) -> Result<(), Failure> {
        if self.steady_since.elapsed() < self.shared.replica.lease {
            return Ok(());
        }
        let lease = i64::try_from(self.shared.replica.lease.as_millis()).unwrap_or(i64::MAX);
        let row = self.wire.link().await?.one(FENCE, &[&me, &lease]).await?;
        if let Some(dead) = column::<Option<Uuid>>(&row, 0)? {
            tracing::warn!(replica = %dead, "a process gave no sign of life and is fenced");
        }
        Ok(())
    }

    /// Without signs of life for so long others may take over any moment: this process stops by
    /// itself.
    fn doubt(&self, failure: &Failure) {
        if self.last.elapsed() > self.shared.part_of_lease(DOUBT) && self.shared.is_seated() {
            self.shared.lose_seat(&format!("no sign of life could be given: {failure}"));
        }
    }

    async fn rejoin(&mut self) -> Result<(), Failure> {
        let (was, next, sent) = (self.shared.me(), Uuid::new_v4(), Instant::now());
        let link = self.wire.link().await?;
        join(link, next, Some(was), &self.shared.replica).await?;
        link.query(FOLLOW, &[&next, &was]).await?;
        (self.last, self.steady_since) = (sent, sent);
        self.shared.take_seat(next);
        self.shared.unsettled.notify_one();
        tracing::info!(replica = %next, "this process has a lease again");
        Ok(())
    }
}

//! A store that takes its time, dies when its fuse is burnt, and lets weeks pass on request.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{
    Catalog, Claim, Claimed, Expired, Found, Frame, Layer, Named, Quota, Records, Result,
    Retention, Run, Sessions, Store, StoredTurn, Transition, TurnRange, Usage,
};
use capstan_protocol::Timestamp;
use fastrand::Rng;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::model::world::Shared;

/// More calls than any schedule needs: somebody asks the store in a loop, and virtual time would
/// never pass.
const STORM: u64 = 200_000;
const HOUR_MICROS: i64 = 3600 * 1_000_000;
/// Longer than streams are kept, and than claims outlive them.
const JUMP_MICROS: i64 = 8 * 24 * HOUR_MICROS;

/// The calendar of all lives. The wall clock stands nearly still in a test, so days pass in here.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    /// How many times retention has jumped ahead; it is only applied while `is_jumping`.
    pub(crate) jumps: AtomicI64,
    pub(crate) is_jumping: AtomicBool,
}

/// One life's view of the store. What it has not handed on when the life ends is lost.
pub(crate) struct Shaky {
    inner: Arc<dyn Store>,
    calendar: Arc<Calendar>,
    world: Shared,
    rng: Mutex<Rng>,
    /// Points left until the process dies; negative if it does not.
    fuse: AtomicI64,
    crash: CancellationToken,
    points: AtomicU64,
    /// After a power cut, tails may be incomplete.
    is_tail_certain: bool,
}

impl Shaky {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        calendar: Arc<Calendar>,
        world: Shared,
        rng: Rng,
        is_tail_certain: bool,
    ) -> Self {
        let (fuse, points) = (AtomicI64::new(-1), AtomicU64::new(0));
        let crash = CancellationToken::new();
        Self { inner, calendar, world, rng: Mutex::new(rng), fuse, crash, points, is_tail_certain }
    }

    /// The process dies at this many points from now.
    pub(crate) fn light_fuse(&self, points: i64) {
        self.fuse.store(points, Ordering::Relaxed);
    }

    /// Fires when the process dies.
    pub(crate) fn crash(&self) -> CancellationToken {
        self.crash.clone()
    }

    /// A point at which others get their turn and the process may die. Nobody returns from death.
    async fn point(&self) {
        let (yields, sleep) = {
            let mut rng = self.rng.lock().unwrap();
            let sleep = match rng.u32(0..40) {
                0..4 => Some(rng.u64(1..20)),
                // A stall: whole requests come and go meanwhile.
                4 => Some(rng.u64(20..500)),
                _ => None,
            };
            (rng.u32(0..4), sleep)
        };
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        if let Some(millis) = sleep {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        if self.points.fetch_add(1, Ordering::Relaxed) == STORM {
            self.world.lock().fail("somebody asks the store in a loop without end");
            self.crash.cancel();
        }
        if self.fuse.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.crash.cancel();
        }
        if self.crash.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// A call with a point before it and one after it.
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.point().await;
        let answer = call.await;
        self.point().await;
        answer
    }
}

impl Layer for Shaky {
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

#[async_trait]
impl Records for Shaky {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        self.call(self.inner.claim(claim, quota)).await
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>> {
        self.call(self.inner.body(stream)).await
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        self.call(self.inner.append(stream, attempt, frames)).await
    }

    async fn transition(&self, step: Transition) -> Result<bool> {
        self.call(self.inner.transition(step)).await
    }

    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        self.call(self.inner.read(id, after, most, bytes)).await
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        self.call(self.inner.run(stream)).await
    }

    async fn is_tail_certain(&self, _: Uuid) -> Result<bool> {
        self.point().await;
        Ok(self.is_tail_certain || self.rng.lock().unwrap().bool())
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        self.call(self.inner.find(tenant, key)).await
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        self.call(self.inner.is_expired(tenant, stream)).await
    }

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool> {
        self.call(self.inner.purge(stream, now)).await
    }
}

#[async_trait]
impl Sessions for Shaky {
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        self.call(self.inner.turns(range)).await
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        self.call(self.inner.turn_count(tenant, session)).await
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        self.call(self.inner.has_session(tenant, session)).await
    }

    async fn sessions(&self, tenant: &str) -> Result<u64> {
        self.call(self.inner.sessions(tenant)).await
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        self.call(self.inner.usage(tenant, session)).await
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        self.call(self.inner.purge_session(tenant, session)).await
    }
}

#[async_trait]
impl Catalog for Shaky {
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        self.call(self.inner.list(tenant, before, limit)).await
    }

    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        self.call(self.inner.named(named)).await
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        self.call(self.inner.orphans(limit)).await
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        self.call(self.inner.waiting(before, limit)).await
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        self.call(self.inner.open_runs()).await
    }
}

#[async_trait]
impl Store for Shaky {
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        self.point().await;
        let is_jumping = self.calendar.is_jumping.load(Ordering::Relaxed);
        let ahead =
            i64::from(is_jumping) * self.calendar.jumps.load(Ordering::Relaxed) * JUMP_MICROS;
        self.inner.expire(retention, Timestamp::from_micros(now.as_micros() + ahead)).await
    }

    async fn close(&self) -> Result<()> {
        // The next life opens the same store again.
        Ok(())
    }
}

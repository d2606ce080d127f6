//! Counts the readers of each run. A run for which no client can come back is stopped when it has
//! had no reader, in any process, for a while. Each process counts its own readers and tells the
//! others about the first and the last.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_agent::Timer;
use capstan_journal::{Claim, RemoteReaders, Run};
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::Engine;
use crate::ports::ByGateway;
use crate::stopping;

/// The longest wait for a client, whatever delay it was given.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Other processes learn of an expected client with this much extra time, so that not every retry
/// needs a message.
const ANNOUNCE_AHEAD: Duration = Duration::from_secs(10);

/// The readers of each run, and the times at which clients were told to retry.
#[derive(Default)]
pub(crate) struct Readers {
    counts: Mutex<HashMap<Uuid, usize>>,
    expected: Mutex<HashMap<String, Expected>>,
    /// A number for the last time at which the last reader left a run. A wait with an older number
    /// is obsolete.
    left: Mutex<HashMap<Uuid, u64>>,
}

struct Expected {
    back: Instant,
    /// The other processes wait for the client until this time.
    announced_until: Instant,
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readers {
    /// A client of this tenant was told to retry after this delay, maybe for a run without readers.
    pub(crate) fn expect(&self, engine: &Engine, tenant: &str, within: Duration) {
        let (now, mut expected) = (Instant::now(), lock(&self.expected));
        expected.retain(|_, expected| expected.announced_until > now);
        let within = within.min(MAX_WAIT);
        let back = now + within;
        let known =
            expected.entry(tenant.to_owned()).or_insert(Expected { back, announced_until: now });
        known.back = back.max(known.back);
        if known.announced_until < back {
            known.announced_until = back + ANNOUNCE_AHEAD;
            if let Some(cluster) = engine.journal.store().cluster() {
                cluster.expect_clients(tenant, within + ANNOUNCE_AHEAD);
            }
        }
    }

    /// The time until the tenant's clients are expected back.
    fn expected_in(&self, tenant: &str, now: Instant) -> Duration {
        let expected = lock(&self.expected);
        expected.get(tenant).map_or(Duration::ZERO, |it| it.back.saturating_duration_since(now))
    }

    fn has(&self, stream: Uuid) -> bool {
        lock(&self.counts).contains_key(&stream)
    }

    /// Adds a reader. For the first one it calls `announce` under the lock, so that other processes
    /// receive changes in order.
    fn add(&self, stream: Uuid, announce: impl FnOnce()) {
        let mut all = lock(&self.counts);
        let count = all.entry(stream).or_default();
        *count += 1;
        if *count == 1 {
            announce();
        }
    }

    /// Removes a reader; true if it was the last. Then it calls `announce`, also under the lock.
    fn remove(&self, stream: Uuid, announce: impl FnOnce()) -> bool {
        let mut all = lock(&self.counts);
        let left = all.get(&stream).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            all.insert(stream, left);
            return false;
        }
        all.remove(&stream);
        announce();
        true
    }

    fn number(&self, stream: Uuid) -> u64 {
        let mut all = lock(&self.left);
        let number = all.entry(stream).or_default();
        *number += 1;
        *number
    }

    /// Whether no reader has come to this process since the wait with this number began.
    fn is_unread(&self, stream: Uuid, number: u64) -> bool {
        !self.has(stream) && lock(&self.left).get(&stream) == Some(&number)
    }

    fn forget(&self, stream: Uuid, number: u64) {
        let mut all = lock(&self.left);
        if all.get(&stream) == Some(&number) {
            all.remove(&stream);
        }
    }
}

/// Counts a reader of a run for as long as it lives.
pub struct ReaderGuard {
    engine: Engine,
    stream: Uuid,
    /// No request can name the run, so other processes must know whether it has a reader.
    is_keyless: bool,
    /// After this time without a reader the run is stopped; `None` if it goes on.
    ends_unread: Option<Duration>,
}

impl ReaderGuard {
    /// Counts one more reader.
    pub fn new(engine: &Engine, run: &Run) -> Self {
        let reading = Self::of(engine, run);
        engine.readers.add(run.stream_id, || reading.announce(true));
        reading
    }

    /// Counts the reader of a run that is not claimed yet. The claim itself announces the reader,
    /// so that other processes learn of the run and its reader together.
    pub(crate) fn of_claim(engine: &Engine, claim: &mut Claim) -> Self {
        let reading = Self::of(engine, &claim.to_run());
        claim.is_read = reading.is_keyless;
        engine.readers.add(claim.stream_id, || {});
        reading
    }

    /// The claim failed: there is no run, so nothing is announced or stopped.
    pub(crate) fn void(mut self) {
        (self.is_keyless, self.ends_unread) = (false, None);
    }

    /// Counts a reader if the run has none in any process. Of several clients that repeat a request
    /// for an unread run, one gets it.
    pub async fn alone(engine: &Engine, run: &Run) -> Option<Self> {
        let stream = run.stream_id;
        {
            let mut all = lock(&engine.readers.counts);
            if all.contains_key(&stream) {
                return None;
            }
            all.insert(stream, 1);
        }
        let reading = Self::of(engine, run);
        let is_taken = match engine.journal.store().cluster_of(stream) {
            Some(cluster) => cluster.take_unread(stream).await.unwrap_or(false),
            None => true,
        };
        if is_taken {
            return Some(reading);
        }
        let all = lock(&engine.readers.counts);
        if all.get(&stream).is_some_and(|count| *count > 1) {
            // Another reader came here meanwhile, and could not announce itself as the first.
            reading.announce(true);
        }
        drop(all);
        None
    }

    fn announce(&self, is_read: bool) {
        if self.is_keyless
            && let Some(cluster) = self.engine.journal.store().cluster_of(self.stream)
        {
            cluster.mark_read(self.stream, is_read);
        }
    }

    fn of(engine: &Engine, run: &Run) -> Self {
        let (is_keyless, ends_unread) = (engine.protocols.is_keyless(run), grace_of(engine, run));
        Self { engine: engine.clone(), stream: run.stream_id, is_keyless, ends_unread }
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let is_last = self.engine.readers.remove(self.stream, || self.announce(false));
        if let Some(grace) = self.ends_unread.filter(|_| is_last) {
            stop_unread(&self.engine, self.stream, grace);
        }
    }
}

/// Starts the wait for readers of a run that goes on here without one, if its face asks for it.
pub(crate) fn stop_if_unread(engine: &Engine, run: &Run) {
    if let Some(grace) = grace_of(engine, run).filter(|_| !engine.readers.has(run.stream_id)) {
        stop_unread(engine, run.stream_id, grace);
    }
}

/// How long a run goes on without a reader; `None` if there is no limit.
fn grace_of(engine: &Engine, run: &Run) -> Option<Duration> {
    let (protocols, timeouts) = (&engine.protocols, &engine.settings.timeouts);
    let usual = timeouts.unread_chat;
    let grace = if protocols.asks_for_rest(run) { usual.max(timeouts.waiting) } else { usual };
    (protocols.ends_unread(run) && !usual.is_zero()).then_some(grace)
}

/// Stops a run after the grace period, unless a reader comes back.
fn stop_unread(engine: &Engine, stream: Uuid, grace: Duration) {
    if let Ok(runtime) = Handle::try_current() {
        let (engine, number) = (engine.clone(), engine.readers.number(stream));
        runtime.spawn(async move {
            UnreadWait {
                engine: &engine,
                stream,
                number,
                began: Instant::now(),
                waited: Duration::ZERO,
            }
            .run(grace)
            .await;
            engine.readers.forget(stream, number);
        });
    }
}

/// The wait for a reader of a run that has none in this process.
struct UnreadWait<'a> {
    engine: &'a Engine,
    stream: Uuid,
    number: u64,
    began: Instant,
    waited: Duration,
}

impl UnreadWait<'_> {
    async fn run(mut self, grace: Duration) {
        let (mut open, mut delay) = (self.open().await, grace);
        while let Some(run) = open {
            if delay.is_zero() {
                tracing::info!(stream = %self.stream,
                "the run has no reader and no client can come back for it; it is stopped");
                // If the stop fails, the run ends without it when its agent does.
                let _ = stopping::stop(self.engine, run, &ByGateway).await;
                return;
            }
            if !self.wait(delay).await {
                return;
            }
            delay = self.remaining(&run.tenant, grace).await;
            open = self.open().await;
        }
    }

    /// False if a reader came to this process, or the server shuts down.
    async fn wait(&mut self, delay: Duration) -> bool {
        self.waited += delay;
        tokio::select! {
            () = self.engine.clock.sleep(Timer::Grace,
            delay) => self.engine.readers.is_unread(self.stream, self.number),
            () = self.engine.draining.cancelled() => false,
        }
    }

    async fn open(&self) -> Option<Run> {
        let run = self.engine.journal.store().run(self.stream).await.ok().flatten();
        run.filter(Run::is_open)
    }

    /// How long to wait before the run is stopped; zero if it may be stopped now.
    async fn remaining(&self, tenant: &str, grace: Duration) -> Duration {
        let remote = match self.engine.journal.store().cluster_of(self.stream) {
            Some(cluster) => cluster.remote_readers(self.stream, tenant).await,
            None => Ok(RemoteReaders::default()),
        };
        // If the store does not answer, the run may have readers in another process.
        let Ok(RemoteReaders { is_read, unread_for, expected }) = remote else { return grace };
        if is_read {
            return grace;
        }
        // Read the clock once: a second reading would prolong the wait by the time between the two.
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.began);
        // A client that was told to retry later may come for this run.
        let expected = expected.max(self.engine.readers.expected_in(tenant, now));
        let back =
            if expected.is_zero() { Duration::ZERO } else { (elapsed + expected).min(MAX_WAIT) };
        let left = unread_for.map_or(Duration::ZERO, |long| (elapsed + grace).saturating_sub(long));
        grace.max(back).max(left).saturating_sub(self.waited.max(elapsed))
    }
}

//! Who reads a run. One that its face leaves nobody to come back for is stopped when its last
//! reader, in any process, has been gone for a while. Each process counts its own readers, and lets
//! the others know of the first and the last.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_agent::Timer;
use capstan_journal::{Claim, Elsewhere, Run};
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::Engine;
use crate::stopping;

/// Nobody is waited for any longer, whatever was said.
const LONGEST: Duration = Duration::from_secs(600);
/// The others are told of a wait that is so much longer, so that they need not be told of each.
const AHEAD: Duration = Duration::from_secs(10);

/// How many read each run, and when those will be back who were told to wait.
#[derive(Default)]
pub struct Readers {
    counts: Mutex<HashMap<Uuid, usize>>,
    expected: Mutex<HashMap<String, Expected>>,
    /// The last time that the last reader left a run which ends unread, as a number: whoever waits
    /// since an earlier one need not.
    left: Mutex<HashMap<Uuid, u64>>,
}

struct Expected {
    back: Instant,
    /// Until when the other processes wait for it.
    told: Instant,
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readers {
    /// Somebody of this tenant was told to come back then, maybe for a run that nobody reads.
    pub fn expect(&self, engine: &Engine, tenant: &str, within: Duration) {
        let (now, mut expected) = (Instant::now(), lock(&self.expected));
        expected.retain(|_, expected| expected.told > now);
        let within = within.min(LONGEST);
        let back = now + within;
        let known = expected.entry(tenant.to_owned()).or_insert(Expected { back, told: now });
        known.back = back.max(known.back);
        if known.told < back {
            known.told = back + AHEAD;
            engine.journal.store().expect(tenant, within + AHEAD);
        }
    }

    /// How long it is until then.
    fn expected_in(&self, tenant: &str, now: Instant) -> Duration {
        let expected = lock(&self.expected);
        expected.get(tenant).map_or(Duration::ZERO, |it| it.back.saturating_duration_since(now))
    }

    fn has(&self, stream: Uuid) -> bool {
        lock(&self.counts).contains_key(&stream)
    }

    /// One more. The first is told to the others while nobody else can come or leave, so that they
    /// hear it in that order.
    fn come(&self, stream: Uuid, tell: impl FnOnce()) {
        let mut all = lock(&self.counts);
        let count = all.entry(stream).or_default();
        *count += 1;
        if *count == 1 {
            tell();
        }
    }

    /// One less; whether that was the last, which is told likewise.
    fn leave(&self, stream: Uuid, tell: impl FnOnce()) -> bool {
        let mut all = lock(&self.counts);
        let left = all.get(&stream).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            all.insert(stream, left);
            return false;
        }
        all.remove(&stream);
        tell();
        true
    }

    fn number(&self, stream: Uuid) -> u64 {
        let mut all = lock(&self.left);
        let number = all.entry(stream).or_default();
        *number += 1;
        *number
    }

    /// Whether nobody has come here since, or has come and left.
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

/// Somebody reads a run, as long as this lives.
pub struct ReaderGuard {
    engine: Engine,
    stream: Uuid,
    /// Nobody can name it in a request: the other processes are told who reads it.
    is_keyless: bool,
    /// Nobody can come back for it.
    ends_unread: bool,
}

impl ReaderGuard {
    /// One more reader.
    pub fn new(engine: &Engine, run: &Run) -> Self {
        let reading = Self::of(engine, run);
        engine.readers.come(run.stream_id, || reading.tell(true));
        reading
    }

    /// The reader of a run that is yet to be claimed. The claim tells the others, so that they know
    /// of the reader as soon as of the run.
    pub(crate) fn of_claim(engine: &Engine, claim: &mut Claim) -> Self {
        let reading = Self::of(engine, &claim.to_run());
        claim.is_read = reading.is_keyless;
        engine.readers.come(claim.stream_id, || {});
        reading
    }

    /// There is no such run after all, and nothing to tell of it.
    pub(crate) fn void(mut self) {
        (self.is_keyless, self.ends_unread) = (false, false);
    }

    /// The first reader, unless there is one in any process: of many who come for a run that nobody
    /// reads, one gets it.
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
        if engine.journal.store().take_unread(stream).await.unwrap_or(false) {
            return Some(reading);
        }
        let all = lock(&engine.readers.counts);
        if all.get(&stream).is_some_and(|count| *count > 1) {
            // Who has come meanwhile was not the first here.
            reading.tell(true);
        }
        drop(all);
        None
    }

    fn tell(&self, is_read: bool) {
        if self.is_keyless {
            self.engine.journal.store().mark_read(self.stream, is_read);
        }
    }

    fn of(engine: &Engine, run: &Run) -> Self {
        let protocols = &engine.protocols;
        let (is_keyless, ends_unread) = (protocols.is_keyless(run), protocols.ends_unread(run));
        Self { engine: engine.clone(), stream: run.stream_id, is_keyless, ends_unread }
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let is_last = self.engine.readers.leave(self.stream, || self.tell(false));
        if is_last && self.ends_unread {
            stop_unread(&self.engine, self.stream);
        }
    }
}

/// Looks after a run that goes on here, if nobody reads it and nobody can come back for it.
pub(crate) fn look_after(engine: &Engine, run: &Run) {
    if engine.protocols.ends_unread(run) && !engine.readers.has(run.stream_id) {
        stop_unread(engine, run.stream_id);
    }
}

/// Stops a run that nobody comes back to in time.
fn stop_unread(engine: &Engine, stream: Uuid) {
    let grace = engine.settings.timeouts.unread_chat;
    if let Ok(runtime) = Handle::try_current()
        && !grace.is_zero()
    {
        let (engine, number) = (engine.clone(), engine.readers.number(stream));
        runtime.spawn(async move {
            Vigil {
                engine: &engine,
                stream,
                number,
                began: Instant::now(),
                waited: Duration::ZERO,
            }
            .keep(grace)
            .await;
            engine.readers.forget(stream, number);
        });
    }
}

/// The wait for readers of a run that has none here.
struct Vigil<'a> {
    engine: &'a Engine,
    stream: Uuid,
    number: u64,
    began: Instant,
    waited: Duration,
}

impl Vigil<'_> {
    async fn keep(mut self, grace: Duration) {
        let (mut open, mut long) = (self.open().await, grace);
        while let Some(run) = open {
            if long.is_zero() {
                tracing::info!(stream = %self.stream,
                "nobody reads the run any more, nor can come back for it; it is stopped");
                // A run that cannot be stopped now ends by itself.
                let _ = stopping::stop(self.engine, run).await;
                return;
            }
            if !self.wait(long).await {
                return;
            }
            long = self.longer(&run.tenant, grace).await;
            open = self.open().await;
        }
    }

    /// False if somebody has come here, or the server ends.
    async fn wait(&mut self, long: Duration) -> bool {
        self.waited += long;
        tokio::select! {
            () = self.engine.clock.sleep(Timer::Grace,
            long) => self.engine.readers.is_unread(self.stream, self.number),
            () = self.engine.draining.cancelled() => false,
        }
    }

    async fn open(&self) -> Option<Run> {
        let run = self.engine.journal.store().run(self.stream).await.ok().flatten();
        run.filter(Run::is_open)
    }

    /// For how long it is still to be waited.
    async fn longer(&self, tenant: &str, grace: Duration) -> Duration {
        let store = self.engine.journal.store();
        // Who cannot ask does not stop what others may read.
        let Ok(elsewhere) = store.elsewhere(self.stream, tenant).await else { return grace };
        let Elsewhere { is_read, unread_for, expected } = elsewhere;
        if is_read {
            return grace;
        }
        // One look at the clock: the time until somebody is back must not grow by what passes
        // between two.
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.began);
        // Whoever was told to come back later may come for this one.
        let expected = expected.max(self.engine.readers.expected_in(tenant, now));
        let back =
            if expected.is_zero() { Duration::ZERO } else { (elapsed + expected).min(LONGEST) };
        let left = unread_for.map_or(Duration::ZERO, |long| (elapsed + grace).saturating_sub(long));
        grace.max(back).max(left).saturating_sub(self.waited.max(elapsed))
    }
}

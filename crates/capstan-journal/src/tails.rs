//! All live tails of this process: who uses them, and how much memory they may take together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use crate::Frame;
use crate::planted_bug::{self, Bug};
use crate::ring::{Ring, Standing};

/// How much memory recent frames may take. Older ones are read from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailLimits {
    /// For one stream.
    pub stream_bytes: usize,
    /// For all streams together; the oldest streams' frames go first.
    pub total_bytes: usize,
}

impl Default for TailLimits {
    fn default() -> Self {
        // A viewer that lags by some seconds still finds its place; 256 busy streams fit at full length.
        Self { stream_bytes: 256 * 1024, total_bytes: 64 * 1024 * 1024 }
    }
}

/// What long steps of all readers together may take; who finds no room goes on in short ones. Readers that stop reading
/// keep their room, so it must be affordable.
const LONG_STEPS_BYTES: usize = 8 * 1024 * 1024;
/// Room is given out in pieces of this size.
const PIECE: usize = 8 * 1024;

/// Room for a long step, given back when dropped.
pub(crate) type Room = OwnedSemaphorePermit;

#[derive(Debug)]
pub(crate) struct Tails {
    // Ordered by stream id, which is the order of age.
    tails: Mutex<BTreeMap<Uuid, Entry>>,
    total: AtomicUsize,
    limits: TailLimits,
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    // A watch: readers look at the very value whose version they mark as seen, so no wake-up can fall between.
    ring: Arc<watch::Sender<Ring>>,
    users: usize,
}

impl Tails {
    pub(crate) fn new(limits: TailLimits) -> Self {
        let room = Arc::new(Semaphore::new(LONG_STEPS_BYTES / PIECE));
        Self { tails: Mutex::default(), total: AtomicUsize::new(0), limits, room }
    }

    /// A stream's tail, kept at least as long as the lease.
    ///
    /// Readers hold one, and every write holds one from before it is stored until it is noted. So writes that overlap
    /// share a ring, whose standing only grows, and an entry made anew can only miss what the store already has.
    pub(crate) fn lease(self: &Arc<Self>, stream: Uuid) -> Lease {
        let mut tails = self.lock();
        let entry = tails
            .entry(stream)
            .or_insert_with(|| Entry { ring: Arc::new(watch::Sender::new(Ring::default())), users: 0 });
        entry.users += 1;
        Lease { ring: entry.ring.clone(), stream, tails: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Entry>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, stream: Uuid) {
        let mut tails = self.lock();
        let Some(entry) = tails.get_mut(&stream) else { return };
        entry.users = entry.users.saturating_sub(1);
        let (is_live, size) = {
            let ring = entry.ring.borrow();
            (ring.is_live(), ring.size())
        };
        if entry.users == 0 && !is_live {
            tails.remove(&stream);
            self.total.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// Changes a ring, keeps the total right, wakes readers if the change says so.
    fn change(&self, ring: &watch::Sender<Ring>, change: impl FnOnce(&mut Ring) -> bool) {
        ring.send_if_modified(|ring| {
            let before = ring.size();
            let is_news = change(ring);
            // Wraps around zero by design: only the sum of all changes counts.
            self.total.fetch_add(ring.size().wrapping_sub(before), Ordering::Relaxed);
            is_news
        });
    }

    fn evict(&self) {
        // Some room at once, so that not every append has to walk the tails.
        let target = self.limits.total_bytes - self.limits.total_bytes / 8;
        for entry in self.lock().values() {
            if self.total.load(Ordering::Relaxed) <= target {
                return;
            }
            self.change(&entry.ring, |ring| {
                ring.clear();
                false
            });
        }
    }
}

/// The right to use a stream's tail.
#[derive(Debug)]
pub(crate) struct Lease {
    ring: Arc<watch::Sender<Ring>>,
    stream: Uuid,
    tails: Arc<Tails>,
}

impl Lease {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Ring> {
        self.ring.subscribe()
    }

    /// Room for a step of so many bytes, if there is any.
    pub(crate) fn room(&self, bytes: usize) -> Option<Room> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).ok()?;
        Arc::clone(&self.tails.room).try_acquire_many_owned(pieces).ok()
    }

    /// A new run was stored.
    pub(crate) fn begin(&self, standing: Standing) {
        self.tails.change(&self.ring, |ring| {
            ring.begin(standing);
            true
        });
    }

    /// Frames or a new standing were stored: remember and wake.
    pub(crate) fn note(&self, standing: Standing, frames: &[Frame]) {
        let limits = self.tails.limits;
        self.tails.change(&self.ring, |ring| {
            ring.note(standing, frames, limits.stream_bytes);
            !planted_bug::is(Bug::LostWakeup)
        });
        if self.tails.total.load(Ordering::Relaxed) > limits.total_bytes {
            self.tails.evict();
        }
    }

    /// The stream was erased: whoever is not through must ask the store, which has nothing.
    pub(crate) fn forget(&self) {
        self.tails.change(&self.ring, |ring| {
            ring.forget();
            true
        });
    }

    /// The store was asked. Nobody is woken, for nothing has changed.
    pub(crate) fn learn(&self, standing: Standing, last_seq: u64) {
        self.tails.change(&self.ring, |ring| {
            ring.learn(standing, last_seq);
            false
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tails.release(self.stream);
    }
}

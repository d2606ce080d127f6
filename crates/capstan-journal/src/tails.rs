//! All live tails of this process: who uses them, and how much memory they may take together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use crate::backend::planted_bug::{self, Bug};
use crate::ring::{Ring, Standing};
use crate::{Frame, News, RunState, Store};

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
        // A viewer that lags by some seconds still finds its place; 256 busy streams fit at full
        // length.
        Self { stream_bytes: 256 * 1024, total_bytes: 64 * 1024 * 1024 }
    }
}

/// What long steps of all readers together may take; who finds no room goes on in short ones.
/// Readers that stop reading keep their room, so it must be affordable.
const LONG_STEPS_BYTES: usize = 8 * 1024 * 1024;
/// Room is given out in pieces of this size.
const PIECE: usize = 8 * 1024;

/// Room for a long step, given back when dropped.
pub(crate) type Room = OwnedSemaphorePermit;

pub(crate) struct Tails {
    // Ordered by stream id, which is the order of age.
    tails: Mutex<BTreeMap<Uuid, Entry>>,
    total: AtomicUsize,
    limits: TailLimits,
    room: Arc<Semaphore>,
    /// The store behind which some streams live in memory, if one does: whoever else writes to the
    /// journal, not to these.
    split: OnceLock<Weak<dyn Store>>,
}

#[derive(Debug)]
struct Entry {
    // A watch: readers look at the very value whose version they mark as seen, so no wake-up can
    // fall between.
    ring: Arc<watch::Sender<Ring>>,
    users: usize,
}

impl Tails {
    pub(crate) fn new(limits: TailLimits) -> Self {
        let room = Arc::new(Semaphore::new(LONG_STEPS_BYTES / PIECE));
        Self {
            tails: Mutex::default(),
            total: AtomicUsize::new(0),
            limits,
            room,
            split: OnceLock::new(),
        }
    }

    /// From here on this store says who follows what.
    pub(crate) fn split(&self, store: &Arc<dyn Store>) {
        let _ = self.split.set(Arc::downgrade(store));
    }

    /// A stream's tail, kept at least as long as the lease.
    ///
    /// Readers hold one, and every write holds one from before it is stored until it is noted. So
    /// writes that overlap share a ring, whose standing only grows, and an entry made anew can only
    /// miss what the store already has.
    pub(crate) fn lease(self: &Arc<Self>, store: &Arc<dyn Store>, stream: Uuid) -> Lease {
        let mut tails = self.lock();
        let ring = || Arc::new(watch::Sender::new(Ring::new(store.watch(stream))));
        let entry = tails.entry(stream).or_insert_with(|| Entry { ring: ring(), users: 0 });
        entry.users += 1;
        Lease { ring: entry.ring.clone(), stream, tails: self.clone(), store: Arc::clone(store) }
    }

    /// Takes in what other processes have written.
    pub(crate) fn hear(&self, store: &dyn Store, news: News) {
        match news {
            News::Frames { stream, standing, frames } => {
                let max_size = self.limits.stream_bytes;
                self.tell(stream, |ring| ring.hear(standing, &frames, max_size));
            }
            News::Stands { stream, standing, last_seq } => {
                self.tell(stream, |ring| ring.hear_of(standing, last_seq));
            }
            News::Gone(stream) => self.tell(stream, |ring| {
                ring.forget();
                true
            }),
            News::Fenced => {
                let split = self.split.get().and_then(Weak::upgrade);
                let store = split.as_deref().unwrap_or(store);
                let rings: Vec<_> = self
                    .lock()
                    .iter()
                    .map(|(stream, entry)| (*stream, entry.ring.clone()))
                    .collect();
                for (stream, ring) in rings {
                    self.change(&ring, |ring| {
                        ring.follow(store.watch(stream));
                        true
                    });
                }
                self.drop_unused();
            }
        }
        self.evict_if_full();
    }

    fn tell(&self, stream: Uuid, change: impl FnOnce(&mut Ring) -> bool) {
        let ring = self.lock().get(&stream).map(|entry| entry.ring.clone());
        if let Some(ring) = ring {
            self.change(&ring, change);
        }
    }

    fn drop_unused(&self) {
        self.lock().retain(|_, entry| {
            let (is_kept, size) = {
                let ring = entry.ring.borrow();
                (entry.users > 0 || ring.is_kept(), ring.size())
            };
            if !is_kept {
                self.total.fetch_sub(size, Ordering::Relaxed);
            }
            is_kept
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Entry>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, stream: Uuid) {
        let mut tails = self.lock();
        let Some(entry) = tails.get_mut(&stream) else { return };
        entry.users = entry.users.saturating_sub(1);
        let (is_kept, size) = {
            let ring = entry.ring.borrow();
            (ring.is_kept(), ring.size())
        };
        if entry.users == 0 && !is_kept {
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

    fn evict_if_full(&self) {
        if self.total.load(Ordering::Relaxed) > self.limits.total_bytes {
            self.evict();
        }
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
pub(crate) struct Lease {
    ring: Arc<watch::Sender<Ring>>,
    stream: Uuid,
    tails: Arc<Tails>,
    store: Arc<dyn Store>,
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
            ring.own();
            ring.begin(standing);
            true
        });
    }

    /// Somebody else writes the stream, whatever this process believed.
    pub(crate) fn follow(&self) {
        self.tails.change(&self.ring, |ring| {
            ring.follow(self.store.watch(self.stream));
            true
        });
    }

    /// Frames or a new standing were stored: remember and wake.
    pub(crate) fn note(&self, standing: Standing, frames: &[Frame]) {
        let max_size = self.tails.limits.stream_bytes;
        // While it runs here nobody else writes it; afterwards anybody may go on with it.
        let watch =
            if standing.1 == RunState::Running { None } else { self.store.watch(self.stream) };
        self.tails.change(&self.ring, |ring| {
            match watch {
                Some(watch) => ring.hand_over(watch),
                None => ring.own(),
            }
            ring.note(standing, frames, max_size);
            !planted_bug::is(Bug::LostWakeup)
        });
        self.tails.evict_if_full();
    }

    /// The stream was erased: whoever is not through must ask the store, which has nothing.
    pub(crate) fn forget(&self) {
        self.tails.change(&self.ring, |ring| {
            ring.forget();
            true
        });
    }

    /// The store was asked. Where others write, it may know more than the readers here who have
    /// been told nothing yet: once it is taken down it is no news any more, so they are woken now.
    pub(crate) fn learn(&self, standing: Standing, last_seq: u64) {
        self.tails.change(&self.ring, |ring| ring.learn(standing, last_seq));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.tails.release(self.stream);
    }
}

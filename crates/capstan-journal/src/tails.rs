//! The live tails of this process: their users, and their memory limit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::sync::watch as channel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::backend::planted_bug::{self, Bug};
use crate::ring::{AttemptState, Ring};
use crate::{Frame, Notification, RunState, Store, Watch};

/// Memory limits for recent frames. Older frames are read from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailLimits {
    /// For one stream.
    pub stream_bytes: usize,
    /// For all streams together. The frames of the oldest streams are dropped first.
    pub total_bytes: usize,
}

impl Default for TailLimits {
    fn default() -> Self {
        // A viewer that is some seconds behind is still served from memory. 256 busy streams fit at
        // full length.
        Self { stream_bytes: 256 * 1024, total_bytes: 64 * 1024 * 1024 }
    }
}

/// The memory for long steps of all readers together; without a permit a reader makes short steps.
/// Readers that stop reading keep their permits, so this must be affordable.
const LONG_STEPS_BYTES: usize = 8 * 1024 * 1024;
/// Permits are given for multiples of this size.
const PERMIT_BYTES: usize = 8 * 1024;

/// The permit for a long step.
pub(crate) type StepPermit = OwnedSemaphorePermit;

pub(crate) struct Tails {
    // Ordered by stream id, which is the order of age.
    tails: Mutex<BTreeMap<Uuid, Entry>>,
    total: AtomicUsize,
    limits: TailLimits,
    step_permits: Arc<Semaphore>,
    /// The split store, if some streams are in memory. Other processes write to the journal, but
    /// not to these streams.
    split: OnceLock<Weak<dyn Store>>,
}

#[derive(Debug)]
struct Entry {
    // A watch channel: a reader reads the same value whose version it marks as seen, so it cannot
    // miss a wake-up.
    ring: Arc<channel::Sender<Ring>>,
    users: usize,
}

impl Tails {
    pub(crate) fn new(limits: TailLimits) -> Self {
        let step_permits = Arc::new(Semaphore::new(LONG_STEPS_BYTES / PERMIT_BYTES));
        Self {
            tails: Mutex::default(),
            total: AtomicUsize::new(0),
            limits,
            step_permits,
            split: OnceLock::new(),
        }
    }

    /// Sets the store that knows which streams other processes may write.
    pub(crate) fn split(&self, store: &Arc<dyn Store>) {
        let _ = self.split.set(Arc::downgrade(store));
    }

    /// Returns a stream's tail, which exists at least as long as the handle.
    ///
    /// Readers hold a handle, and every write holds one from before it is stored until it is in the
    /// ring. So concurrent writes share a ring, whose state only grows. A new ring can only lack
    /// frames that the store already has.
    pub(crate) fn handle(self: &Arc<Self>, store: &Arc<dyn Store>, stream: Uuid) -> TailHandle {
        let mut tails = self.lock();
        let ring = || Arc::new(channel::Sender::new(Ring::new(watch(&**store, stream))));
        let entry = tails.entry(stream).or_insert_with(|| Entry { ring: ring(), users: 0 });
        entry.users += 1;
        TailHandle {
            ring: entry.ring.clone(),
            stream,
            tails: self.clone(),
            store: Arc::clone(store),
        }
    }

    /// Applies a notification of another process.
    pub(crate) fn apply(&self, store: &dyn Store, notification: Notification) {
        match notification {
            Notification::Frames { stream, standing, frames } => {
                let max_size = self.limits.stream_bytes;
                self.update(stream, |ring| ring.apply_frames(standing, &frames, max_size));
            }
            Notification::State { stream, standing, last_seq } => {
                self.update(stream, |ring| ring.apply_state(standing, last_seq));
            }
            Notification::Erased(stream) => self.update(stream, |ring| {
                ring.forget();
                true
            }),
            Notification::LeaseLost => {
                let split = self.split.get().and_then(Weak::upgrade);
                let store = split.as_deref().unwrap_or(store);
                let rings: Vec<_> = self
                    .lock()
                    .iter()
                    .map(|(stream, entry)| (*stream, entry.ring.clone()))
                    .collect();
                for (stream, ring) in rings {
                    self.change(&ring, |ring| {
                        ring.follow(watch(store, stream));
                        true
                    });
                }
                self.drop_unused();
            }
        }
        self.evict_if_full();
    }

    fn update(&self, stream: Uuid, change: impl FnOnce(&mut Ring) -> bool) {
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

    /// Changes a ring, updates the total size, and wakes the readers if the change returns true.
    fn change(&self, ring: &channel::Sender<Ring>, change: impl FnOnce(&mut Ring) -> bool) {
        ring.send_if_modified(|ring| {
            let before = ring.size();
            let is_new = change(ring);
            // This may wrap around zero. Only the sum of all changes counts.
            self.total.fetch_add(ring.size().wrapping_sub(before), Ordering::Relaxed);
            is_new
        });
    }

    fn evict_if_full(&self) {
        if self.total.load(Ordering::Relaxed) > self.limits.total_bytes {
            self.evict();
        }
    }

    fn evict(&self) {
        // Free an eighth at once, so that not every append has to walk all tails.
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

/// A handle of a stream's tail.
pub(crate) struct TailHandle {
    ring: Arc<channel::Sender<Ring>>,
    stream: Uuid,
    tails: Arc<Tails>,
    store: Arc<dyn Store>,
}

impl TailHandle {
    pub(crate) fn subscribe(&self) -> channel::Receiver<Ring> {
        self.ring.subscribe()
    }

    /// A permit for a step of this size, if memory is available.
    pub(crate) fn step_permit(&self, bytes: usize) -> Option<StepPermit> {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).ok()?;
        Arc::clone(&self.tails.step_permits).try_acquire_many_owned(permits).ok()
    }

    /// A new run was stored.
    pub(crate) fn begin(&self, standing: AttemptState) {
        self.tails.change(&self.ring, |ring| {
            ring.own();
            ring.begin(standing);
            true
        });
    }

    /// Another process writes the stream now.
    pub(crate) fn follow(&self) {
        self.tails.change(&self.ring, |ring| {
            ring.follow(watch(&*self.store, self.stream));
            true
        });
    }

    /// Frames or a new state were stored: adds them to the ring and wakes the readers.
    pub(crate) fn record(&self, standing: AttemptState, frames: &[Frame]) {
        let max_size = self.tails.limits.stream_bytes;
        // While the run is running here, no other process writes it. Afterwards any process may
        // continue it.
        let watch =
            if standing.1 == RunState::Running { None } else { watch(&*self.store, self.stream) };
        self.tails.change(&self.ring, |ring| {
            match watch {
                Some(watch) => ring.hand_over(watch),
                None => ring.own(),
            }
            ring.record(standing, frames, max_size);
            !planted_bug::is(Bug::LostWakeup)
        });
        self.tails.evict_if_full();
    }

    /// The stream was erased: its readers must query the store, which has nothing.
    pub(crate) fn forget(&self) {
        self.tails.change(&self.ring, |ring| {
            ring.forget();
            true
        });
    }

    /// Applies the state in the store. If other processes write the stream, this may be newer than
    /// the notifications so far. Wake the readers now, because a later notification with the same
    /// state would not.
    pub(crate) fn learn(&self, standing: AttemptState, last_seq: u64) {
        self.tails.change(&self.ring, |ring| ring.learn(standing, last_seq));
    }
}

impl Drop for TailHandle {
    fn drop(&mut self) {
        self.tails.release(self.stream);
    }
}

/// Follows a stream, if other processes may write it.
fn watch(store: &dyn Store, stream: Uuid) -> Option<Watch> {
    store.cluster_of(stream).map(|cluster| cluster.watch(stream))
}

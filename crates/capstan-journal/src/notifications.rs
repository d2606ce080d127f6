//! Changes by other processes to a shared store, and the streams that this process follows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::{Frame, RunState};

/// A change of a stream that another process writes. It is only a hint: it may be lost, late or
/// repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// Frames were stored, or the run's state changed, or both.
    Frames {
        /// The stream.
        stream: Uuid,
        /// The run's attempt and state.
        standing: (u32, RunState),
        /// Consecutive frames in order; empty if they are too long for a notification.
        frames: Vec<Frame>,
    },
    /// The result of a query: the run's state and its last frame.
    State {
        /// The stream.
        stream: Uuid,
        /// The run's attempt and state.
        standing: (u32, RunState),
        /// The `seq` of its last frame.
        last_seq: u64,
    },
    /// The stream was erased.
    Erased(Uuid),
    /// This process has lost its lease, and no longer owns its runs.
    LeaseLost,
}

/// A number that changes when this process loses its lease, and with it the right to write its
/// runs.
pub type LeaseEpoch = watch::Receiver<u64>;

/// The streams that this process follows while other processes may write them.
#[derive(Debug, Default)]
pub struct Watched {
    streams: Mutex<Streams>,
    has_new: Notify,
}

#[derive(Debug, Default)]
struct Streams {
    all: HashMap<Uuid, Followed>,
    /// Streams that became due and were not yet taken by `newly_awaited`.
    new: Vec<Uuid>,
}

#[derive(Debug)]
struct Followed {
    watches: usize,
    /// A reader waits for more frames.
    is_awaited: bool,
    /// The newest known attempt and state.
    standing: (u32, RunState),
}

impl Default for Followed {
    fn default() -> Self {
        Self { watches: 0, is_awaited: false, standing: (0, RunState::Running) }
    }
}

impl Followed {
    /// Whether new frames may arrive at any moment.
    fn is_due(&self) -> bool {
        self.is_awaited && self.standing.1 == RunState::Running
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a stream for as long as the returned value lives.
    pub fn watch(self: &Arc<Self>, stream: Uuid) -> Watch {
        self.lock().all.entry(stream).or_default().watches += 1;
        Watch { stream, watched: Arc::clone(self), is_awaited: AtomicBool::new(false) }
    }

    /// Whether this process follows the stream.
    pub fn has(&self, stream: Uuid) -> bool {
        self.lock().all.contains_key(&stream)
    }

    /// All streams that this process follows.
    pub fn streams(&self) -> Vec<Uuid> {
        self.lock().all.keys().copied().collect()
    }

    /// Followed streams that are running and have a waiting reader.
    pub fn awaited(&self) -> Vec<Uuid> {
        self.lock().all.iter().filter(|(_, one)| one.is_due()).map(|(stream, _)| *stream).collect()
    }

    /// Waits for streams that became due: a reader began to wait, or another attempt began.
    pub async fn newly_awaited(&self) -> Vec<Uuid> {
        loop {
            let added = self.has_new.notified();
            let mut new = std::mem::take(&mut self.lock().new);
            new.retain(|stream| self.has(*stream));
            if !new.is_empty() {
                return new;
            }
            added.await;
        }
    }

    /// Records a change. Another process may write the new attempt, and it does not know of readers
    /// here, so the stream becomes due again.
    pub fn learn(&self, stream: Uuid, standing: (u32, RunState)) {
        self.change(stream, |one| one.standing = one.standing.max(standing));
    }

    fn change(&self, stream: Uuid, change: impl FnOnce(&mut Followed)) {
        let mut streams = self.lock();
        let Streams { all, new } = &mut *streams;
        let Some(one) = all.get_mut(&stream) else { return };
        let before = (one.is_due(), one.standing.0);
        change(one);
        if one.is_due() && before != (true, one.standing.0) {
            new.push(stream);
            self.has_new.notify_one();
        }
    }
}

/// Follows a stream for as long as it lives.
#[derive(Debug)]
pub struct Watch {
    stream: Uuid,
    watched: Arc<Watched>,
    is_awaited: AtomicBool,
}

impl Watch {
    /// Whether a reader of this process has read everything that is known, and waits for more.
    pub fn is_awaited(&self) -> bool {
        self.watched.awaited().contains(&self.stream)
    }

    /// A reader has read everything that is known and waits for more.
    pub(crate) fn wait(&self, standing: (u32, RunState)) {
        if !self.is_awaited.swap(true, Ordering::Relaxed) {
            self.watched.change(self.stream, |one| {
                *one = Followed { is_awaited: true, standing: one.standing.max(standing), ..*one };
            });
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut streams = self.watched.lock();
        if let Some(one) = streams.all.get_mut(&self.stream) {
            one.watches -= 1;
            if one.watches == 0 {
                streams.all.remove(&self.stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_watched_until_its_last_watch_drops() {
        let (watched, stream) = (Arc::new(Watched::default()), Uuid::now_v7());
        let (first, second) = (watched.watch(stream), watched.watch(stream));
        drop(first);
        assert!(watched.has(stream) && watched.streams() == [stream]);
        drop(second);
        assert!(!watched.has(stream) && watched.streams().is_empty());
    }

    #[tokio::test]
    async fn waiting_stream_is_due_once_per_attempt() {
        let (watched, stream) = (Arc::new(Watched::default()), Uuid::now_v7());
        let (first, second) = (watched.watch(stream), watched.watch(stream));
        assert!(watched.awaited().is_empty(), "a reader of stored frames does not wait");
        let (running, waiting) = ((1, RunState::Running), (1, RunState::Waiting));
        first.wait(running);
        second.wait(running);
        first.wait(running);
        assert_eq!(
            (watched.newly_awaited().await, watched.awaited()),
            (vec![stream], vec![stream])
        );
        watched.learn(stream, running);
        watched.learn(stream, waiting);
        assert!(watched.awaited().is_empty(), "a waiting run gets no frames");
        watched.learn(stream, (2, RunState::Running));
        assert_eq!(
            watched.newly_awaited().await,
            [stream],
            "another process may write the new attempt"
        );
        watched.learn(Uuid::now_v7(), running);
        let other = watched.watch(Uuid::now_v7());
        other.wait(running);
        assert_eq!(watched.newly_awaited().await, [other.stream]);
        assert!(other.is_awaited());
        other.wait(running);
        drop((first, second));
        assert!(!watched.has(stream) && watched.awaited() == [other.stream]);
    }
}

//! What other processes write to a store that several share, and which streams somebody here wants to hear of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::{Frame, RunState};

/// What became known of a stream that another process writes. Never the only way to learn of it: news may be lost, or
/// come twice, or late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Frames were stored, or the run moved on, or both.
    Frames {
        /// The stream.
        stream: Uuid,
        /// The run's attempt, and where it stood.
        standing: (u32, RunState),
        /// Neighbours, in order; none if they are too long to be told here.
        frames: Vec<Frame>,
    },
    /// The store was asked: the run stands so, and this is its last frame.
    Stands {
        /// The stream.
        stream: Uuid,
        /// The run's attempt, and where it stands.
        standing: (u32, RunState),
        /// The seq of its last frame.
        last_seq: u64,
    },
    /// The stream was erased.
    Gone(Uuid),
    /// The runs that this process worked on are no longer its own.
    Fenced,
}

/// For how long this process may work on runs: as long as the number stays the same. Where nobody else can use the store
/// it always does.
pub type Tenure = watch::Receiver<u64>;

/// The streams that somebody here follows while others may write them.
#[derive(Debug, Default)]
pub struct Watched(Mutex<HashMap<Uuid, usize>>);

impl Watched {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a stream for as long as what is returned lives.
    pub fn watch(self: &Arc<Self>, stream: Uuid) -> Watch {
        *self.lock().entry(stream).or_default() += 1;
        Watch { stream, watched: Arc::clone(self) }
    }

    /// Whether anybody follows this stream.
    pub fn has(&self, stream: Uuid) -> bool {
        self.lock().contains_key(&stream)
    }

    /// All that are followed.
    pub fn streams(&self) -> Vec<Uuid> {
        self.lock().keys().copied().collect()
    }
}

/// Somebody here follows a stream.
#[derive(Debug)]
pub struct Watch {
    stream: Uuid,
    watched: Arc<Watched>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.watched.lock();
        if let Some(count) = watched.get_mut(&self.stream) {
            *count -= 1;
            if *count == 0 {
                watched.remove(&self.stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_watched_as_long_as_anybody_follows_it() {
        let (watched, stream) = (Arc::new(Watched::default()), Uuid::now_v7());
        let (first, second) = (watched.watch(stream), watched.watch(stream));
        drop(first);
        assert!(watched.has(stream) && watched.streams() == [stream]);
        drop(second);
        assert!(!watched.has(stream) && watched.streams().is_empty());
    }
}

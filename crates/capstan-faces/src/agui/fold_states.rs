//! A cache of fold states at some packets of recent streams, so that a resume begins near its
//! cursor and not at the start.
//!
//! A missing state is folded from the journal again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::fold::State;
use super::transcripts::Transcripts;

/// The distance between two cached states. A resume folds at most this many packets that it does
/// not send.
// Tests have short streams.
const EVERY: u64 = if cfg!(test) { 4 } else { 256 };
/// The most states per stream. Cursors are rarely older than the last sixteen thousand packets.
const PER_STREAM: usize = 64;
/// The most streams. The oldest are dropped first.
const STREAMS: usize = 4096;

#[derive(Default)]
pub(crate) struct FoldStates {
    cache: Mutex<Cache>,
    /// The transcripts of some of them.
    pub(super) transcripts: Transcripts,
}

#[derive(Default)]
struct Cache {
    states: HashMap<Uuid, VecDeque<(u64, State)>>,
    order: VecDeque<Uuid>,
}

impl FoldStates {
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last cached state at or before `seq`, or the start.
    pub(super) fn nearest(&self, stream: Uuid, seq: u64) -> (u64, State) {
        let cache = self.lock();
        let places = cache.states.get(&stream);
        let found = places.and_then(|places| places.iter().rev().find(|(at, _)| *at <= seq));
        found.cloned().unwrap_or_default()
    }

    /// Forgets a stream that was erased.
    pub(super) fn forget(&self, stream: Uuid) {
        let mut cache = self.lock();
        cache.states.remove(&stream);
        cache.order.retain(|known| *known != stream);
        drop(cache);
        self.transcripts.forget(stream);
    }

    /// Stores the state after packet `seq`, if `seq` is one of the cached distances.
    pub(super) fn note(&self, stream: Uuid, seq: u64, state: &State) {
        if !seq.is_multiple_of(EVERY) {
            return;
        }
        let mut cache = self.lock();
        if !cache.states.contains_key(&stream) {
            cache.order.push_back(stream);
            if cache.order.len() > STREAMS
                && let Some(oldest) = cache.order.pop_front()
            {
                cache.states.remove(&oldest);
            }
        }
        let places = cache.states.entry(stream).or_default();
        if places.back().is_none_or(|(last, _)| *last < seq) {
            places.push_back((seq, state.clone()));
            if places.len() > PER_STREAM {
                places.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resume_begins_near_its_cursor() {
        let (places, stream) = (FoldStates::default(), Uuid::now_v7());
        for seq in 0..=100 * EVERY {
            places.note(stream, seq, &State { text: Some(seq), ..State::default() });
        }
        let (at, state) = places.nearest(stream, 99 * EVERY + EVERY / 2);
        assert_eq!((at, state.text), (99 * EVERY, Some(99 * EVERY)));
        assert_eq!(places.nearest(stream, 5).0, 0, "too old: from the start");
        assert_eq!(places.nearest(Uuid::now_v7(), 5000).0, 0);
    }

    #[test]
    fn old_streams_make_room() {
        let places = FoldStates::default();
        let streams: Vec<Uuid> = (0..=STREAMS).map(|_| Uuid::now_v7()).collect();
        streams.iter().for_each(|stream| places.note(*stream, EVERY, &State::default()));
        assert_eq!(places.nearest(streams[0], EVERY).0, 0);
        assert_eq!(places.nearest(streams[STREAMS], EVERY).0, EVERY);
    }
}

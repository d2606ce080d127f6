//! The end of the log: groups that are written and not yet synced. The writer adds groups, and a
//! thread of its own syncs them.
//!
//! Groups stay in memory until they are synced. After a failed sync it is unknown which of them the
//! disk has, so they are rewritten to a new file.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use capstan_journal::backend::failpoint::{self, Point};

use super::segment::Segment;

/// After this many bytes groups are synced even if no caller waits, so that little stays in memory.
const SYNC_BYTES: usize = 8 * 1024 * 1024;
/// The most unsynced bytes in memory. The writer waits for the disk before it exceeds them.
const MAX_UNSYNCED: usize = 64 * 1024 * 1024;

/// A written group that a power cut may lose.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) number: u64,
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u32,
    pub(crate) bytes: Arc<Vec<u8>>,
}

#[derive(Default)]
struct State {
    unsynced: VecDeque<Written>,
    bytes: usize,
    synced: u64,
    /// The last group whose sync a caller waits for.
    wanted: u64,
    failed: bool,
    is_over: bool,
}

/// The unsynced end of the log. The writer and the sync thread share it.
#[derive(Default)]
pub(crate) struct Log {
    state: Mutex<State>,
    news: Condvar,
}

impl Log {
    pub(crate) fn new(synced: u64) -> Self {
        Self {
            state: Mutex::new(State { synced, wanted: synced, ..State::default() }),
            news: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last synced group.
    pub(crate) fn synced(&self) -> u64 {
        self.lock().synced
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failed
    }

    /// Whether no sync is running, wanted or failed. Then a write waits neither for the disk nor
    /// for memory.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        !state.failed && state.wanted <= state.synced
    }

    /// Adds a written group. Waits while too much is unsynced.
    pub(crate) fn add(&self, written: Written, is_wanted: bool) {
        let mut state = self.lock();
        state.bytes += written.bytes.len();
        if is_wanted || state.bytes > SYNC_BYTES {
            state.wanted = written.number;
            self.news.notify_all();
        }
        state.unsynced.push_back(written);
        while state.bytes > MAX_UNSYNCED && !state.failed && !state.is_over {
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Removes the group that was added last. No caller knows of it.
    pub(crate) fn take_back(&self) {
        let mut state = self.lock();
        if let Some(last) = state.unsynced.pop_back() {
            state.bytes -= last.bytes.len();
        }
    }

    /// Requests a sync of everything.
    pub(crate) fn want_all(&self) {
        let mut state = self.lock();
        if let Some(last) = state.unsynced.back().map(|written| written.number) {
            state.wanted = last;
            self.news.notify_all();
        }
    }

    pub(crate) fn fail(&self) {
        self.lock().failed = true;
        self.news.notify_all();
    }

    /// The groups to rewrite after a failure.
    pub(crate) fn unsynced(&self) -> Vec<Written> {
        self.lock().unsynced.iter().cloned().collect()
    }

    /// Whether the segment has unsynced groups.
    pub(crate) fn is_unsynced(&self, segment: u32) -> bool {
        self.lock().unsynced.iter().any(|written| written.segment.id == segment)
    }

    /// Records that all groups up to this one are synced.
    pub(crate) fn are_synced(&self, upto: u64) {
        let mut state = self.lock();
        state.synced = state.synced.max(upto);
        while state.unsynced.front().is_some_and(|written| written.number <= upto)
            && let Some(first) = state.unsynced.pop_front()
        {
            state.bytes -= first.bytes.len();
        }
        self.news.notify_all();
    }

    /// Records that everything was rewritten.
    pub(crate) fn is_healed(&self) {
        self.lock().failed = false;
        self.news.notify_all();
    }

    /// Syncs everything written so far, in this thread.
    pub(crate) fn sync_now(&self) -> io::Result<u64> {
        let (segments, upto) = {
            let state = self.lock();
            let Some(last) = state.unsynced.back() else { return Ok(state.synced) };
            let segments =
                state.unsynced.iter().map(|written| (written.segment.id, written.segment.clone()));
            (segments.collect::<BTreeMap<_, _>>(), last.number)
        };
        // In order: a group may only be synced after the ones before it.
        for segment in segments.values() {
            segment.file()?.sync()?;
        }
        failpoint::hit(Point::AfterSync);
        self.are_synced(upto);
        Ok(upto)
    }

    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.news.notify_all();
    }

    /// Waits for a request to sync; false if the log has ended.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return false;
            }
            if state.wanted > state.synced && !state.failed {
                return true;
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Written {
    /// The group's frames, with their places in the segment.
    pub(crate) fn entries(&self) -> Vec<super::footer::Entry> {
        let group = super::walk::read_group(&self.bytes, self.offset.into());
        group
            .map(|group| group.frames.into_iter().map(|found| found.entry).collect())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writer_is_idle_without_pending_syncs_or_failures() {
        let log = Log::new(7);
        assert!(log.is_idle());
        log.lock().wanted = 8;
        assert!(!log.is_idle(), "a caller waits for a sync");
        log.are_synced(8);
        assert!(log.is_idle());
        log.fail();
        assert!(!log.is_idle(), "it has failed");
        log.is_healed();
        assert!(log.is_idle());
    }
}

//! The end of the log: what was written and not yet synced. The writer adds to it, a thread of its
//! own syncs it.
//!
//! Groups are kept in memory until they are synced. After a failed sync nobody knows what the disk
//! has of them, so they are written again, to a new file.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use capstan_journal::backend::failpoint::{self, Point};

use super::segment::Segment;

/// Groups that are synced though nobody waits for them: what is kept in memory stays small.
const SYNC_BYTES: usize = 8 * 1024 * 1024;
/// More than this is never kept: the writer waits for the disk.
const MAX_UNSYNCED: usize = 64 * 1024 * 1024;

/// A group that was written and may be lost.
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
    /// Up to here somebody waits for it.
    wanted: u64,
    failed: bool,
    is_over: bool,
}

/// Shared by the writer and the thread that syncs.
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

    /// The last group that is known to be on the disk.
    pub(crate) fn synced(&self) -> u64 {
        self.lock().synced
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failed
    }

    /// Nothing is synced now, nobody waits for that, and so a write waits for nothing either:
    /// neither for the disk, nor for room here.
    pub(crate) fn is_calm(&self) -> bool {
        let state = self.lock();
        !state.failed && state.wanted <= state.synced
    }

    /// Notes a group that was written; waits while too much is unsynced.
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

    /// Takes back the group that was noted last: nobody was told of it.
    pub(crate) fn take_back(&self) {
        let mut state = self.lock();
        if let Some(last) = state.unsynced.pop_back() {
            state.bytes -= last.bytes.len();
        }
    }

    /// Asks for everything to be synced, some time soon.
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

    /// What has to be written again after a failure.
    pub(crate) fn unsynced(&self) -> Vec<Written> {
        self.lock().unsynced.iter().cloned().collect()
    }

    /// Whether the segment holds groups that may be lost.
    pub(crate) fn is_unsynced(&self, segment: u32) -> bool {
        self.lock().unsynced.iter().any(|written| written.segment.id == segment)
    }

    /// Everything up to this group is on the disk.
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

    /// Everything was written again.
    pub(crate) fn is_healed(&self) {
        self.lock().failed = false;
        self.news.notify_all();
    }

    /// Syncs what was written so far, right here.
    pub(crate) fn sync_now(&self) -> io::Result<u64> {
        let (segments, upto) = {
            let state = self.lock();
            let Some(last) = state.unsynced.back() else { return Ok(state.synced) };
            let segments =
                state.unsynced.iter().map(|written| (written.segment.id, written.segment.clone()));
            (segments.collect::<BTreeMap<_, _>>(), last.number)
        };
        // In order: a group is never on the disk without those before it having been promised.
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

    /// Waits until somebody wants something synced; false if there will be nothing more.
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
    /// Its frames, where they lie in the segment.
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
        assert!(log.is_calm());
        log.lock().wanted = 8;
        assert!(!log.is_calm(), "somebody waits");
        log.are_synced(8);
        assert!(log.is_calm());
        log.fail();
        assert!(!log.is_calm(), "it has failed");
        log.is_healed();
        assert!(log.is_calm());
    }
}

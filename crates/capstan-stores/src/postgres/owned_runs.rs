//! The runs that this process owns. No other process changes them, so their state in memory is
//! current.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::backend::rules;
use capstan_journal::{Frame, JournalError, Run, RunState};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use uuid::Uuid;

use super::peer_message::PeerMessage;

/// A server has flushed everything that it acknowledged this long ago, whatever its settings are.
const FLUSHED_AFTER: Duration = Duration::from_secs(30);
/// How long an announcement counts. A waiting process repeats it every second
/// ([`super::awaited_streams`]).
const AWAITED_FOR: Duration = Duration::from_secs(5);
/// The most bytes of a stream that are kept for a rewrite after a crash of the server.
const RECENT_BYTES: usize = 256 * 1024;

/// A run that this process owns.
#[derive(Debug)]
pub(super) struct OwnedRun {
    pub(super) stream: Uuid,
    /// The id of the lease under which this process owns it. Only this lease may write to it.
    pub(super) lease: Uuid,
    /// Locked during each write, so that the writes of one stream follow each other.
    write_lock: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    run: Run,
    /// Frames that the server may not have flushed yet, oldest first.
    recent: VecDeque<(Instant, Frame)>,
    size: usize,
    /// When another process last announced that it waits for more.
    awaited_at: Option<Instant>,
}

impl State {
    fn new(run: Run, awaited_at: Option<Instant>) -> Self {
        Self { run, recent: VecDeque::new(), size: 0, awaited_at }
    }

    fn is_awaited(&self) -> bool {
        self.awaited_at.is_some_and(|at| at.elapsed() < AWAITED_FOR)
    }
}

/// The exclusive right to write to a run.
#[derive(Debug)]
pub(super) struct WriteGuard {
    pub(super) owned: Arc<OwnedRun>,
    _lock: OwnedMutexGuard<()>,
}

impl OwnedRun {
    fn new(run: Run, lease: Uuid) -> Self {
        let stream = run.stream_id;
        let state = Mutex::new(State::new(run, None));
        Self { stream, lease, write_lock: Arc::default(), state }
    }

    /// The run's record, with everything that was acknowledged.
    pub(super) fn run(&self) -> Run {
        lock(&self.state).run.clone()
    }

    pub(super) fn last_seq(&self) -> u64 {
        lock(&self.state).run.last_seq
    }

    pub(super) fn bytes(&self) -> u64 {
        lock(&self.state).run.bytes
    }

    pub(super) fn check_append(&self, attempt: u32, frames: &[Frame]) -> Result<(), JournalError> {
        rules::check_append(&lock(&self.state).run, attempt, frames)
    }

    /// Records that frames are in the database. If its server may lose them, keeps them for a
    /// while.
    pub(super) fn wrote(&self, frames: &[Frame], is_synced: bool) {
        let mut state = lock(&self.state);
        let Run { last_seq, bytes, .. } = &mut state.run;
        rules::count(last_seq, bytes, frames);
        if is_synced {
            return;
        }
        let at = Instant::now();
        state.size += frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        state.recent.extend(frames.iter().map(|frame| (at, frame.clone())));
        while let Some((written, oldest)) = state.recent.front()
            && (state.size > RECENT_BYTES || at.duration_since(*written) > FLUSHED_AFTER)
        {
            state.size -= oldest.bytes.len();
            state.recent.pop_front();
        }
    }

    /// Records that another process waits for more; true if none did before.
    pub(super) fn mark_awaited(&self) -> bool {
        let mut state = lock(&self.state);
        let is_new = !state.is_awaited();
        state.awaited_at = Some(Instant::now());
        is_new
    }

    pub(super) fn is_awaited(&self) -> bool {
        lock(&self.state).is_awaited()
    }

    /// The message to other processes that frames were written.
    pub(super) fn frames_message(&self, frames: Vec<Frame>) -> PeerMessage {
        let Run { attempt, state, .. } = lock(&self.state).run;
        PeerMessage::Frames { stream: self.stream, standing: (attempt, state), frames }
    }

    /// The frames after a `seq`, and the size of everything before them, if all of them are kept.
    pub(super) fn since(&self, seq: u64) -> Option<(Vec<Frame>, u64)> {
        let state = lock(&self.state);
        let frames: Vec<_> = state
            .recent
            .iter()
            .map(|(_, frame)| frame)
            .filter(|frame| frame.seq > seq)
            .cloned()
            .collect();
        let size: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        let is_whole = frames.first().is_some_and(|first| first.seq == seq + 1);
        is_whole.then(|| (frames, state.run.bytes.saturating_sub(size as u64)))
    }

    /// Sets the new record, which is synced: no earlier frame can be lost.
    fn set_run(&self, run: Run) {
        let mut state = lock(&self.state);
        *state = State::new(run, state.awaited_at);
    }
}

/// All runs of this process.
#[derive(Debug, Default)]
pub(super) struct OwnedRuns(Mutex<HashMap<Uuid, Arc<OwnedRun>>>);

impl OwnedRuns {
    pub(super) fn get(&self, stream: Uuid) -> Option<Arc<OwnedRun>> {
        lock(&self.0).get(&stream).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<OwnedRun>> {
        lock(&self.0).values().cloned().collect()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// Waits for the right to write to a run. `None` if this process does not own it, or has lost
    /// it meanwhile.
    pub(super) async fn write_guard(&self, stream: Uuid) -> Option<WriteGuard> {
        let owned = self.get(stream)?;
        let lock = Arc::clone(&owned.write_lock).lock_owned().await;
        self.has(&owned).then(|| WriteGuard { owned, _lock: lock })
    }

    /// Whether this process owns exactly this entry under this lease.
    pub(super) fn is_under(&self, lease: Uuid, owned: &Arc<OwnedRun>) -> bool {
        owned.lease == lease && self.has(owned)
    }

    /// Whether this process still owns exactly this entry.
    fn has(&self, owned: &Arc<OwnedRun>) -> bool {
        lock(&self.0).get(&owned.stream).is_some_and(|now| Arc::ptr_eq(now, owned))
    }

    /// Adds a run that was claimed or taken over under a lease.
    pub(super) fn add(&self, run: Run, lease: Uuid) {
        let mut all = lock(&self.0);
        if all.get(&run.stream_id).is_none_or(|owned| owned.lease != lease) {
            all.insert(run.stream_id, Arc::new(OwnedRun::new(run, lease)));
        }
    }

    /// Sets the new record of a run. This process owns the run as long as it is running.
    pub(super) fn set_run(&self, run: Run, lease: Uuid) {
        let mut all = lock(&self.0);
        match (run.state, all.get(&run.stream_id)) {
            (RunState::Running, Some(owned)) if owned.lease == lease => owned.set_run(run),
            (RunState::Running, _) => {
                all.insert(run.stream_id, Arc::new(OwnedRun::new(run, lease)));
            }
            (RunState::Waiting | RunState::Closed, _) => {
                all.remove(&run.stream_id);
            }
        }
    }

    /// Removes a run.
    pub(super) fn remove(&self, stream: Uuid) {
        lock(&self.0).remove(&stream);
    }

    /// Removes all runs, after a lost lease.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use capstan_protocol::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn awaited_run_is_known_until_announcements_stop() {
        let claim = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now());
        let owned = OwnedRun::new(claim.to_run(), Uuid::now_v7());
        assert!(!owned.is_awaited());
        assert!(
            owned.mark_awaited(),
            "it is new, so the other process has to query what was written before"
        );
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(4)).await;
            assert!(owned.is_awaited() && !owned.mark_awaited());
        }
        owned.set_run(owned.run());
        assert!(owned.is_awaited());
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!owned.is_awaited() && owned.mark_awaited());
    }
}

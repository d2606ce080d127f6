//! The runs that this process works on: only it changes them, so what it knows of them is the
//! truth.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_journal::backend::rules;
use capstan_journal::{Frame, JournalError, Run, RunState};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use uuid::Uuid;

use super::notice::Notice;

/// A server that crashes has flushed what was acknowledged before this, whatever it is set to.
const FLUSHED_AFTER: Duration = Duration::from_secs(30);
/// Who waits for more of a stream says so every second ([`super::followers`]).
const AWAITED_FOR: Duration = Duration::from_secs(5);
/// What is kept of a stream to be written again at most.
const RECENT_BYTES: usize = 256 * 1024;

/// A run of this process.
#[derive(Debug)]
pub(super) struct OwnRun {
    pub(super) stream: Uuid,
    /// Under which it is ours: nothing is written to it under another.
    pub(super) seat: Uuid,
    /// Held by whatever is being written, so that writes of one stream follow each other.
    order: Arc<tokio::sync::Mutex<()>>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    run: Run,
    /// What the server may not have flushed yet, oldest first.
    recent: VecDeque<(Instant, Frame)>,
    size: usize,
    /// When it was last heard that somebody elsewhere waits for more.
    awaited_at: Option<Instant>,
}

impl Now {
    fn new(run: Run, awaited_at: Option<Instant>) -> Self {
        Self { run, recent: VecDeque::new(), size: 0, awaited_at }
    }

    fn is_awaited(&self) -> bool {
        self.awaited_at.is_some_and(|at| at.elapsed() < AWAITED_FOR)
    }
}

/// The right to write to a run.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) own: Arc<OwnRun>,
    _order: OwnedMutexGuard<()>,
}

impl OwnRun {
    fn new(run: Run, seat: Uuid) -> Self {
        let now = Mutex::new(Now::new(run, None));
        let stream = lock(&now).run.stream_id;
        Self { stream, seat, order: Arc::default(), now }
    }

    /// The run as it stands: everything that was acknowledged.
    pub(super) fn run(&self) -> Run {
        lock(&self.now).run.clone()
    }

    pub(super) fn last_seq(&self) -> u64 {
        lock(&self.now).run.last_seq
    }

    pub(super) fn bytes(&self) -> u64 {
        lock(&self.now).run.bytes
    }

    pub(super) fn check_append(&self, attempt: u32, frames: &[Frame]) -> Result<(), JournalError> {
        rules::check_append(&lock(&self.now).run, attempt, frames)
    }

    /// Frames are in the database. Where that may lose them they are kept for a while.
    pub(super) fn wrote(&self, frames: &[Frame], is_synced: bool) {
        let mut now = lock(&self.now);
        let Run { last_seq, bytes, .. } = &mut now.run;
        rules::count(last_seq, bytes, frames);
        if is_synced {
            return;
        }
        let at = Instant::now();
        now.size += frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        now.recent.extend(frames.iter().map(|frame| (at, frame.clone())));
        while let Some((written, oldest)) = now.recent.front()
            && (now.size > RECENT_BYTES || at.duration_since(*written) > FLUSHED_AFTER)
        {
            now.size -= oldest.bytes.len();
            now.recent.pop_front();
        }
    }

    /// Somebody elsewhere waits for more; true if that is new.
    pub(super) fn awaited(&self) -> bool {
        let mut now = lock(&self.now);
        let is_new = !now.is_awaited();
        now.awaited_at = Some(Instant::now());
        is_new
    }

    pub(super) fn is_awaited(&self) -> bool {
        lock(&self.now).is_awaited()
    }

    /// What others are told of frames that were written.
    pub(super) fn notice(&self, frames: Vec<Frame>) -> Notice {
        let Run { attempt, state, .. } = lock(&self.now).run;
        Notice::Frames { stream: self.stream, standing: (attempt, state), frames }
    }

    /// The frames after a seq and the bytes before them, if all of them are still known.
    pub(super) fn since(&self, seq: u64) -> Option<(Vec<Frame>, u64)> {
        let now = lock(&self.now);
        let frames: Vec<_> = now
            .recent
            .iter()
            .map(|(_, frame)| frame)
            .filter(|frame| frame.seq > seq)
            .cloned()
            .collect();
        let size: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        let is_whole = frames.first().is_some_and(|first| first.seq == seq + 1);
        is_whole.then(|| (frames, now.run.bytes.saturating_sub(size as u64)))
    }

    /// The record has changed, synced: nothing before it can be lost.
    fn moved(&self, run: Run) {
        let mut now = lock(&self.now);
        *now = Now::new(run, now.awaited_at);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Own(Mutex<HashMap<Uuid, Arc<OwnRun>>>);

impl Own {
    pub(super) fn get(&self, stream: Uuid) -> Option<Arc<OwnRun>> {
        lock(&self.0).get(&stream).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<OwnRun>> {
        lock(&self.0).values().cloned().collect()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// The right to write to a run, when whatever is being written there is done. `None` if it is
    /// not, or no longer, ours.
    pub(super) async fn turn(&self, stream: Uuid) -> Option<Turn> {
        let own = self.get(stream)?;
        let order = Arc::clone(&own.order).lock_owned().await;
        self.is(&own).then(|| Turn { own, _order: order })
    }

    /// Whether this very run is ours under this seat.
    pub(super) fn is_under(&self, seat: Uuid, own: &Arc<OwnRun>) -> bool {
        own.seat == seat && self.is(own)
    }

    /// Whether this very run is still ours.
    fn is(&self, own: &Arc<OwnRun>) -> bool {
        lock(&self.0).get(&own.stream).is_some_and(|now| Arc::ptr_eq(now, own))
    }

    /// A run is ours under a seat: claimed, or taken over.
    pub(super) fn add(&self, run: Run, seat: Uuid) {
        let mut all = lock(&self.0);
        if all.get(&run.stream_id).is_none_or(|own| own.seat != seat) {
            all.insert(run.stream_id, Arc::new(OwnRun::new(run, seat)));
        }
    }

    /// A run has changed under a seat: it is ours as long as it runs.
    pub(super) fn moved(&self, run: Run, seat: Uuid) {
        let mut all = lock(&self.0);
        match (run.state, all.get(&run.stream_id)) {
            (RunState::Running, Some(own)) if own.seat == seat => own.moved(run),
            (RunState::Running, _) => {
                all.insert(run.stream_id, Arc::new(OwnRun::new(run, seat)));
            }
            (RunState::Waiting | RunState::Closed, _) => {
                all.remove(&run.stream_id);
            }
        }
    }

    pub(super) fn forget(&self, stream: Uuid) {
        lock(&self.0).remove(&stream);
    }

    /// None of them is ours any more.
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
    async fn who_waits_elsewhere_is_known_for_as_long_as_it_is_said() {
        let claim = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now());
        let own = OwnRun::new(claim.to_run(), Uuid::now_v7());
        assert!(!own.is_awaited());
        assert!(own.awaited(), "it is new, and what was written before has to be looked for");
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(4)).await;
            assert!(own.is_awaited() && !own.awaited());
        }
        own.moved(own.run());
        assert!(own.is_awaited());
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!own.is_awaited() && own.awaited());
    }
}

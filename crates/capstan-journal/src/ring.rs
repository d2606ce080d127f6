//! The recent frames of a stream in memory, and the known state of its run.

use std::collections::VecDeque;

use crate::{Frame, Frames, RunState, Watch};

/// Attempt and state. It only grows, so updates in the wrong order do no harm.
pub(crate) type AttemptState = (u32, RunState);

/// The memory of a frame beside its bytes.
const FRAME_OVERHEAD: usize = 64;

/// The result of a lookup at a cursor.
pub(crate) enum Lookup {
    /// Frames, and the cursor after them.
    Frames(Frames, u64),
    /// The reader has everything. Contains the run's state.
    CaughtUp(AttemptState),
    /// Only the store can answer.
    ReadStore,
}

/// Invariant: `frames` are consecutive, and the last of them is the newest that this process knows.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    frames: VecDeque<Frame>,
    size: usize,
    /// The `seq` of the stream's last frame; `None` if only the store knows it.
    last_seq: Option<u64>,
    standing: Option<AttemptState>,
    /// Present while other processes may write the stream and send notifications. Without it, only
    /// this process writes the stream.
    followed: Option<Watch>,
}

impl Ring {
    /// Creates an empty ring.
    pub(crate) fn new(followed: Option<Watch>) -> Self {
        Self { followed, ..Self::default() }
    }

    /// Whether to keep the ring without users: frames that this process writes should not be read
    /// back from the store.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_live() && self.followed.is_none()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Whether more frames may follow.
    pub(crate) fn is_live(&self) -> bool {
        self.standing.is_some_and(|(_, state)| state != RunState::Closed)
    }

    pub(crate) fn lookup(&self, cursor: u64, max_bytes: usize) -> Lookup {
        match (self.last_seq, self.standing) {
            (Some(last), Some(standing)) if cursor >= last => return Lookup::CaughtUp(standing),
            (Some(_), Some(_)) => {}
            (None, _) | (_, None) => return Lookup::ReadStore,
        }
        let first = self.frames.front().map_or(u64::MAX, |frame| frame.seq);
        let Some(skip) =
            cursor.saturating_add(1).checked_sub(first).and_then(|n| usize::try_from(n).ok())
        else {
            return Lookup::ReadStore;
        };
        let (mut bytes, mut last) = (0, None);
        let fits = |frame: &&Frame| {
            bytes += frame.bytes.len();
            let fits = bytes <= max_bytes || last.is_none();
            last = if fits { Some(frame.seq) } else { last };
            fits
        };
        let found: Frames = self
            .frames
            .iter()
            .skip(skip)
            .take_while(fits)
            .map(|frame| frame.bytes.clone())
            .collect();
        last.map_or(Lookup::ReadStore, |last| Lookup::Frames(found, last))
    }

    /// A reader has read everything that is known and waits.
    pub(crate) fn wait(&self) {
        if let (Some(watch), Some(standing)) = (&self.followed, self.standing) {
            watch.wait(standing);
        }
    }

    /// Another process may write from here on, so the end of the stream is unknown.
    pub(crate) fn follow(&mut self, watch: Option<Watch>) {
        if watch.is_some() {
            self.followed = watch;
            self.last_seq = None;
        }
    }

    /// Another process may write after the last frame of this process.
    pub(crate) fn hand_over(&mut self, watch: Watch) {
        self.followed = Some(watch);
    }

    /// Only this process writes from here on. Other frames may have been stored since the last
    /// notification.
    pub(crate) fn own(&mut self) {
        if self.followed.take().is_some() {
            self.last_seq = None;
        }
    }

    /// Applies a notification of another process; true if it was new.
    pub(crate) fn apply_frames(
        &mut self,
        standing: AttemptState,
        frames: &[Frame],
        max_size: usize,
    ) -> bool {
        if self.followed.is_none() {
            return false;
        }
        let follows = |last: u64| {
            frames.iter().find(|frame| frame.seq > last).map(|frame| frame.seq == last + 1)
        };
        match (self.last_seq, frames.is_empty()) {
            // The frames were too long for the notification.
            (_, true) => self.forget(),
            (Some(last), false) => match follows(last) {
                Some(true) => {}
                Some(false) => return self.is_behind(standing),
                // Only known frames, and possibly a new state.
                None if self.standing >= Some(standing) => return false,
                None => {}
            },
            (None, false) => {}
        }
        self.record(standing, frames, max_size);
        true
    }

    /// Applies the result of a query for a followed stream; true if it was new.
    pub(crate) fn apply_state(&mut self, standing: AttemptState, last_seq: u64) -> bool {
        let is_known =
            self.standing >= Some(standing) && self.last_seq.is_none_or(|last| last >= last_seq);
        if self.followed.is_none() || is_known { false } else { self.is_behind(standing) }
    }

    /// The store has more frames than this ring.
    fn is_behind(&mut self, standing: AttemptState) -> bool {
        self.standing = self.standing.max(Some(standing));
        self.forget();
        true
    }

    /// Applies a write of this process.
    pub(crate) fn record(&mut self, standing: AttemptState, frames: &[Frame], max_size: usize) {
        if frames.is_empty() && standing.1 != RunState::Running {
            // A concurrent append may have been stored before this write but arrive here after it,
            // so only the store knows the length.
            self.last_seq = None;
        }
        self.standing = self.standing.max(Some(standing));
        for frame in frames {
            self.push(frame, max_size);
        }
    }

    /// Begins with a new, empty run.
    pub(crate) fn begin(&mut self, standing: AttemptState) {
        if self.standing.is_none() {
            self.learn(standing, 0);
        }
    }

    /// Applies the state in the store, unless a newer one is known; true if it was new.
    pub(crate) fn learn(&mut self, standing: AttemptState, last_seq: u64) -> bool {
        let before = (self.standing, self.last_seq);
        if self.standing <= Some(standing) {
            self.standing = Some(standing);
            self.last_seq = self.last_seq.max(Some(last_seq));
        }
        (self.standing, self.last_seq) != before
    }

    /// Drops the frames, which the store has.
    pub(crate) fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.size = 0;
    }

    /// Drops the frames, and the position of the last one.
    pub(crate) fn forget(&mut self) {
        self.clear();
        self.last_seq = None;
    }

    fn push(&mut self, frame: &Frame, max_size: usize) {
        if self.last_seq.is_some_and(|last| frame.seq <= last) {
            return;
        }
        if self.frames.back().is_some_and(|back| back.seq + 1 != frame.seq) {
            self.clear();
        }
        self.last_seq = Some(frame.seq);
        self.size += frame.bytes.len() + FRAME_OVERHEAD;
        self.frames.push_back(frame.clone());
        while self.size > max_size
            && let Some(oldest) = self.frames.pop_front()
        {
            self.size -= oldest.bytes.len() + FRAME_OVERHEAD;
        }
    }
}

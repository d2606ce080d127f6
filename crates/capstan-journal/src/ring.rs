//! The recent frames of one stream, and what this process knows of where its run stands.

use std::collections::VecDeque;

use crate::{Frame, Frames, RunState, Watch};

/// Attempt and state: it only ever grows, so news that arrive in the wrong order do no harm.
pub(crate) type Standing = (u32, RunState);

/// What a frame costs besides its bytes.
const FRAME_OVERHEAD: usize = 64;

/// What a reader finds at its cursor.
pub(crate) enum Look {
    /// Frames, and the cursor after them.
    Frames(Frames, u64),
    /// Nothing more is stored, and the run stands thus.
    CaughtUp(Standing),
    /// The store has to say.
    AskStore,
}

/// Invariant: `frames` are neighbours in the stream, the last of them is the newest this process
/// knows.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    frames: VecDeque<Frame>,
    size: usize,
    /// The last frame of the stream; `None` if only the store knows.
    last_seq: Option<u64>,
    standing: Option<Standing>,
    /// Held while others may write the stream: what they write comes as news. Without it, all that
    /// is written is written here.
    followed: Option<Watch>,
}

impl Ring {
    /// A ring of a stream of which nothing is known yet.
    pub(crate) fn new(followed: Option<Watch>) -> Self {
        Self { followed, ..Self::default() }
    }

    /// Whether it is worth keeping when nobody uses it: what is written here must not be read back
    /// from the store.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_live() && self.followed.is_none()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Whether more may be written.
    pub(crate) fn is_live(&self) -> bool {
        self.standing.is_some_and(|(_, state)| state != RunState::Closed)
    }

    pub(crate) fn look(&self, cursor: u64, max_bytes: usize) -> Look {
        match (self.last_seq, self.standing) {
            (Some(last), Some(standing)) if cursor >= last => return Look::CaughtUp(standing),
            (Some(_), Some(_)) => {}
            (None, _) | (_, None) => return Look::AskStore,
        }
        let first = self.frames.front().map_or(u64::MAX, |frame| frame.seq);
        let Some(skip) =
            cursor.saturating_add(1).checked_sub(first).and_then(|n| usize::try_from(n).ok())
        else {
            return Look::AskStore;
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
        last.map_or(Look::AskStore, |last| Look::Frames(found, last))
    }

    /// A reader has seen all that is known.
    pub(crate) fn wait(&self) {
        if let (Some(watch), Some(standing)) = (&self.followed, self.standing) {
            watch.wait(standing);
        }
    }

    /// Others may write from here on: nothing is known but what was seen.
    pub(crate) fn follow(&mut self, watch: Option<Watch>) {
        if watch.is_some() {
            self.followed = watch;
            self.last_seq = None;
        }
    }

    /// Others may write after what this process has just written and knows.
    pub(crate) fn hand_over(&mut self, watch: Watch) {
        self.followed = Some(watch);
    }

    /// Nobody else writes from here on. Something may have been written since the last news.
    pub(crate) fn own(&mut self) {
        if self.followed.take().is_some() {
            self.last_seq = None;
        }
    }

    /// Takes in what another process has stored; true if that is new here.
    pub(crate) fn hear(&mut self, standing: Standing, frames: &[Frame], max_size: usize) -> bool {
        if self.followed.is_none() {
            return false;
        }
        let follows = |last: u64| {
            frames.iter().find(|frame| frame.seq > last).map(|frame| frame.seq == last + 1)
        };
        match (self.last_seq, frames.is_empty()) {
            // Too long to be told.
            (_, true) => self.forget(),
            (Some(last), false) => match follows(last) {
                Some(true) => {}
                Some(false) => return self.is_behind(standing),
                // Nothing but what is known, and perhaps how it stands.
                None if self.standing >= Some(standing) => return false,
                None => {}
            },
            (None, false) => {}
        }
        self.note(standing, frames, max_size);
        true
    }

    /// Takes in what the store says of a stream that others write; true if that is new here.
    pub(crate) fn hear_of(&mut self, standing: Standing, last_seq: u64) -> bool {
        let is_known =
            self.standing >= Some(standing) && self.last_seq.is_none_or(|last| last >= last_seq);
        if self.followed.is_none() || is_known { false } else { self.is_behind(standing) }
    }

    /// More is stored than is known here: the store has to say.
    fn is_behind(&mut self, standing: Standing) -> bool {
        self.standing = self.standing.max(Some(standing));
        self.forget();
        true
    }

    /// Takes in what was just stored.
    pub(crate) fn note(&mut self, standing: Standing, frames: &[Frame], max_size: usize) {
        if frames.is_empty() && standing.1 != RunState::Running {
            // An append that was stored before this may be noted after it: let the store tell how
            // long the stream is.
            self.last_seq = None;
        }
        self.standing = self.standing.max(Some(standing));
        for frame in frames {
            self.push(frame, max_size);
        }
    }

    /// Begins with a new run: nothing written yet.
    pub(crate) fn begin(&mut self, standing: Standing) {
        if self.standing.is_none() {
            self.learn(standing, 0);
        }
    }

    /// Takes in what the store says, unless newer is known; true if that is new here.
    pub(crate) fn learn(&mut self, standing: Standing, last_seq: u64) -> bool {
        let before = (self.standing, self.last_seq);
        if self.standing <= Some(standing) {
            self.standing = Some(standing);
            self.last_seq = self.last_seq.max(Some(last_seq));
        }
        (self.standing, self.last_seq) != before
    }

    /// Forgets the frames, which the store has.
    pub(crate) fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.size = 0;
    }

    /// Forgets the frames and where they end.
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

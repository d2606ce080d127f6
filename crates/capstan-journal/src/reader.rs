//! A reader at a cursor: live, replay and resume are this one path.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::backend::planted_bug::{self, Bug};
use crate::backend::rules::not_found;
use crate::ring::{Look, Ring, Standing};
use crate::tails::{Lease, Room};
use crate::{ErrorKind, Frames, JournalError, Run, RunState, Store};

/// How much one step brings: a reader that has stopped reading holds one or two of them.
const STEP_BYTES: usize = 8 * 1024;
/// How much it may bring to a reader that is far behind, as long as there is room: a visit to the
/// store, or a write to a socket, costs more than what it brings.
const LONG_STEP_BYTES: usize = 256 * 1024;
/// Tiny frames are bounded by number as well: as if each had this many bytes.
const LEAST_FRAME: usize = 32;

/// What a reader meets next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next frames, in order, about 256 KiB at most; never empty. The cursor has moved past
    /// them.
    Frames(Frames),
    /// All frames were read and the run stands still: `Closed` (said at every further call), or
    /// `Waiting` (said once for an attempt; the next call waits for what comes).
    State(RunState),
}

/// Reads one stream from a cursor on. Idle readers cost no work.
pub struct Reader {
    store: Arc<dyn Store>,
    lease: Lease,
    news: watch::Receiver<Ring>,
    stream: Uuid,
    cursor: u64,
    /// The last standing that was reported, so that `Waiting` is said once.
    said: Option<Standing>,
    /// The caller knows that the run has come this far.
    floor: Option<Standing>,
    /// How much the next step may bring: more each time, as long as there was more than it could.
    stride: usize,
    /// For what the last step brought beyond the usual: given back when the next one is asked for.
    room: Option<Room>,
    /// Begun while what came before it is being sent.
    ahead: Option<Visit>,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>, lease: Lease, stream: Uuid, after: u64) -> Self {
        let news = lease.subscribe();
        let cursor = after + u64::from(planted_bug::is(Bug::ResumeOffByOne) && after > 0);
        Self {
            store,
            lease,
            news,
            stream,
            cursor,
            said: None,
            floor: None,
            stride: STEP_BYTES,
            room: None,
            ahead: None,
        }
    }

    /// Nothing older is believed of the tail. It is not written down there: the caller's word may
    /// itself be old by now, and only what the store says while the tail is held can be trusted to
    /// be followed by news.
    pub(crate) fn not_before(mut self, floor: Standing) -> Self {
        self.floor = Some(floor);
        self
    }

    /// The stream that is read.
    pub fn stream_id(&self) -> Uuid {
        self.stream
    }

    /// The seq of the last frame that was handed out, or where the reader began.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The next frames, or where the run stands when there are none; waits while the run goes on.
    /// `NotFound` if there is no such stream, or none any more.
    ///
    /// Cancel-safe: a dropped future has not moved the cursor.
    pub async fn next(&mut self) -> Result<Step, JournalError> {
        self.room = None;
        loop {
            let room = self.long_room();
            let most = self.stride_in(room.as_ref());
            let look = self.news.borrow_and_update().look(self.cursor, most);
            match look {
                Look::Frames(frames, cursor) => {
                    (self.cursor, self.room) = (cursor, room);
                    self.pace(frames.size(), most);
                    return Ok(Step::Frames(frames));
                }
                Look::CaughtUp(standing) if self.is_worth_saying(standing) => {
                    self.said = Some(standing);
                    return Ok(Step::State(standing.1));
                }
                Look::CaughtUp(standing) if Some(standing) >= self.floor => {
                    self.stride = STEP_BYTES;
                    drop(room);
                    self.news.borrow().wait();
                    // The sender lives in our lease, so this only ends with news.
                    drop(self.news.changed().await);
                }
                Look::CaughtUp(_) | Look::AskStore => {
                    if let Some(step) = self.ask_store(room).await? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    fn is_worth_saying(&self, standing: Standing) -> bool {
        match standing.1 {
            RunState::Running => false,
            RunState::Waiting => self.said != Some(standing) && Some(standing) >= self.floor,
            RunState::Closed => true,
        }
    }

    /// Frames from the store; if it has none, its word on where the run stands is taken down and
    /// the ring asked again.
    async fn ask_store(&mut self, room: Option<Room>) -> Result<Option<Step>, JournalError> {
        let ahead = self.ahead.take().filter(|visit| visit.after == self.cursor);
        let is_ahead = ahead.is_some();
        let mut visit = ahead.unwrap_or_else(|| self.begin_visit(room));
        let (frames, run) = visit.found().await?;
        if let Some((frames, last)) = frames {
            (self.cursor, self.room) = (last, visit.room);
            self.pace(frames.size(), visit.bytes);
            // While this is sent, as there seems to be more.
            self.ahead = self.long_room().map(|room| self.begin_visit(Some(room)));
            return Ok(Some(Step::Frames(frames)));
        }
        if !is_ahead {
            // An older word than this one is not taken down: something may have been written since.
            let run = run.ok_or_else(|| not_found(self.stream))?;
            self.lease.learn((run.attempt, run.state), run.last_seq);
        }
        Ok(None)
    }

    /// A step brought so much of what it could.
    fn pace(&mut self, bytes: usize, most: usize) {
        self.stride =
            if bytes > most / 2 { (self.stride * 2).min(LONG_STEP_BYTES) } else { STEP_BYTES };
    }

    /// Room for a long step, if the next one should be long and there is any.
    fn long_room(&self) -> Option<Room> {
        if self.stride > STEP_BYTES { self.lease.room(self.stride) } else { None }
    }

    fn stride_in(&self, room: Option<&Room>) -> usize {
        if room.is_some() { self.stride } else { STEP_BYTES }
    }

    fn begin_visit(&self, room: Option<Room>) -> Visit {
        let (store, stream, after) = (Arc::clone(&self.store), self.stream, self.cursor);
        let bytes = self.stride_in(room.as_ref());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let frames = store.read_on(stream, after, bytes / LEAST_FRAME, bytes).await?;
            let run = if frames.is_none() { store.run(stream).await? } else { None };
            Ok((frames, run))
        });
        Visit { after, bytes, room, task }
    }
}

/// The next frames with the last one's seq, or the run if there are none.
type Found = (Option<(Frames, u64)>, Option<Run>);

/// A look into the store for what follows a frame. It goes on by itself: reads stand in lines, and
/// a viewer whose connection is stuck is not polled, so it would keep its place there, and
/// everybody behind it waiting.
struct Visit {
    after: u64,
    bytes: usize,
    room: Option<Room>,
    /// A set of one: it ends with whoever asked.
    task: JoinSet<Result<Found, JournalError>>,
}

impl Visit {
    async fn found(&mut self) -> Result<Found, JournalError> {
        let broken_off = || JournalError::new(ErrorKind::Unavailable, "a read was broken off");
        match self.task.join_next().await {
            Some(Ok(found)) => found,
            Some(Err(error)) => Err(broken_off().caused_by(error)),
            None => Err(broken_off()),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("stream", &self.stream)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

//! A reader at a cursor: live viewing, replay and resume use the same code.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::backend::planted_bug::{self, Bug};
use crate::backend::rules::not_found;
use crate::ring::{AttemptState, Lookup, Ring};
use crate::tails::{StepPermit, TailHandle};
use crate::{ErrorKind, Frames, JournalError, Run, RunState, Store};

/// The usual size of a step. A reader that stops reading holds one or two of them.
const STEP_BYTES: usize = 8 * 1024;
/// The largest step, for a reader that is far behind: a read from the store, or a write to a
/// socket, has a high fixed cost.
const LONG_STEP_BYTES: usize = 256 * 1024;
/// The size that a tiny frame counts at least, so that the number of frames is limited as well.
const LEAST_FRAME: usize = 32;

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next frames in order, never empty, about 256 KiB at most. The cursor is after them now.
    Frames(Frames),
    /// All frames were read. `Closed` is returned by every further call. `Waiting` is returned once
    /// per attempt, and the next call waits for more.
    State(RunState),
}

/// Reads a stream from a cursor. An idle reader uses no CPU.
pub struct Reader {
    store: Arc<dyn Store>,
    handle: TailHandle,
    changes: watch::Receiver<Ring>,
    stream: Uuid,
    cursor: u64,
    /// The last state that was returned, so that `Waiting` is returned once.
    reported: Option<AttemptState>,
    /// The state that the caller knows: older ones are not returned.
    floor: Option<AttemptState>,
    /// The size of the next step. It doubles while there are more frames than fit.
    step_bytes: usize,
    /// The permit for a long step. It is released at the next call.
    permit: Option<StepPermit>,
    /// The next read, started while the caller sends the last frames.
    prefetch: Option<StoreRead>,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn Store>, handle: TailHandle, stream: Uuid, after: u64) -> Self {
        let changes = handle.subscribe();
        let cursor = after + u64::from(planted_bug::is(Bug::ResumeOffByOne) && after > 0);
        Self {
            store,
            handle,
            changes,
            stream,
            cursor,
            reported: None,
            floor: None,
            step_bytes: STEP_BYTES,
            permit: None,
            prefetch: None,
        }
    }

    /// Ignores tail states older than this. The tail itself is not changed, because the caller's
    /// state may be old too. Only a state that the store returns while the tail is in use is sure
    /// to be followed by updates.
    pub(crate) fn not_before(mut self, floor: AttemptState) -> Self {
        self.floor = Some(floor);
        self
    }

    /// The stream of this reader.
    pub fn stream_id(&self) -> Uuid {
        self.stream
    }

    /// The `seq` of the last frame that was returned, or the start position.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the next frames, or the run's state if there are none. Waits while the run is
    /// running. Returns `NotFound` if the stream does not exist or was deleted.
    ///
    /// Cancel-safe: dropping the future does not move the cursor.
    pub async fn next(&mut self) -> Result<Step, JournalError> {
        self.permit = None;
        loop {
            let permit = self.long_step_permit();
            let most = self.bytes_for(permit.as_ref());
            let found = self.changes.borrow_and_update().lookup(self.cursor, most);
            match found {
                Lookup::Frames(frames, cursor) => {
                    (self.cursor, self.permit) = (cursor, permit);
                    self.adapt_step(frames.size(), most);
                    return Ok(Step::Frames(frames));
                }
                Lookup::CaughtUp(standing) if self.is_new_state(standing) => {
                    self.reported = Some(standing);
                    return Ok(Step::State(standing.1));
                }
                Lookup::CaughtUp(standing) if Some(standing) >= self.floor => {
                    self.step_bytes = STEP_BYTES;
                    drop(permit);
                    self.changes.borrow().wait();
                    // The sender is in our tail handle, so this ends only with an update.
                    drop(self.changes.changed().await);
                }
                Lookup::CaughtUp(_) | Lookup::ReadStore => {
                    if let Some(step) = self.read_store(permit).await? {
                        return Ok(step);
                    }
                }
            }
        }
    }

    fn is_new_state(&self, standing: AttemptState) -> bool {
        match standing.1 {
            RunState::Running => false,
            RunState::Waiting => self.reported != Some(standing) && Some(standing) >= self.floor,
            RunState::Closed => true,
        }
    }

    /// Reads frames from the store. If there are none, updates the tail with the run's state in the
    /// store.
    async fn read_store(
        &mut self,
        permit: Option<StepPermit>,
    ) -> Result<Option<Step>, JournalError> {
        let prefetch = self.prefetch.take().filter(|read| read.after == self.cursor);
        let is_prefetched = prefetch.is_some();
        let mut read = prefetch.unwrap_or_else(|| self.start_read(permit));
        let (frames, run) = read.found().await?;
        if let Some((frames, last)) = frames {
            (self.cursor, self.permit) = (last, read.permit);
            self.adapt_step(frames.size(), read.bytes);
            // The step was full, so prefetch the next frames while the caller sends these.
            self.prefetch = self.long_step_permit().map(|permit| self.start_read(Some(permit)));
            return Ok(Some(Step::Frames(frames)));
        }
        if !is_prefetched {
            // Do not use the state of a prefetch: more may have been written since.
            let run = run.ok_or_else(|| not_found(self.stream))?;
            self.handle.learn((run.attempt, run.state), run.last_seq);
        }
        Ok(None)
    }

    /// Adapts the size of the next step: `bytes` were read where `most` were allowed.
    fn adapt_step(&mut self, bytes: usize, most: usize) {
        self.step_bytes =
            if bytes > most / 2 { (self.step_bytes * 2).min(LONG_STEP_BYTES) } else { STEP_BYTES };
    }

    /// The permit for a long step, if one is due and memory is available.
    fn long_step_permit(&self) -> Option<StepPermit> {
        if self.step_bytes > STEP_BYTES { self.handle.step_permit(self.step_bytes) } else { None }
    }

    fn bytes_for(&self, permit: Option<&StepPermit>) -> usize {
        if permit.is_some() { self.step_bytes } else { STEP_BYTES }
    }

    fn start_read(&self, permit: Option<StepPermit>) -> StoreRead {
        let (store, stream, after) = (Arc::clone(&self.store), self.stream, self.cursor);
        let bytes = self.bytes_for(permit.as_ref());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let frames = store.read_on(stream, after, bytes / LEAST_FRAME, bytes).await?;
            let run = if frames.is_none() { store.run(stream).await? } else { None };
            Ok((frames, run))
        });
        StoreRead { after, bytes, permit, task }
    }
}

/// Frames with the `seq` of the last one, or the run if there are none.
type Found = (Option<(Frames, u64)>, Option<Run>);

/// A read of the store in a task of its own. Reads wait in a queue. A viewer with a stuck
/// connection is not polled, so without a task it would keep its place and block the readers behind
/// it.
struct StoreRead {
    after: u64,
    bytes: usize,
    permit: Option<StepPermit>,
    /// A set of one task, because dropping it aborts the task.
    task: JoinSet<Result<Found, JournalError>>,
}

impl StoreRead {
    async fn found(&mut self) -> Result<Found, JournalError> {
        let broken_off = || JournalError::new(ErrorKind::Unavailable, "a read was aborted");
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

//! What this process knows of open streams: the time of the last packet, and the viewers. It is in
//! memory only. It costs one atomic store per commit and one per chunk that is sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use capstan_journal::{Run, Viewers};
use capstan_protocol::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::Engine;

/// At most this many viewers of a stream are recorded one by one.
const MOST_VIEWERS: usize = 64;

/// The live facts of all open streams.
#[derive(Default)]
pub(crate) struct Live(Mutex<HashMap<Uuid, Arc<Facts>>>);

/// The live facts of one stream.
pub struct Facts {
    pub(crate) tenant: String,
    pub(crate) agent: String,
    /// In microseconds; 0 before the first append.
    last_append: AtomicI64,
    pub(crate) is_at_work: AtomicBool,
    is_closed: AtomicBool,
    watching: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    next: u64,
    present: usize,
    viewers: Vec<(u64, Viewer)>,
    sum: Viewers,
}

/// How a viewer's response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
    /// It received the whole stream.
    Done,
    /// The client disconnected.
    Left,
    /// The gateway ended it early: a packet could not be read, or the server stopped.
    Cut,
    /// The gateway ended it because the client did not read for too long.
    Stalled,
}

/// A current or past viewer of a stream.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// When it connected.
    pub joined_at: Timestamp,
    /// When and how it ended; none while it is connected.
    pub left: Option<(Timestamp, Parting)>,
    /// The packet after which it began to read.
    pub start: u64,
    /// If its request repeats an earlier one: the number of complete blocks or items of the answer
    /// that the client has.
    pub attached_behind: Option<u64>,
    cursor: Arc<AtomicU64>,
}

impl Viewer {
    /// The last packet that was written to its socket.
    pub fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Relaxed)
    }
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Facts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the facts of a run, and creates them if necessary.
    pub(crate) fn of(&self, run: &Run) -> Arc<Facts> {
        let mut all = self.lock();
        Arc::clone(all.entry(run.stream_id).or_insert_with(|| Arc::new(Facts::new(run))))
    }

    /// Returns the facts of a stream, if this process has any.
    pub(crate) fn get(&self, stream: Uuid) -> Option<Arc<Facts>> {
        self.lock().get(&stream).cloned()
    }

    /// Marks a stream as closed. Returns the summary of its viewers for the run's record.
    pub(crate) fn close(&self, stream: Uuid) -> Option<Viewers> {
        let facts = self.get(stream)?;
        facts.is_closed.store(true, Ordering::Relaxed);
        let watching = facts.lock();
        let mut sum = watching.sum;
        for (_, viewer) in &watching.viewers {
            sum.last_cursor = sum.last_cursor.max(viewer.cursor());
        }
        Some(sum).filter(|sum| sum.joined > 0)
    }

    /// Forgets streams that no relay writes, no viewer reads, and that do not wait for their
    /// client.
    pub(crate) fn forget_done(&self, waits: impl Fn(Uuid) -> bool) {
        self.lock().retain(|stream, facts| {
            let is_open = !facts.is_closed.load(Ordering::Relaxed) && waits(*stream);
            facts.is_at_work.load(Ordering::Relaxed) || facts.lock().present > 0 || is_open
        });
    }

    /// Counts running and waiting runs by agent, for the visible tenants.
    pub(crate) fn by_agent(&self, sees: impl Fn(&str) -> bool) -> HashMap<String, (u64, u64)> {
        let mut counts = HashMap::<String, (u64, u64)>::new();
        for facts in self.lock().values().filter(|facts| sees(&facts.tenant)) {
            let count = counts.entry(facts.agent.clone()).or_default();
            match (
                facts.is_at_work.load(Ordering::Relaxed),
                facts.is_closed.load(Ordering::Relaxed),
            ) {
                (true, _) => count.0 += 1,
                (false, false) => count.1 += 1,
                (false, true) => {}
            }
        }
        counts
    }
}

impl Facts {
    fn new(run: &Run) -> Self {
        Self {
            tenant: run.tenant.clone(),
            agent: run.agent.clone(),
            last_append: AtomicI64::new(0),
            is_at_work: AtomicBool::new(false),
            is_closed: AtomicBool::new(!run.is_open()),
            watching: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the time of the last committed packet.
    pub(crate) fn appended(&self, at: Timestamp) {
        self.last_append.store(at.as_micros(), Ordering::Relaxed);
    }

    /// When the last packet was committed.
    pub fn last_append(&self) -> Option<Timestamp> {
        Some(self.last_append.load(Ordering::Relaxed))
            .filter(|at| *at > 0)
            .map(Timestamp::from_micros)
    }

    /// The current viewers, and recent ones.
    pub fn viewers(&self) -> Vec<Viewer> {
        self.lock().viewers.iter().map(|(_, viewer)| viewer.clone()).collect()
    }
}

/// A flag: the server cut off this connection, or the reader of one answer on it, because it did
/// not read for too long.
#[derive(Debug, Clone, Default)]
pub struct Stalled(Arc<AtomicBool>);

impl Stalled {
    /// Marks the connection or reader as stalled.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The connection that an answer uses. It is set later, because the handler does not know it.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<OnceLock<[Stalled; 2]>>);

impl Departure {
    /// Sets the connection and the reader of this answer.
    pub fn is_by(&self, connection: &Stalled, reader: Stalled) {
        let _ = self.0.set([connection.clone(), reader]);
    }

    fn has_stalled(&self) -> bool {
        self.0.get().is_some_and(|either| either.iter().any(Stalled::is_set))
    }
}

/// Registers a viewer for as long as it lives.
pub struct Viewing {
    engine: Engine,
    facts: Arc<Facts>,
    number: u64,
    cursor: Arc<AtomicU64>,
    parting: Parting,
    departure: Departure,
}

impl Viewing {
    /// Registers a viewer that begins to read after packet `start`. `attached_behind` is that of
    /// [`Viewer`].
    pub fn new(engine: &Engine, run: &Run, start: u64, attached_behind: Option<u64>) -> Self {
        let facts = engine.live.of(run);
        let cursor = Arc::new(AtomicU64::new(start));
        let (joined_at, left, place) = (engine.wall.now(), None, Arc::clone(&cursor));
        let viewer = Viewer { joined_at, left, start, attached_behind, cursor: place };
        let mut watching = facts.lock();
        let number = watching.next;
        watching.next += 1;
        watching.present += 1;
        watching.sum.joined += 1;
        watching.sum.resumed += u64::from(start > 0);
        watching.sum.attached += u64::from(attached_behind.is_some());
        if watching.viewers.len() >= MOST_VIEWERS {
            // The list is full: remove the first viewer that has left. Without one, the new viewer
            // only adds to the sums.
            let gone = watching.viewers.iter().position(|(_, viewer)| viewer.left.is_some());
            gone.into_iter().for_each(|at| drop(watching.viewers.remove(at)));
        }
        if watching.viewers.len() < MOST_VIEWERS {
            watching.viewers.push((number, viewer));
        }
        drop(watching);
        Self {
            engine: engine.clone(),
            facts,
            number,
            cursor,
            parting: Parting::Left,
            departure: Departure::default(),
        }
    }

    /// Stores the last packet that was written to the viewer.
    pub fn at(&self, cursor: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    /// Returns a handle, for the code that knows the connection.
    pub fn departure(&self) -> Departure {
        self.departure.clone()
    }

    /// Sets how the response will end.
    pub fn ends(&mut self, parting: Parting) {
        self.parting = parting;
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        let (now, cursor) = (self.engine.wall.now(), self.cursor.load(Ordering::Relaxed));
        // A viewer that received everything did not stall, even if it read the last bytes slowly.
        let has_stalled = self.parting == Parting::Left && self.departure.has_stalled();
        let parting = if has_stalled { Parting::Stalled } else { self.parting };
        let mut watching = self.facts.lock();
        watching.present = watching.present.saturating_sub(1);
        watching.sum.cut += u64::from(parting == Parting::Cut);
        watching.sum.stalled += u64::from(parting == Parting::Stalled);
        watching.sum.last_cursor = watching.sum.last_cursor.max(cursor);
        let own = watching.viewers.iter_mut().find(|(number, _)| *number == self.number);
        if let Some((_, viewer)) = own {
            viewer.left = Some((now, parting));
        }
    }
}

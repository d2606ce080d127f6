//! What this process knows of streams that are open: when the last packet was written, and who
//! watches. In memory only, and nothing of it per packet: a store of a number per commit, and one
//! per chunk that is sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use capstan_journal::{Run, Viewers};
use capstan_protocol::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::Engine;

/// Viewers of a stream that are told of one by one.
const MOST_VIEWERS: usize = 64;

/// All open streams.
#[derive(Default)]
pub struct Live(Mutex<HashMap<Uuid, Arc<Facts>>>);

/// What is known of one stream.
pub struct Facts {
    pub(crate) tenant: String,
    pub(crate) agent: String,
    /// Microseconds; 0 before the first.
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
    /// It got all there was.
    Done,
    /// It went.
    Left,
    /// It was cut off: what follows could not be read, or the server stopped.
    Cut,
    /// It was cut off, because it took nothing for too long.
    Stalled,
}

/// One who watches, or watched.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// When it came.
    pub joined_at: Timestamp,
    /// When and how it left; none while it is there.
    pub left: Option<(Timestamp, Parting)>,
    /// The packet after which it began to read.
    pub start: u64,
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

    /// The facts of a run, which are kept from here on.
    pub(crate) fn of(&self, run: &Run) -> Arc<Facts> {
        let mut all = self.lock();
        Arc::clone(all.entry(run.stream_id).or_insert_with(|| Arc::new(Facts::new(run))))
    }

    /// The facts of a stream that is known here.
    pub fn get(&self, stream: Uuid) -> Option<Arc<Facts>> {
        self.lock().get(&stream).cloned()
    }

    /// A run ends: who watched it, for its record.
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

    /// Forgets what nobody works on, waits for or watches.
    pub fn forget_done(&self, waits: impl Fn(Uuid) -> bool) {
        self.lock().retain(|stream, facts| {
            let is_open = !facts.is_closed.load(Ordering::Relaxed) && waits(*stream);
            facts.is_at_work.load(Ordering::Relaxed) || facts.lock().present > 0 || is_open
        });
    }

    /// Runs at work and runs that wait, by agent, of tenants in sight.
    pub fn by_agent(&self, sees: impl Fn(&str) -> bool) -> HashMap<String, (u64, u64)> {
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

    /// Packets were committed, the last of this time.
    pub(crate) fn appended(&self, at: Timestamp) {
        self.last_append.store(at.as_micros(), Ordering::Relaxed);
    }

    /// When the last packet was written.
    pub fn last_append(&self) -> Option<Timestamp> {
        Some(self.last_append.load(Ordering::Relaxed))
            .filter(|at| *at > 0)
            .map(Timestamp::from_micros)
    }

    /// Those who watch, and who watched lately.
    pub fn viewers(&self) -> Vec<Viewer> {
        self.lock().viewers.iter().map(|(_, viewer)| viewer.clone()).collect()
    }
}

/// Whether the peer of a connection, or the reader of one answer on it, took nothing for so long
/// that it was cut off.
#[derive(Debug, Clone, Default)]
pub struct Stalled(Arc<AtomicBool>);

impl Stalled {
    /// It took nothing for too long.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// By which connection an answer goes; nobody knows when it is made.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<OnceLock<[Stalled; 2]>>);

impl Departure {
    /// It goes by this connection, to this reader.
    pub fn is_by(&self, connection: &Stalled, reader: Stalled) {
        let _ = self.0.set([connection.clone(), reader]);
    }

    fn has_stalled(&self) -> bool {
        self.0.get().is_some_and(|either| either.iter().any(Stalled::is_set))
    }
}

/// Somebody watches, as long as this lives.
pub struct Viewing {
    engine: Engine,
    facts: Arc<Facts>,
    number: u64,
    cursor: Arc<AtomicU64>,
    parting: Parting,
    departure: Departure,
}

impl Viewing {
    /// A viewer that reads on after this packet.
    pub fn new(engine: &Engine, run: &Run, start: u64) -> Self {
        let facts = engine.live.of(run);
        let cursor = Arc::new(AtomicU64::new(start));
        let viewer =
            Viewer { joined_at: engine.wall.now(), left: None, start, cursor: Arc::clone(&cursor) };
        let mut watching = facts.lock();
        let number = watching.next;
        watching.next += 1;
        watching.present += 1;
        watching.sum.joined += 1;
        watching.sum.resumed += u64::from(start > 0);
        if watching.viewers.len() >= MOST_VIEWERS {
            // Whoever left first makes room; who finds none is counted all the same.
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

    /// So far it was written to.
    pub fn at(&self, cursor: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    /// By which connection it is written to: whoever knows it tells.
    pub fn departure(&self) -> Departure {
        self.departure.clone()
    }

    /// How it is about to end.
    pub fn ends(&mut self, parting: Parting) {
        self.parting = parting;
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        let (now, cursor) = (self.engine.wall.now(), self.cursor.load(Ordering::Relaxed));
        // Whoever took all there was, and was slow with the last of it, is none that stalled.
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

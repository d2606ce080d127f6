//! The console: what runs, and why it failed. Nothing is done per packet for its sake, no question
//! is without bounds, and what was said is shown to those alone who may see it, and asked for it.

pub(crate) mod answers;
mod appends;
pub(crate) mod attention;
pub(crate) mod feed;
pub(crate) mod find;
pub(crate) mod frames;
pub(crate) mod marks;
pub(crate) mod patience;
mod refusals;
pub(crate) mod rollups;
mod sentence;
pub(crate) mod visitor;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use capstan_journal::Load;
use capstan_protocol::{Fault, Timestamp};

use appends::Appends;
use feed::{Feed, What};
use rollups::Rollups;

use crate::access::Access;
use crate::face::{FaceContext, Faces};
use crate::settings::{ConsoleSettings, ContentRule};
use capstan_engine::Engine;
use capstan_engine::events::{Happened, RunEvent, RunObserver};
use refusals::Refusals;
pub(crate) use refusals::Refused;

/// What this process remembers for the console: an observer of runs.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) refusals: Refusals,
    pub(crate) feed: Feed,
    pub(crate) rollups: Rollups,
    appends: Appends,
    /// Runs that this process works on.
    at_work: AtomicU64,
}

impl Memory {
    /// Runs that this process works on.
    pub(crate) fn at_work(&self) -> u64 {
        self.at_work.load(Ordering::Relaxed)
    }
}

/// The console. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Console(Arc<Parts>);

/// The parts of a [`Console`].
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) access: Access,
    pub(crate) cx: FaceContext,
    pub(crate) faces: Faces,
    pub(crate) settings: ConsoleSettings,
    pub(crate) memory: Arc<Memory>,
    pub(crate) started: Instant,
    /// Counts what the console showed or did.
    pub(crate) count: Box<dyn Fn(&'static str) + Send + Sync>,
}

impl Deref for Console {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Console {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Whether there is one.
    pub(crate) fn is_on(&self) -> bool {
        self.settings.is_on(self.access.is_local(), self.access.is_open, &self.access.operators)
    }

    /// Whether it shows what was said.
    pub(crate) fn content(&self) -> ContentRule {
        self.settings.content_rule(self.access.is_local())
    }

    fn count(&self, what: &'static str) {
        (self.count)(what);
    }

    /// When this life began: nothing is remembered from before.
    pub(crate) fn began(&self) -> Timestamp {
        let ago = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(0);
        Timestamp::from_micros(self.engine.wall.now().as_micros().saturating_sub(ago))
    }

    /// What this process has to do beside its runs.
    pub(crate) fn load(&self) -> Load {
        let responses = u64::try_from(self.engine.viewers.open_count()).unwrap_or(0);
        Load { responses, append_p95: self.memory.appends.p95() }
    }

    /// A request was refused.
    pub(crate) fn refused(&self, refused: Refused, fault: &Fault) {
        let is_of_console = refused.is_of_console;
        let (memory, refusal) = (&self.memory, refused.told(fault, self.engine.wall.now()));
        memory.feed.refused(&refusal);
        if !is_of_console {
            memory.rollups.refused(refusal.tenant.as_deref(), refusal.code, refusal.at);
        }
        memory.refusals.add(refusal);
    }
}

impl RunObserver for Memory {
    fn name(&self) -> &'static str {
        "console"
    }

    fn appended(&self, took: Duration) {
        self.appends.observe(took);
    }

    fn observe(&self, RunEvent { run, agent, at, what }: &RunEvent) {
        match what {
            Happened::Started => {
                self.rollups.began(run, *at);
                self.feed.run(What::Began, run);
            }
            Happened::Retried => {
                self.rollups.failed(run, agent);
                self.feed.run(What::Attempt, run);
            }
            Happened::Waiting => {
                self.rollups.failed(run, agent);
                self.feed.run(What::Waits, run);
            }
            Happened::Resumed => self.feed.run(What::Armed, run),
            Happened::Ended => {
                self.rollups.ended(run, agent);
                self.feed.run(What::Closed, run);
            }
            Happened::TakenUp => drop(self.at_work.fetch_add(1, Ordering::Relaxed)),
            Happened::LetGo => drop(self.at_work.fetch_sub(1, Ordering::Relaxed)),
            Happened::Attached
            | Happened::AttemptBegan
            | Happened::FirstPacket { .. }
            | Happened::CallEnded { .. }
            | Happened::AttemptFailed { .. }
            | Happened::JournalRefused { .. }
            | Happened::ReadDamage => {}
        }
    }
}

/// How often other processes are told what this one has to do.
const LOAD_EVERY: Duration = Duration::from_secs(1);

/// Tells them, for as long as it is awaited.
pub(crate) async fn tell_load(console: &Console) {
    if !console.engine.journal.store().is_shared() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOAD_EVERY).await;
        console.engine.journal.store().set_load(console.load());
    }
}

/// How often numbers are written down, and what is done with is forgotten.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// Does so, for as long as it is awaited.
pub(crate) async fn keep_house(console: &Console) {
    loop {
        tokio::time::sleep(KEEP_EVERY).await;
        console.memory.appends.turn();
        console.engine.live.forget_done(|stream| console.engine.waits.has(stream));
        rollups::save(console).await;
    }
}

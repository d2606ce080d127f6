#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod answers;
mod appends;
mod attention;
mod feed;
mod find;
mod frames;
mod marks;
mod patience;
mod refusals;
mod rollups;
mod routes;
mod sentence;
mod settings;
mod visitor;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use capstan_journal::Load;
use capstan_protocol::{Fault, Timestamp};

use appends::Appends;
use feed::{Feed, What};
use rollups::Rollups;

use capstan_engine::Engine;
use capstan_engine::events::{Happened, RunEvent, RunObserver};
use capstan_kit::access::Access;
use capstan_kit::face::{FaceContext, Faces};
pub use patience::limit;
use refusals::Refusals;
pub use refusals::Refused;
pub use rollups::{remember, save};
pub use routes::routes;
pub use settings::{ConsoleSettings, ContentRule};

/// The console's memory of this process: an observer of runs.
#[derive(Default)]
pub struct Memory {
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
pub struct Console(Arc<Parts>);

/// The parts of a [`Console`].
pub struct Parts {
    /// The engine whose runs the console shows.
    pub engine: Engine,
    /// The rules of access.
    pub access: Access,
    /// The context of faces, which encode frames here.
    pub cx: FaceContext,
    /// The faces that can encode frames.
    pub faces: Faces,
    /// The settings.
    pub settings: ConsoleSettings,
    /// The memory of this process.
    pub memory: Arc<Memory>,
    /// When this process began to serve.
    pub started: Instant,
    /// Counts what the console showed or did.
    pub count: Box<dyn Fn(&'static str) + Send + Sync>,
}

impl Deref for Console {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Console {
    /// The console of a gateway.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Whether the console is on.
    pub fn is_on(&self) -> bool {
        self.settings.is_on(self.access.is_local(), self.access.is_open, &self.access.operators)
    }

    /// Whether the console shows content.
    pub(crate) fn content(&self) -> ContentRule {
        self.settings.content_rule(self.access.is_local())
    }

    fn count(&self, what: &'static str) {
        (self.count)(what);
    }

    /// When this process began to serve. It remembers nothing from before.
    pub(crate) fn began(&self) -> Timestamp {
        let ago = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(0);
        Timestamp::from_micros(self.engine.now().as_micros().saturating_sub(ago))
    }

    /// The present load of this process.
    pub(crate) fn load(&self) -> Load {
        let responses = u64::try_from(self.engine.viewers().open_count()).unwrap_or(0);
        Load { responses, append_p95: self.memory.appends.p95() }
    }

    /// A request was refused.
    pub fn refused(&self, refused: Refused, fault: &Fault) {
        let is_of_console = refused.is_of_console;
        let (memory, refusal) = (&self.memory, refused.into_refusal(fault, self.engine.now()));
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
            Happened::Attached { .. }
            | Happened::AttemptBegan
            | Happened::FirstPacket { .. }
            | Happened::CallBegan { .. }
            | Happened::CallEnded { .. }
            | Happened::AttemptEnded { .. }
            | Happened::AttemptFailed { .. }
            | Happened::JournalRefused { .. }
            | Happened::ReadDamage => {}
        }
    }
}

/// How often this process reports its load to the others.
const LOAD_EVERY: Duration = Duration::from_secs(1);

/// Reports the load, for as long as it is polled.
pub async fn report_load(console: &Console) {
    let Some(cluster) = console.engine.store().cluster() else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOAD_EVERY).await;
        cluster.set_load(console.load());
    }
}

/// How often numbers are stored and old ones are dropped.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the periodic work of the console, for as long as it is polled.
pub async fn maintain(console: &Console) {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        console.memory.appends.turn();
        console.engine.forget_done_streams();
        rollups::save(console).await;
    }
}

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

use std::time::Duration;

use capstan_journal::Load;
use capstan_protocol::{Fault, Timestamp};

use appends::Appends;
use feed::{Feed, What};
use rollups::Rollups;

use crate::app::App;
use capstan_engine::events::{Happened, RunEvent, RunObserver};
use refusals::Refusals;
pub(crate) use refusals::Refused;

/// What this process remembers for the console.
#[derive(Default)]
pub(crate) struct Console {
    pub(crate) refusals: Refusals,
    pub(crate) feed: Feed,
    pub(crate) rollups: Rollups,
    appends: Appends,
}

impl Console {
    /// When this life began: nothing is remembered from before.
    pub(crate) fn started(&self, app: &App) -> Timestamp {
        let ago = i64::try_from(app.started.elapsed().as_micros()).unwrap_or(0);
        Timestamp::from_micros(app.wall.now().as_micros().saturating_sub(ago))
    }

    /// What this process has to do beside its runs.
    pub(crate) fn load(&self, app: &App) -> Load {
        let responses = u64::try_from(app.viewers.open_count()).unwrap_or(0);
        Load { responses, append_p95: self.appends.p95() }
    }

    /// A request was refused.
    pub(crate) fn refused(&self, app: &App, refused: Refused, fault: &Fault) {
        let is_of_console = refused.is_of_console;
        let refusal = refused.told(fault, app.wall.now());
        self.feed.refused(&refusal);
        if !is_of_console {
            self.rollups.refused(refusal.tenant.as_deref(), refusal.code, refusal.at);
        }
        self.refusals.add(refusal);
    }
}

impl RunObserver for Console {
    fn observe(&self, RunEvent { run, agent, at, what }: &RunEvent<'_>) {
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
            Happened::Appended { took } => self.appends.observe(*took),
            Happened::Attached
            | Happened::TakenUp
            | Happened::LetGo
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
pub(crate) async fn tell_load(app: &App) {
    if !app.journal.store().is_shared() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOAD_EVERY).await;
        app.journal.store().set_load(app.console.load(app));
    }
}

/// How often numbers are written down, and what is done with is forgotten.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// Does so, for as long as it is awaited.
pub(crate) async fn keep_house(app: &App) {
    loop {
        tokio::time::sleep(KEEP_EVERY).await;
        app.console.appends.turn();
        app.live.forget_done(|stream| app.waits.has(stream));
        rollups::save(app).await;
    }
}

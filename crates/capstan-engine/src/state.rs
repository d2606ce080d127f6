//! The state that the engine's modules share. No other crate reaches it: [`Engine`] has a method
//! for each part that others use.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use capstan_agent::Clock;
use capstan_journal::Journal;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::counts::{PacketCounts, ViewerCounts};
use crate::events::RunTracer;
use crate::histories::Histories;
use crate::limits::Limiter;
use crate::live::Live;
use crate::observers::Observers;
use crate::ports::{BeforeWork, Protocols, TenantRules};
use crate::purge::Erased;
use crate::readers::Readers;
use crate::relays::Relays;
use crate::settings::EngineSettings;
use crate::tenant_scheduler::TenantScheduler;
use crate::waits::Waits;
use crate::wall_clock::WallClock;
use crate::{Engine, Registered};

/// The state that the engine's modules share.
pub struct State {
    /// Where runs, packets and sessions are recorded.
    pub(crate) journal: Journal,
    /// Limits, timeouts and retention.
    pub(crate) settings: EngineSettings,
    pub(crate) clock: Clock,
    /// The time of day, with a record of the steps of the system clock.
    pub(crate) wall: WallClock,
    /// Counts runs, open responses and memory in this process, and checks them against the limits.
    pub(crate) limiter: Limiter,
    /// Divides the threads between the tenants.
    pub(crate) scheduler: TenantScheduler,
    /// The relays of this process.
    pub(crate) relays: Relays,
    /// Runs that wait for their client.
    pub(crate) waits: Waits,
    /// Sessions that were erased within the last minute.
    pub(crate) erased: Erased,
    /// Counts the readers of each run.
    pub(crate) readers: Readers,
    /// Decoded histories of recent sessions.
    pub(crate) histories: Histories,
    /// Open streams: the time of the last append, and the viewers.
    pub(crate) live: Live,
    /// Counts of encoded packets.
    pub(crate) packets: PacketCounts,
    /// Counts of viewers.
    pub(crate) viewers: ViewerCounts,
    pub(crate) observers: Observers,
    pub(crate) tracer: Option<Arc<dyn RunTracer>>,
    pub(crate) protocols: Arc<dyn Protocols>,
    pub(crate) tenants: Arc<dyn TenantRules>,
    pub(crate) before_work: Arc<dyn BeforeWork>,
    /// Running relays. A shutdown waits for them.
    pub(crate) tasks: TaskTracker,
    /// Running agents, and the cleanup that agents start when their run ends. A shutdown waits for
    /// them too, but with a timeout.
    pub(crate) agents_at_work: TaskTracker,
    /// Cancelled when recovery is done. New runs wait for it.
    pub(crate) recovered: CancellationToken,
    /// How many runs recovery still has to end.
    pub(crate) unrecovered: AtomicUsize,
    /// Cancelled when a shutdown begins: the engine refuses new runs.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the runs have to end.
    pub(crate) stopped: CancellationToken,
    /// Cancelled when open responses have to end, after the runs have written their last packet.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the journal has failed for good.
    pub(crate) broken: CancellationToken,
    /// Cancelled together with `closing` or `broken`, so that a viewer waits for one token.
    pub(crate) ended: CancellationToken,
    pub(crate) agents: Vec<Registered>,
    pub(crate) internal: Option<Registered>,
}

impl Deref for Engine {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

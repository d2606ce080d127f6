//! Builds an engine.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use capstan_agent::{Agent, Clock};
use capstan_journal::Journal;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::counts::{PacketCounts, ViewerCounts};
use crate::events::{RunObserver, RunTracer};
use crate::histories::Histories;
use crate::limits::Limiter;
use crate::live::Live;
use crate::observers::Observers;
use crate::ports::{BeforeWork, Protocols, TenantRules};
use crate::purge::Erased;
use crate::readers::Readers;
use crate::relays::Relays;
use crate::settings::EngineSettings;
use crate::state::State;
use crate::tenant_scheduler::TenantScheduler;
use crate::waits::Waits;
use crate::wall_clock::WallClock;
use crate::{Engine, Registered};

/// Builds an engine. Only the journal is required.
pub struct EngineBuilder {
    journal: Journal,
    settings: EngineSettings,
    agents: Vec<Registered>,
    internal: Option<Registered>,
    clock: Clock,
    tracer: Option<Arc<dyn RunTracer>>,
    observers: Vec<Arc<dyn RunObserver>>,
    protocols: Arc<dyn Protocols>,
    tenants: Arc<dyn TenantRules>,
    before_work: Arc<dyn BeforeWork>,
}

impl EngineBuilder {
    pub(crate) fn new(journal: Journal) -> Self {
        Self {
            journal,
            settings: EngineSettings::default(),
            agents: Vec::new(),
            internal: None,
            clock: Clock::default(),
            tracer: None,
            observers: Vec::new(),
            protocols: Arc::new(()),
            tenants: Arc::new(()),
            before_work: Arc::new(()),
        }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn settings(mut self, settings: EngineSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds an agent under a name. The first one is the default.
    #[must_use]
    pub fn agent(self, name: &str, agent: impl Agent) -> Self {
        self.registered(Registered::new(name, agent))
    }

    /// Adds an agent that is registered already.
    #[must_use]
    pub fn registered(mut self, agent: Registered) -> Self {
        self.agents.push(agent);
        self
    }

    /// Sets the agent that works on the gateway's own runs. No request can name it.
    #[must_use]
    pub fn internal_agent(mut self, agent: Registered) -> Self {
        self.internal = Some(agent);
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the tracer of runs. Without one, agents get the trace context of the request.
    #[must_use]
    pub fn tracer(mut self, tracer: Option<Arc<dyn RunTracer>>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Adds an observer of runs.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn RunObserver>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets the protocols in which runs are requested.
    #[must_use]
    pub fn protocols(mut self, protocols: impl Protocols) -> Self {
        self.protocols = Arc::new(protocols);
        self
    }

    /// Sets the quota and retention rules of tenants.
    #[must_use]
    pub fn tenants(mut self, tenants: impl TenantRules) -> Self {
        self.tenants = Arc::new(tenants);
        self
    }

    /// Sets the records that must exist before a run starts.
    #[must_use]
    pub fn before_work(mut self, before_work: Arc<dyn BeforeWork>) -> Self {
        self.before_work = before_work;
        self
    }

    /// Builds the engine.
    pub fn build(self) -> Engine {
        Engine(Arc::new(State {
            scheduler: TenantScheduler::new(self.settings.limits.share_per_tenant),
            journal: self.journal,
            limiter: Limiter::new(self.settings.limits.clone()),
            settings: self.settings,
            wall: WallClock::new(self.clock.clone()),
            clock: self.clock,
            relays: Relays::default(),
            waits: Waits::default(),
            erased: Erased::default(),
            readers: Readers::default(),
            histories: Histories::default(),
            live: Live::default(),
            packets: PacketCounts::default(),
            viewers: ViewerCounts::default(),
            observers: Observers::new(self.observers),
            tracer: self.tracer,
            protocols: self.protocols,
            tenants: self.tenants,
            before_work: self.before_work,
            tasks: TaskTracker::new(),
            agents_at_work: TaskTracker::new(),
            recovered: CancellationToken::new(),
            unrecovered: AtomicUsize::new(0),
            draining: CancellationToken::new(),
            stopped: CancellationToken::new(),
            closing: CancellationToken::new(),
            broken: CancellationToken::new(),
            ended: CancellationToken::new(),
            agents: self.agents,
            internal: self.internal,
        }))
    }
}

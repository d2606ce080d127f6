//! The run engine: start once, attach, attempts, stop, recovery, sessions. It knows the journal and
//! agents. It knows no HTTP, no protocol, no console and no metrics: those observe it (`events`) or
//! are asked through traits (`ports`).

pub(crate) mod ask;
pub(crate) mod conversation;
pub(crate) mod counts;
pub(crate) mod events;
pub(crate) mod faults;
pub(crate) mod heavy;
pub(crate) mod histories;
pub(crate) mod interrupts;
pub(crate) mod lanes;
pub(crate) mod limits;
pub(crate) mod live;
pub(crate) mod lookup;
pub(crate) mod ports;
pub(crate) mod purge;
pub(crate) mod readers;
pub(crate) mod readiness;
pub(crate) mod recovery;
pub(crate) mod relay;
pub(crate) mod resume;
pub(crate) mod runs;
pub(crate) mod settings;
pub(crate) mod traces;
pub(crate) mod waits;
pub(crate) mod wall_clock;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use capstan_agent::{Agent, Clock};
use capstan_journal::{Journal, Quota, Run};
use capstan_protocol::{ErrorDomain, Exposure, Fault, FaultKind, Timestamp};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use ask::Ask;
use counts::PacketCounts;
use events::{Happened, Observers, RunEvent};
use histories::Histories;
use lanes::{InLane, Lanes, work_of};
use limits::Limiter;
use live::Live;
use ports::{BeforeWork, Protocols, TenantRules};
use purge::Erased;
use readers::Readers;
use runs::Runs;
use settings::EngineSettings;
use traces::Traces;
use waits::Waits;
use wall_clock::WallClock;

/// An agent under its name.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
    pub(crate) agent: Arc<dyn Agent>,
}

/// What an engine is made of.
pub(crate) struct Parts {
    pub(crate) journal: Journal,
    pub(crate) settings: EngineSettings,
    /// In the order in which they are listed; the first is the default one.
    pub(crate) agents: Vec<Registered>,
    /// Works on runs that nobody can ask for.
    pub(crate) courier: Registered,
    pub(crate) clock: Clock,
    pub(crate) wall: WallClock,
    pub(crate) traces: Traces,
    pub(crate) observers: Observers,
    pub(crate) protocols: Arc<dyn Protocols>,
    pub(crate) tenants: Arc<dyn TenantRules>,
    pub(crate) before_work: Arc<dyn BeforeWork>,
}

/// The run engine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine(Arc<State>);

/// What the engine's modules share.
pub(crate) struct State {
    pub(crate) journal: Journal,
    pub(crate) settings: EngineSettings,
    pub(crate) clock: Clock,
    pub(crate) wall: WallClock,
    pub(crate) limiter: Limiter,
    pub(crate) lanes: Lanes,
    pub(crate) runs: Runs,
    pub(crate) waits: Waits,
    pub(crate) erased: Erased,
    pub(crate) readers: Readers,
    pub(crate) histories: Histories,
    pub(crate) live: Live,
    pub(crate) packets: PacketCounts,
    pub(crate) traces: Traces,
    observers: Observers,
    protocols: Arc<dyn Protocols>,
    tenants: Arc<dyn TenantRules>,
    before_work: Arc<dyn BeforeWork>,
    /// Relays at work; the end waits for them.
    pub(crate) tasks: TaskTracker,
    /// Agents, and what they were told to end when their run did; the end waits for them, too, but
    /// not for ever.
    pub(crate) agents_at_work: TaskTracker,
    /// What an earlier life left open is recovered; new runs wait for it.
    pub(crate) recovered: CancellationToken,
    /// How many runs still have to be.
    pub(crate) unrecovered: AtomicUsize,
    /// New runs are refused from here on.
    pub(crate) draining: CancellationToken,
    /// Runs end here.
    pub(crate) stopped: CancellationToken,
    /// Open responses end here, after the runs have written their last packet.
    pub(crate) closing: CancellationToken,
    /// The journal failed for good.
    pub(crate) broken: CancellationToken,
    /// Either of the two, so that a viewer waits for one thing.
    pub(crate) ended: CancellationToken,
    agents: Vec<Registered>,
    /// Delivers what is to be delivered; nobody else can ask it.
    pub(crate) courier: Registered,
}

impl Deref for Engine {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(State {
            lanes: Lanes::new(parts.settings.limits.share_per_tenant),
            journal: parts.journal,
            settings: parts.settings,
            clock: parts.clock,
            wall: parts.wall,
            limiter: Limiter::default(),
            runs: Runs::default(),
            waits: Waits::default(),
            erased: Erased::default(),
            readers: Readers::default(),
            histories: Histories::default(),
            live: Live::default(),
            packets: PacketCounts::default(),
            traces: parts.traces,
            observers: parts.observers,
            protocols: parts.protocols,
            tenants: parts.tenants,
            before_work: parts.before_work,
            tasks: TaskTracker::new(),
            agents_at_work: TaskTracker::new(),
            recovered: CancellationToken::new(),
            unrecovered: AtomicUsize::new(0),
            draining: CancellationToken::new(),
            stopped: CancellationToken::new(),
            closing: CancellationToken::new(),
            broken: CancellationToken::new(),
            ended: CancellationToken::new(),
            agents: parts.agents,
            courier: parts.courier,
        }))
    }

    /// Lets everybody know who observes runs. The only place where they are told.
    pub(crate) fn emit(&self, run: &Run, what: Happened<'_>) {
        let agent = self.agent_label(&run.agent);
        self.observers.emit(&RunEvent { run, agent, at: self.clock.now(), what });
    }

    /// Who works on a run: an agent, or the courier.
    pub(crate) fn worker(&self, name: &str) -> Option<&Registered> {
        if *name == *self.courier.name { Some(&self.courier) } else { self.agent(name) }
    }

    /// Which agent answers: the path's, else the one that the request names, else the default.
    pub(crate) fn agent_for(&self, path: Option<&str>, ask: &Ask) -> Result<&Registered, Fault> {
        if let Some(name) = path.or(ask.agent.as_deref()) {
            return self.agent(name).ok_or_else(|| {
                Fault::new(FaultKind::AgentNotFound)
                    .with_message(format!("No agent is called {name:?}."))
            });
        }
        let named = ask.agent_id.and_then(|id| self.agents.iter().find(|a| a.id == id));
        named.or(self.default_agent()).ok_or_else(|| Fault::new(FaultKind::AgentNotFound))
    }

    pub(crate) fn agent(&self, name: &str) -> Option<&Registered> {
        self.agents.iter().find(|agent| *agent.name == *name)
    }

    /// In the order of the configuration.
    pub(crate) fn agents(&self) -> impl Iterator<Item = &Registered> {
        self.agents.iter()
    }

    pub(crate) fn default_agent(&self) -> Option<&Registered> {
        self.agents.first()
    }

    /// The agent as statistics name it. Of runs whose agent is no longer configured there may be
    /// any number of names.
    pub(crate) fn agent_label(&self, name: &str) -> &str {
        self.worker(name).map_or("other", |agent| &agent.name)
    }

    /// Whether the store may hold runs that run or wait, as far as can be told without asking it:
    /// whoever looks on while nothing happens costs it nothing.
    pub(crate) fn may_have_open_runs(&self) -> bool {
        self.journal.store().is_shared() || self.runs.count() > 0 || self.waits.count() > 0
    }

    /// What goes on by itself for a tenant, as a task of that tenant's.
    pub(crate) fn of_tenant<F>(&self, tenant: &str, work: F) -> InLane<F> {
        if self.settings.has_lanes { self.lanes.task(tenant, work) } else { InLane::without(work) }
    }

    /// So many packets and bytes of a tenant's went through the journal and the kernel.
    pub(crate) fn passed(&self, tenant: &str, packets: usize, bytes: usize) {
        if self.settings.has_lanes {
            self.lanes.pay(tenant, work_of(packets, bytes));
        }
    }

    /// What a tenant may have.
    pub(crate) fn quota_of(&self, tenant: &str) -> Quota {
        self.tenants.quota(tenant, &self.settings.limits)
    }

    /// The time of day, for whatever is written down of a run. It never goes back within one,
    /// whoever sets the clock.
    pub(crate) fn stamp(&self, run: &Run) -> Timestamp {
        self.wall.now().max(run.updated_at)
    }

    /// What a run was asked, from the body that is kept with it.
    pub(crate) fn asked(&self, run: &Run, body: &[u8]) -> Result<Ask, Fault> {
        let unknown = || {
            Fault::new(FaultKind::AgentExecutionError)
                .with_message("The run is of an unknown face.")
        };
        let ask = self.protocols.decode(&run.face, body).ok_or_else(unknown)??;
        // The face may have found these elsewhere than in the body.
        let previous = run.previous_response.as_deref().and_then(|stream| stream.parse().ok());
        Ok(Ask {
            key: run.key.clone(),
            session: run.session.clone(),
            chat: run.chat.clone(),
            previous,
            ..ask
        })
    }

    /// Puts on record what must be before anybody works on a run.
    async fn prepare(&self, run: &Run, ask: &Ask) {
        if self.before_work.concerns(run) {
            self.before_work.prepare(run, ask).await;
        }
    }

    /// The same for a run that somebody has left: between its claim and that record there is room
    /// for a crash.
    async fn prepare_again(&self, run: &Run) -> Result<(), Fault> {
        if self.before_work.concerns(run) {
            let body =
                self.journal.store().body(run.stream_id).await.map_err(faults::journal_fault)?;
            // What cannot be read any more ends as it may; there is nobody to tell.
            if let Ok(ask) = self.asked(run, &body.unwrap_or_default()) {
                self.before_work.prepare(run, &ask).await;
            }
        }
        Ok(())
    }

    /// What may be logged of a fault's cause.
    pub(crate) fn loggable(&self, fault: &Fault) -> Option<String> {
        loggable(fault, self.settings.exposure)
    }
}

/// What may be logged of a fault's cause: the error chain, since the log is the operator's own and
/// nothing else tells why. Not if the request was wrong: the words of such a fault repeat what a
/// user sent. Types only in debug mode.
pub(crate) fn loggable(fault: &Fault, exposure: Exposure) -> Option<String> {
    /// Longer ones are somebody's data.
    const LONGEST: usize = 2000;
    let cause = fault.cause()?;
    let words = match (exposure, fault.domain()) {
        (Exposure::Debug, _) => format!("{}: {cause}", cause.error_type),
        (Exposure::Production, ErrorDomain::Client) => return None,
        (
            Exposure::Production,
            ErrorDomain::System | ErrorDomain::Llm | ErrorDomain::Tool | ErrorDomain::Security,
        ) => cause.to_string(),
    };
    Some(words.chars().take(LONGEST).collect())
}

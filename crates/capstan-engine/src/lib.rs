//! The run engine: start once, attach, attempts, stop, recovery, sessions. It knows the journal and
//! agents. It knows no HTTP, no protocol, no console and no metrics: those observe it (`events`) or
//! are asked through traits (`ports`).

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod ask;
mod builder;
pub mod conversation;
pub(crate) mod counts;
pub mod cpu_offload;
pub mod events;
pub mod faults;
pub(crate) mod histories;
pub mod interrupts;
pub mod limits;
pub mod live;
pub mod lookup;
mod observers;
pub mod ports;
pub mod purge;
pub mod readers;
pub(crate) mod readiness;
pub mod recovery;
pub mod relay;
mod relays;
pub mod resume;
pub mod runs;
pub mod settings;
pub mod stopping;
pub mod tenant_scheduler;
pub mod traces;
pub(crate) mod waits;
pub mod wall_clock;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use capstan_agent::{Agent, Clock};
use capstan_journal::{Journal, Quota, Run};
use capstan_protocol::{ErrorDomain, Exposure, Fault, FaultKind, Timestamp, near};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use ask::Ask;
pub use builder::EngineBuilder;
use counts::{PacketCounts, ViewerCounts};
use events::{Happened, RunEvent};
use histories::Histories;
use limits::Limiter;
use live::Live;
use observers::Observers;
use ports::{BeforeWork, Protocols, TenantRules};
use purge::Erased;
use readers::Readers;
use relays::Relays;
use settings::EngineSettings;
use tenant_scheduler::{ScheduledTask, TenantScheduler, work_of};
use traces::Traces;
use waits::Waits;
use wall_clock::WallClock;

/// An agent under its name.
#[derive(Clone)]
pub struct Registered {
    /// Its name, as requests name it.
    pub name: Arc<str>,
    /// Other names under which requests may name it.
    pub aliases: Vec<Arc<str>>,
    /// An id that follows from the name.
    pub id: Uuid,
    /// The agent itself.
    pub agent: Arc<dyn Agent>,
}

impl Registered {
    /// An agent with an id that follows from its name, so that it stays the same.
    pub fn new(name: &str, agent: impl Agent) -> Self {
        let digest = <sha2::Sha256 as sha2::Digest>::digest(name.as_bytes());
        let id = Uuid::from_slice(digest.get(..16).unwrap_or_default()).unwrap_or_default();
        Self { name: name.into(), aliases: Vec::new(), id, agent: Arc::new(agent) }
    }

    /// All names under which requests may name it, its own first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases.iter().map(|alias| &**alias))
    }
}

/// At most so many names are proposed in place of an unknown one.
const NEAR_NAMES: usize = 3;
/// What is repeated of an unknown name.
const LONGEST_NAME: usize = 100;

/// The run engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<State>);

/// What the engine's modules share.
pub struct State {
    /// Where runs, packets and sessions are recorded.
    pub journal: Journal,
    /// How much and how long.
    pub settings: EngineSettings,
    pub(crate) clock: Clock,
    /// The time of day.
    pub wall: WallClock,
    /// What is under way here, and what is allowed.
    pub limiter: Limiter,
    /// Each tenant's share of the threads.
    pub scheduler: TenantScheduler,
    /// Runs that this process works on.
    pub(crate) relays: Relays,
    /// Runs that wait for their client.
    pub waits: Waits,
    /// Sessions that are being erased.
    pub erased: Erased,
    /// Who reads which run.
    pub readers: Readers,
    /// Conversations that were read a moment ago.
    pub histories: Histories,
    /// Open streams: the last append, and the viewers.
    pub live: Live,
    /// Packets that were encoded.
    pub packets: PacketCounts,
    /// Viewers of streams.
    pub viewers: ViewerCounts,
    /// Spans of runs and attempts.
    pub traces: Traces,
    observers: Observers,
    protocols: Arc<dyn Protocols>,
    tenants: Arc<dyn TenantRules>,
    before_work: Arc<dyn BeforeWork>,
    /// Relays at work; the end waits for them.
    pub tasks: TaskTracker,
    /// Agents, and what they were told to end when their run did; the end waits for them, too, but
    /// not for ever.
    pub agents_at_work: TaskTracker,
    /// What an earlier life left open is recovered; new runs wait for it.
    pub(crate) recovered: CancellationToken,
    /// How many runs still have to be.
    pub(crate) unrecovered: AtomicUsize,
    /// New runs are refused from here on.
    pub draining: CancellationToken,
    /// Runs end here.
    pub stopped: CancellationToken,
    /// Open responses end here, after the runs have written their last packet.
    pub closing: CancellationToken,
    /// The journal failed for good.
    pub broken: CancellationToken,
    /// Either of the two, so that a viewer waits for one thing.
    pub ended: CancellationToken,
    agents: Vec<Registered>,
    internal: Option<Registered>,
}

impl Deref for Engine {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl Engine {
    /// An engine over a journal, to be completed.
    pub fn builder(journal: Journal) -> EngineBuilder {
        EngineBuilder::new(journal)
    }

    /// Lets everybody know who observes runs. The only place where they are told; nobody waits.
    pub fn emit(&self, run: &Run, what: Happened) {
        if !self.observers.is_empty() {
            let agent = self.agent_label(&run.agent).into();
            let run = Arc::new(run.clone());
            self.observers.emit(RunEvent { run, agent, at: self.clock.now(), what });
        }
    }

    /// Waits until those who observe runs know what happened before, but not for one that is stuck.
    pub async fn observed(&self) {
        self.observers.settled().await;
    }

    /// How many events each observer was too slow for.
    pub fn dropped_events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.observers.dropped()
    }

    /// The agent that works on a run: one of the configuration, or the internal one.
    pub(crate) fn worker(&self, name: &str) -> Option<&Registered> {
        self.internal.as_ref().filter(|agent| *agent.name == *name).or_else(|| self.agent(name))
    }

    /// Which agent answers: the path's, else the one that the request names, else the default.
    pub fn agent_for(&self, path: Option<&str>, ask: &Ask) -> Result<&Registered, Fault> {
        if let Some(name) = path.or(ask.agent.as_deref()) {
            return self.agent(name).ok_or_else(|| self.no_agent(name));
        }
        let named = ask.agent_id.and_then(|id| self.agents.iter().find(|a| a.id == id));
        named.or(self.default_agent()).ok_or_else(|| Fault::new(FaultKind::AgentNotFound))
    }

    /// The agent of a name, or else of an alias.
    pub fn agent(&self, name: &str) -> Option<&Registered> {
        let named = self.agents.iter().find(|agent| *agent.name == *name);
        named.or_else(|| self.agents.iter().find(|agent| agent.names().any(|one| one == name)))
    }

    /// The agent's own name for any of its names; a name that no agent has stays as it is.
    pub fn own_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.agent(name).map_or(name, |agent| &agent.name)
    }

    /// The fault of a name that no agent has. It lists the names that look like it.
    pub fn no_agent(&self, name: &str) -> Fault {
        let near = near(name, self.agents.iter().flat_map(Registered::names), NEAR_NAMES);
        let quoted: Vec<String> = near.iter().map(|near| format!("{near:?}")).collect();
        let hint = match quoted.split_last() {
            Some((last, [])) => format!(" Did you mean {last}?"),
            Some((last, rest)) => format!(" Did you mean {} or {last}?", rest.join(", ")),
            None => String::new(),
        };
        let name: String = name.chars().take(LONGEST_NAME).collect();
        let fault = Fault::new(FaultKind::AgentNotFound)
            .with_message(format!("No agent is called {name:?}.{hint}"));
        if near.is_empty() { fault } else { fault.with_detail("near", near) }
    }

    /// In the order of the configuration.
    pub fn agents(&self) -> impl Iterator<Item = &Registered> {
        self.agents.iter()
    }

    /// The agent of requests that name none.
    pub fn default_agent(&self) -> Option<&Registered> {
        self.agents.first()
    }

    /// The agent as statistics name it. Of runs whose agent is no longer configured there may be
    /// any number of names.
    pub fn agent_label(&self, name: &str) -> &str {
        self.worker(name).map_or("other", |agent| &agent.name)
    }

    /// Whether the store may hold runs that run or wait, as far as can be told without asking it:
    /// whoever looks on while nothing happens costs it nothing.
    pub fn may_have_open_runs(&self) -> bool {
        self.journal.store().is_shared() || self.relays.count() > 0 || self.waits.count() > 0
    }

    /// What goes on by itself for a tenant, as a task of that tenant's.
    pub fn of_tenant<F>(&self, tenant: &str, work: F) -> ScheduledTask<F> {
        if self.settings.has_tenant_shares {
            self.scheduler.task(tenant, work)
        } else {
            ScheduledTask::without(work)
        }
    }

    /// So many packets and bytes of a tenant's went through the journal and the kernel.
    pub fn passed(&self, tenant: &str, packets: usize, bytes: usize) {
        if self.settings.has_tenant_shares {
            self.scheduler.pay(tenant, work_of(packets, bytes));
        }
    }

    /// What a tenant may have.
    pub fn quota_of(&self, tenant: &str) -> Quota {
        self.tenants.quota(tenant, &self.settings.limits)
    }

    /// The time of day, for whatever is written down of a run. It never goes back within one,
    /// whoever sets the clock.
    pub(crate) fn stamp(&self, run: &Run) -> Timestamp {
        self.wall.now().max(run.updated_at)
    }

    /// What a run was asked, from the body that is kept with it.
    pub fn asked(&self, run: &Run, body: &[u8]) -> Result<Ask, Fault> {
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
    pub fn loggable(&self, fault: &Fault) -> Option<String> {
        loggable(fault, self.settings.exposure)
    }
}

/// What may be logged of a fault's cause: the error chain, since the log is the operator's own and
/// nothing else tells why. Not if the request was wrong: the words of such a fault repeat what a
/// user sent. Types only in debug mode.
pub fn loggable(fault: &Fault, exposure: Exposure) -> Option<String> {
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

//! The run engine: starts each run once, attaches requests, makes attempts, stops, recovers, and
//! stores sessions. It depends on the journal and on agents only. HTTP, protocols, console and
//! metrics either observe the engine (`events`) or implement its traits (`ports`).

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod ask;
mod builder;
pub mod conversation;
pub mod counts;
pub mod cpu_offload;
mod draining;
pub mod events;
pub mod faults;
pub(crate) mod histories;
pub mod interrupts;
pub mod limits;
pub mod live;
pub mod lookup;
mod observers;
mod parts;
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
mod state;
pub mod stopping;
pub mod tenant_scheduler;
pub(crate) mod waits;
pub mod wall_clock;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_agent::Agent;
use capstan_journal::{Journal, Quota, Run};
use capstan_protocol::{ErrorDomain, Exposure, Fault, FaultKind, Timestamp, near};
use uuid::Uuid;

use ask::Ask;
pub use builder::EngineBuilder;
use events::{Happened, RunEvent};
use state::State;
use tenant_scheduler::{ScheduledTask, work_of};

/// An agent that is registered under a name.
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
    /// Registers an agent. Its id is a hash of the name, so it is the same after every restart.
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

/// How many similar names an error proposes for an unknown one.
const NEAR_NAMES: usize = 3;
/// How many characters of an unknown name an error repeats.
const LONGEST_NAME: usize = 100;

/// The run engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<State>);

impl Engine {
    /// Starts to build an engine over a journal.
    pub fn builder(journal: Journal) -> EngineBuilder {
        EngineBuilder::new(journal)
    }

    /// Hands an event to the tracer, and queues it for every observer of runs. It never blocks. No
    /// other function reports events of runs.
    pub fn emit(&self, run: &Run, what: Happened) {
        if self.observers.is_empty() && self.tracer.is_none() {
            return;
        }
        let agent = self.agent_label(&run.agent).into();
        let event = RunEvent { run: Arc::new(run.clone()), agent, at: self.clock.now(), what };
        if let Some(tracer) = &self.tracer {
            tracer.observe(&event);
        }
        self.observers.emit(event);
    }

    /// Ends the trace spans of runs that have waited for longer than this.
    pub fn forget_waiting_spans(&self, longer_than: Duration) {
        if let Some(tracer) = &self.tracer {
            tracer.forget_waiting(longer_than);
        }
    }

    /// Waits until the observers have handled all events so far. It gives up on a stuck observer
    /// after a second.
    pub async fn observed(&self) {
        self.observers.settled().await;
    }

    /// How many events the engine dropped, by observer, because the observer was too slow.
    pub fn dropped_events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.observers.dropped()
    }

    /// The agent of a run: a configured agent, or the internal one.
    pub(crate) fn worker(&self, name: &str) -> Option<&Registered> {
        self.internal.as_ref().filter(|agent| *agent.name == *name).or_else(|| self.agent(name))
    }

    /// Chooses the agent: the one in the path, else the one that the request names, else the
    /// default.
    pub fn agent_for(&self, path: Option<&str>, ask: &Ask) -> Result<&Registered, Fault> {
        if let Some(name) = path.or(ask.agent.as_deref()) {
            return self.agent(name).ok_or_else(|| self.no_agent(name));
        }
        let named = ask.agent_id.and_then(|id| self.agents.iter().find(|a| a.id == id));
        named.or(self.default_agent()).ok_or_else(|| Fault::new(FaultKind::AgentNotFound))
    }

    /// Finds an agent by its name, else by an alias.
    pub fn agent(&self, name: &str) -> Option<&Registered> {
        let named = self.agents.iter().find(|agent| *agent.name == *name);
        named.or_else(|| self.agents.iter().find(|agent| agent.names().any(|one| one == name)))
    }

    /// Replaces an alias by the agent's own name. Returns an unknown name unchanged.
    pub fn own_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.agent(name).map_or(name, |agent| &agent.name)
    }

    /// The fault for an unknown agent name. It lists similar names.
    pub fn no_agent(&self, name: &str) -> Fault {
        let near = near(name, self.agents.iter().flat_map(Registered::names), NEAR_NAMES);
        let quoted: Vec<String> = near.iter().map(|near| format!("{near:?}")).collect();
        let hint = match quoted.split_last() {
            Some((last, [])) => format!(" Did you mean {last}?"),
            Some((last, rest)) => format!(" Did you mean {} or {last}?", rest.join(", ")),
            None => " GET /v1/models lists the agents, and so does `capstan agents`.".to_owned(),
        };
        let name: String = name.chars().take(LONGEST_NAME).collect();
        let fault = Fault::new(FaultKind::AgentNotFound)
            .with_message(format!("No agent is called {name:?}.{hint}"));
        if near.is_empty() { fault } else { fault.with_detail("near", near) }
    }

    /// The agents, in the order of the configuration.
    pub fn agents(&self) -> impl Iterator<Item = &Registered> {
        self.agents.iter()
    }

    /// The agent for requests that name none.
    pub fn default_agent(&self) -> Option<&Registered> {
        self.agents.first()
    }

    /// The agent's name as a metric label. Agents that are no longer configured share the label
    /// `other`, so that the number of labels stays bounded.
    pub fn agent_label(&self, name: &str) -> &str {
        self.worker(name).map_or("other", |agent| &agent.name)
    }

    /// Whether the store may have open runs, judged without a query. Console pages that poll an
    /// idle gateway then cost the store nothing.
    pub fn may_have_open_runs(&self) -> bool {
        self.journal.store().is_shared() || self.relays.count() > 0 || self.waits.count() > 0
    }

    /// Wraps background work of a tenant, so that the scheduler counts it as that tenant's.
    pub fn of_tenant<F>(&self, tenant: &str, work: F) -> ScheduledTask<F> {
        if self.settings.has_tenant_shares {
            self.scheduler.task(tenant, work)
        } else {
            ScheduledTask::without(work)
        }
    }

    /// Charges a tenant's scheduler share for packets that the journal and the kernel have handled.
    pub fn passed(&self, tenant: &str, packets: usize, bytes: usize) {
        if self.settings.has_tenant_shares {
            self.scheduler.pay(tenant, work_of(packets, bytes));
        }
    }

    /// The tenant's quota.
    pub fn quota_of(&self, tenant: &str) -> Quota {
        self.tenants.quota(tenant, &self.settings.limits)
    }

    /// The time of day for a run's record. Within a run it never goes back, even if the system
    /// clock is set.
    pub(crate) fn stamp(&self, run: &Run) -> Timestamp {
        self.wall.now().max(run.updated_at)
    }

    /// Decodes the stored body of a run.
    pub fn asked(&self, run: &Run, body: Bytes) -> Result<Ask, Fault> {
        let unknown = || {
            Fault::new(FaultKind::AgentExecutionError)
                .with_message("The run is of an unknown face.")
        };
        let ask = self.protocols.decode(&run.face, &body.into()).ok_or_else(unknown)??;
        // A face may have read these from a header or a path instead of the body.
        let previous = run.previous_response.as_deref().and_then(|stream| stream.parse().ok());
        Ok(Ask {
            key: run.key.clone(),
            session: run.session.clone(),
            chat: run.chat.clone(),
            previous,
            ..ask
        })
    }

    /// Stores the records that must exist before a run starts.
    async fn prepare(&self, run: &Run, ask: &Ask) {
        if self.before_work.concerns(run) {
            self.before_work.prepare(run, ask).await;
        }
    }

    /// Repeats `prepare` for a run whose process is gone: it may have crashed between the claim and
    /// the record.
    async fn prepare_again(&self, run: &Run) -> Result<(), Fault> {
        if self.before_work.concerns(run) {
            let body =
                self.journal.store().body(run.stream_id).await.map_err(faults::journal_fault)?;
            // If the body no longer decodes, recovery still ends the run. No client waits for this
            // error.
            if let Ok(ask) = self.asked(run, body.unwrap_or_default()) {
                self.before_work.prepare(run, &ask).await;
            }
        }
        Ok(())
    }

    /// The part of a fault's cause that the log may contain.
    pub fn loggable(&self, fault: &Fault) -> Option<String> {
        loggable(fault, self.settings.exposure)
    }
}

/// The part of a fault's cause that the log may contain: the error chain, because only the log
/// explains a failure to the operator. Client faults are excluded, because their text may repeat
/// what a user sent. The type of the error is logged in debug mode only.
pub fn loggable(fault: &Fault, exposure: Exposure) -> Option<String> {
    /// Longer texts probably contain user data.
    const LONGEST: usize = 2000;
    let cause = fault.cause()?;
    let text = match (exposure, fault.domain()) {
        (Exposure::Debug, _) => format!("{}: {cause}", cause.error_type),
        (Exposure::Production, ErrorDomain::Client) => return None,
        (
            Exposure::Production,
            ErrorDomain::System | ErrorDomain::Llm | ErrorDomain::Tool | ErrorDomain::Security,
        ) => cause.to_string(),
    };
    Some(text.chars().take(LONGEST).collect())
}

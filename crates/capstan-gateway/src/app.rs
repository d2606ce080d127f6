//! The gateway as its users build it, and the state that its parts share.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Instant;

use capstan_agent::{Agent, Clock};
use capstan_journal::{Journal, Quota, Run};
use capstan_protocol::{ErrorDomain, Exposure, Fault, FaultKind, Timestamp};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::access::CorsHeaders;
use crate::audit::Audit;
use crate::console::Console;
use crate::engine::ask::Ask;
use crate::engine::histories::Histories;
use crate::engine::lanes::{InLane, Lanes, work_of};
use crate::engine::limits::{self, Limiter};
use crate::engine::purge::Erased;
use crate::engine::readers::Readers;
use crate::engine::runs::Runs;
use crate::engine::traces::{TraceCollector, Traces};
use crate::engine::waits::Waits;
use crate::engine::wall_clock::WallClock;
use crate::face::{self, Face};
use crate::metrics::Metrics;
use crate::passage::{Passage, Passages};
use crate::routes::page::Asset;
use crate::settings::Settings;
use crate::webhooks::{COURIER, Courier, WebhookSender};

/// A gateway: a journal, agents, settings. The first agent is the default one.
///
/// ```no_run
/// # async fn example(journal: capstan_journal::Journal, agent: impl capstan_agent::Agent) -> std::io::Result<()> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8787").await?;
/// let gateway = capstan_gateway::Gateway::new(journal).agent("echo", agent);
/// capstan_gateway::serve(gateway, vec![listener], std::future::pending()).await?;
/// # Ok(()) }
/// ```
pub struct Gateway {
    journal: Journal,
    agents: Vec<Registered>,
    settings: Settings,
    page: &'static [Asset],
    traces: Option<Arc<dyn TraceCollector>>,
    webhooks: Option<Arc<dyn WebhookSender>>,
    passage: Option<Arc<dyn Passage>>,
    clock: Clock,
    console_listeners: Vec<TcpListener>,
}

/// An agent under its name.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) name: Arc<str>,
    pub(crate) id: Uuid,
    pub(crate) agent: Arc<dyn Agent>,
}

impl Gateway {
    /// A gateway over a journal, without agents yet.
    pub fn new(journal: Journal) -> Self {
        let (agents, settings, clock) = (Vec::new(), Settings::default(), Clock::default());
        let console_listeners = Vec::new();
        Self {
            journal,
            agents,
            settings,
            page: &[],
            traces: None,
            webhooks: None,
            passage: None,
            clock,
            console_listeners,
        }
    }

    /// Adds an agent. Its id is derived from its name, so that it stays the same.
    #[must_use]
    pub fn agent(mut self, name: &str, agent: impl Agent) -> Self {
        let digest = <sha2::Sha256 as sha2::Digest>::digest(name.as_bytes());
        let id = Uuid::from_slice(digest.get(..16).unwrap_or_default()).unwrap_or_default();
        self.agents.push(Registered { name: name.into(), id, agent: Arc::new(agent) });
        self
    }

    /// Replaces the settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Serves this page at `/` instead of a plain one.
    #[must_use]
    pub fn page(mut self, assets: &'static [Asset]) -> Self {
        self.page = assets;
        self
    }

    /// Makes spans of runs and attempts, under the target [`SPANS`](crate::SPANS), for this collector. Without one
    /// there are none, and the trace of a request is passed on to agents as it is.
    #[must_use]
    pub fn traces(mut self, collector: impl TraceCollector) -> Self {
        self.traces = Some(Arc::new(collector));
        self
    }

    /// Posts the webhooks of tenants that have one. Without, there are none.
    #[must_use]
    pub fn webhooks(mut self, sender: impl WebhookSender) -> Self {
        self.webhooks = Some(Arc::new(sender));
        self
    }

    /// Passes requests on to other processes that share the journal, for tenants of whom nothing is stored. Without, only
    /// the process that such a tenant lives in can serve it.
    #[must_use]
    pub fn passage(mut self, passage: impl Passage) -> Self {
        self.passage = Some(Arc::new(passage));
        self
    }

    /// Tells the time by this clock, and waits by it before a run is tried again. Tests move it by hand.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Serves the console on these, and nowhere else.
    #[must_use]
    pub fn console_on(mut self, listeners: Vec<TcpListener>) -> Self {
        self.console_listeners = listeners;
        self
    }

    pub(crate) fn take_console_listeners(&mut self) -> Vec<TcpListener> {
        std::mem::take(&mut self.console_listeners)
    }

    pub(crate) fn into_app(self) -> App {
        // Here, so that nobody who builds a gateway can forget it.
        let tenants = self.settings.tenants.clone();
        let journal = self.journal.keeping_in_memory(move |tenant| tenants.is_unstored(tenant));
        let by_name = self.agents.iter().map(|a| (a.name.to_string(), a.clone())).collect();
        let faces = face::all();
        let (metrics, cors) = (Metrics::new(&faces), CorsHeaders::new(&faces));
        let courier = Arc::new(Courier::default());
        let app = App(Arc::new(Shared {
            limiter: Limiter::default(),
            lanes: Lanes::new(self.settings.limits.share_per_tenant),
            default_agent: self.agents.first().cloned(),
            agents: by_name,
            journal,
            settings: self.settings,
            page: self.page,
            traces: Traces::new(self.traces),
            wall: WallClock::new(self.clock.clone(), metrics.clock_steps.clone()),
            metrics,
            clock: self.clock,
            runs: Runs::default(),
            waits: Waits::default(),
            erased: Erased::default(),
            readers: Readers::default(),
            histories: Histories::default(),
            audit: Audit::default(),
            console: Console::default(),
            faces,
            cors,
            tasks: TaskTracker::new(),
            agents_at_work: TaskTracker::new(),
            recovered: CancellationToken::new(),
            unrecovered: AtomicUsize::new(0),
            draining: CancellationToken::new(),
            stopped: CancellationToken::new(),
            closing: CancellationToken::new(),
            broken: CancellationToken::new(),
            ended: CancellationToken::new(),
            started: Instant::now(),
            webhooks: self.webhooks,
            passages: Passages::new(self.passage),
            courier: courier.registered(),
        }));
        courier.employ(&app);
        app
    }
}

/// What every part of the gateway can reach. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) settings: Settings,
    pub(crate) page: &'static [Asset],
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    pub(crate) clock: Clock,
    pub(crate) wall: WallClock,
    pub(crate) limiter: Limiter,
    pub(crate) lanes: Lanes,
    pub(crate) runs: Runs,
    pub(crate) waits: Waits,
    pub(crate) erased: Erased,
    pub(crate) readers: Readers,
    pub(crate) histories: Histories,
    pub(crate) audit: Audit,
    pub(crate) console: Console,
    pub(crate) faces: Vec<Arc<dyn Face>>,
    pub(crate) cors: CorsHeaders,
    /// Relays at work; the end waits for them.
    pub(crate) tasks: TaskTracker,
    /// Agents, and what they were told to end when their run did; the end waits for them, too, but not for ever.
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
    pub(crate) started: Instant,
    pub(crate) webhooks: Option<Arc<dyn WebhookSender>>,
    pub(crate) passages: Passages,
    /// Delivers webhooks; nobody else can ask it.
    pub(crate) courier: Registered,
    agents: HashMap<String, Registered>,
    default_agent: Option<Registered>,
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl From<Arc<Shared>> for App {
    fn from(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl App {
    /// For what the app itself holds.
    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    /// Who works on a run: an agent, or the courier.
    pub(crate) fn worker(&self, name: &str) -> Option<&Registered> {
        if name == COURIER { Some(&self.courier) } else { self.agent(name) }
    }

    /// Which agent answers: the path's, else the one that the request names, else the default.
    pub(crate) fn agent_for(&self, path: Option<&str>, ask: &Ask) -> Result<&Registered, Fault> {
        if let Some(name) = path.or(ask.agent.as_deref()) {
            return self.agent(name).ok_or_else(|| {
                Fault::new(FaultKind::AgentNotFound).with_message(format!("No agent is called {name:?}."))
            });
        }
        let named = ask.agent_id.and_then(|id| self.agents.values().find(|a| a.id == id));
        named.or(self.default_agent.as_ref()).ok_or_else(|| Fault::new(FaultKind::AgentNotFound))
    }

    /// Whether the store may hold runs that run or wait, as far as can be told without asking it: whoever looks on while
    /// nothing happens costs it nothing.
    pub(crate) fn may_have_open_runs(&self) -> bool {
        self.journal.store().is_shared() || self.metrics.active_runs.get() > 0 || self.waits.count() > 0
    }

    /// What goes on by itself for a tenant, as a task of that tenant's.
    pub(crate) fn of_tenant<F>(&self, tenant: &str, work: F) -> InLane<F> {
        if self.settings.has_lanes() { self.lanes.task(tenant, work) } else { InLane::without(work) }
    }

    /// So many packets and bytes of a tenant's went through the journal and the kernel.
    pub(crate) fn passed(&self, tenant: &str, packets: usize, bytes: usize) {
        if self.settings.has_lanes() {
            self.lanes.pay(tenant, work_of(packets, bytes));
        }
    }

    /// What a tenant may have.
    pub(crate) fn quota_of(&self, tenant: &str) -> Quota {
        limits::quota(&self.settings.limits, &self.settings.tenants.named(tenant))
    }

    /// The time of day, for whatever is written down of a run. It never goes back within one, whoever sets the clock.
    pub(crate) fn stamp(&self, run: &Run) -> Timestamp {
        self.wall.now().max(run.updated_at)
    }

    /// The face under a name.
    pub(crate) fn face(&self, name: &str) -> Option<&Arc<dyn Face>> {
        self.faces.iter().find(|face| face.name() == name)
    }

    /// What a run was asked, from the body that is kept with it.
    pub(crate) fn asked(&self, run: &Run, body: &[u8]) -> Result<Ask, Fault> {
        let unknown =
            || Fault::new(FaultKind::AgentExecutionError).with_message("The run is of an unknown face.");
        let ask = self.face(&run.face).ok_or_else(unknown)?.decode(body)?;
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

    pub(crate) fn agent(&self, name: &str) -> Option<&Registered> {
        self.agents.get(name)
    }

    pub(crate) fn agents(&self) -> impl Iterator<Item = &Registered> {
        self.agents.values()
    }

    pub(crate) fn default_agent(&self) -> Option<&Registered> {
        self.default_agent.as_ref()
    }

    /// The agent as metrics name it. Of runs whose agent is no longer configured there may be any number of names.
    pub(crate) fn agent_label(&self, name: &str) -> &str {
        self.worker(name).map_or("other", |agent| &agent.name)
    }

    /// What may be logged of a fault's cause: the error chain, since the log is the operator's own and nothing else
    /// tells why. Not if the request was wrong: the words of such a fault repeat what a user sent. Types only in
    /// debug mode.
    pub(crate) fn loggable(&self, fault: &Fault) -> Option<String> {
        /// Longer ones are somebody's data.
        const LONGEST: usize = 2000;
        let cause = fault.cause()?;
        let words = match (self.settings.exposure, fault.domain()) {
            (Exposure::Debug, _) => format!("{}: {cause}", cause.error_type),
            (Exposure::Production, ErrorDomain::Client) => return None,
            (
                Exposure::Production,
                ErrorDomain::System | ErrorDomain::Llm | ErrorDomain::Tool | ErrorDomain::Security,
            ) => cause.to_string(),
        };
        Some(words.chars().take(LONGEST).collect())
    }
}

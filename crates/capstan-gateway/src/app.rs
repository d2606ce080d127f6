//! The gateway as its users build it, and the state that its parts share.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Instant;

use capstan_agent::{Agent, Clock};
use capstan_journal::Journal;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::access::CorsHeaders;
use crate::audit::Audit;
use crate::console::Console;
use crate::engine::events::Observers;
use crate::engine::traces::{TraceCollector, Traces};
use crate::engine::wall_clock::WallClock;
use crate::engine::{Engine, Parts, Registered};
use crate::face::{self, Face, Faces};
use crate::metrics::Metrics;
use crate::passage::{Passage, Passages};
use crate::routes::page::Asset;
use crate::run_log::RunLog;
use crate::settings::Settings;
use crate::webhooks::{Courier, WebhookSender};

/// A gateway: a journal, agents, settings. The first agent is the default one.
///
/// ```no_run
/// # use capstan_agent::Agent;
/// # use capstan_journal::Journal;
/// # async fn example(journal: Journal, agent: impl Agent) -> std::io::Result<()> {
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

    /// Makes spans of runs and attempts, under the target [`SPANS`](crate::SPANS), for this
    /// collector. Without one there are none, and the trace of a request is passed on to agents as
    /// it is.
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

    /// Passes requests on to other processes that share the journal, for tenants of whom nothing is
    /// stored. Without, only the process that such a tenant lives in can serve it.
    #[must_use]
    pub fn passage(mut self, passage: impl Passage) -> Self {
        self.passage = Some(Arc::new(passage));
        self
    }

    /// Tells the time by this clock, and waits by it before a run is tried again. Tests move it by
    /// hand.
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
        let faces = face::all();
        let (metrics, cors) = (Arc::new(Metrics::new(&faces)), CorsHeaders::new(&faces));
        let (courier, console) = (Arc::new(Courier::default()), Arc::new(Console::default()));
        let log = Arc::new(RunLog(self.settings.exposure));
        let engine = Engine::new(Parts {
            journal,
            settings: self.settings.for_engine(),
            agents: self.agents,
            courier: courier.registered(),
            wall: WallClock::new(self.clock.clone()),
            clock: self.clock,
            traces: Traces::new(self.traces),
            observers: Observers::new(vec![metrics.clone(), log, console.clone()]),
            protocols: Arc::new(Faces(faces.clone())),
            tenants: Arc::new(self.settings.tenants.clone()),
            before_work: courier.clone(),
        });
        let app = App(Arc::new(Shared {
            engine,
            settings: self.settings,
            page: self.page,
            metrics,
            audit: Audit::default(),
            console,
            faces,
            cors,
            started: Instant::now(),
            webhooks: self.webhooks,
            passages: Passages::new(self.passage),
        }));
        courier.employ(&app);
        app
    }
}

/// What every part of the gateway can reach. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) settings: Settings,
    pub(crate) page: &'static [Asset],
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Audit,
    pub(crate) console: Arc<Console>,
    pub(crate) faces: Vec<Arc<dyn Face>>,
    pub(crate) cors: CorsHeaders,
    pub(crate) started: Instant,
    pub(crate) webhooks: Option<Arc<dyn WebhookSender>>,
    pub(crate) passages: Passages,
}

/// What serves runs is what most parts of the gateway ask.
impl Deref for Shared {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
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

    /// The face under a name.
    pub(crate) fn face(&self, name: &str) -> Option<&Arc<dyn Face>> {
        self.faces.iter().find(|face| face.name() == name)
    }
}

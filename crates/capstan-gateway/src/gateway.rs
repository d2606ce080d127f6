//! The builder of a gateway.

use std::sync::Arc;
use std::time::Instant;

use capstan_agent::{Agent, Clock};
use capstan_journal::Journal;
use tokio::net::TcpListener;

use crate::access::{self, Access};
use crate::asset::Asset;
use crate::face::passthrough::Passthrough;
use crate::face::{self, FaceContext};
use crate::faces;
use crate::metrics::Metrics;
use crate::replica_forwarding::{Forwarding, ReplicaForwarder};
use crate::routes::health::Monitor;
use crate::routes::page::Pages;
use crate::run_log::RunLog;
use crate::run_spans::{RunSpans, TraceCollector};
use crate::services::Services;
use crate::settings::Settings;
use crate::webhook::WebhookSender;
use crate::webhooks::DeliveryAgent;
use capstan_console::{self as console, Console, Memory};
use capstan_engine::{Engine, EngineBuilder, Registered};
use capstan_kit::CorsHeaders;

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
    replica_forwarding: Option<Arc<dyn ReplicaForwarder>>,
    clock: Clock,
    console_listeners: Vec<TcpListener>,
    passthrough: Vec<(String, Arc<dyn Passthrough>)>,
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
            replica_forwarding: None,
            clock,
            console_listeners,
            passthrough: Vec::new(),
        }
    }

    /// Adds an agent. Its id is derived from its name, so that it stays the same.
    #[must_use]
    pub fn agent(mut self, name: &str, agent: impl Agent) -> Self {
        self.agents.push(Registered::new(name, agent));
        self
    }

    /// Lets requests name an agent by another name as well.
    #[must_use]
    pub fn alias(mut self, agent: &str, alias: &str) -> Self {
        let named = self.agents.iter_mut().filter(|known| *known.name == *agent);
        named.for_each(|known| known.aliases.push(alias.into()));
        self
    }

    /// Adds an agent's provider, to which requests of OpenAI's API that start no run are forwarded.
    #[must_use]
    pub fn passthrough(mut self, agent: &str, provider: impl Passthrough) -> Self {
        self.passthrough.push((agent.to_owned(), Arc::new(provider)));
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

    /// Sends spans of runs and attempts, under the target [`SPANS`](crate::SPANS), to this
    /// collector. Without a collector there are no spans, and agents get the trace of the request
    /// unchanged.
    #[must_use]
    pub fn traces(mut self, collector: impl TraceCollector) -> Self {
        self.traces = Some(Arc::new(collector));
        self
    }

    /// Posts the webhooks of tenants that have one. Without a sender there are no webhooks.
    #[must_use]
    pub fn webhooks(mut self, sender: impl WebhookSender) -> Self {
        self.webhooks = Some(Arc::new(sender));
        self
    }

    /// Forwards requests of `no_store` tenants to the gateway that hosts them. Without a forwarder,
    /// only that gateway can serve them.
    #[must_use]
    pub fn replica_forwarding(mut self, replica_forwarding: impl ReplicaForwarder) -> Self {
        self.replica_forwarding = Some(Arc::new(replica_forwarding));
        self
    }

    /// Sets the clock for timestamps and for waits between attempts. Tests move it manually.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Serves the console on these listeners only.
    #[must_use]
    pub fn console_on(mut self, listeners: Vec<TcpListener>) -> Self {
        self.console_listeners = listeners;
        self
    }

    pub(crate) fn take_console_listeners(&mut self) -> Vec<TcpListener> {
        std::mem::take(&mut self.console_listeners)
    }

    pub(crate) fn into_services(self) -> Arc<Services> {
        let Self { settings, agents, page, clock, .. } = self;
        // Set here, so that no user of the builder can forget it.
        let tenants = settings.tenants.clone();
        let journal = self.journal.keeping_in_memory(move |tenant| tenants.is_unstored(tenant));
        let faces = faces::all(&settings.for_faces());
        let can_deliver = self.webhooks.is_some();
        let courier = Arc::new(DeliveryAgent::new(faces.clone(), self.webhooks));
        let (metrics, memory) = (Arc::new(Metrics::new(&faces)), Arc::new(Memory::default()));
        let engine = Engine::builder(journal)
            .settings(settings.for_engine())
            .internal_agent(courier.registered())
            .clock(clock)
            .tracer(self.traces.map(|collector| Arc::new(RunSpans::new(collector)) as _))
            .observer(metrics.clone())
            .observer(Arc::new(RunLog(settings.exposure)))
            .observer(memory.clone())
            .protocols(faces.clone())
            .tenants(settings.tenants.clone())
            .before_work(courier.clone());
        let engine = agents.into_iter().fold(engine, EngineBuilder::registered).build();
        let cx = FaceContext::new(face::Shared {
            engine: engine.clone(),
            site: settings.site(),
            tenants: settings.tenants.clone(),
            passthrough: self.passthrough.into(),
            observer: metrics.clone(),
            can_deliver,
        });
        courier.set_context(&cx);
        let access = Access::new(access::Rules {
            engine: engine.clone(),
            tenants: settings.tenants.clone(),
            jwt: settings.jwt,
            operators: settings.operators,
            metrics_key: settings.metrics_key,
            audit: Arc::default(),
            is_open: settings.open,
            cors_origins: settings.cors_origins,
            cors: CorsHeaders::new(&faces),
        });
        let (started, counted) = (Instant::now(), metrics.clone());
        let console = Console::new(console::Parts {
            engine: engine.clone(),
            access: access.clone(),
            cx: cx.clone(),
            faces: faces.clone(),
            settings: settings.console,
            memory,
            started,
            count: Box::new(move |what| counted.console(what)),
        });
        let way = self.replica_forwarding;
        Arc::new(Services {
            forwarding: Forwarding::new(engine.clone(), settings.tenants, metrics.clone(), way),
            monitor: Monitor {
                engine: engine.clone(),
                access: access.clone(),
                metrics: metrics.clone(),
                started,
            },
            pages: Pages { assets: page, console: console.clone() },
            engine,
            cx,
            faces,
            access,
            console,
            metrics,
            tls: settings.tls,
        })
    }
}

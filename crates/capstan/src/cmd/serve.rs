//! `capstan serve`: the gateway with the journal, the agents and the settings of a configuration.

mod address;
mod agents;
mod breakers;
mod config;
mod descriptors;
mod greeting;
mod jwks;
mod kinds;
mod page;
mod passthrough;
mod plan;
mod reload;
mod replica_forwarding;
mod tls;
mod webhooks;

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_gateway::{Gateway, serve};
use capstan_journal::{ErrorKind, Journal, JournalError, TailLimits};
use capstan_stores::{Options, connect};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::traces::Traces;
use config::Config;
pub(super) use config::EXAMPLE;
use greeting::Greeting;
pub(super) use plan::Plan;

/// Whether this binary contains the page.
pub(crate) fn has_page() -> bool {
    !page::ASSETS.is_empty()
}

/// Serve agents: journal, replay, resume, typed failures
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; `localhost` means all loopback addresses of that name
    #[arg(long, env = "CAPSTAN_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,

    /// The port to listen on, at the same host
    #[arg(long, env = "CAPSTAN_PORT", value_name = "PORT")]
    port: Option<u16>,

    /// Where streams are stored: `disk:<folder>`, `postgres://…` (shared by many processes) or
    /// `memory:`
    #[arg(long, env = "CAPSTAN_JOURNAL", value_name = "URL")]
    journal: Option<String>,

    /// The address at which the other gateways of a cluster reach this one
    #[arg(long, env = "CAPSTAN_CLUSTER_URL", value_name = "URL")]
    cluster_url: Option<String>,

    /// What a packet survives before viewers see it: `process` (a killed process) or `power` (a
    /// power cut; slower)
    #[arg(long, env = "CAPSTAN_DURABILITY", value_name = "process|power")]
    durability: Option<String>,

    /// The configuration file; by default `capstan.toml` in this folder, if it exists
    #[arg(long, short, env = "CAPSTAN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Show error types and causes to callers; for development
    #[arg(long, env = "CAPSTAN_DEBUG")]
    debug: bool,

    /// The server's certificate with its chain, as PEM; SIGHUP reloads it
    #[arg(long, env = "CAPSTAN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, as PEM
    #[arg(long, env = "CAPSTAN_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Listen beyond loopback without tenants: everybody who reaches the port can use the agents
    #[arg(long)]
    open: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let file = self.config.clone();
        let config = self.settle()?;
        let runtime = runtime()?;
        let traces = Traces::open(runtime.handle())?;
        super::logs::start(config.exposure(), traces.layer());
        let served = runtime.block_on(run(config, file, &traces));
        traces.close();
        served.map(|()| ExitCode::SUCCESS)
    }

    /// Applies flags over the environment, the file and the defaults, in this order.
    pub(super) fn settle(self) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref())?;
        config.listen = self.listen.unwrap_or(config.listen);
        if let Some(port) = self.port {
            config.listen = address::with_port(&config.listen, port);
        }
        config.journal = self.journal.unwrap_or(config.journal);
        config.durability = self.durability.unwrap_or(config.durability);
        config.advertise(self.cluster_url);
        config.tls_cert = self.tls_cert.or(config.tls_cert);
        config.tls_key = self.tls_key.or(config.tls_key);
        config.debug |= self.debug;
        config.open |= self.open;
        Ok(config)
    }
}

/// How many tasks a thread runs before it checks for network events, and for tasks from other
/// threads (such as finished commits). tokio's default is higher: while one tenant floods the
/// queue, all others would wait.
const TASKS_BETWEEN_EVENTS: u32 = 8;
const TASKS_BETWEEN_NEWS: u32 = 2;
/// How many connections one check wakes, so that other tasks run between those of a burst.
const EVENTS_AT_ONCE: usize = 64;

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .event_interval(TASKS_BETWEEN_EVENTS)
        .global_queue_interval(TASKS_BETWEEN_NEWS)
        .max_io_events_per_tick(EVENTS_AT_ONCE)
        .build()
}

async fn run(config: Config, file: Option<PathBuf>, traces: &Traces) -> Result<(), Failure> {
    let mut plan = Plan::of(&config).await?;
    for (agent, message) in plan.warnings() {
        tracing::warn!(agent, "{message}");
    }
    plan.settings.limits.connections = descriptors::raise(plan.settings.limits.connections);
    let listeners = address::bind(&plan.addresses).await?;
    let console_listeners = address::bind(&plan.console_addresses).await?;
    let [addresses, console_addresses] = [&listeners, &console_listeners]
        .map(|all| all.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>());
    let (addresses, console_addresses) = (addresses?, console_addresses?);
    tls::warn_if_plain(&addresses, plan.certificate.is_some());
    let options = Options { durability: plan.durability, min_free_bytes: config.min_free_bytes };
    let mut replica = config.replica()?;
    replica.url =
        replica.url.or_else(|| address::advertised(&addresses, plan.certificate.is_some()));
    let is_reachable = replica.url.is_some();
    let store =
        connect(&config.journal, options, replica).await.map_err(|error| unopened(&error))?;
    let has_unstored = plan.settings.tenants.current().iter().any(|tenant| tenant.no_store);
    if store.is_shared() && has_unstored && !is_reachable {
        // Their data is in the memory of one process, and other gateways cannot forward requests to
        // it.
        return Err(Failure::usage(
            "tenants with no_store need cluster.url where several processes share a journal: the \
             others pass their requests on",
        )
        .with_help(
            "set cluster.url, or CAPSTAN_CLUSTER_URL, to where the other gateways reach \
         this one",
        ));
    }
    if store.is_shared() {
        tokio::spawn(breakers::share(std::sync::Arc::clone(&store), plan.breakers.clone()));
    }
    let journal = Journal::new(store, TailLimits::default());
    // Before the greeting: a program that reads the greeting may send a signal at once.
    let terminated = terminated()?;
    let greeting = greeting(&config, &plan, &addresses, &console_addresses);
    let Plan { settings, agents, certificate, token_keys, .. } = plan;
    let certificate = certificate.zip(settings.tls.clone());
    if let Some((source, jwt)) = token_keys.clone() {
        tokio::spawn(source.keep_fresh(jwt));
    }
    let (tenants, operators) = (settings.tenants.clone(), settings.operators.clone());
    let reloaded = reload::Reloaded { tenants, operators, certificate, token_keys };
    tokio::spawn(reload::on_hangup(file, reloaded)?);
    let gateway = traces.collect(Gateway::new(journal).settings(settings).page(page::ASSETS));
    let sender = webhooks::Sender::new().map_err(|error| Failure::usage(error.to_string()))?;
    let carrier =
        replica_forwarding::Carrier::new().map_err(|error| Failure::usage(error.to_string()))?;
    let gateway =
        gateway.webhooks(sender).replica_forwarding(carrier).console_on(console_listeners);
    let gateway = agents.into_iter().fold(gateway, passthrough::add_agent);
    anstream::print!("{greeting}");
    serve(gateway, listeners, terminated).await?;
    Ok(())
}

/// Explains why the journal cannot be opened, with the operating system's own message.
fn unopened(error: &JournalError) -> Failure {
    let chain =
        std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    let mut messages: Vec<String> = chain.map(ToString::to_string).collect();
    // Some errors repeat their cause's text.
    messages.dedup_by(|cause, outer| outer.ends_with(cause.as_str()));
    let failure = Failure::usage(messages.join(": "));
    match error.kind() {
        ErrorKind::Locked => failure.with_help(
            "stop the other process, or choose another folder with --journal \
             disk:<folder>",
        ),
        ErrorKind::Corrupt => failure.with_help(
            "check it with `capstan journal check <folder>`; `capstan journal repair <folder>` \
             keeps the intact parts",
        ),
        ErrorKind::Unavailable | ErrorKind::Unsupported
            if error.to_string().contains("PostgreSQL") =>
        {
            failure
        }
        ErrorKind::Unavailable if error.to_string().contains("database") => failure.with_help(
            "is the server up, and may this machine and user connect? `psql \
             <URL>` tells",
        ),
        ErrorKind::Unavailable
        | ErrorKind::Broken
        | ErrorKind::Full
        | ErrorKind::Fenced
        | ErrorKind::Answered
        | ErrorKind::Refused(_)
        | ErrorKind::OutOfOrder
        | ErrorKind::NotFound
        | ErrorKind::Expired
        | ErrorKind::Unsupported => failure.with_help(
            "choose another folder with --journal \
         disk:<folder>",
        ),
    }
}

fn greeting(
    config: &Config,
    plan: &Plan,
    addresses: &[SocketAddr],
    of_console: &[SocketAddr],
) -> String {
    let is_tls = plan.certificate.is_some();
    let of_console = if of_console.is_empty() { addresses } else { of_console };
    let console = address::url(&address::reachable(of_console), is_tls);
    let program = std::env::args().next().unwrap_or_else(|| "capstan".into());
    let greeting = Greeting {
        program: &program,
        listening: &address::url(addresses, is_tls),
        url: &address::url(&address::reachable(addresses), is_tls),
        console: plan.settings.has_console().then_some(console.as_str()),
        journal: &config.shown_journal(),
        needs_key: !plan.settings.is_local(),
        is_demo: plan.is_demo(),
        agents: plan.agents.len(),
    };
    greeting.to_string()
}

/// Waits for SIGTERM or Ctrl-C.
pub(super) fn terminated() -> io::Result<impl Future<Output = ()>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_and_its_variable_stand_in_the_documentation() {
        let page = include_str!("../../../../docs/configuration.md");
        let command = <Args as clap::Args>::augment_args(clap::Command::new("serve"));
        for argument in command.get_arguments() {
            let flag = argument.get_long().map(|long| format!("`--{long}`"));
            let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
            for name in flag.into_iter().chain(variable) {
                assert!(page.contains(&name), "docs/configuration.md does not mention {name}");
            }
        }
    }
}

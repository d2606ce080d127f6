//! `capstan serve`: the gateway with the journal, the agents and the settings of a configuration.

mod config;
mod page;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_agent::Demo;
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Durability, Journal, TailLimits, open};
use owo_colors::OwoColorize as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use config::Config;

/// Serve agents: journal, replay, resume, typed failures
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen; `localhost` means both loopback addresses
    #[arg(long, env = "CAPSTAN_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,

    /// Where streams are kept: `disk:<folder>` or `memory:`
    #[arg(long, env = "CAPSTAN_JOURNAL", value_name = "URL")]
    journal: Option<String>,

    /// What a packet survives before it is shown: `process` (a killed process) or `power` (a power cut; slower)
    #[arg(long, env = "CAPSTAN_DURABILITY", value_name = "process|power")]
    durability: Option<String>,

    /// The configuration file; `capstan.toml` here, if it exists
    #[arg(long, short, env = "CAPSTAN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Let error types and causes out; for development
    #[arg(long, env = "CAPSTAN_DEBUG")]
    debug: bool,

    /// Listen beyond loopback without tenants: anybody who can reach the port may use the agents
    #[arg(long)]
    open: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.settle()?;
        super::logs::start();
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(run(config))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Flags beat the environment, which beats the file, which beats the defaults.
    fn settle(self) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref())?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.journal = self.journal.unwrap_or(config.journal);
        config.durability = self.durability.unwrap_or(config.durability);
        config.debug |= self.debug;
        config.open |= self.open;
        Ok(config)
    }
}

async fn run(config: Config) -> Result<(), Failure> {
    let settings = config.settings()?;
    let listeners = listen(&config, settings.tenants.is_empty()).await?;
    let address = listeners.first().map(TcpListener::local_addr).transpose()?;
    let store = open(&config.journal, durability(&config.durability)?).map_err(|e| {
        Failure::usage(e)
            .with_help("choose another folder with --journal disk:<folder>, or stop the other process")
    })?;
    let journal = Journal::new(store, TailLimits::default());
    let gateway = Gateway::new(journal).agent("demo", Demo::new()).settings(settings).page(page::ASSETS);
    greet(&config, address);
    serve(gateway, listeners, terminated()).await?;
    Ok(())
}

fn durability(word: &str) -> Result<Durability, Failure> {
    match word {
        "process" => Ok(Durability::Process),
        "power" => Ok(Durability::Power),
        _ => Err(Failure::usage(format!("durability: unknown value {word:?}, expected process or power"))),
    }
}

/// Without tenants only loopback is safe; beyond it the operator must say so.
async fn listen(config: &Config, is_local: bool) -> Result<Vec<TcpListener>, Failure> {
    let addresses = addresses(&config.listen).await?;
    let exposed = addresses.iter().find(|a| !a.ip().is_loopback());
    if let Some(address) = exposed.filter(|_| is_local && !config.open) {
        let message = format!("{address} can be reached from elsewhere, but no tenants are configured");
        return Err(Failure::usage(message)
            .with_help("configure [[tenants]] in capstan.toml, or allow everybody with --open"));
    }
    let mut listeners = Vec::new();
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => listeners.push(listener),
            // A machine without IPv6 still has the other one.
            Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::LOCALHOST) && !listeners.is_empty() => {}
            Err(error) => return Err(taken(address, &error)),
        }
    }
    Ok(listeners)
}

fn taken(address: SocketAddr, error: &io::Error) -> Failure {
    let is_taken = error.kind() == io::ErrorKind::AddrInUse;
    let message = if is_taken {
        format!("port {} is already in use", address.port())
    } else {
        format!("cannot listen on {address}: {error}")
    };
    Failure::usage(message).with_help("choose another with --listen HOST:PORT (make run: PORT=…)")
}

async fn addresses(listen: &str) -> Result<Vec<SocketAddr>, Failure> {
    let wrong = |e: io::Error| Failure::usage(format!("listen: {listen:?} is not HOST:PORT ({e})"));
    let mut found: Vec<SocketAddr> = tokio::net::lookup_host(listen).await.map_err(wrong)?.collect();
    // 127.0.0.1 first: it is the one that every machine has.
    found.sort_by_key(|address| address.is_ipv6());
    found.dedup();
    Ok(found)
}

/// The last lines that a newcomer sees: what to try.
fn greet(config: &Config, address: Option<SocketAddr>) {
    let Some(address) = address else { return };
    let is_local = address.ip().is_loopback();
    let host = if is_local { "localhost".to_owned() } else { address.ip().to_string() };
    let url = format!("http://{host}:{}", address.port());
    let program = std::env::args().next().unwrap_or_else(|| "capstan".into());
    let post = format!("curl -sN {url}/v1/assist -H 'content-type: application/json'");
    anstream::println!("{} listening on {url}, journal {}\n\nTry:", "capstan".bold(), config.journal);
    anstream::println!("  {program} request 'What is a capstan?' | {post} -d @-");
    anstream::println!("  {program} request /help | {post} -H 'accept: application/json' -d @-");
    anstream::println!("  {url}");
}

/// SIGTERM or Ctrl-C.
async fn terminated() {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

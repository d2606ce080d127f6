//! `capstan serve`: the gateway with the journal, the agents and the settings of a configuration.

mod agents;
mod config;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_agent::{Agent, Demo};
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
        super::logs::start(config.exposure());
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
    let mut agents = config.agents()?;
    if agents.is_empty() {
        agents.push(("demo".into(), Box::new(Demo::new()) as Box<dyn Agent>));
    }
    let listeners = listen(&config, settings.tenants.is_empty()).await?;
    let url = url(&listeners)?;
    let store = open(&config.journal, durability(&config.durability)?).map_err(|e| {
        Failure::usage(e)
            .with_help("choose another folder with --journal disk:<folder>, or stop the other process")
    })?;
    let journal = Journal::new(store, TailLimits::default());
    let gateway = Gateway::new(journal).settings(settings);
    let gateway = agents.into_iter().fold(gateway, |gateway, (name, agent)| gateway.agent(&name, agent));
    // Before the greeting: whoever reads it may send a signal at once.
    let terminated = terminated()?;
    greet(&config, &url);
    serve(gateway, listeners, terminated).await?;
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
    let mut listeners: Vec<TcpListener> = Vec::new();
    for mut address in addresses {
        // Port 0 asks for any free one; both loopback addresses then share it.
        if let Some(first) = listeners.first() {
            address.set_port(first.local_addr()?.port());
        }
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

/// Where it can be reached, with the port that it really has. `localhost` only if both of its addresses are ours.
fn url(listeners: &[TcpListener]) -> io::Result<String> {
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
    Ok(match addresses.as_slice() {
        [one] => format!("http://{one}"),
        [first, ..] => format!("http://localhost:{}", first.port()),
        [] => String::new(),
    })
}

/// The first line is for programs that wait for the URL, the rest is what a newcomer can try.
fn greet(config: &Config, url: &str) {
    let program = std::env::args().next().unwrap_or_else(|| "capstan".into());
    let post = format!("curl -sN {url}/v1/assist -H 'content-type: application/json'");
    anstream::println!("{} listening on {url}, journal {}\n\nTry:", "capstan".bold(), config.journal);
    anstream::println!("  {program} request 'What is a capstan?' | {post} -d @-");
    anstream::println!("  {program} chat {url} 'What is a capstan?'");
    anstream::println!("  {program} request /help | {post} -H 'accept: application/json' -d @-");
    anstream::println!("  {url}");
}

/// SIGTERM or Ctrl-C.
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

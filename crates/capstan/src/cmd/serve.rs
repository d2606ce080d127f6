//! `capstan serve`: the gateway with the journal, the agents and the settings of a configuration.

mod agents;
mod config;
mod page;
mod reload;
mod tls;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use capstan_agent::{Agent, Demo};
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Durability, Journal, TailLimits, open};
use owo_colors::OwoColorize as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::traces::Traces;
use config::Config;
pub(super) use config::{EXAMPLE, read_file};

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

    /// The certificate to show, with its chain, as PEM; read anew at SIGHUP
    #[arg(long, env = "CAPSTAN_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, as PEM
    #[arg(long, env = "CAPSTAN_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Listen beyond loopback without tenants: anybody who can reach the port may use the agents
    #[arg(long)]
    open: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let file = self.config.clone();
        let config = self.settle()?;
        let runtime = tokio::runtime::Runtime::new()?;
        let traces = Traces::open(runtime.handle())?;
        super::logs::start(config.exposure(), traces.layer());
        let served = runtime.block_on(run(config, file, &traces));
        traces.close();
        served.map(|()| ExitCode::SUCCESS)
    }

    /// The file that was named.
    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Flags beat the environment, which beats the file, which beats the defaults.
    pub(super) fn settle(self) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref())?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.journal = self.journal.unwrap_or(config.journal);
        config.durability = self.durability.unwrap_or(config.durability);
        config.tls_cert = self.tls_cert.or(config.tls_cert);
        config.tls_key = self.tls_key.or(config.tls_key);
        config.debug |= self.debug;
        config.open |= self.open;
        Ok(config)
    }
}

async fn run(config: Config, file: Option<PathBuf>, traces: &Traces) -> Result<(), Failure> {
    let mut settings = config.settings()?;
    let certificate = tls::Files::of(&config)?;
    settings.tls = certificate.as_ref().map(tls::Files::open).transpose()?;
    let mut agents = config.agents()?;
    if agents.is_empty() {
        agents.push(("demo".into(), Box::new(Demo::new()) as Box<dyn Agent>));
    }
    let listeners = listen(&config, settings.tenants.is_empty()).await?;
    let url = url(&listeners, settings.tls.is_some())?;
    let store = open(&config.journal, durability(&config.durability)?).map_err(|e| {
        Failure::usage(e)
            .with_help("choose another folder with --journal disk:<folder>, or stop the other process")
    })?;
    let journal = Journal::new(store, TailLimits::default());
    // Before the greeting: whoever reads it may send a signal at once.
    let terminated = terminated()?;
    let certificate = certificate.zip(settings.tls.clone());
    tokio::spawn(reload::on_hangup(file, settings.tenants.clone(), certificate)?);
    let gateway = traces.collect(Gateway::new(journal).settings(settings).page(page::ASSETS));
    let gateway = agents.into_iter().fold(gateway, |gateway, (name, agent)| gateway.agent(&name, agent));
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

/// What would keep the server from starting, as far as it can be told without starting it.
pub(super) async fn check(config: &Config) -> Result<(), Failure> {
    durability(&config.durability)?;
    tls::Files::of(config)?.map(|files| files.open()).transpose()?;
    capstan_journal::check_url(&config.journal).map_err(Failure::usage)?;
    allowed_addresses(config, config.settings()?.tenants.is_empty()).await.map(drop)
}

/// Without tenants only loopback is safe; beyond it the operator must say so.
async fn allowed_addresses(config: &Config, is_local: bool) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = addresses(&config.listen).await?;
    let exposed = addresses.iter().find(|a| !a.ip().is_loopback());
    let Some(address) = exposed.filter(|_| is_local && !config.open) else { return Ok(addresses) };
    let message = format!("{address} can be reached from elsewhere, but no tenants are configured");
    Err(Failure::usage(message).with_help(
        "make a key with `capstan key new TENANT` and add its [[tenants]] to capstan.toml, or allow everybody with --open",
    ))
}

async fn listen(config: &Config, is_local: bool) -> Result<Vec<TcpListener>, Failure> {
    let addresses = allowed_addresses(config, is_local).await?;
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
fn url(listeners: &[TcpListener], is_tls: bool) -> io::Result<String> {
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
    tls::warn_if_plain(&addresses, is_tls);
    let scheme = if is_tls { "https" } else { "http" };
    Ok(match addresses.as_slice() {
        [one] => format!("{scheme}://{one}"),
        [first, ..] => format!("{scheme}://localhost:{}", first.port()),
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

//! A configuration, checked as a whole before anything starts. `serve` carries it out; `config
//! check` only prints it. It refuses everything that would keep a server from starting, except a
//! port or a folder in use.

use std::net::SocketAddr;

use capstan_agent::Agent;
use capstan_demo::Demo;
use capstan_gateway::{Jwt, Settings};
use capstan_stores::Durability;
use capstan_upstream::Breakers;

use super::agents::Named;
use super::config::Config;
use super::kinds::DEMO;
use super::{address, jwks, tls};
use crate::cmd::{Failure, traces};

pub(in crate::cmd) struct Plan {
    /// The gateway's settings, with the certificate.
    pub(in crate::cmd) settings: Settings,
    /// The agents, the default agent first.
    pub(super) agents: Vec<Named>,
    /// The breakers of its routes.
    pub(super) breakers: Breakers,
    pub(super) certificate: Option<tls::Files>,
    /// The source of token keys, and the verifier.
    pub(super) token_keys: Option<(jwks::Source, Jwt)>,
    pub(super) durability: Durability,
    pub(super) addresses: Vec<SocketAddr>,
    /// The console's own addresses, if it has them.
    pub(super) console_addresses: Vec<SocketAddr>,
}

impl Plan {
    pub(in crate::cmd) async fn of(config: &Config) -> Result<Self, Failure> {
        traces::check()?;
        let mut settings = config.settings()?;
        let token_keys = jwks::Source::of(config)?.zip(settings.jwt.clone());
        if let Some((source, jwt)) = &token_keys {
            source.read(jwt)?;
        }
        let certificate = tls::Files::of(config)?;
        settings.tls = certificate.as_ref().map(tls::Files::open).transpose()?;
        let breakers = Breakers::default();
        let mut agents = config.agents(&breakers)?;
        if agents.is_empty() {
            agents.push(demo());
        }
        check_journal(&config.journal)?;
        let durability = durability(&config.durability)?;
        let addresses = address::allowed(config, &config.listen, settings.is_local()).await?;
        let console_addresses = match config.console_listen() {
            Some(listen) => address::allowed(config, listen, settings.is_local()).await?,
            None => Vec::new(),
        };
        Ok(Self {
            settings,
            agents,
            breakers,
            certificate,
            token_keys,
            durability,
            addresses,
            console_addresses,
        })
    }

    /// Probable mistakes that do not keep the server from starting: the agent, and the mistake.
    pub(in crate::cmd) fn warnings(&self) -> impl Iterator<Item = (&str, String)> {
        self.agents
            .iter()
            .filter_map(|agent| Some((agent.name.as_str(), agent.key_warning.clone()?)))
    }

    /// Whether the default agent is the demo, which knows `/help`.
    pub(super) fn is_demo(&self) -> bool {
        self.agents.first().is_some_and(|agent| agent.kind == DEMO)
    }
}

fn demo() -> Named {
    let agent = Box::new(Demo::new()) as Box<dyn Agent>;
    Named {
        name: DEMO.into(),
        kind: DEMO.into(),
        aliases: Vec::new(),
        agent,
        passthrough: None,
        key_warning: None,
    }
}

/// Refuses a URL without a scheme: most people try a bare folder first.
fn check_journal(url: &str) -> Result<(), Failure> {
    capstan_stores::check_url(url).map_err(|error| {
        let failure = Failure::usage(error);
        match url.contains(':') || url.is_empty() {
            true => failure.with_help(
                "`disk:<folder>` keeps streams in a folder, `postgres://…` in a \
                 database that many may share, `memory:` until the process ends",
            ),
            false => failure.with_help(format!("did you mean `disk:{url}`?")),
        }
    })
}

fn durability(word: &str) -> Result<Durability, Failure> {
    match word {
        "process" => Ok(Durability::Process),
        "power" => Ok(Durability::Power),
        _ => Err(Failure::usage(format!(
            "durability: unknown value {word:?}, expected process or power"
        ))),
    }
}

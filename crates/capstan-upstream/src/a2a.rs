//! `a2a`: a foreign A2A agent, in version 1.0 or 0.3, found by its card.
//!
//! A session is one A2A context. A run is one task, started by a message whose id is the run's id.
//! If a stream breaks, the adapter gets the task and, if it still runs, subscribes to it.

mod artifacts;
mod card;
mod decoder;
mod interface;
mod message;
mod status;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use capstan_agent::{
    About, Agent, CancelReason, Clock, Endpoint, Outcome, Timer, Turn, Work, Writer,
};
use capstan_protocol::{ErrorSeverity, Fault};
use reqwest::Client;
use serde::Deserialize;
use url::Url;

pub use decoder::Decoder;
pub use interface::{Binding, Version};

use crate::api_key::ApiKey;
use crate::attempt_writer::AttemptWriter;
use crate::call::HttpAgent;
use crate::callee::{Ask, Callee};
use crate::config::{ConfigError, read_keys};
use crate::failed_call::FailedCall;
use crate::headers::Pairs;
use crate::http;
use crate::kind::{Access, Build, Common, Kind};
use crate::retries::Retries;
use crate::timeouts::CallTimeouts;
use interface::Interface;
use wire::Wire;

/// The row of this kind.
pub(crate) const KIND: Kind = Kind {
    name: "a2a",
    what: "an A2A agent",
    retries: Retries::CAREFUL,
    timeouts: CallTimeouts::FOREIGN,
    provider: None,
    build: Build::Adapter(|keys, common| build(read_keys(keys)?, common)),
};

/// The kind's own configuration keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    url: String,
    key_env: Option<String>,
    key_file: Option<String>,
    #[serde(default)]
    headers: Pairs,
    /// If set, `url` is the agent's endpoint and the adapter reads no card.
    protocol: Option<Version>,
    binding: Option<Binding>,
}

struct A2a {
    url: Url,
    secret: ApiKey,
    common: Common,
    client: Client,
    /// The agent's card. Dropped after a failure that a newer card may fix.
    found: Mutex<Option<Arc<Found>>>,
    /// The configuration has everything, so no card is read.
    is_fixed: bool,
}

/// The agent, as its card describes it.
struct Found {
    wire: Wire,
    agent: HttpAgent<Wire>,
}

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    if config.binding.is_some() && config.protocol.is_none() {
        return Err(ConfigError::at(
            "binding",
            "goes with `protocol`; without it the card tells both",
        ));
    }
    let access = Access {
        key_env: config.key_env.as_deref(),
        key_file: config.key_file.as_deref(),
        headers: config.headers,
    };
    let (secret, common) = access.read(common)?;
    let url = http::base_url(&config.url)?;
    let client = http::client(common.times.connect, &common.headers)?;
    let agent = A2a {
        url,
        secret,
        common,
        client,
        found: Mutex::default(),
        is_fixed: config.protocol.is_some(),
    };
    if let Some(version) = config.protocol {
        let binding = config.binding.unwrap_or_default();
        let interface = Interface { url: agent.url.clone(), binding, version, streams: true };
        agent.keep(agent.make(interface)?);
    }
    Ok(Box::new(agent))
}

impl A2a {
    fn make(&self, interface: Interface) -> Result<Found, ConfigError> {
        let wire = Wire::new(interface, self.secret.clone());
        Ok(Found { agent: HttpAgent::new(wire.clone(), self.secret.clone(), &self.common)?, wire })
    }

    fn keep(&self, found: Found) -> Arc<Found> {
        let found = Arc::new(found);
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
        found
    }

    /// Returns the agent's endpoint. Fetching a card starts nothing, so it is always safe to
    /// repeat.
    async fn find(&self) -> Result<Arc<Found>, FailedCall> {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let reading = card::read(&self.client, &self.url, &self.secret);
        let read = self
            .common
            .clock
            .within(Timer::FirstToken, self.common.times.first_token, reading)
            .await;
        let interface = read.ok_or_else(|| http::timed_out(Timer::FirstToken))??;
        let found = self.make(interface).map_err(Fault::from_error)?;
        Ok(self.keep(found))
    }

    async fn find_patiently(&self, turn: &Turn) -> Result<Arc<Found>, Fault> {
        let (retries, clock): (_, &Clock) = (self.common.retries, &self.common.clock);
        for made in 1.. {
            let failed = match self.find().await {
                Ok(found) => return Ok(found),
                Err(failed) => failed.refused(),
            };
            let Some(wait) = retries.wait(&failed, turn.attempt, made) else {
                return Err(failed.fault);
            };
            failed.log_retry(turn, made, wait);
            clock.sleep(Timer::Again, wait).await;
        }
        Err(http::timed_out(Timer::FirstToken))
    }

    /// Drops the card after a fault that a retry does not fix: the card may be out of date.
    fn look_again_after(&self, fault: &Fault) {
        if fault.severity() == ErrorSeverity::Fatal && !self.is_fixed {
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

#[async_trait]
impl Agent for A2a {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let found = self.find_patiently(&turn).await?;
        let ended = found.agent.run(turn, out).await;
        if let Err(failure) = &ended {
            self.look_again_after(failure.fault());
        }
        ended
    }

    /// Cancels the task. Succeeds also if the task has ended.
    async fn end(&self, far_id: &str, _reason: CancelReason) -> Result<(), Fault> {
        let found = self.find().await.map_err(|failed| failed.fault)?;
        found.wire.cancel(&self.client, far_id).await
    }

    fn max_attempts(&self) -> u32 {
        self.common.retries.attempts
    }

    fn about(&self) -> About {
        About::agent("a2a", Work::Agent)
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(http::endpoint(&self.url, &self.secret))
    }
}

#[async_trait]
impl Callee for A2a {
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        let found = self.find().await.map_err(FailedCall::refused)?;
        let called = found.agent.call(ask, out).await;
        if let Err(failed) = &called {
            self.look_again_after(&failed.fault);
        }
        called
    }

    fn is_repeatable(&self) -> bool {
        self.common.retries.is_repeatable
    }
}

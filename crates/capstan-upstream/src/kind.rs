//! The kinds of agents: their descriptions, and the configuration keys that most kinds have.

use capstan_agent::{Agent, Clock};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api_key::ApiKey;
use crate::callee::Callee;
use crate::config::{ConfigError, Keys, read_keys};
use crate::headers::Pairs;
use crate::provider::Defaults;
use crate::retries::{OnCut, Retries};
use crate::timeouts::{CallTimeouts, TimeoutsConfig};

/// A kind of agent.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The name in the configuration.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The default retry policy.
    pub retries: Retries,
    /// The default timeouts.
    pub timeouts: CallTimeouts,
    /// The known servers, if this is a kind for model providers.
    pub(crate) provider: Option<&'static Defaults>,
    pub(crate) build: Build,
}

type MakeCallee = fn(Keys, &Common) -> Result<Box<dyn Callee>, ConfigError>;
type MakeAgent = fn(Map<String, Value>) -> Result<Box<dyn Agent>, ConfigError>;

/// How an agent is made from its table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Build {
    /// From its own keys and the common ones.
    Adapter(MakeCallee),
    /// From its own keys only.
    Agent(MakeAgent),
}

/// The values of the common keys.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) retries: Retries,
    pub(crate) times: CallTimeouts,
    pub(crate) clock: Clock,
    /// Headers of every request, besides those of the adapter.
    pub(crate) headers: HeaderMap,
}

/// The keys about access to a server that is no model provider.
#[derive(Debug, Default)]
pub(crate) struct Access<'a> {
    pub(crate) key_env: Option<&'a str>,
    pub(crate) key_file: Option<&'a str>,
    pub(crate) headers: Pairs,
}

impl Access<'_> {
    /// Returns the key, and the common values together with the configured headers.
    pub(crate) fn read(self, common: &Common) -> Result<(ApiKey, Common), ConfigError> {
        let mut hidden = Vec::new();
        let headers = self.headers.headers(&mut hidden)?;
        let has_key = self.key_file.is_some() || self.key_env.is_some_and(|name| !name.is_empty());
        if has_key && headers.contains_key(AUTHORIZATION) {
            let why = "the key is in authorization as well; give one of them";
            return Err(ConfigError::at("headers", why));
        }
        let secret = ApiKey::find(self.key_env, self.key_file, None)?.beside(hidden);
        Ok((secret, Common { headers, ..common.clone() }))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CommonConfig {
    attempts: Option<u32>,
    max_calls: Option<u32>,
    on_cut: Option<OnCut>,
    timeouts: TimeoutsConfig,
}

/// The names of the common keys.
const COMMON: [&str; 4] = ["attempts", "max_calls", "on_cut", "timeouts"];

impl Kind {
    /// A kind of another crate. It has only its own keys. Its agents can be called again without
    /// harm, as members of a route are.
    pub const fn agent(name: &'static str, what: &'static str, build: MakeAgent) -> Self {
        Self {
            name,
            what,
            retries: Retries::PROVIDER,
            timeouts: CallTimeouts::PROVIDER,
            provider: None,
            build: Build::Agent(build),
        }
    }

    /// Makes the agent of a table.
    pub(crate) fn build(
        &self,
        mut keys: Keys,
        clock: &Clock,
    ) -> Result<Box<dyn Callee>, ConfigError> {
        for name in ["key", "api_key", "apikey", "token"] {
            if keys.contains_key(name) {
                let message = "a key must not be in the file; name it with key_env or key_file";
                return Err(ConfigError::at(name, message));
            }
        }
        match self.build {
            Build::Agent(build) => Ok(Box::new(build(keys)?)),
            Build::Adapter(build) => {
                let common = read_keys(take_common(&mut keys))?;
                let common = self.common(common, clock.clone())?;
                build(keys, &common).map_err(|error| error.with_also(&COMMON))
            }
        }
    }

    /// Reads the agent's own keys, and the common ones.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        mut keys: Keys,
        clock: &Clock,
    ) -> Result<(T, Common), ConfigError> {
        let common = self.common(read_keys(take_common(&mut keys))?, clock.clone())?;
        Ok((read_keys(keys)?, common))
    }

    fn common(&self, config: CommonConfig, clock: Clock) -> Result<Common, ConfigError> {
        let mut retries = self.retries;
        retries.max_calls = config.max_calls.unwrap_or(retries.max_calls);
        retries.on_cut = config.on_cut.unwrap_or(retries.on_cut);
        retries.attempts = config.attempts.unwrap_or(retries.attempts.min(retries.max_calls));
        if retries.max_calls == 0 {
            return Err(ConfigError::at("max_calls", "must be at least 1"));
        }
        if !(1..=retries.max_calls).contains(&retries.attempts) {
            let message = format!("must be between 1 and max_calls ({})", retries.max_calls);
            return Err(ConfigError::at("attempts", message));
        }
        let wrong = |name: &str| {
            ConfigError::at("timeouts", format!("{name}: expected a number of seconds"))
        };
        let times = config.timeouts.over(self.timeouts).map_err(wrong)?;
        Ok(Common { retries, times, clock, headers: HeaderMap::new() })
    }
}

fn take_common(keys: &mut Keys) -> Keys {
    let taken =
        COMMON.iter().filter_map(|name| Some(((*name).to_owned(), keys.get_mut(*name)?.take())));
    let taken = taken.collect();
    keys.retain(|name, _| !COMMON.contains(&name.as_str()));
    taken
}

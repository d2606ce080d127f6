//! The kinds of agents that a configuration can name: a row each.

use std::fmt;

use capstan_agent::{Agent, Clock};
use capstan_demo::Demo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::retries::{OnCut, Retries};
use crate::timeouts::{CallTimeouts, TimeoutsConfig};
use crate::{agui, anthropic, cap, command, openai};

/// The keys of one agent's table, without `name` and `kind`.
type Keys = Map<String, Value>;
type Build = fn(Keys, &Common) -> Result<Box<dyn Agent>, ConfigError>;

/// A kind of agent.
pub struct Kind {
    /// As it stands in the configuration.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How often and when it is called, unless the configuration says otherwise.
    pub retries: Retries,
    /// How long a call may take, unless the configuration says otherwise.
    pub timeouts: CallTimeouts,
    /// The environment variable that holds its key, unless the configuration names another place.
    pub key_env: Option<&'static str>,
    build: Build,
}

/// Every kind. To add one, write its file and its row.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "command",
        what: "a process that speaks stream-json",
        retries: Retries::CAREFUL,
        timeouts: CallTimeouts::PROCESS,
        key_env: None,
        build: |keys, common| command::build(own(keys)?, common),
    },
    Kind {
        name: "openai",
        what: "a server of OpenAI's Chat Completions or Responses",
        retries: Retries::PROVIDER,
        timeouts: CallTimeouts::PROVIDER,
        key_env: Some(openai::DEFAULTS.key_env),
        build: |keys, common| openai::build(own(keys)?, common),
    },
    Kind {
        name: "anthropic",
        what: "a server of Anthropic's Messages",
        retries: Retries::PROVIDER,
        timeouts: CallTimeouts::PROVIDER,
        key_env: Some(anthropic::DEFAULTS.key_env),
        build: |keys, common| anthropic::build(own(keys)?, common),
    },
    Kind {
        name: "ag-ui",
        what: "an AG-UI agent",
        retries: Retries::CAREFUL,
        timeouts: CallTimeouts::FOREIGN,
        key_env: None,
        build: |keys, common| agui::build(own(keys)?, common),
    },
    Kind {
        name: "cap",
        what: "another CAP server",
        retries: Retries::CAREFUL,
        timeouts: CallTimeouts::FOREIGN,
        key_env: None,
        build: |keys, common| cap::build(own(keys)?, common),
    },
    Kind {
        name: "demo",
        what: "the demo agent",
        retries: Retries::PROVIDER,
        timeouts: CallTimeouts::PROVIDER,
        key_env: None,
        build: |keys, _| own::<NoKeys>(keys).map(|_| Box::new(Demo::new()) as Box<dyn Agent>),
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoKeys {}

/// What all kinds but the demo understand.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) retries: Retries,
    pub(crate) times: CallTimeouts,
    pub(crate) clock: Clock,
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

/// Makes the agent that a table describes; `keys` holds everything but `name` and `kind`.
pub fn build(kind: &str, keys: Map<String, Value>) -> Result<Box<dyn Agent>, ConfigError> {
    build_with(kind, keys, Clock::default())
}

/// The same, with a clock to wait by.
pub fn build_with(
    kind: &str,
    mut keys: Map<String, Value>,
    clock: Clock,
) -> Result<Box<dyn Agent>, ConfigError> {
    let Some(row) = KINDS.iter().find(|row| row.name == kind) else {
        let known = KINDS.iter().map(|row| row.name.to_owned()).collect();
        return Err(ConfigError { known, ..ConfigError::at("kind", format!("unknown kind {kind:?}")) });
    };
    for name in ["key", "api_key", "apikey", "token"] {
        if keys.contains_key(name) {
            let message = "a key never stands in the file; name it with key_env or key_file";
            return Err(ConfigError::at(name, message));
        }
    }
    let shared = if row.name == "demo" { Map::new() } else { take_common(&mut keys) };
    let common = common(own(shared)?, row, clock)?;
    (row.build)(keys, &common).map_err(|error| error.with_common(row.name != "demo"))
}

/// The environment variable in which the key of such an agent is looked for, if it is not there: calls will go out
/// without a key, which is fine for a server that asks for none.
pub fn missing_key(kind: &str, keys: &Map<String, Value>) -> Option<&'static str> {
    let usual = KINDS.iter().find(|row| row.name == kind)?.key_env?;
    let is_named = keys.contains_key("key_env") || keys.contains_key("key_file");
    let is_set = std::env::var(usual).is_ok_and(|key| !key.trim().is_empty());
    (!is_named && !is_set).then_some(usual)
}

fn take_common(keys: &mut Keys) -> Keys {
    let taken = COMMON.iter().filter_map(|name| Some(((*name).to_owned(), keys.get_mut(*name)?.take())));
    let taken = taken.collect();
    keys.retain(|name, _| !COMMON.contains(&name.as_str()));
    taken
}

fn common(config: CommonConfig, row: &Kind, clock: Clock) -> Result<Common, ConfigError> {
    let mut retries = row.retries;
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
    let wrong = |name: &str| ConfigError::at("timeouts", format!("{name}: expected a number of seconds"));
    let times = config.timeouts.over(row.timeouts).map_err(wrong)?;
    Ok(Common { retries, times, clock })
}

/// Reads a kind's own keys; a mistake is told with the key that it stands at.
fn own<T: DeserializeOwned>(keys: Keys) -> Result<T, ConfigError> {
    serde_path_to_error::deserialize(Value::Object(keys)).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner().to_string();
        let words: Vec<&str> = inner.split('`').skip(1).step_by(2).collect();
        let (wrong, known) = match words.split_first() {
            Some((wrong, known)) if inner.starts_with("unknown field") => (Some(*wrong), known),
            Some((missing, _)) if inner.starts_with("missing field") => {
                return ConfigError::new(format!("the key `{missing}` is missing"));
            }
            _ => (None, &[][..]),
        };
        let top = path.split('.').next().filter(|top| *top != "?" && !top.is_empty());
        let key = wrong.or(top).map(str::to_owned);
        let message = wrong.map_or_else(|| inner.clone(), |wrong| format!("unknown key `{wrong}`"));
        let known = known.iter().map(|name| (*name).to_owned()).collect();
        ConfigError { key, message, known }
    })
}

/// A configuration that makes no agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    key: Option<String>,
    message: String,
    known: Vec<String>,
}

impl ConfigError {
    /// A mistake of the table as a whole.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { key: None, message: message.into(), known: Vec::new() }
    }

    /// A mistake at a key.
    pub(crate) fn at(key: &str, message: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), ..Self::new(message) }
    }

    fn with_common(mut self, has_common: bool) -> Self {
        if !self.known.is_empty() && has_common {
            self.known.extend(COMMON.iter().map(|name| (*name).to_owned()));
        }
        self
    }

    /// The key that is wrong.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The words that would have been right, for an unknown one.
    pub fn known(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(String::as_str)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) if !self.message.contains(key.as_str()) => write!(f, "{key}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

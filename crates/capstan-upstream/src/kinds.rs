//! The kinds of agents that a configuration can name: a row each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capstan_agent::{About, Agent, CancelReason, Clock, Endpoint, Outcome, Turn, Writer};
use capstan_demo::Demo;
use capstan_protocol::Fault;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::callee::Callee;
use crate::retries::{OnCut, Retries};
use crate::route::Breakers;
use crate::timeouts::{CallTimeouts, TimeoutsConfig};
use crate::{a2a, agui, anthropic, api_key, cap, command, openai, route};

/// The keys of one agent's table, without `name` and `kind`.
type Keys = Map<String, Value>;
type Build = fn(Keys, &Common) -> Result<Box<dyn Callee>, ConfigError>;

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
        build: |keys, common| {
            let config =
                own(keys).map_err(|error: ConfigError| error.without(&["api", "finish"]))?;
            anthropic::build(config, common)
        },
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
        name: "a2a",
        what: "an A2A agent",
        retries: Retries::CAREFUL,
        timeouts: CallTimeouts::FOREIGN,
        key_env: None,
        build: |keys, common| a2a::build(own(keys)?, common),
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
        build: |keys, _| own::<DemoConfig>(keys)?.build(),
    },
    Kind {
        name: ROUTE,
        what: "several of the other agents, one standing in for another",
        retries: Retries::PROVIDER,
        timeouts: CallTimeouts::PROVIDER,
        key_env: None,
        build: |keys, _| own::<route::Config>(keys).and_then(|config| config.alone()),
    },
];

/// The kind that is made of others.
const ROUTE: &str = "route";

impl Kind {
    /// Whether it takes the keys that most kinds have in common.
    fn has_common(&self) -> bool {
        !matches!(self.name, "demo" | ROUTE)
    }
}

/// What the demo understands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DemoConfig {
    /// Seconds before each word.
    delay: Option<f64>,
}

impl DemoConfig {
    fn build(self) -> Result<Box<dyn Callee>, ConfigError> {
        let Some(seconds) = self.delay else { return Ok(Box::new(Demo::new())) };
        let wrong = |_| ConfigError::at("delay", "expected a number of seconds");
        Ok(Box::new(Demo::with_delay(Duration::try_from_secs_f64(seconds).map_err(wrong)?)))
    }
}

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

/// One agent's table.
#[derive(Debug, Clone)]
pub struct AgentTable {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Everything else.
    pub keys: Map<String, Value>,
}

/// Makes the agents of a configuration, in its order; a mistake is told with the place of its
/// table.
///
/// Routes use the others by their names. A route within a route stands for its members.
pub fn build_all(
    tables: &[AgentTable],
    clock: &Clock,
) -> Result<Vec<Box<dyn Agent>>, (usize, ConfigError)> {
    build_all_with(tables, clock, &Breakers::default())
}

/// The same with breakers that somebody else knows of, too.
pub fn build_all_with(
    tables: &[AgentTable],
    clock: &Clock,
    breakers: &Breakers,
) -> Result<Vec<Box<dyn Agent>>, (usize, ConfigError)> {
    let (mut plain, mut routes) = (BTreeMap::new(), BTreeMap::new());
    for (at, table) in tables.iter().enumerate() {
        if table.kind == ROUTE {
            let config = own(table.keys.clone()).map_err(|error| (at, error))?;
            routes.insert(table.name.clone(), config);
        } else {
            let agent = callee(&table.kind, table.keys.clone(), clock.clone())
                .map_err(|error| (at, error))?;
            plain.insert(table.name.clone(), Arc::<dyn Callee>::from(agent));
        }
    }
    let shared = route::Shared::new(clock.clone(), breakers);
    let make = |(at, table): (usize, &AgentTable)| {
        let made: Option<Result<Box<dyn Agent>, _>> = match plain.get(&table.name) {
            Some(callee) => Some(Ok(Box::new(SharedAgent(Arc::clone(callee))))),
            None => route::build(&table.name, &routes, &plain, &shared)
                .map(|route| route.map(|route| Box::new(route) as Box<dyn Agent>)),
        };
        let unknown = || Err(ConfigError::new(format!("no agent is called {:?}", table.name)));
        made.unwrap_or_else(unknown).map_err(|error| (at, error))
    };
    tables.iter().enumerate().map(make).collect()
}

/// An agent that is also a member of routes.
struct SharedAgent(Arc<dyn Callee>);

#[async_trait]
impl Agent for SharedAgent {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        self.0.run(turn, out).await
    }

    async fn end(&self, far_id: &str, reason: CancelReason) -> Result<(), Fault> {
        self.0.end(far_id, reason).await
    }

    fn max_attempts(&self) -> u32 {
        self.0.max_attempts()
    }

    fn about(&self) -> About {
        self.0.about()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.0.endpoint()
    }
}

/// Makes the agent that a table describes; `keys` holds everything but `name` and `kind`. A route
/// needs [others](build_all).
pub fn build(kind: &str, keys: Map<String, Value>) -> Result<Box<dyn Agent>, ConfigError> {
    build_with(kind, keys, Clock::default())
}

/// The same, with a clock to wait by.
pub fn build_with(
    kind: &str,
    keys: Map<String, Value>,
    clock: Clock,
) -> Result<Box<dyn Agent>, ConfigError> {
    callee(kind, keys, clock).map(|callee| callee as Box<dyn Agent>)
}

fn callee(kind: &str, mut keys: Keys, clock: Clock) -> Result<Box<dyn Callee>, ConfigError> {
    let Some(row) = KINDS.iter().find(|row| row.name == kind) else {
        let known = KINDS.iter().map(|row| row.name.to_owned()).collect();
        return Err(ConfigError {
            known,
            ..ConfigError::at("kind", format!("unknown kind {kind:?}"))
        });
    };
    for name in ["key", "api_key", "apikey", "token"] {
        if keys.contains_key(name) {
            let message = "a key never stands in the file; name it with key_env or key_file";
            return Err(ConfigError::at(name, message));
        }
    }
    let shared = if row.has_common() { take_common(&mut keys) } else { Map::new() };
    let common = common(own(shared)?, row, clock)?;
    (row.build)(keys, &common).map_err(|error| error.with_common(row.has_common()))
}

/// The environment variable in which the key of such an agent is looked for, named or usual, if it
/// is not there: calls will go out without a key, which is fine for a server that asks for none.
pub fn missing_key<'a>(kind: &str, keys: &'a Map<String, Value>) -> Option<&'a str> {
    if keys.contains_key("key_file") {
        return None;
    }
    let usual = || KINDS.iter().find(|row| row.name == kind)?.key_env;
    let variable = keys.get("key_env").and_then(Value::as_str).or_else(usual)?;
    api_key::in_variable(variable).is_none().then_some(variable)
}

fn take_common(keys: &mut Keys) -> Keys {
    let taken =
        COMMON.iter().filter_map(|name| Some(((*name).to_owned(), keys.get_mut(*name)?.take())));
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
    let wrong =
        |name: &str| ConfigError::at("timeouts", format!("{name}: expected a number of seconds"));
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
        ConfigError { key, value: None, message, known }
    })
}

/// A configuration that makes no agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    key: Option<String>,
    /// What stands there, if a word of it is wrong.
    value: Option<String>,
    message: String,
    known: Vec<String>,
}

impl ConfigError {
    /// A mistake of the table as a whole.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { key: None, value: None, message: message.into(), known: Vec::new() }
    }

    /// A mistake at a key.
    pub(crate) fn at(key: &str, message: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), ..Self::new(message) }
    }

    /// With the word that is wrong, and those that would have been right.
    pub(crate) fn with_known(self, value: &str, known: Vec<String>) -> Self {
        Self { value: Some(value.to_owned()), known, ..self }
    }

    /// Without words that would have been right for a kind with the same keys.
    fn without(mut self, names: &[&str]) -> Self {
        self.known.retain(|name| !names.contains(&name.as_str()));
        self
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

    /// The word of its value that is wrong.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// The words that would have been right, for an unknown one.
    pub fn known(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(String::as_str)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) if !self.message.contains(key.as_str()) => {
                write!(f, "{key}: {}", self.message)
            }
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

//! The kinds of agents that a configuration can name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use capstan_agent::{About, Agent, CancelReason, Clock, Endpoint, Outcome, Turn, Writer};
use capstan_protocol::{Dialect, Fault, NativeOrigin};
use serde_json::{Map, Value};

use crate::callee::Callee;
use crate::config::{ConfigError, read_keys};
use crate::kind::Kind;
use crate::passthrough::Passthrough;
use crate::provider::no_key_in;
use crate::route::Breakers;
use crate::{a2a, agui, anthropic, cap, command, openai, route};

/// Every kind of this crate. To add one, write its file and its row.
const ROWS: &[Kind] =
    &[command::KIND, openai::KIND, anthropic::KIND, agui::KIND, a2a::KIND, cap::KIND, route::KIND];

/// The table of one agent.
#[derive(Debug, Clone)]
pub struct AgentTable {
    /// The name of the agent.
    pub name: String,
    /// The name of its kind.
    pub kind: String,
    /// The other keys.
    pub keys: Map<String, Value>,
}

/// The kinds that a configuration can name: those of this crate, and added ones.
#[derive(Debug, Clone)]
pub struct Kinds(Vec<Kind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(ROWS.to_vec())
    }
}

impl Kinds {
    /// Adds a kind.
    pub fn with(mut self, kind: Kind) -> Self {
        self.0.push(kind);
        self
    }

    /// Iterates over all kinds.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter()
    }

    /// Makes the agents of a configuration, in its order. An error comes with the index of its
    /// table.
    ///
    /// Routes use other agents by their names. The members of a route within a route become members
    /// of the outer one.
    pub fn build_all(
        &self,
        tables: &[AgentTable],
        clock: &Clock,
        breakers: &Breakers,
    ) -> Result<Vec<Box<dyn Agent>>, (usize, ConfigError)> {
        let (mut plain, mut routes) = (BTreeMap::new(), BTreeMap::new());
        for (at, table) in tables.iter().enumerate() {
            if table.kind == route::KIND.name {
                let config = read_keys(table.keys.clone()).map_err(|error| (at, error))?;
                routes.insert(table.name.clone(), config);
            } else {
                let agent = self
                    .callee(&table.kind, table.keys.clone(), clock)
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

    /// Makes the agent of a table; `keys` has everything except `name` and `kind`. For a route, use
    /// [`build_all`](Self::build_all).
    pub fn build(
        &self,
        kind: &str,
        keys: Map<String, Value>,
        clock: &Clock,
    ) -> Result<Box<dyn Agent>, ConfigError> {
        self.callee(kind, keys, clock).map(|callee| callee as Box<dyn Agent>)
    }

    fn callee(
        &self,
        kind: &str,
        keys: Map<String, Value>,
        clock: &Clock,
    ) -> Result<Box<dyn Callee>, ConfigError> {
        let unknown = || {
            let known = self.iter().map(|row| row.name.to_owned()).collect();
            ConfigError::at("kind", format!("unknown kind {kind:?}")).with_known(kind, known)
        };
        self.find(kind).ok_or_else(unknown)?.build(keys, clock)
    }

    fn find(&self, kind: &str) -> Option<&Kind> {
        self.iter().find(|row| row.name == kind)
    }

    /// The access to the agent's provider without runs, if the table has one.
    pub fn passthrough(
        &self,
        kind: &str,
        keys: Map<String, Value>,
        clock: &Clock,
    ) -> Result<Option<Passthrough>, ConfigError> {
        if kind != openai::KIND.name || !keys.contains_key("passthrough") {
            return Ok(None);
        }
        let (config, common) = openai::KIND.read(keys, clock)?;
        openai::passthrough(config, &common)
    }

    /// A warning if the table names a key that does not exist. Calls are then made without a key,
    /// which is fine for servers that need none.
    pub fn key_warning(&self, kind: &str, keys: &Map<String, Value>) -> Option<String> {
        if keys.contains_key("key_file") {
            return None;
        }
        match keys.get("key_env").and_then(Value::as_str) {
            Some("") => None,
            Some(variable) => no_key_in(variable),
            None => self.find(kind)?.provider?.key_warning(keys),
        }
    }
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

    async fn count_tokens(&self, turn: Turn) -> Option<Result<u64, Fault>> {
        self.0.count_tokens(turn).await
    }

    fn about(&self) -> About {
        self.0.about()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.0.endpoint()
    }

    fn origin(&self) -> Option<NativeOrigin> {
        self.0.origin()
    }

    fn reads(&self, dialect: Dialect) -> bool {
        self.0.reads(dialect)
    }
}

//! The kinds of agents of this program: those of the upstream crate, and the demo.

use std::time::Duration;

use capstan_agent::Agent;
use capstan_demo::Demo;
use capstan_upstream::{ConfigError, Kind, Kinds, read_keys};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The kind of the agent that answers if no agent is configured.
pub(super) const DEMO: &str = "demo";

pub(super) fn kinds() -> Kinds {
    Kinds::default().with(Kind::agent(DEMO, "the demo agent", demo))
}

/// The keys of the demo.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DemoKeys {
    /// Seconds before each word.
    delay: Option<f64>,
}

fn demo(keys: Map<String, Value>) -> Result<Box<dyn Agent>, ConfigError> {
    let keys: DemoKeys = read_keys(keys)?;
    let Some(seconds) = keys.delay else { return Ok(Box::new(Demo::new())) };
    let wrong = |_| ConfigError::at("delay", "expected a number of seconds");
    Ok(Box::new(Demo::with_delay(Duration::try_from_secs_f64(seconds).map_err(wrong)?)))
}

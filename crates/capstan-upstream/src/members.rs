//! Renames the members of a Chat Completions request for its server. Refuses members by name that
//! the server is known to refuse, before the call.

use std::collections::BTreeMap;

use capstan_protocol::Fault;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::config::ConfigError;
use crate::parts::refused_parameter;
use crate::preset::Preset;
use crate::request_body::RequestBody;

/// The names of a token limit. A configured limit is a ceiling, and keeps its name.
pub(crate) const LIMITS: [&str; 3] = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
/// The member that the adapter itself adds, unless the server refuses it.
const USAGE: &str = "stream_options";
/// The name under which a message's name is refused.
const MESSAGE_NAME: &str = "messages.name";

/// The names of members at one server.
#[derive(Debug, Default)]
pub(crate) struct Members {
    max_tokens_field: Option<String>,
    rename: Vec<(String, String)>,
    refuse: Vec<String>,
}

impl Members {
    /// Takes the configured names, otherwise those of the server. Without a server, every member is
    /// sent as it is.
    pub(crate) fn new(
        server: Option<&Preset>,
        max_tokens_field: Option<String>,
        rename: Option<BTreeMap<String, String>>,
        refuse: Option<Vec<String>>,
        parameters: &Map<String, Value>,
    ) -> Result<Self, ConfigError> {
        let Some(server) = server else { return Ok(Self::default()) };
        if let Some(wrong) = max_tokens_field.as_ref().filter(|name| !is_limit(name)) {
            let known = LIMITS.iter().map(|name| (*name).to_owned()).collect();
            let why = format!("{wrong:?} is no name of a token limit");
            return Err(ConfigError::at("max_tokens_field", why).with_known(wrong, known));
        }
        // Without a preset, a configured limit shows which name the server wants.
        let configured = || LIMITS.iter().find(|name| parameters.contains_key(**name)).copied();
        let usual = || server.max_tokens_field.or_else(configured).map(str::to_owned);
        let known = || server.rename.iter().map(|(from, to)| ((*from).into(), (*to).into()));
        let members = Self {
            max_tokens_field: max_tokens_field.or_else(usual),
            rename: rename.map_or_else(|| known().collect(), |own| own.into_iter().collect()),
            refuse: refuse
                .unwrap_or_else(|| server.refuse.iter().map(|name| (*name).to_owned()).collect()),
        };
        let is_sent = |name: &&String| name.as_str() != USAGE && parameters.contains_key(*name);
        match members.refuse.iter().find(is_sent) {
            Some(name) => {
                Err(ConfigError::at("parameters", format!("the server does not take {name}")))
            }
            None => Ok(members),
        }
    }

    /// Renames the members of a request, and refuses some.
    pub(crate) fn apply(&self, body: &mut RequestBody) -> Result<(), Fault> {
        if let Some(field) = &self.max_tokens_field {
            let least = LIMITS.iter().filter_map(|name| body.read::<u64>(name)).min();
            LIMITS.iter().for_each(|name| drop(body.take(name)));
            if let Some(limit) = least {
                body.set(field, &limit);
            }
        }
        for (from, to) in &self.rename {
            if let Some(value) = body.take(from).filter(|_| body.get(to).is_none()) {
                body.put(to, value);
            }
        }
        self.refuse.iter().try_for_each(|name| refuse(body, name))
    }
}

fn is_limit(name: &str) -> bool {
    LIMITS.contains(&name)
}

fn refuse(body: &mut RequestBody, name: &str) -> Result<(), Fault> {
    let why = "the server of this agent does not take it";
    if name == MESSAGE_NAME {
        let messages: Vec<MessageName> = body.read("messages").unwrap_or_default();
        let has_name = messages.iter().any(|message| message.name.is_some());
        return if has_name { Err(refused_parameter(name, why)) } else { Ok(()) };
    }
    let value = body.read::<Value>(name);
    body.take(name);
    match value {
        Some(value) if name != USAGE && asks(&value) => Err(refused_parameter(name, why)),
        Some(_) | None => Ok(()),
    }
}

#[derive(Deserialize)]
struct MessageName {
    name: Option<IgnoredAny>,
}

/// Whether a value has an effect. Many clients send default values too.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) | Value::String(_) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

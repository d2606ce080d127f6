//! What the model providers have in common: their keys in a configuration, and what a call needs of
//! them.

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use crate::api_key::ApiKey;
use crate::config::ConfigError;
use crate::http;
use crate::prefill::Prefill;

/// The keys of a provider's table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    model: String,
    url: Option<String>,
    key_env: Option<String>,
    key_file: Option<String>,
    system: Option<String>,
    prefill: Option<Prefill>,
    #[serde(default)]
    parameters: Map<String, Value>,
    pub(crate) api: Option<Api>,
    pub(crate) finish: Option<FinishRule>,
}

/// Which of OpenAI's protocols a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Api {
    /// Chat Completions, which most servers know.
    #[default]
    ChatCompletions,
    /// Responses.
    Responses,
}

/// Whether an answer is complete only if its server says why it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FinishRule {
    /// It is cut off otherwise.
    #[default]
    Required,
    /// For servers that never say it.
    Optional,
}

impl Config {
    /// Keys that only `openai` knows.
    pub(crate) fn has_nothing_of_openai(&self) -> Result<(), ConfigError> {
        let given = [("api", self.api.is_some()), ("finish", self.finish.is_some())];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(ConfigError::at(name, "only agents of kind openai have it")),
            None => Ok(()),
        }
    }
}

/// In what one provider differs from another.
pub(crate) struct Defaults {
    /// Where the provider itself is.
    pub(crate) url: &'static str,
    /// Where its calls go, below that address or another.
    pub(crate) path: &'static str,
    /// The variable that its tools read.
    pub(crate) key_env: &'static str,
    /// The members of a request that the adapter decides; a configuration cannot override them.
    pub(crate) ours: &'static [&'static str],
}

/// A provider as it is configured.
pub(crate) struct Provider {
    pub(crate) url: Url,
    pub(crate) model: String,
    pub(crate) system: Option<String>,
    pub(crate) parameters: Map<String, Value>,
    /// How an answer is continued, if the configuration knows better than we do.
    pub(crate) prefill: Option<Prefill>,
    pub(crate) secret: ApiKey,
}

impl Provider {
    pub(crate) fn new(config: Config, defaults: &Defaults) -> Result<Self, ConfigError> {
        if let Some(name) = defaults.ours.iter().find(|name| config.parameters.contains_key(**name))
        {
            return Err(ConfigError::at("parameters", format!("{name} cannot be set here")));
        }
        if config.model.trim().is_empty() {
            return Err(ConfigError::at("model", "it is empty"));
        }
        let base = http::base_url(config.url.as_deref().unwrap_or(defaults.url))?;
        let key_env = Some(defaults.key_env);
        Ok(Self {
            url: http::join(&base, defaults.path),
            model: config.model,
            system: config.system,
            parameters: config.parameters,
            prefill: config.prefill,
            secret: ApiKey::find(config.key_env.as_deref(), config.key_file.as_deref(), key_env)?,
        })
    }

    /// The body of a call: ours, then what is configured, then what the request asks for.
    pub(crate) fn body(&self, ours: Map<String, Value>, asked: Asked) -> Value {
        let mut body = ours;
        body.extend(self.parameters.clone());
        if !asked.tools.is_empty() {
            // Of two tools with one name the caller's counts: the caller is there to answer it.
            let tools = body.entry("tools").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(tools) = tools {
                tools.retain(|tool| !asked.tools.iter().any(|own| name_of(own) == name_of(tool)));
                tools.extend(asked.tools);
            }
        }
        if let Some(asked) = asked.max_tokens {
            let known = LIMITS.iter().find(|name| self.parameters.contains_key(**name));
            let ceiling = known.and_then(|name| self.parameters.get(*name)?.as_u64());
            let limit = ceiling.map_or(asked.value, |ceiling| ceiling.min(asked.value));
            body.insert(known.copied().unwrap_or(asked.name).into(), limit.into());
        }
        body.extend(asked.members);
        Value::Object(body)
    }
}

/// The spellings of a token limit. One that is configured is kept, and no request gets beyond it.
const LIMITS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// What a request asks for, in the provider's words.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) tools: Vec<Value>,
    pub(crate) max_tokens: Option<TokenLimit>,
    pub(crate) members: Map<String, Value>,
}

/// A token limit under the provider's name for it.
pub(crate) struct TokenLimit {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.get("name").or_else(|| tool.pointer("/function/name"))?.as_str()
}

//! `anthropic`: Messages streaming.

mod content;
mod decoder;

use capstan_agent::{About, Agent, Turn};
use capstan_protocol::Fault;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent};
use crate::http;
use crate::kinds::{Common, ConfigError};
use crate::secret::Secret;

pub(crate) use content::blocks;

/// Where Anthropic itself is.
pub const DEFAULT_URL: &str = "https://api.anthropic.com";
/// The variable that its tools read.
pub const DEFAULT_KEY_ENV: &str = "ANTHROPIC_API_KEY";
/// The protocol insists on a limit; this one holds a long answer.
pub const DEFAULT_MAX_TOKENS: u32 = 8192;

const VERSION: &str = "2023-06-01";
/// Uploaded files are behind this switch.
const FILES_BETA: &str = "files-api-2025-04-14";

/// What the adapter decides; a configuration cannot override it.
const OURS: [&str; 4] = ["model", "messages", "stream", "system"];

/// The kind's own keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    model: String,
    url: Option<String>,
    key_env: Option<String>,
    key_file: Option<String>,
    system: Option<String>,
    #[serde(default)]
    parameters: Map<String, Value>,
}

struct Anthropic {
    url: Url,
    model: String,
    system: Option<String>,
    parameters: Map<String, Value>,
    secret: Secret,
}

pub(crate) fn build(config: Config, common: &Common) -> Result<Box<dyn Agent>, ConfigError> {
    if let Some(name) = OURS.iter().find(|name| config.parameters.contains_key(**name)) {
        return Err(ConfigError::at("parameters", format!("{name} cannot be set here")));
    }
    let base = http::base_url(config.url.as_deref().unwrap_or(DEFAULT_URL))?;
    let secret = Secret::find(config.key_env.as_deref(), config.key_file.as_deref(), Some(DEFAULT_KEY_ENV))?;
    let dialect = Anthropic {
        url: http::join(&base, "v1/messages"),
        model: config.model,
        system: config.system,
        parameters: config.parameters,
        secret: secret.clone(),
    };
    let client = http::client(common.times.connect)?;
    Ok(Box::new(HttpAgent::new(dialect, client, secret, common)))
}

impl Dialect for Anthropic {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.url
    }

    fn headers(&self, body: &Value) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        if content::has_files(body) {
            headers.insert("anthropic-beta", HeaderValue::from_static(FILES_BETA));
        }
        if let Some(key) = self.secret.header("") {
            headers.insert("x-api-key", key);
        }
        headers
    }

    fn body(&self, turn: &Turn) -> Result<Value, Fault> {
        let (system, messages) = content::messages(turn, self.system.as_deref())?;
        let mut body = Map::new();
        body.insert("model".into(), self.model.as_str().into());
        body.insert("max_tokens".into(), DEFAULT_MAX_TOKENS.into());
        body.insert("stream".into(), true.into());
        if let Some(system) = system {
            body.insert("system".into(), system.into());
        }
        body.insert("messages".into(), messages.into());
        body.extend(self.parameters.clone());
        Ok(Value::Object(body))
    }

    fn decoder(&self) -> Decoder {
        Decoder::new(self.secret.clone())
    }

    fn about(&self) -> About {
        About::model("anthropic", &self.model)
    }
}

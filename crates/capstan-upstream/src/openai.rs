//! `openai`: Chat Completions streaming, of OpenAI or any compatible server.

mod decoder;
mod request;

use capstan_agent::{About, Agent, Turn};
use capstan_protocol::Fault;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

pub use decoder::Decoder;

use crate::call::{Dialect, HttpAgent};
use crate::http;
use crate::kinds::{Common, ConfigError};
use crate::secret::Secret;

/// Where OpenAI itself is.
pub const DEFAULT_URL: &str = "https://api.openai.com/v1";
/// The variable that its tools read.
pub const DEFAULT_KEY_ENV: &str = "OPENAI_API_KEY";

/// What the adapter decides; a configuration cannot override it.
const OURS: [&str; 4] = ["model", "messages", "stream", "n"];

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

struct OpenAi {
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
    let dialect = OpenAi {
        url: http::join(&base, "chat/completions"),
        model: config.model,
        system: config.system,
        parameters: config.parameters,
        secret: secret.clone(),
    };
    let client = http::client(common.times.connect)?;
    Ok(Box::new(HttpAgent::new(dialect, client, secret, common)))
}

impl Dialect for OpenAi {
    type Decoder = Decoder;

    fn url(&self) -> &Url {
        &self.url
    }

    fn headers(&self, _body: &Value) -> HeaderMap {
        self.secret.header("Bearer ").map(|key| (AUTHORIZATION, key)).into_iter().collect()
    }

    fn body(&self, turn: &Turn) -> Result<Value, Fault> {
        let mut body = Map::new();
        body.insert("model".into(), self.model.as_str().into());
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), serde_json::json!({ "include_usage": true }));
        body.insert("messages".into(), request::messages(turn, self.system.as_deref())?.into());
        body.extend(self.parameters.clone());
        Ok(Value::Object(body))
    }

    fn decoder(&self) -> Decoder {
        Decoder::new(self.secret.clone())
    }

    fn about(&self) -> About {
        About::model("openai", &self.model)
    }
}

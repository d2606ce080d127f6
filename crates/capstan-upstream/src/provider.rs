//! What the model providers have in common: their keys in a configuration, and what a call needs of them.

use serde::Deserialize;
use serde_json::{Map, Value};
use url::Url;

use crate::api_key::ApiKey;
use crate::http;
use crate::kinds::ConfigError;

/// The keys of a provider's table.
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
    pub(crate) secret: ApiKey,
}

impl Provider {
    pub(crate) fn new(config: Config, defaults: &Defaults) -> Result<Self, ConfigError> {
        if let Some(name) = defaults.ours.iter().find(|name| config.parameters.contains_key(**name)) {
            return Err(ConfigError::at("parameters", format!("{name} cannot be set here")));
        }
        let base = http::base_url(config.url.as_deref().unwrap_or(defaults.url))?;
        let key_env = Some(defaults.key_env);
        Ok(Self {
            url: http::join(&base, defaults.path),
            model: config.model,
            system: config.system,
            parameters: config.parameters,
            secret: ApiKey::find(config.key_env.as_deref(), config.key_file.as_deref(), key_env)?,
        })
    }
}

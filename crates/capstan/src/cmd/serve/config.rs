//! `capstan.toml`: what can be configured. A wrong key or value is refused with its place and the nearest known key.

use std::path::Path;
use std::time::Duration;

use capstan_gateway::{KeyHash, Limits, Settings, Tenant, Timeouts};
use capstan_protocol::Exposure;
use serde::Deserialize;
use serde::de::Error as _;

use crate::cmd::{Failure, nearest};

/// The file that is read if it exists.
const DEFAULT_FILE: &str = "capstan.toml";

/// The configuration, defaults filled in.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Config {
    pub(super) listen: String,
    pub(super) journal: String,
    pub(super) durability: String,
    pub(super) debug: bool,
    pub(super) open: bool,
    agui_error_text: bool,
    cors_origins: Vec<String>,
    metrics_key: Option<Key>,
    tenants: Vec<TenantConfig>,
    limits: LimitsConfig,
    timeouts: TimeoutsConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "localhost:8787".into(),
            journal: "disk:./.capstan".into(),
            durability: "process".into(),
            debug: false,
            open: false,
            agui_error_text: false,
            cors_origins: Vec::new(),
            metrics_key: None,
            tenants: Vec::new(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantConfig {
    name: String,
    keys: Vec<Key>,
}

/// `sha256:<64 hex digits>`; a key itself never stands in a file.
#[derive(Debug, Clone)]
struct Key(KeyHash);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = text.strip_prefix("sha256:").and_then(KeyHash::from_hex);
        hash.map(Self).ok_or_else(|| D::Error::custom("expected sha256:<64 hex digits>"))
    }
}

/// Declares an optional overlay over one of the gateway's structs.
macro_rules! overlay {
    ($name:ident over $target:ident { $($field:ident: $type:ty,)* }) => {
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct $name { $($field: Option<$type>,)* }

        impl $name {
            fn apply(&self, target: &mut $target) {
                $(if let Some(value) = self.$field { target.$field = value.into(); })*
            }
        }
    };
}

overlay! { LimitsConfig over Limits {
    requests_per_minute: u32, sessions: u64, messages_per_session: usize, runs_per_tenant: usize, runs: usize,
    readers_per_tenant: usize, body_bytes: usize, packets_per_stream: u64, bytes_per_stream: u64,
} }

overlay! { TimeoutsConfig over Timeouts {
    run: Seconds, idle: Seconds, request: Seconds, heartbeat: Seconds, waiting: Seconds, drain: Seconds,
} }

/// A number of seconds; fractions are fine.
#[derive(Debug, Clone, Copy)]
struct Seconds(Duration);

impl From<Seconds> for Duration {
    fn from(seconds: Seconds) -> Self {
        seconds.0
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| D::Error::custom("expected a number of seconds"))
    }
}

impl Config {
    /// Reads a file: the one that was named, or `capstan.toml` if there is one.
    pub(super) fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let path = named.unwrap_or_else(|| Path::new(DEFAULT_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(e) => return Err(Failure::usage(format!("{}: {e}", path.display()))),
        };
        toml::from_str(&text).map_err(|e| explain(path, &e))
    }

    /// What the gateway needs to know.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings {
            tenants: self.tenants.iter().map(TenantConfig::to_tenant).collect(),
            cors_origins: self.cors_origins.clone(),
            metrics_key: self.metrics_key.clone().map(|key| key.0),
            exposure: self.exposure(),
            agui_error_text: self.agui_error_text,
            ..Settings::default()
        };
        if let Some(empty) = self.tenants.iter().find(|t| t.keys.is_empty() || t.name.is_empty()) {
            return Err(Failure::usage(format!(
                "tenants: {:?} needs a name and at least one key",
                empty.name
            )));
        }
        self.limits.apply(&mut settings.limits);
        self.timeouts.apply(&mut settings.timeouts);
        Ok(settings)
    }

    fn exposure(&self) -> Exposure {
        let environment = std::env::var("CAPSTAN_ENV").ok();
        if self.debug { Exposure::Debug } else { Exposure::from_environment(environment.as_deref()) }
    }
}

impl TenantConfig {
    fn to_tenant(&self) -> Tenant {
        Tenant { name: self.name.clone(), keys: self.keys.iter().map(|key| key.0.clone()).collect() }
    }
}

/// toml's own message shows line, column and a caret; a mistyped key also gets the nearest known one.
fn explain(path: &Path, error: &toml::de::Error) -> Failure {
    let message = error.message();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let failure = Failure::usage(format!("{}: {error}", path.display()).trim_end());
    let close = match words.split_first() {
        Some((wrong, known)) if message.starts_with("unknown field") => nearest(wrong, known.iter().copied()),
        _ => None,
    };
    match close {
        Some(close) => failure.with_help(format!("did you mean `{close}`?")),
        None => failure,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_overlaid_by_what_the_file_says() {
        let config: Config =
            toml::from_str("debug = true\n[limits]\nruns = 7\n[timeouts]\nidle = 1.5\n").unwrap();
        let settings = config.settings().unwrap();
        assert_eq!((settings.limits.runs, settings.timeouts.idle), (7, Duration::from_millis(1500)));
        assert_eq!(settings.limits.body_bytes, Limits::default().body_bytes);
        assert_eq!(settings.exposure, Exposure::Debug);
    }

    #[test]
    fn a_wrong_key_names_its_place_and_the_nearest_known_one() {
        let error = toml::from_str::<Config>("debug = true\nlisen = \"x\"\n").unwrap_err();
        let failure = explain(Path::new("capstan.toml"), &error);
        let text = format!("{failure:?}");
        assert!(text.contains("line 2") && text.contains("did you mean `listen`?"), "{text}");
    }

    #[test]
    fn a_key_in_plain_text_is_refused() {
        let wrong = "[[tenants]]\nname = \"a\"\nkeys = [\"sk_secret\"]\n";
        let error = toml::from_str::<Config>(wrong).unwrap_err();
        assert!(error.message().contains("sha256:"), "{error}");
    }
}

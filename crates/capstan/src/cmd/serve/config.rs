//! `capstan.toml`: all settings. A wrong key or value is refused with its place and the nearest
//! known key.

mod auth;
mod cluster;
mod console;
mod effective;
mod overlay;
mod shown;
mod tenant;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use capstan_gateway::{Operator, Settings, Tenant};
use capstan_journal::Replica;
use capstan_protocol::{Exposure, nearest};
use capstan_upstream::Breakers;
use serde::Deserialize;

use self::auth::{AuthConfig, JwtConfig, OperatorConfig};
use self::cluster::ClusterConfig;
use self::console::ConsoleConfig;
use self::overlay::{LimitsConfig, RetentionConfig, TimeoutsConfig, check_claim_age};
use self::tenant::{Key, TenantConfig};
use super::agents::{self, Named, Source, Table};
use crate::cmd::Failure;

/// The commented configuration that `capstan config example` prints.
pub(in crate::cmd) const EXAMPLE: &str = include_str!("config/example.toml");

/// The file that is read by default, if it exists.
const DEFAULT_FILE: &str = "capstan.toml";

/// Space for open runs and for compaction: a file of the journal is 64 MB.
const MIN_FREE_BYTES: u64 = 256 * 1024 * 1024;

/// The configuration, with defaults.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::cmd) struct Config {
    pub(super) listen: String,
    pub(super) journal: String,
    pub(super) durability: String,
    pub(super) min_free_bytes: u64,
    pub(super) debug: bool,
    agui_error_text: bool,
    openai_repeats: bool,
    openai_websocket: bool,
    pub(in crate::cmd) open: bool,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    cors_origins: Vec<String>,
    public_url: Option<String>,
    metrics_key: Option<Key>,
    tenants: Vec<TenantConfig>,
    auth: AuthConfig,
    operators: Vec<OperatorConfig>,
    console: ConsoleConfig,
    agents: Vec<Table>,
    limits: LimitsConfig,
    timeouts: TimeoutsConfig,
    retention: RetentionConfig,
    cluster: ClusterConfig,
    /// The path and text of the file.
    #[serde(skip)]
    source: (PathBuf, String),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "localhost:8787".into(),
            journal: "disk:./.capstan".into(),
            durability: "process".into(),
            min_free_bytes: MIN_FREE_BYTES,
            debug: false,
            open: false,
            agui_error_text: false,
            openai_repeats: true,
            openai_websocket: true,
            tls_cert: None,
            tls_key: None,
            cors_origins: Vec::new(),
            public_url: None,
            metrics_key: None,
            tenants: Vec::new(),
            auth: AuthConfig::default(),
            operators: Vec::new(),
            console: ConsoleConfig::default(),
            agents: Vec::new(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            retention: RetentionConfig::default(),
            cluster: ClusterConfig::default(),
            source: Default::default(),
        }
    }
}

impl Config {
    /// Reads the named file, or `capstan.toml` if it exists.
    pub(super) fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let Some((path, text)) = read_file(named)? else { return Ok(Self::default()) };
        let config: Self = toml::from_str(&text).map_err(|e| explain(&path, &text, &e))?;
        Ok(Self { source: (path, text), ..config })
    }

    /// The path and text of the file; both are empty without one.
    pub(in crate::cmd) fn source(&self) -> (&Path, &str) {
        (&self.source.0, &self.source.1)
    }

    /// The agents of the file, the default agent first; none if the file has none.
    pub(super) fn agents(&self, breakers: &Breakers) -> Result<Vec<Named>, Failure> {
        let (path, text) = &self.source;
        agents::agents(&self.agents, Source { path, text, is_quoted: true }, breakers)
    }

    /// The configured public address; it must be an absolute URL.
    fn public_url(&self) -> Result<Option<String>, Failure> {
        let is_absolute = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        match &self.public_url {
            Some(url) if !is_absolute(url) => Err(Failure::usage(format!(
                "public_url: {url:?} is no address such as https://agents.example"
            ))),
            url => Ok(url.clone()),
        }
    }

    /// Builds the gateway's settings.
    pub(in crate::cmd) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings {
            tenants: self.tenants()?.into(),
            jwt: self.jwt().map(JwtConfig::jwt).transpose()?,
            operators: self.operators()?.into(),
            open: self.open,
            cors_origins: self.cors_origins.clone(),
            public_url: self.public_url()?,
            metrics_key: self.metrics_key.clone().map(|key| key.0),
            exposure: self.exposure(),
            agui_error_text: self.agui_error_text,
            openai_repeats: self.openai_repeats,
            openai_websocket: self.openai_websocket,
            console: self.console.settings()?,
            ..Settings::default()
        };
        self.limits.apply(&mut settings.limits);
        self.timeouts.apply(&mut settings.timeouts);
        self.retention.apply(&mut settings.retention);
        check_claim_age(settings.retention.claim_age)?;
        let takes_nobody = settings.jwt.as_ref().is_some_and(|jwt| !jwt.takes_any_tenant());
        if takes_nobody && self.tenants.is_empty() {
            return Err(Failure::usage("auth.jwt: there are no tenants that a token could name")
                .with_help(
                    "add their [[tenants]], which then need no keys, or set tenants = \"any\"",
                ));
        }
        Ok(settings)
    }

    /// Overrides `cluster.url`, the address for the other gateways.
    pub(super) fn advertise(&mut self, url: Option<String>) {
        self.cluster.advertise(url);
    }

    /// The `[cluster]` settings of this process.
    pub(super) fn replica(&self) -> Result<Replica, Failure> {
        self.cluster.replica()
    }

    /// The console's own address, if it has one.
    pub(super) fn console_listen(&self) -> Option<&str> {
        self.console.listen.as_deref()
    }

    /// The journal's URL without its password.
    pub(super) fn shown_journal(&self) -> String {
        cluster::without_password(&self.journal)
    }

    /// The tenants.
    pub(super) fn tenants(&self) -> Result<Vec<Tenant>, Failure> {
        tenant::tenants(&self.tenants, self.auth.jwt.is_some())
    }

    /// The settings of tokens.
    pub(super) fn jwt(&self) -> Option<&JwtConfig> {
        self.auth.jwt.as_ref()
    }

    /// The operators.
    pub(super) fn operators(&self) -> Result<Vec<Operator>, Failure> {
        let tenants = self.tenants()?;
        auth::operators(&self.operators, tenants.iter().flat_map(|tenant| &tenant.keys))
    }

    /// Whether callers see error types and causes.
    pub(super) fn exposure(&self) -> Exposure {
        let environment = std::env::var("CAPSTAN_ENV").ok();
        if self.debug {
            Exposure::Debug
        } else {
            Exposure::from_environment(environment.as_deref())
        }
    }
}

/// Reads the named file, or `capstan.toml` if it exists.
fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, Failure> {
    let path = named.unwrap_or_else(|| Path::new(DEFAULT_FILE));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::usage(format!("{}: {e}", path.display()))),
    }
}

/// Names the place of a mistake without quoting the line, which toml's own message does: a line may
/// hold a key by mistake. A mistyped key also gets the nearest known one.
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let message = error.message();
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let line = error
        .span()
        .and_then(|span| text.get(..span.start))
        .map(|before| before.split('\n').count());
    let place = line.map_or_else(String::new, |line| format!(", line {line}"));
    let failure = Failure::usage(format!("{}{place}: {message}", path.display()));
    let close = match names.split_first() {
        Some((wrong, known)) if message.starts_with("unknown field") => {
            nearest(wrong, known.iter().copied())
        }
        _ => None,
    };
    match close {
        Some(close) => failure.with_help(format!("did you mean `{close}`?")),
        None => failure,
    }
}

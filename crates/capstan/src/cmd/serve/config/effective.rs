//! The effective configuration, key by key.

use capstan_gateway::Settings;
use capstan_protocol::Exposure;

use super::Config;
use super::auth::{JwtConfig, OperatorConfig};
use super::overlay::{LimitsConfig, RetentionConfig, TimeoutsConfig};
use super::shown::Shown as _;
use super::tenant::TenantConfig;
use crate::cmd::serve::agents::{self, Table};

impl Config {
    /// Every key with its value; tables as `table.key`. It omits hashes of keys.
    pub(in crate::cmd) fn effective(&self, settings: &Settings) -> Vec<(String, String)> {
        let mut rows: Vec<(String, String)> = [
            ("listen", format!("{:?}", self.listen)),
            ("journal", format!("{:?}", self.shown_journal())),
            ("durability", format!("{:?}", self.durability)),
            ("min_free_bytes", self.min_free_bytes.shown()),
            ("debug", (self.exposure() == Exposure::Debug).to_string()),
            ("open", self.open.to_string()),
            ("agui_error_text", self.agui_error_text.to_string()),
            ("openai_repeats", self.openai_repeats.to_string()),
            ("openai_websocket", self.openai_websocket.to_string()),
            ("tls_cert", self.tls_cert.shown()),
            ("tls_key", self.tls_key.shown()),
            ("cors_origins", format!("{:?}", self.cors_origins)),
            (
                "public_url",
                self.public_url.as_ref().map_or_else(|| "none".into(), |url| format!("{url:?}")),
            ),
            ("metrics_key", if self.metrics_key.is_some() { "set" } else { "none" }.to_owned()),
            ("tenants", self.describe_tenants()),
            ("auth.jwt", self.auth.jwt.as_ref().map_or_else(|| "none".into(), JwtConfig::describe)),
            ("operators", self.describe_operators()),
            ("agents", self.describe_agents()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        for (table, values) in [
            ("limits", LimitsConfig::values(&settings.limits)),
            ("timeouts", TimeoutsConfig::values(&settings.timeouts)),
            ("retention", RetentionConfig::values(&settings.retention)),
            ("cluster", self.cluster.values()),
            ("console", self.console.values(settings.console_content())),
        ] {
            rows.extend(values.into_iter().map(|(key, value)| (format!("{table}.{key}"), value)));
        }
        rows
    }

    fn describe_agents(&self) -> String {
        if self.agents.is_empty() {
            return "demo (demo)".into();
        }
        let describe = |table: &Table| {
            let word = |key| agents::found(table, key).unwrap_or("?");
            format!("{} ({})", word("name"), word("kind"))
        };
        self.agents.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    fn describe_operators(&self) -> String {
        if self.operators.is_empty() {
            return "none".into();
        }
        self.operators.iter().map(OperatorConfig::describe).collect::<Vec<_>>().join(", ")
    }

    fn describe_tenants(&self) -> String {
        if self.tenants.is_empty() {
            return "none".into();
        }
        let word = |n: usize| if n == 1 { "key" } else { "keys" };
        let stored = |is_not: bool| if is_not { ", not stored" } else { "" };
        let describe = |tenant: &TenantConfig| {
            let keys = tenant.keys.len();
            let limits = tenant.limits.describe();
            format!("{} ({keys} {}{}{limits})", tenant.name, word(keys), stored(tenant.no_store))
        };
        self.tenants.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}

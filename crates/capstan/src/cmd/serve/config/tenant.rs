//! `[[tenants]]`: who may use the gateway, and what is kept of them.

use std::time::Duration;

use capstan_gateway::{KeyHash, Tenant};
use serde::Deserialize;
use serde::de::Error as _;

use super::overlay::Seconds;
use crate::cmd::Failure;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantConfig {
    pub(super) name: String,
    pub(super) keys: Vec<Key>,
    #[serde(default)]
    pub(super) no_store: bool,
    #[serde(default)]
    retention: TenantRetentionConfig,
}

/// What is kept of one tenant; claims are kept for all alike.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TenantRetentionConfig {
    max_age: Option<Seconds>,
    max_bytes: Option<u64>,
}

/// `sha256:<64 hex digits>`; a key itself never stands in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key(pub(super) KeyHash);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = text.strip_prefix("sha256:").and_then(KeyHash::from_hex);
        hash.map(Self).ok_or_else(|| D::Error::custom("expected sha256:<64 hex digits>"))
    }
}

/// Who may use it; a tenant has one table, a name and a key.
pub(super) fn tenants(tables: &[TenantConfig]) -> Result<Vec<Tenant>, Failure> {
    for (index, tenant) in tables.iter().enumerate() {
        let TenantConfig { name, keys, .. } = tenant;
        if keys.is_empty() || name.is_empty() {
            return Err(Failure::usage(format!("tenants: {name:?} needs a name and at least one key")));
        }
        if tables.iter().take(index).any(|earlier| earlier.name == *name) {
            return Err(Failure::usage(format!("tenants: there are two tables of the name {name:?}"))
                .with_help("one tenant may have several keys"));
        }
        let shares = |earlier: &&TenantConfig| earlier.keys.iter().any(|key| keys.contains(key));
        if let Some(earlier) = tables.iter().take(index).find(shares) {
            let message = format!("tenants: {:?} and {name:?} have a key in common", earlier.name);
            return Err(Failure::usage(message).with_help(format!(
                "a key says whose request it is; make another one with `capstan key new {name}`"
            )));
        }
    }
    Ok(tables.iter().map(TenantConfig::to_tenant).collect())
}

impl TenantConfig {
    fn to_tenant(&self) -> Tenant {
        Tenant {
            no_store: self.no_store,
            max_age: self.retention.max_age.map(Duration::from),
            max_bytes: self.retention.max_bytes,
            ..Tenant::new(&self.name, self.keys.iter().map(|key| key.0.clone()).collect())
        }
    }
}

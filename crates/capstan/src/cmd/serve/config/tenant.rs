//! `[[tenants]]`: keys, limits and retention of each tenant.

use std::fmt;
use std::time::Duration;

use capstan_gateway::{KeyHash, Origin, Scope, Scopes, Tenant, TenantKey, Webhook};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IntoDeserializer as _, MapAccess, Visitor};

use url::Url;

use super::overlay::Seconds;
use crate::cmd::Failure;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantConfig {
    pub(super) name: String,
    /// May be empty if tokens name the tenant.
    #[serde(default)]
    pub(super) keys: Vec<ScopedKey>,
    #[serde(default)]
    pub(super) no_store: bool,
    /// Whether operators may read its content.
    #[serde(default = "yes")]
    console_content: bool,
    #[serde(default)]
    retention: TenantRetentionConfig,
    #[serde(default)]
    pub(super) limits: TenantLimitsConfig,
    webhook: Option<WebhookConfig>,
    /// Receivers on private networks that its A2A clients may name.
    #[serde(default)]
    push_origins: Vec<String>,
}

fn yes() -> bool {
    true
}

/// The receiver that is notified when a background response ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookConfig {
    url: String,
    /// The environment variable that holds the secret.
    secret_env: String,
    #[serde(default)]
    allow_private: bool,
}

impl WebhookConfig {
    fn webhook(&self, tenant: &str) -> Result<Webhook, Failure> {
        let Self { url, secret_env, allow_private } = self;
        let wrong =
            |what: &str| Failure::usage(format!("tenants: the webhook of {tenant:?}: {what}"));
        let scheme =
            Url::parse(url).map_err(|error| wrong(&error.to_string()))?.scheme().to_owned();
        if scheme != "https" && !(scheme == "http" && *allow_private) {
            return Err(wrong("its url must be https; http needs allow_private"));
        }
        let secret = std::env::var(secret_env)
            .map_err(|_| wrong(&format!("its secret_env names {secret_env}, which is not set")))?;
        let mut webhook = Webhook::new(url, &secret).ok_or_else(|| {
            wrong(&format!("{secret_env} must be whsec_ and 24 to 64 bytes in base64"))
        })?;
        webhook.allow_private = *allow_private;
        Ok(webhook)
    }
}

/// The retention of one tenant. Claims are stored equally long for all.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TenantRetentionConfig {
    max_age: Option<Seconds>,
    max_bytes: Option<u64>,
}

/// Limits of one tenant, which replace those for all.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TenantLimitsConfig {
    tokens_per_minute: Option<u64>,
    tokens_per_day: Option<u64>,
}

impl TenantLimitsConfig {
    /// The limits that differ, as text.
    pub(super) fn describe(&self) -> String {
        let limit = |name: &str, most: Option<u64>| most.map(|most| format!(", {name} {most}"));
        let limits = [
            limit("tokens_per_minute", self.tokens_per_minute),
            limit("tokens_per_day", self.tokens_per_day),
        ];
        limits.into_iter().flatten().collect()
    }
}

/// The hash of a key, `sha256:<64 hex digits>`. A file never holds a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key(pub(super) KeyHash);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = text.strip_prefix("sha256:").and_then(KeyHash::from_hex);
        hash.map(Self).ok_or_else(|| D::Error::custom("expected sha256:<64 hex digits>"))
    }
}

/// A key with all scopes, or `{ hash = "sha256:…", scopes = ["read"] }`.
#[derive(Debug, Clone)]
pub(super) struct ScopedKey {
    hash: Key,
    scopes: Scopes,
}

impl ScopedKey {
    fn to_key(&self) -> TenantKey {
        TenantKey { hash: self.hash.0.clone(), scopes: self.scopes }
    }
}

impl<'de> Deserialize<'de> for ScopedKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScopedKeyVisitor)
    }
}

struct ScopedKeyVisitor;

impl<'de> Visitor<'de> for ScopedKeyVisitor {
    type Value = ScopedKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:<64 hex digits>, or a table of hash and scopes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ScopedKey, E> {
        Ok(ScopedKey { hash: Key::deserialize(text.into_deserializer())?, scopes: Scopes::ALL })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScopedKey, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            hash: Key,
            scopes: Vec<String>,
        }
        let Table { hash, scopes } = Table::deserialize(MapAccessDeserializer::new(map))?;
        let of_word = |word: &String| {
            Scope::of_word(word)
                .ok_or_else(|| A::Error::custom("scopes: expected run, read, stop or purge"))
        };
        let scopes = scopes.iter().map(of_word).collect::<Result<Vec<_>, _>>()?;
        if scopes.is_empty() {
            return Err(A::Error::custom("scopes: a key that may do nothing is of no use"));
        }
        Ok(ScopedKey { hash, scopes: scopes.into_iter().collect() })
    }
}

/// The tenants. Each has one table, a name, and a key unless tokens name it.
pub(super) fn tenants(tables: &[TenantConfig], has_tokens: bool) -> Result<Vec<Tenant>, Failure> {
    for (index, tenant) in tables.iter().enumerate() {
        let TenantConfig { name, keys, .. } = tenant;
        if (keys.is_empty() && !has_tokens) || name.is_empty() {
            return Err(Failure::usage(format!(
                "tenants: {name:?} needs a name and at least one key"
            )));
        }
        if tables.iter().take(index).any(|earlier| earlier.name == *name) {
            return Err(Failure::usage(format!(
                "tenants: there are two tables of the name {name:?}"
            ))
            .with_help("one tenant may have several keys"));
        }
        let shares = |earlier: &&TenantConfig| {
            earlier.keys.iter().any(|key| keys.iter().any(|own| own.hash == key.hash))
        };
        if let Some(earlier) = tables.iter().take(index).find(shares) {
            let message = format!("tenants: {:?} and {name:?} have a key in common", earlier.name);
            return Err(Failure::usage(message).with_help(format!(
                "a key identifies one tenant; make another one with `capstan key new {name}`"
            )));
        }
    }
    tables.iter().map(TenantConfig::to_tenant).collect()
}

impl TenantConfig {
    fn push_origins(&self) -> Result<Vec<Origin>, Failure> {
        let origin = |text: &String| {
            Origin::parse(text).ok_or_else(|| {
                let message =
                    format!("tenants: push_origins of {:?}: {text:?} is not an origin", self.name);
                Failure::usage(message)
                    .with_help("write a scheme, a host and a port: \"http://10.0.0.7:8080\"")
            })
        };
        self.push_origins.iter().map(origin).collect()
    }

    fn to_tenant(&self) -> Result<Tenant, Failure> {
        Ok(Tenant {
            no_store: self.no_store,
            max_age: self.retention.max_age.map(Duration::from),
            max_bytes: self.retention.max_bytes,
            tokens_per_minute: self.limits.tokens_per_minute,
            tokens_per_day: self.limits.tokens_per_day,
            keys: self.keys.iter().map(ScopedKey::to_key).collect(),
            console_content: self.console_content,
            webhook: self
                .webhook
                .as_ref()
                .map(|webhook| webhook.webhook(&self.name))
                .transpose()?,
            push_origins: self.push_origins()?,
            ..Tenant::new(&self.name, Vec::new())
        })
    }
}

//! `[auth.jwt]` and `[[operators]]`: callers other than tenants with keys.

use std::path::PathBuf;
use std::time::Duration;

use capstan_gateway::{
    EVERY_TENANT, Jwt, JwtRules, KeyHash, LONGEST_LEEWAY, Operator, Right, TenantKey, TokenTenants,
};
use serde::Deserialize;
use serde::de::Error as _;

use super::overlay::Seconds;
use super::tenant::Key;
use crate::cmd::Failure;

/// How many tenants tokens may name, by default.
const MAX_TENANTS: usize = 1000;
/// The allowed difference between clocks, by default.
const LEEWAY: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthConfig {
    pub(super) jwt: Option<JwtConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cmd::serve) struct JwtConfig {
    issuer: String,
    audience: Audience,
    pub(in crate::cmd::serve) jwks_file: Option<PathBuf>,
    pub(in crate::cmd::serve) jwks_url: Option<url::Url>,
    #[serde(default = "usual_claim")]
    tenant_claim: String,
    leeway: Option<Seconds>,
    #[serde(default)]
    tenants: WhichTenants,
    max_tenants: Option<usize>,
    #[serde(default)]
    require_scopes: bool,
}

fn usual_claim() -> String {
    "tenant".into()
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WhichTenants {
    #[default]
    Configured,
    Any,
}

impl JwtConfig {
    /// Makes the verifier of tokens, still without keys.
    pub(super) fn jwt(&self) -> Result<Jwt, Failure> {
        let wrong = |what: &str| Err(Failure::usage(format!("auth.jwt.{what}")));
        let audience = match &self.audience {
            Audience::One(one) => vec![one.clone()],
            Audience::Several(several) => several.clone(),
        };
        if audience.is_empty() || audience.iter().any(String::is_empty) {
            return wrong("audience: empty, so the server would accept tokens for others");
        }
        if self.issuer.is_empty() || self.tenant_claim.is_empty() {
            return wrong("issuer and tenant_claim may not be empty");
        }
        let leeway = self.leeway.map_or(LEEWAY, Duration::from);
        if leeway > LONGEST_LEEWAY {
            return wrong("leeway: clocks may differ by 300 s at most");
        }
        let most = self.max_tenants.unwrap_or(MAX_TENANTS);
        let tenants = match self.tenants {
            WhichTenants::Configured => TokenTenants::Configured,
            WhichTenants::Any => TokenTenants::Any(most),
        };
        let (issuer, tenant_claim) = (self.issuer.clone(), self.tenant_claim.clone());
        let require_scopes = self.require_scopes;
        let rules = JwtRules { issuer, audience, tenant_claim, leeway, tenants, require_scopes };
        Ok(Jwt::new(rules, None))
    }

    pub(super) fn describe(&self) -> String {
        format!("{} ({:?} tenants)", self.issuer, self.tenants).to_lowercase()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorConfig {
    pub(super) name: String,
    keys: Vec<Key>,
    tenants: Vec<String>,
    may: Vec<RightWord>,
}

#[derive(Debug, Clone, Copy)]
struct RightWord(Right);

impl<'de> Deserialize<'de> for RightWord {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Right::of_word(&word)
            .map(Self)
            .ok_or_else(|| D::Error::custom("expected look, content or act"))
    }
}

/// The operators. Each has one table, a name, a key that no tenant has, and at least one right.
pub(super) fn operators<'a>(
    tables: &[OperatorConfig],
    tenant_keys: impl Iterator<Item = &'a TenantKey> + Clone,
) -> Result<Vec<Operator>, Failure> {
    let mut seen: Vec<&KeyHash> = Vec::new();
    for (index, OperatorConfig { name, keys, tenants, may }) in tables.iter().enumerate() {
        let wrong = |what: &str| Err(Failure::usage(format!("operators: {name:?} {what}")));
        if name.is_empty() || keys.is_empty() || tenants.is_empty() || may.is_empty() {
            return wrong("needs a name, a key, tenants (\"*\" is all) and rights");
        }
        if tables.iter().take(index).any(|earlier| earlier.name == *name) {
            return wrong("has two tables");
        }
        if tenants.iter().any(|tenant| tenant == EVERY_TENANT) && tenants.len() > 1 {
            return wrong("has \"*\" beside other tenants");
        }
        for Key(hash) in keys {
            if seen.contains(&hash) || tenant_keys.clone().any(|key| key.hash == *hash) {
                return Err(Failure::usage(format!(
                    "operators: a key of {name:?} also belongs to a tenant or another operator"
                ))
                .with_help(format!("make another one with `capstan key new --operator {name}`")));
            }
        }
        seen.extend(keys.iter().map(|key| &key.0));
    }
    Ok(tables.iter().map(OperatorConfig::to_operator).collect())
}

impl OperatorConfig {
    fn to_operator(&self) -> Operator {
        Operator {
            name: self.name.clone(),
            keys: self.keys.iter().map(|key| key.0.clone()).collect(),
            tenants: self.tenants.clone(),
            may: self.may.iter().map(|right| right.0).collect(),
        }
    }

    pub(super) fn describe(&self) -> String {
        let may: Vec<&str> = self.may.iter().map(|right| right.0.word()).collect();
        format!("{} ({})", self.name, may.join(" "))
    }
}

//! Tenants and the hashes of their keys. They can be replaced while the gateway runs.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use capstan_journal::{Quota, Retention, TenantRetention};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::identity::origin::Origin;
use crate::identity::scopes::{Scope, Scopes};
use crate::webhook::Webhook;
use capstan_engine::ports::TenantRules;
use capstan_engine::settings::Limits;

/// A key as it is stored: its SHA-256. Keys are long and random, so a plain hash is enough.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Reads 64 hex digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if hex.len() != 64 {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// The 64 hex digits that [`from_hex`](Self::from_hex) reads.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn matches(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// A key of a tenant, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantKey {
    /// The key.
    pub hash: KeyHash,
    /// What it may do.
    pub scopes: Scopes,
}

impl From<KeyHash> for TenantKey {
    /// A key with all scopes.
    fn from(hash: KeyHash) -> Self {
        Self { hash, scopes: Scopes::ALL }
    }
}

/// A tenant and its keys; several, so that they can be rotated.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The tenant's name.
    pub name: String,
    /// Its keys.
    pub keys: Vec<TenantKey>,
    /// Nothing of its streams and sessions may be stored. They live in memory, and end with the
    /// process.
    pub no_store: bool,
    /// How long its streams and sessions are stored, if not by the general rule.
    pub max_age: Option<Duration>,
    /// How many bytes of its streams are stored.
    pub max_bytes: Option<u64>,
    /// Tokens per minute, if not the general limit. Zero means no limit.
    pub tokens_per_minute: Option<u64>,
    /// Tokens per day, if not the general limit. Zero means no limit.
    pub tokens_per_day: Option<u64>,
    /// Operators with the right `content` may see its content.
    pub console_content: bool,
    /// The receiver of its webhooks.
    pub webhook: Option<Webhook>,
    /// Receivers on private networks that its A2A clients may name for push notifications.
    pub push_origins: Vec<Origin>,
}

/// How long streams that are not stored stay in memory, unless the tenant has a rule of its own.
const UNSTORED_AGE: Duration = Duration::from_secs(15 * 60);

impl Tenant {
    /// Creates a tenant with the general rules. Each of its keys may do everything.
    pub fn new(name: impl Into<String>, keys: Vec<KeyHash>) -> Self {
        let keys = keys.into_iter().map(TenantKey::from).collect();
        Self {
            name: name.into(),
            keys,
            no_store: false,
            max_age: None,
            max_bytes: None,
            tokens_per_minute: None,
            tokens_per_day: None,
            console_content: true,
            webhook: None,
            push_origins: Vec::new(),
        }
    }
}

impl Tenant {
    /// The tenant's own retention rule, if it differs from the general one.
    fn retention(&self, for_all: &Retention, unstored_bytes: u64) -> Option<TenantRetention> {
        let usual = if self.no_store { for_all.max_age.min(UNSTORED_AGE) } else { for_all.max_age };
        let max_age = self.max_age.unwrap_or(usual);
        // Drop the oldest streams before the limit is reached, so that there is room for new ones.
        let room = Some(unstored_bytes / 2).filter(|_| self.no_store);
        let max_bytes = self.max_bytes.into_iter().chain(room).min();
        let is_own = max_age != for_all.max_age || max_bytes.is_some();
        is_own.then_some(TenantRetention { max_age, max_bytes })
    }
}

/// The suffix of the name under which a tenant's deliveries are stored.
const DELIVERIES: &str = "\u{b7}deliveries";

/// The name under which a tenant's deliveries are stored.
pub fn deliveries_of(tenant: &str) -> String {
    format!("{tenant}{DELIVERIES}")
}

/// The tenant that owns the records under this name.
pub fn owner_of(name: &str) -> &str {
    name.strip_suffix(DELIVERIES).unwrap_or(name)
}

/// The tenants of a gateway. A handle, cheap to clone. Its holder can replace the tenants while the
/// gateway runs.
#[derive(Debug, Clone, Default)]
pub struct Tenants(Arc<RwLock<Arc<[Tenant]>>>);

impl From<Vec<Tenant>> for Tenants {
    fn from(tenants: Vec<Tenant>) -> Self {
        Self(Arc::new(RwLock::new(tenants.into())))
    }
}

impl Tenants {
    /// Replaces the tenants. Present requests keep the rules with which they were admitted.
    pub fn replace(&self, tenants: Vec<Tenant>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tenants.into();
    }

    /// The present tenants.
    pub fn current(&self) -> Arc<[Tenant]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are no tenants. Then everything belongs to one tenant, and only this machine
    /// may send requests.
    pub fn is_empty(&self) -> bool {
        self.current().is_empty()
    }

    /// Finds a tenant by its name. A tenant that only tokens name has no rules of its own.
    pub fn named(&self, name: &str) -> Tenant {
        let (tenants, name) = (self.current(), owner_of(name));
        let known = tenants.iter().find(|tenant| tenant.name == name);
        known.cloned().unwrap_or_else(|| Tenant::new(name, Vec::new()))
    }

    /// Whether nothing of this tenant may be stored.
    pub fn is_unstored(&self, name: &str) -> bool {
        let name = owner_of(name);
        self.current().iter().any(|tenant| tenant.no_store && tenant.name == name)
    }

    /// The retention rules, with those of single tenants.
    pub fn retention(&self, for_all: &Retention, unstored_bytes: u64) -> Retention {
        let tenants = self.current();
        let own =
            tenants.iter().filter_map(|t| Some((&t.name, t.retention(for_all, unstored_bytes)?)));
        let own = own.flat_map(|(name, own)| [(name.clone(), own), (deliveries_of(name), own)]);
        Retention { tenants: own.collect(), ..for_all.clone() }
    }

    /// Finds the tenant of a key. All keys are compared, so that the time reveals nothing.
    pub fn holder_of(&self, key: &str) -> Option<(String, TenantKey)> {
        let (presented, tenants) = (KeyHash::of(key), self.current());
        let mut found = None;
        for tenant in tenants.iter() {
            for known in &tenant.keys {
                if bool::from(known.hash.matches(&presented)) {
                    found = Some((tenant, known));
                }
            }
        }
        found.map(|(tenant, key)| (tenant.name.clone(), key.clone()))
    }

    /// Whether a tenant of this name exists.
    pub fn has(&self, name: &str) -> bool {
        self.current().iter().any(|tenant| tenant.name == name)
    }

    /// The receiver of a tenant's webhooks.
    pub fn webhook_of(&self, name: &str) -> Option<Webhook> {
        self.current().iter().find(|tenant| tenant.name == name)?.webhook.clone()
    }

    /// Whether clients of a tenant may send push notifications to this URL on a private network.
    pub fn allows_push_to(&self, name: &str, url: &str) -> bool {
        Origin::of_url(url).is_some_and(|origin| self.named(name).push_origins.contains(&origin))
    }

    /// The keys of a tenant that have the scope `read`.
    pub fn reading_keys_of(&self, name: &str) -> Vec<KeyHash> {
        let tenants = self.current();
        let keys =
            tenants.iter().filter(|tenant| tenant.name == name).flat_map(|tenant| &tenant.keys);
        keys.filter(|key| key.scopes.has(Scope::Read)).map(|key| key.hash.clone()).collect()
    }
}

impl TenantRules for Tenants {
    fn quota(&self, tenant: &str, limits: &Limits) -> Quota {
        quota(limits, &self.named(tenant))
    }

    fn retention(&self, usual: &Retention, limits: &Limits) -> Retention {
        Tenants::retention(self, usual, limits.unstored_bytes_per_tenant)
    }
}

/// The quota of a tenant, which the journal checks. Where the settings say zero, there is no limit.
fn quota(limits: &Limits, tenant: &Tenant) -> Quota {
    let some = |most: u64| Some(most).filter(|most| *most > 0);
    let bytes = some(limits.bytes_per_tenant);
    let unstored = Some(limits.unstored_bytes_per_tenant).filter(|_| tenant.no_store);
    Quota {
        per_minute: NonZeroU32::new(limits.requests_per_minute),
        running: Some(limits.runs_per_tenant as u64),
        waiting: Some(limits.waiting_per_tenant as u64),
        sessions: some(limits.sessions),
        messages_per_session: Some(limits.messages_per_session as u64),
        bytes_per_session: Some(limits.bytes_per_session),
        bytes: bytes.into_iter().chain(unstored).min(),
        tokens_per_minute: some(tenant.tokens_per_minute.unwrap_or(limits.tokens_per_minute)),
        tokens_per_day: some(tenant.tokens_per_day.unwrap_or(limits.tokens_per_day)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_hash_reads_and_writes_hex_and_hides_itself() {
        let hash = KeyHash::of("sk_test");
        assert_eq!(KeyHash::from_hex(&hash.to_hex()), Some(hash.clone()));
        assert_eq!(KeyHash::from_hex("zz"), None);
        assert_eq!(format!("{hash:?}"), "KeyHash(…)");
    }

    #[test]
    fn each_of_a_tenants_keys_opens_until_the_tenants_are_replaced() {
        let tenants =
            Tenants::from(vec![Tenant::new("a", vec![KeyHash::of("old"), KeyHash::of("new")])]);
        let name = |key: &str| tenants.holder_of(key).map(|(tenant, _)| tenant);
        assert_eq!(
            (name("old"), name("new"), name("")),
            (Some("a".into()), Some("a".into()), None)
        );
        tenants.clone().replace(vec![Tenant::new("a", vec![KeyHash::of("new")])]);
        assert_eq!((name("old"), name("new")), (None, Some("a".into())));
    }

    #[test]
    fn a_tenants_retention_wins_and_unstored_runs_expire_soon() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let plain = Tenant::new("plain", vec![]);
        let own =
            Tenant { max_age: Some(minutes(60)), max_bytes: Some(7), ..Tenant::new("own", vec![]) };
        let brief = Tenant { no_store: true, ..Tenant::new("brief", vec![]) };
        let longer =
            Tenant { no_store: true, max_age: Some(minutes(90)), ..Tenant::new("longer", vec![]) };
        let tenants = Tenants::from(vec![plain, own, brief, longer]);
        let found = tenants.retention(&Retention::default(), 100);
        let rules: Vec<_> =
            found.tenants.iter().map(|(n, r)| (n.as_str(), r.max_age, r.max_bytes)).collect();
        // Deliveries have the rule of their tenant.
        let expected = [
            ("brief", minutes(15), Some(50)),
            ("brief·deliveries", minutes(15), Some(50)),
            ("longer", minutes(90), Some(50)),
            ("longer·deliveries", minutes(90), Some(50)),
            ("own", minutes(60), Some(7)),
            ("own·deliveries", minutes(60), Some(7)),
        ];
        assert_eq!(rules, expected);
        assert!(
            tenants.is_unstored("brief")
                && !tenants.is_unstored("own")
                && !tenants.is_unstored("nobody")
        );
    }
}

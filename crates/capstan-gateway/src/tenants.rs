//! Tenants and their keys. They can be replaced while the gateway runs; it keeps hashes, never a key.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

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

    fn matches(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// A tenant and its keys; several, so that they can be rotated.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The tenant's name.
    pub name: String,
    /// Its keys.
    pub keys: Vec<KeyHash>,
}

impl Tenant {
    /// A tenant with everything optional left as it is for all.
    pub fn new(name: impl Into<String>, keys: Vec<KeyHash>) -> Self {
        Self { name: name.into(), keys }
    }
}

/// Who may use a gateway: a handle, cheap to clone. Whoever holds one can replace the tenants while it serves.
#[derive(Debug, Clone, Default)]
pub struct Tenants(Arc<RwLock<Arc<[Tenant]>>>);

impl From<Vec<Tenant>> for Tenants {
    fn from(tenants: Vec<Tenant>) -> Self {
        Self(Arc::new(RwLock::new(tenants.into())))
    }
}

impl Tenants {
    /// From here on these are the tenants. Requests under way keep what they were admitted with.
    pub fn replace(&self, tenants: Vec<Tenant>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tenants.into();
    }

    /// The tenants of this moment.
    pub fn current(&self) -> Arc<[Tenant]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there is none: then everything belongs to one, and only this machine may ask.
    pub fn is_empty(&self) -> bool {
        self.current().is_empty()
    }

    /// Whose key this is. Every key is compared, found or not, so that the time tells nothing.
    pub(crate) fn holder_of(&self, key: &str) -> Option<Tenant> {
        let (presented, tenants) = (KeyHash::of(key), self.current());
        let mut found = None;
        for tenant in tenants.iter() {
            for known in &tenant.keys {
                if bool::from(known.matches(&presented)) {
                    found = Some(tenant);
                }
            }
        }
        found.cloned()
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
        let tenants = Tenants::from(vec![Tenant::new("a", vec![KeyHash::of("old"), KeyHash::of("new")])]);
        let name = |key: &str| tenants.holder_of(key).map(|tenant| tenant.name);
        assert_eq!((name("old"), name("new"), name("")), (Some("a".into()), Some("a".into()), None));
        tenants.clone().replace(vec![Tenant::new("a", vec![KeyHash::of("new")])]);
        assert_eq!((name("old"), name("new")), (None, Some("a".into())));
    }
}

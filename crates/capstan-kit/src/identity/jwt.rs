//! Checks JSON Web Tokens, which callers may use instead of keys. The public key decides the
//! algorithm, never the token. Keys are fetched in advance, so no request waits for them.

mod signatures;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use capstan_protocol::{Fault, FaultKind, Timestamp};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::identity::caller::LOCAL;
use crate::identity::scopes::{Scope, Scopes};
use crate::identity::tenants::{KeyHash, Tenants};

/// The longest token.
const LONGEST_TOKEN: usize = 8 * 1024;
/// The longest name of a tenant that only tokens name.
const LONGEST_TENANT: usize = 64;
/// The most bytes of a set of keys, and the most keys of it.
pub const MOST_KEY_BYTES: usize = 256 * 1024;
const MOST_KEYS: usize = 100;

/// The tenants that tokens may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenTenants {
    /// Configured tenants only.
    Configured,
    /// Any tenant, up to this many different ones during the life of the process.
    Any(usize),
}

/// The rules for tokens.
#[derive(Debug, Clone)]
pub struct JwtRules {
    /// The issuer that tokens must have.
    pub issuer: String,
    /// The audiences. A token must have one of them.
    pub audience: Vec<String>,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// How much the clocks may differ, five minutes at most.
    pub leeway: Duration,
    /// The tenants that tokens may name.
    pub tenants: TokenTenants,
    /// Whether a token without scopes may do nothing. Otherwise it may do everything.
    pub require_scopes: bool,
}

/// The largest difference between clocks.
pub const LONGEST_LEEWAY: Duration = Duration::from_secs(300);

/// Checks tokens. A handle, cheap to clone. Its holder can replace the keys while the gateway runs.
#[derive(Clone)]
pub struct Jwt(Arc<Shared>);

struct Shared {
    rules: JwtRules,
    keys: RwLock<Arc<[CheckingKey]>>,
    /// Notified when a token names an unknown key.
    wanted: Notify,
    /// The tenants that only tokens have named so far.
    named: Mutex<HashSet<String>>,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Jwt").field(&self.0.rules).finish()
    }
}

/// A public key, and its one algorithm.
struct CheckingKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The keys of an issuer, as it publishes them (RFC 7517).
pub struct KeySet(Vec<CheckingKey>);

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySet({})", self.0.len())
    }
}

impl KeySet {
    /// Parses a key set. It ignores keys that are not for signatures of a known kind, and refuses a
    /// set without a usable key.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        if text.len() > MOST_KEY_BYTES {
            return Err(format!("a set of keys has at most {MOST_KEY_BYTES} bytes"));
        }
        let set: Set =
            serde_json::from_slice(text).map_err(|_| "this is not a JSON Web Key Set")?;
        if set.keys.len() > MOST_KEYS {
            return Err(format!("a set of keys has at most {MOST_KEYS} of them"));
        }
        let read = |key: Value| checking(&serde_json::from_value(key).ok()?);
        let keys: Vec<CheckingKey> = set.keys.into_iter().filter_map(read).collect();
        if keys.is_empty() {
            return Err("the set has no public key for RS256, PS256, ES256 or EdDSA".into());
        }
        Ok(Self(keys))
    }

    /// How many keys the set has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Always false, because a set without keys is refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn checking(jwk: &Jwk) -> Option<CheckingKey> {
    let algorithm = algorithm(jwk)?;
    let is_for_signatures = !matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption));
    let key = DecodingKey::from_jwk(jwk).ok().filter(|_| is_for_signatures)?;
    Some(CheckingKey { id: jwk.common.key_id.clone(), algorithm, key })
}

/// The one algorithm of a key: the one that it names, if its kind allows it, else the default of
/// its kind. Shared secrets are refused, because everybody who can check with them can sign.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let named = jwk.common.key_algorithm;
    match (&jwk.algorithm, named) {
        (AlgorithmParameters::RSA(_), None | Some(KeyAlgorithm::RS256)) => Some(Algorithm::RS256),
        (AlgorithmParameters::RSA(_), Some(KeyAlgorithm::PS256)) => Some(Algorithm::PS256),
        (AlgorithmParameters::EllipticCurve(key), None | Some(KeyAlgorithm::ES256)) => {
            (key.curve == EllipticCurve::P256).then_some(Algorithm::ES256)
        }
        (AlgorithmParameters::OctetKeyPair(key), None | Some(KeyAlgorithm::EdDSA)) => {
            (key.curve == EllipticCurve::Ed25519).then_some(Algorithm::EdDSA)
        }
        _ => None,
    }
}

/// The claims of a valid token.
#[derive(Debug)]
pub struct Claims {
    pub tenant: String,
    pub scopes: Scopes,
    /// The subject, by which logs identify the holder.
    pub subject: KeyHash,
}

/// Whether this looks like a token, with three parts.
pub fn is_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Jwt {
    /// Creates a checker with these rules and keys. Without keys it refuses all tokens until it
    /// gets some.
    pub fn new(rules: JwtRules, keys: Option<KeySet>) -> Self {
        signatures::install();
        let keys = RwLock::new(keys.map_or_else(Vec::new, |set| set.0).into());
        Self(Arc::new(Shared { rules, keys, wanted: Notify::new(), named: Mutex::default() }))
    }

    /// Replaces the keys.
    pub fn replace(&self, keys: KeySet) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.0.into();
    }

    /// Returns when a token has named an unknown key. The caller decides how soon to fetch the keys
    /// again.
    pub async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// Whether tokens may name tenants that are not configured.
    pub fn takes_any_tenant(&self) -> bool {
        matches!(self.0.rules.tenants, TokenTenants::Any(_))
    }

    /// The key to which tickets of token holders are bound. They become invalid when the rules
    /// change.
    pub fn ticket_key(&self) -> KeyHash {
        let JwtRules { issuer, audience, .. } = &self.0.rules;
        KeyHash::of(&format!("jwt {issuer} {}", audience.join(" ")))
    }

    /// Checks a token at a time. Returns its claims, or why it is refused.
    pub fn check(&self, token: &str, tenants: &Tenants, now: Timestamp) -> Result<Claims, Fault> {
        let unfit = || refused("The token is not one that this server takes.");
        if token.len() > LONGEST_TOKEN {
            return Err(unfit());
        }
        let head = jsonwebtoken::decode_header(token).map_err(|_| unfit())?;
        // A token with critical extensions must be refused by a server that does not understand
        // them, and this one understands none.
        if head.crit.is_some() {
            return Err(unfit());
        }
        let named = head.kid;
        let keys = Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner));
        let Some(key) = find(&keys, named.as_deref()) else {
            self.0.wanted.notify_one();
            return Err(unfit());
        };
        let checked = jsonwebtoken::decode(token, &key.key, &self.validation(key.algorithm));
        let claims: Map<String, Value> = checked.map_err(|error| fault_of(error.kind()))?.claims;
        self.check_time(&claims, now)?;
        Ok(Claims {
            tenant: self.tenant(&claims, tenants)?,
            scopes: scopes(&claims, self.0.rules.require_scopes),
            subject: subject(&claims),
        })
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let rules = &self.0.rules;
        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&[&rules.issuer]);
        validation.set_audience(&rules.audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Compare with the gateway's clock, which the JWT crate does not know.
        validation.validate_exp = false;
        validation
    }

    /// Checks the validity period. The fault for an expired token says so, because its holder can
    /// get a new one.
    fn check_time(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<(), Fault> {
        let (now, leeway) =
            (now.as_micros() as f64 / 1e6, self.0.rules.leeway.min(LONGEST_LEEWAY).as_secs_f64());
        let again = |why| Err(Fault::new(FaultKind::TenantRequired).with_message(why));
        let Some(end) = claims.get("exp").and_then(Value::as_f64) else {
            return Err(refused("The token lacks one of exp, iss and aud."));
        };
        if now > end + leeway {
            return again("The token has expired.");
        }
        match claims.get("nbf").map(Value::as_f64) {
            None => Ok(()),
            Some(Some(begin)) if now + leeway >= begin => Ok(()),
            Some(Some(_)) => again("The token is not valid yet."),
            Some(None) => Err(refused("The token's nbf is no time.")),
        }
    }

    fn tenant(&self, claims: &Map<String, Value>, tenants: &Tenants) -> Result<String, Fault> {
        let claim = &self.0.rules.tenant_claim;
        let name = claims.get(claim).and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err(refused("The token names no tenant."));
        }
        let is_known = tenants.has(name) || self.takes(name);
        is_known
            .then(|| name.to_owned())
            .ok_or_else(|| refused("The token's tenant is not a tenant of this server."))
    }

    /// Whether tokens may introduce this tenant, and the limit is not reached.
    fn takes(&self, name: &str) -> bool {
        let TokenTenants::Any(most) = self.0.rules.tenants else { return false };
        // Data of a gateway without tenants must not become visible to a token.
        if name == LOCAL {
            return false;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.len() > LONGEST_TENANT || !name.chars().all(is_plain) {
            return false;
        }
        let mut named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.contains(name) || (named.len() < most && named.insert(name.to_owned()))
    }
}

/// Finds the key of a token. A token that names no key is checked with the only key, if there is
/// just one.
fn find<'a>(keys: &'a [CheckingKey], named: Option<&str>) -> Option<&'a CheckingKey> {
    match (named, keys) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(id), _) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
    }
}

fn refused(why: &str) -> Fault {
    Fault::new(FaultKind::TenantUnauthorized).with_message(why)
}

/// The fault for a refused token.
// Any other error of the crate, also of a later version, is a refusal.
#[allow(clippy::wildcard_enum_match_arm)]
fn fault_of(error: &ErrorKind) -> Fault {
    match error {
        ErrorKind::InvalidIssuer => refused("The token is of another issuer."),
        ErrorKind::InvalidAudience => refused("The token is for another audience."),
        ErrorKind::MissingRequiredClaim(_) => refused("The token lacks one of exp, iss and aud."),
        _ => refused("The token is not one that this server takes."),
    }
}

/// Reads `scope`, a string with words as in OAuth, or `scp`, which may be a list. Unknown words
/// belong to other services and are ignored.
fn scopes(claims: &Map<String, Value>, is_required: bool) -> Scopes {
    let of_words = |words: &str| words.split(' ').filter_map(Scope::of_word).collect::<Vec<_>>();
    match claims.get("scope").or_else(|| claims.get("scp")) {
        Some(Value::String(words)) => of_words(words).into_iter().collect(),
        Some(Value::Array(list)) => {
            list.iter().filter_map(Value::as_str).flat_map(of_words).collect()
        }
        None if !is_required => Scopes::ALL,
        _ => Scopes::NONE,
    }
}

fn subject(claims: &Map<String, Value>) -> KeyHash {
    let word = |name| claims.get(name).and_then(Value::as_str).unwrap_or_default();
    KeyHash::of(&format!("{} {}", word("iss"), word("sub")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn algorithm_of(jwk: Value) -> Option<Algorithm> {
        algorithm(&serde_json::from_value(jwk).unwrap())
    }

    #[test]
    fn a_key_says_its_one_algorithm_and_a_secret_is_none() {
        let rsa = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        let with = |key: &Value, alg: &str| {
            let mut key = key.clone();
            key["alg"] = json!(alg);
            key
        };
        assert_eq!(algorithm_of(rsa.clone()), Some(Algorithm::RS256));
        assert_eq!(algorithm_of(with(&rsa, "PS256")), Some(Algorithm::PS256));
        assert_eq!(algorithm_of(with(&rsa, "HS256")), None);
        assert_eq!(algorithm_of(with(&rsa, "RS512")), None);
        let curve = |crv: &str| json!({ "kty": "EC", "crv": crv, "x": "AQAB", "y": "AQAB" });
        assert_eq!(algorithm_of(curve("P-256")), Some(Algorithm::ES256));
        assert_eq!(algorithm_of(curve("P-384")), None);
        let edwards = json!({ "kty": "OKP", "crv": "Ed25519", "x": "AQAB" });
        assert_eq!(algorithm_of(edwards.clone()), Some(Algorithm::EdDSA));
        assert_eq!(algorithm_of(with(&edwards, "RS256")), None);
        assert_eq!(algorithm_of(json!({ "kty": "oct", "k": "AQAB" })), None);
    }

    #[test]
    fn a_set_is_bounded_and_needs_a_key_of_use() {
        let secret = json!({ "keys": [{ "kty": "oct", "k": "AQAB" }] }).to_string();
        assert!(KeySet::parse(secret.as_bytes()).unwrap_err().contains("no public key"));
        assert!(KeySet::parse(&vec![b' '; MOST_KEY_BYTES + 1]).unwrap_err().contains("bytes"));
        let key = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        let many = json!({ "keys": vec![&key; MOST_KEYS + 1] }).to_string();
        assert!(KeySet::parse(many.as_bytes()).unwrap_err().contains("at most"));
        let odd = json!({ "keys": [{ "kty": "new" }, { "use": "enc", "kty": "RSA", "n": "AQAB",
        "e": "AQAB" }, key] });
        assert_eq!(KeySet::parse(odd.to_string().as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn scopes_come_as_words_or_as_a_list_and_are_all_if_none_are_asked_for() {
        let of = |claims: Value| scopes(claims.as_object().unwrap(), false);
        let read: Scopes = [Scope::Read].into_iter().collect();
        assert_eq!(of(json!({ "scope": "openid read" })), read);
        assert_eq!(of(json!({ "scp": ["read", "email"] })), read);
        assert_eq!(of(json!({ "scope": "" })), Scopes::NONE);
        assert_eq!(of(json!({ "scope": 7 })), Scopes::NONE);
        assert_eq!(of(json!({})), Scopes::ALL);
        assert_eq!(scopes(&Map::new(), true), Scopes::NONE);
    }

    #[test]
    fn tenants_that_tokens_bring_are_bounded_in_number_and_length() {
        let rules = JwtRules {
            issuer: "i".into(),
            audience: vec!["a".into()],
            tenant_claim: "tenant".into(),
            leeway: Duration::ZERO,
            tenants: TokenTenants::Any(2),
            require_scopes: false,
        };
        let jwt = Jwt::new(rules, None);
        assert!(jwt.takes("a") && jwt.takes("b") && jwt.takes("a"));
        assert!(!jwt.takes("c") && !jwt.takes(&"a".repeat(65)) && !jwt.takes("a b"));
    }
}

//! Operators look after the gateway. Their keys are not keys of tenants, and they cannot start
//! runs.

use std::sync::{Arc, PoisonError, RwLock};

use schemars::JsonSchema;
use serde::Serialize;

use crate::identity::tenants::KeyHash;

/// A right of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// See times, sizes and codes of runs, and the metrics.
    Look,
    /// See the content of runs.
    Content,
    /// Stop and erase runs.
    Act,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 3] = [Self::Look, Self::Content, Self::Act];

    /// The right's name in configuration files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Content => "content",
            Self::Act => "act",
        }
    }

    /// Finds a right by its name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.word() == word)
    }
}

/// Means every tenant.
pub const EVERY_TENANT: &str = "*";

/// An operator.
#[derive(Debug, Clone)]
pub struct Operator {
    /// The operator's name in the audit.
    pub name: String,
    /// Its keys.
    pub keys: Vec<KeyHash>,
    /// The tenants that the operator looks after, or [`EVERY_TENANT`].
    pub tenants: Vec<String>,
    /// What it may do.
    pub may: Vec<Right>,
}

impl Operator {
    /// Whether the operator has this right.
    pub fn may(&self, right: Right) -> bool {
        self.may.contains(&right)
    }

    /// Whether the operator has this right for a tenant.
    pub fn may_to(&self, right: Right, tenant: &str) -> bool {
        self.may(right) && self.tenants.iter().any(|known| known == tenant || known == EVERY_TENANT)
    }
}

/// The operators of a gateway. A handle, cheap to clone. Its holder can replace them while the
/// gateway runs.
#[derive(Debug, Clone, Default)]
pub struct Operators(Arc<RwLock<Arc<[Operator]>>>);

impl From<Vec<Operator>> for Operators {
    fn from(operators: Vec<Operator>) -> Self {
        Self(Arc::new(RwLock::new(operators.into())))
    }
}

impl Operators {
    /// Replaces the operators.
    pub fn replace(&self, operators: Vec<Operator>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = operators.into();
    }

    /// The present operators.
    pub fn current(&self) -> Arc<[Operator]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds the operator of a key. The result has only this key, so that the audit can name it.
    /// All keys are compared, so that the time reveals nothing.
    pub fn holder_of(&self, key: &str) -> Option<Operator> {
        let (presented, operators) = (KeyHash::of(key), self.current());
        let mut found = None;
        for operator in operators.iter() {
            for known in &operator.keys {
                if bool::from(known.matches(&presented)) {
                    found = Some((operator, known));
                }
            }
        }
        found.map(|(operator, shown)| Operator { keys: vec![shown.clone()], ..operator.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_known_by_the_key_that_it_showed() {
        let keys = ["old", "new"].map(KeyHash::of).to_vec();
        let ada = Operator { name: "ada".into(), keys, tenants: Vec::new(), may: Vec::new() };
        let operators = Operators::from(vec![ada]);
        assert_eq!(operators.holder_of("new").unwrap().keys, [KeyHash::of("new")]);
        assert_eq!(operators.holder_of("old").unwrap().keys, [KeyHash::of("old")]);
    }

    #[test]
    fn an_operator_has_its_rights_for_its_tenants_only() {
        let (keys, may) = (vec![KeyHash::of("k")], vec![Right::Look]);
        let some = Operator { name: "ada".into(), keys, tenants: vec!["acme".into()], may };
        assert!(some.may_to(Right::Look, "acme") && !some.may_to(Right::Look, "other"));
        assert!(!some.may_to(Right::Content, "acme") && !some.may(Right::Act));
        let all = Operator { tenants: vec![EVERY_TENANT.into()], ..some };
        let operators = Operators::from(vec![all]);
        assert!(
            operators.holder_of("k").is_some_and(|operator| operator.may_to(Right::Look, "other"))
        );
        assert!(operators.holder_of("").is_none() && operators.holder_of("kk").is_none());
        operators.clone().replace(Vec::new());
        assert!(operators.holder_of("k").is_none());
    }
}

//! Names in the index. They are keyed hashes, so that a tenant's text is only in its own records.

use capstan_journal::NameKind;
use sha2::{Digest as _, Sha256};

/// 128 bits of SHA-256 over salt, kind, tenant and name.
pub(crate) type Name = [u8; 16];

/// Names that a search for runs of all tenants uses.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GlobalKey {
    RequestId,
    TraceId,
    Fault,
}

/// Hashes the names of one folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) salt: [u8; 16],
}

impl Names {
    /// Hashes a name within a tenant.
    pub(crate) fn of(&self, tenant: &str, kind: NameKind, name: &str) -> Name {
        let kind = match kind {
            NameKind::Key => 1,
            NameKind::Session => 2,
            NameKind::RequestId => 3,
            NameKind::Chat => 4,
            NameKind::BodyHash => 5,
        };
        self.hash(kind, tenant, name)
    }

    /// Hashes a name that is not bound to a tenant.
    pub(crate) fn global_key(&self, global_key: GlobalKey, name: &str) -> Name {
        let kind = match global_key {
            GlobalKey::RequestId => 6,
            GlobalKey::TraceId => 7,
            GlobalKey::Fault => 8,
        };
        self.hash(kind, "", name)
    }

    pub(crate) fn tenant(&self, tenant: &str) -> Name {
        self.hash(0, tenant, "")
    }

    fn hash(&self, kind: u8, tenant: &str, name: &str) -> Name {
        let mut hash = Sha256::new();
        hash.update(self.salt);
        hash.update([kind]);
        // Include the length, so that two different pairs never have the same bytes.
        hash.update((tenant.len() as u64).to_le_bytes());
        hash.update(tenant);
        hash.update(name);
        let whole: [u8; 32] = hash.finalize().into();
        std::array::from_fn(|at| whole.get(at).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_names_are_unique() {
        let names = Names { salt: [1; 16] };
        let all = [
            names.of("a", NameKind::Key, "bc"),
            names.of("ab", NameKind::Key, "c"),
            names.of("a", NameKind::Session, "bc"),
            names.global_key(GlobalKey::RequestId, "abc"),
            names.global_key(GlobalKey::TraceId, "abc"),
            names.global_key(GlobalKey::Fault, "abc"),
            names.tenant("a"),
            names.tenant("abc"),
            Names { salt: [2; 16] }.tenant("a"),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}

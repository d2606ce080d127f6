//! Names as the journal files them: keyed hashes, so that no word of a tenant lies anywhere but in
//! its own record.

use capstan_journal::NameKind;
use sha2::{Digest as _, Sha256};

/// 128 bits of SHA-256 over salt, kind, tenant and name.
pub(crate) type Name = [u8; 16];

/// What is asked for without a tenant, by whoever looks after all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clue {
    RequestId,
    TraceId,
    Fault,
}

/// Makes names of one folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) salt: [u8; 16],
}

impl Names {
    /// What a tenant calls something.
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

    /// By what runs of any tenant are found.
    pub(crate) fn clue(&self, clue: Clue, name: &str) -> Name {
        let kind = match clue {
            Clue::RequestId => 6,
            Clue::TraceId => 7,
            Clue::Fault => 8,
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
        // With its length, so that no two pairs are the same bytes.
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
            names.clue(Clue::RequestId, "abc"),
            names.clue(Clue::TraceId, "abc"),
            names.clue(Clue::Fault, "abc"),
            names.tenant("a"),
            names.tenant("abc"),
            Names { salt: [2; 16] }.tenant("a"),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}

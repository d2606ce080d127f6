//! A secret of a store, for signatures that every process with this store can verify.

use std::fmt;
use std::io;

/// 32 random bytes. Debug output does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; Secret::LEN]);

impl Secret {
    /// Its length in bytes.
    pub const LEN: usize = 32;

    /// Creates a secret from the system's random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; Self::LEN];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Reads a stored secret; `None` if its length is wrong.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes, as a signing key.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

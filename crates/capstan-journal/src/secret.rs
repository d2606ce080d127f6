//! A secret that belongs to a store, for signing what every process that uses the store must be
//! able to check.

use std::fmt;
use std::io;

/// 32 random bytes. They show themselves to nobody who does not ask for them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; Secret::LEN]);

impl Secret {
    /// Its length in bytes.
    pub const LEN: usize = 32;

    /// A new one, from the operating system.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; Self::LEN];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// One that was stored; `None` if it has another length.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes, to sign with.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

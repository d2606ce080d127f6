//! Sessions and their turns.

use async_trait::async_trait;

use super::{Layer, found};
use crate::{Result, StoredTurn, Usage};

/// Some turns of a session, from a number on, in order.
#[derive(Debug, Clone, Copy)]
pub struct TurnRange<'a> {
    /// Whose session it is.
    pub tenant: &'a str,
    /// Its name.
    pub session: &'a str,
    /// The number to begin with.
    pub from: u64,
    /// At most so many.
    pub limit: usize,
    /// And so many bytes, as the turns take them in the store; but at least one turn.
    pub max_bytes: usize,
}

impl<'a> TurnRange<'a> {
    /// Every turn.
    pub fn all(tenant: &'a str, session: &'a str) -> Self {
        Self { tenant, session, from: 0, limit: usize::MAX, max_bytes: usize::MAX }
    }
}

/// Sessions and their turns.
#[async_trait]
pub trait Sessions: Layer {
    /// Turns of a session, in order.
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        found(self.below())?.turns(range).await
    }

    /// How many turns a session has; it costs no look at them.
    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        found(self.below())?.turn_count(tenant, session).await
    }

    /// Whether the tenant has this session.
    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        found(self.below())?.has_session(tenant, session).await
    }

    /// How many sessions a tenant has. A session begins with its first claim or turn.
    async fn sessions(&self, tenant: &str) -> Result<u64> {
        found(self.below())?.sessions(tenant).await
    }

    /// What a tenant has, and one session of it, as far as it is written: what claims are measured
    /// by.
    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        found(self.below())?.usage(tenant, session).await
    }

    /// Erases a session and its turns for good, as `purge` does; its streams are left. False if the
    /// tenant has no such session.
    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        found(self.below())?.purge_session(tenant, session).await
    }
}

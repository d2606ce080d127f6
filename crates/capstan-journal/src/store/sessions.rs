//! Sessions and their turns.

use async_trait::async_trait;

use super::{Layer, found};
use crate::{Result, StoredTurn, Usage};

/// A query for turns of a session, in order of their numbers.
#[derive(Debug, Clone, Copy)]
pub struct TurnRange<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The session's name.
    pub session: &'a str,
    /// The first number.
    pub from: u64,
    /// The most turns.
    pub limit: usize,
    /// The most bytes, as stored; but at least one turn is returned.
    pub max_bytes: usize,
}

impl<'a> TurnRange<'a> {
    /// A query for all turns.
    pub fn all(tenant: &'a str, session: &'a str) -> Self {
        Self { tenant, session, from: 0, limit: usize::MAX, max_bytes: usize::MAX }
    }
}

/// Sessions and their turns.
#[async_trait]
pub trait Sessions: Layer {
    /// The turns of a session, in order.
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        found(self.below())?.turns(range).await
    }

    /// The number of a session's turns. It does not read them.
    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        found(self.below())?.turn_count(tenant, session).await
    }

    /// Whether the tenant has this session.
    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        found(self.below())?.has_session(tenant, session).await
    }

    /// The number of a tenant's sessions. A session begins with its first claim or turn.
    async fn sessions(&self, tenant: &str) -> Result<u64> {
        found(self.below())?.sessions(tenant).await
    }

    /// The usage of a tenant and of one session, which the store compares with quotas.
    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        found(self.below())?.usage(tenant, session).await
    }

    /// Erases a session and its turns like `purge`, but not its streams. False if the session does
    /// not exist.
    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        found(self.below())?.purge_session(tenant, session).await
    }
}

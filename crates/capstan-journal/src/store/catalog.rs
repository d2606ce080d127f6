//! Lists of runs.

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Layer, found};
use crate::backend::rules;
use crate::{NameKind, Query, Result, Rollup, Run, RunPage};

/// A query for a tenant's runs with a name, newest first.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The kind of the name.
    pub kind: NameKind,
    /// The name.
    pub name: &'a str,
    /// Only streams before this one.
    pub before: Option<Uuid>,
    /// The most results.
    pub limit: usize,
}

impl<'a> Named<'a> {
    /// A query for all runs with the name.
    pub fn all(tenant: &'a str, kind: NameKind, name: &'a str) -> Self {
        Self { tenant, kind, name, before: None, limit: usize::MAX }
    }
}

/// Lists of runs, runs that need work, and rollups.
#[async_trait]
pub trait Catalog: Layer {
    /// A tenant's runs before `before`, newest first.
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        found(self.below())?.list(tenant, before, limit).await
    }

    /// A tenant's runs with a name.
    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        found(self.below())?.named(named).await
    }

    /// A page of runs of one or several tenants, newest first. It stays within the query's budget
    /// and reports how far it searched. It uses few concurrent reads, so that readers of streams
    /// need not wait.
    async fn page(&self, query: Query) -> Result<RunPage> {
        found(self.below())?.page(query).await
    }

    /// Takes over running runs without an owner. In a store of one process these are all running
    /// runs, so call it before the first claim.
    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        found(self.below())?.orphans(limit).await
    }

    /// Waiting runs whose next attempt a gateway has to start.
    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>> {
        Ok(rules::unarmed(self.open_runs().await?, limit))
    }

    /// Waiting runs that have not changed since `before`.
    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        found(self.below())?.waiting(before, limit).await
    }

    /// All open runs, of all tenants.
    async fn open_runs(&self) -> Result<Vec<Run>> {
        found(self.below())?.open_runs().await
    }

    /// Adds to the rollups of this process. A crash may lose the latest ones.
    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<()> {
        found(self.below())?.add_rollups(rollups).await
    }

    /// The rollups of all processes between two hours, both included. They are kept for 30 days.
    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>> {
        found(self.below())?.rollups(from, to).await
    }
}

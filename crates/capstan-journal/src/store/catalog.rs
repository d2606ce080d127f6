//! Looking through runs.

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Layer, found};
use crate::backend::rules;
use crate::{NameKind, Query, Result, Rollup, Run, RunPage};

/// A tenant's runs with a name, newest first.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Whose runs.
    pub tenant: &'a str,
    /// What kind of name.
    pub kind: NameKind,
    /// The name.
    pub name: &'a str,
    /// Only older ones.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: usize,
}

impl<'a> Named<'a> {
    /// Every run with the name.
    pub fn all(tenant: &'a str, kind: NameKind, name: &'a str) -> Self {
        Self { tenant, kind, name, before: None, limit: usize::MAX }
    }
}

/// Lists of runs, what is to be done with them, and what was counted of them.
#[async_trait]
pub trait Catalog: Layer {
    /// A tenant's runs, newest first, older than `before`.
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        found(self.below())?.list(tenant, before, limit).await
    }

    /// A tenant's runs with a name.
    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        found(self.below())?.named(named).await
    }

    /// A page of runs, of several tenants or of all, newest first: within the query's budget, and
    /// with a word on how far it looked. It takes few of the store's reads at once, so that nobody
    /// who reads a stream waits for it.
    async fn page(&self, query: Query) -> Result<RunPage> {
        found(self.below())?.page(query).await
    }

    /// Runs that run and whose process is gone, now this process's to end. Where only one process
    /// can use the store these are all that run, so it is to be asked before the first claim.
    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        found(self.below())?.orphans(limit).await
    }

    /// Runs that wait for a gateway, any gateway, to go on with them.
    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>> {
        Ok(rules::unarmed(self.open_runs().await?, limit))
    }

    /// Runs that wait and have not changed since `before`.
    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        found(self.below())?.waiting(before, limit).await
    }

    /// All runs that run or wait, of all tenants.
    async fn open_runs(&self) -> Result<Vec<Run>> {
        found(self.below())?.open_runs().await
    }

    /// Adds what was counted to what this process has counted before. Numbers for people: a crash
    /// may lose the latest.
    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<()> {
        found(self.below())?.add_rollups(rollups).await
    }

    /// What was counted from an hour up to another, both included, by all processes; kept for 30
    /// days.
    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>> {
        found(self.below())?.rollups(from, to).await
    }
}

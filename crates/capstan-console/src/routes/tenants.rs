//! The usage of tenants, and their limits.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use capstan_journal::RollupKey;
use schemars::JsonSchema;
use serde::Serialize;

use super::numbers::{DAY, FAULTS_OF_ANY, before};
use crate::Console;
use crate::visitor::Visitor;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};
use capstan_kit::refusal::Refusal;

/// The most tenants in the answer.
const MOST_TENANTS: usize = 200;

/// The tenants with their usage and limits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantTable {
    pub(crate) tenants: Vec<TenantDetails>,
}

/// A tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantDetails {
    pub(crate) name: String,
    pub(crate) runs: Use,
    pub(crate) responses: Use,
    /// Runs that began in this minute, in this process.
    pub(crate) requests_per_minute: Use,
    pub(crate) sessions: Use,
    pub(crate) bytes: Use,
    pub(crate) tokens_today: Use,
    pub(crate) retention: TenantKept,
    pub(crate) no_store: bool,
    /// Refused requests of the last day by code, in this process.
    pub(crate) refusals: BTreeMap<String, u64>,
}

/// A usage and its limit; null if there is no limit.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Use {
    pub(crate) used: u64,
    pub(crate) limit: Option<u64>,
}

/// What the journal stores for the tenant.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantKept {
    pub(crate) max_age_seconds: f64,
    pub(crate) max_bytes: Option<u64>,
}

pub(crate) const TENANTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "List tenants with their use of quotas",
    says: "The visible tenants, 200 at most.",
    answers: &[Answer::ok("The tenants.", &[Content::Json(model::<TenantTable>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn tenants(
    State(console): State<Console>,
    visitor: Visitor,
) -> Result<Json<TenantTable>, Refusal> {
    let mut tenants = Vec::new();
    for name in visitor.known_tenants(&console).into_iter().take(MOST_TENANTS) {
        tenants.push(used_by(&console, name).await?);
    }
    Ok(Json(TenantTable { tenants }))
}

async fn used_by(console: &Console, name: String) -> Result<TenantDetails, Refusal> {
    let (limits, now) = (&console.engine.settings().limits, console.engine.now());
    let (usage, quota) =
        (console.engine.store().usage(&name, "").await?, console.engine.quota_of(&name));
    let retention = console
        .cx
        .tenants
        .retention(&console.engine.settings().retention, limits.unstored_bytes_per_tenant);
    let own = retention.tenants.get(&name);
    let today = now.as_micros().div_euclid(DAY * 1_000_000);
    let tokens = if usage.tokens.day.window >= today { usage.tokens.day.tokens } else { 0 };
    let of = |used: u64, limit: Option<u64>| Use { used, limit };
    let mut refusals = BTreeMap::<String, u64>::new();
    let is_own = |key: &RollupKey| key.is_fault && key.tenant == name;
    console.memory.rollups.since(before(now, DAY), now, is_own, |_, key, counts| {
        if counts.refused > 0 {
            *refusals.entry(key.code.clone()).or_default() += counts.refused;
        }
    });
    Ok(TenantDetails {
        runs: of(usage.running, quota.running),
        responses: of(
            console.engine.readers_of(&name) as u64,
            Some(limits.readers_per_tenant as u64),
        ),
        requests_per_minute: of(
            console.memory.rollups.begun_by(&name, now),
            quota.per_minute.map(|most| most.get().into()),
        ),
        sessions: of(usage.sessions, quota.sessions),
        bytes: of(
            usage.bytes,
            own.and_then(|own| own.max_bytes).into_iter().chain(quota.bytes).min(),
        ),
        tokens_today: of(tokens, quota.tokens_per_day),
        retention: TenantKept {
            max_age_seconds: own.map_or(retention.max_age, |own| own.max_age).as_secs_f64(),
            max_bytes: own.and_then(|own| own.max_bytes),
        },
        no_store: console.cx.tenants.is_unstored(&name),
        refusals,
        name,
    })
}

//! Numbers: what needs somebody, what fails most, what each agent and tenant does. And what happens, as it happens.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use capstan_agent::{BreakerState, Work};
use capstan_journal::{Counts, Rollup, RollupKey, Status};
use capstan_protocol::{CATALOGUE, FaultKind, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::about;
use crate::answers::ReplicaList;
use crate::app::{App, Registered};
use crate::console::attention::{self, Attention};
use crate::console::feed::{self, FeedEvent};
use crate::console::rollups::percentile;
use crate::console::visitor::Visitor;
use crate::openapi::{Answer, Content, Row, Tag, model};
use crate::query::Query;
use crate::refusal::Refusal;
use crate::routes::replicas::listed;

const FAULTS_OF_ANY: &[FaultKind] = &[FaultKind::RouteNotFound, FaultKind::JournalUnavailable];
const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// Tenants that are told of.
const MOST_TENANTS: usize = 200;

fn before(now: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(seconds.saturating_mul(1_000_000)))
}

fn sees(visitor: &Visitor, key: &RollupKey) -> bool {
    if key.tenant.is_empty() { visitor.tenants().is_none() } else { visitor.sees(&key.tenant) }
}

fn title_of(code: &str) -> Option<&'static str> {
    CATALOGUE.iter().find(|entry| entry.code == code).map(|entry| entry.title)
}

/// What to look at first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    pub(crate) attention: Vec<Attention>,
    /// What failed most in the last hour, five at most.
    pub(crate) faults: Vec<TopFault>,
}

/// A fault and the agent that met it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TopFault {
    pub(crate) code: String,
    pub(crate) title: Option<&'static str>,
    /// Empty for requests that were refused.
    pub(crate) agent: String,
    pub(crate) count: u64,
}

pub(crate) const OVERVIEW: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "What needs somebody",
    says: "Runs that are silent, overdue, tried again, or whose process is gone, each with a sentence; and what failed most in the last \
        hour in this process.",
    answers: &[Answer::ok("The overview.", &[Content::Json(model::<Overview>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn overview(State(app): State<App>, visitor: Visitor) -> Result<Json<Overview>, Refusal> {
    let attention = attention::of(&app, &visitor).await?;
    let now = app.wall.now();
    let mut counts = HashMap::<(String, String), u64>::new();
    let is_seen = |key: &RollupKey| key.is_fault && sees(&visitor, key);
    app.console.rollups.since(before(now, HOUR), now, is_seen, |_, key, found| {
        *counts.entry((key.code.clone(), key.agent.clone())).or_default() += all_faults(found);
    });
    let mut faults: Vec<_> = counts
        .into_iter()
        .map(|((code, agent), count)| TopFault { title: title_of(&code), code, agent, count })
        .collect();
    faults.sort_by(|a, b| (b.count, &a.code, &a.agent).cmp(&(a.count, &b.code, &b.agent)));
    faults.truncate(5);
    Ok(Json(Overview { attention, faults }))
}

fn all_faults(counts: &Counts) -> u64 {
    counts.fatal.saturating_add(counts.healed).saturating_add(counts.refused)
}

/// Faults in sight of the last so many seconds.
pub(super) fn faults_lately(app: &App, visitor: &Visitor, seconds: i64) -> u64 {
    let (now, mut sum) = (app.wall.now(), 0_u64);
    let is_seen = |key: &RollupKey| key.is_fault && sees(visitor, key);
    app.console.rollups.since(before(now, seconds), now, is_seen, |_, _, counts| sum += all_faults(counts));
    sum
}

/// Runs in sight that met a fault in the last hour.
pub(super) fn met_lately(app: &App, visitor: &Visitor, code: &str) -> u64 {
    let (now, mut sum) = (app.wall.now(), 0_u64);
    let is_seen = |key: &RollupKey| key.is_fault && key.code == code && sees(visitor, key);
    app.console.rollups.since(before(now, HOUR), now, is_seen, |_, _, counts| {
        sum += counts.fatal + counts.healed;
    });
    sum
}

/// From when, until when.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FaultParams {
    /// A day ago unless said.
    since: Option<Timestamp>,
    /// Now unless said.
    until: Option<Timestamp>,
}

/// What failed, by code and agent, and over time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FaultTable {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// 60 for a day at most, of this process; 3600 beyond, of all.
    pub(crate) step_seconds: i64,
    pub(crate) cells: Vec<FaultCell>,
    pub(crate) series: Vec<FaultStep>,
    /// Runs that ended in this time.
    pub(crate) runs_total: u64,
}

/// A fault and an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FaultCell {
    pub(crate) code: String,
    pub(crate) title: Option<&'static str>,
    /// Empty for requests that were refused.
    pub(crate) agent: String,
    /// They ended a run.
    pub(crate) fatal: u64,
    /// Their run went on.
    pub(crate) healed: u64,
    /// Requests that were refused.
    pub(crate) refused: u64,
}

/// A moment.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FaultStep {
    pub(crate) at: Timestamp,
    pub(crate) fatal: u64,
    pub(crate) healed: u64,
    pub(crate) refused: u64,
}

pub(crate) const FAULTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "What fails",
    says: "Faults by code and agent, and over time: by the minute for a day, by the hour for thirty. Faults count when their run ends.",
    query: Some(FaultParams::json_schema),
    answers: &[Answer::ok("The table.", &[Content::Json(model::<FaultTable>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

#[derive(Default)]
struct Sums {
    cells: BTreeMap<(String, String), Counts>,
    series: BTreeMap<i64, Counts>,
    runs: u64,
}

impl Sums {
    fn add(&mut self, at: Timestamp, key: &RollupKey, counts: &Counts) {
        if !key.is_fault {
            self.runs += counts.runs;
            return;
        }
        self.cells.entry((key.code.clone(), key.agent.clone())).or_default().add(counts);
        self.series.entry(at.as_micros()).or_default().add(counts);
    }
}

pub(crate) async fn faults(
    State(app): State<App>,
    visitor: Visitor,
    Query(params): Query<FaultParams>,
) -> Result<Json<FaultTable>, Refusal> {
    let to = params.until.unwrap_or_else(|| app.wall.now());
    let from = params.since.unwrap_or_else(|| before(to, DAY));
    let is_recent = from >= before(app.wall.now(), DAY + MINUTE);
    let mut sums = Sums::default();
    if is_recent {
        let is_seen = |key: &RollupKey| sees(&visitor, key);
        app.console.rollups.since(from, to, is_seen, |at, key, counts| sums.add(at, key, counts));
    } else {
        let rows = app.journal.store().rollups(Rollup::hour_of(from), Rollup::hour_of(to)).await?;
        for row in rows.iter().filter(|row| sees(&visitor, &row.key)) {
            sums.add(Rollup::time_of(row.hour), &row.key, &row.counts);
        }
    }
    let Sums { cells, series, runs } = sums;
    let cell = |((code, agent), counts): ((String, String), Counts)| {
        let Counts { fatal, healed, refused, .. } = counts;
        FaultCell { title: title_of(&code), code, agent, fatal, healed, refused }
    };
    let step = |(at, counts): (i64, Counts)| {
        let Counts { fatal, healed, refused, .. } = counts;
        FaultStep { at: Timestamp::from_micros(at), fatal, healed, refused }
    };
    Ok(Json(FaultTable {
        from,
        to,
        step_seconds: if is_recent { MINUTE } else { HOUR },
        cells: cells.into_iter().map(cell).collect(),
        series: series.into_iter().map(step).collect(),
        runs_total: runs,
    }))
}

/// The agents, and how they do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentTable {
    /// The default one first.
    pub(crate) agents: Vec<AgentDetails>,
}

/// An agent: what it is, and how its runs of the last day ended in this process.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentDetails {
    pub(crate) name: String,
    /// `local`, `agent` or `model`.
    pub(crate) kind: &'static str,
    pub(crate) provider: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    pub(crate) max_attempts: u32,
    /// In seconds.
    pub(crate) timeouts: AgentTimeouts,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) first_packet_ms: Percentiles,
    pub(crate) attempts_per_run: Option<f64>,
    pub(crate) calls_per_attempt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_success_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_fault: Option<LastFault>,
    /// Of a route: those that it asks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<Member>,
}

/// What is waited for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentTimeouts {
    pub(crate) run: f64,
    pub(crate) idle: f64,
}

/// How runs ended.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Outcomes {
    pub(crate) done: u64,
    pub(crate) healed: u64,
    pub(crate) failed: u64,
    pub(crate) stopped: u64,
}

/// Times that so many in a hundred did not exceed, about; null if there were none.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Percentiles {
    pub(crate) p50: Option<u64>,
    pub(crate) p95: Option<u64>,
}

/// The last failure.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LastFault {
    pub(crate) code: String,
    pub(crate) at: Timestamp,
}

/// A member of a route.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// `closed`: it is called; `half_open`: it is probed; `open`: it is not called.
    pub(crate) breaker: &'static str,
}

pub(crate) const AGENTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "How the agents do",
    says: "What each is, its limits, and how its runs of the last day ended, in sight and in this process.",
    answers: &[Answer::ok("The agents.", &[Content::Json(model::<AgentTable>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn agents(State(app): State<App>, visitor: Visitor) -> Json<AgentTable> {
    let (now, mut sums) = (app.wall.now(), HashMap::<String, (Outcomes, Counts)>::new());
    let is_seen = |key: &RollupKey| !key.is_fault && sees(&visitor, key);
    app.console.rollups.since(before(now, DAY), now, is_seen, |_, key, counts| {
        let (outcomes, sum) = sums.entry(key.agent.clone()).or_default();
        sum.add(counts);
        match Status::of_word(&key.code) {
            Some(Status::Done) => outcomes.done += counts.runs,
            Some(Status::Healed) => outcomes.healed += counts.runs,
            Some(Status::Failed) => outcomes.failed += counts.runs,
            Some(Status::Stopped) => outcomes.stopped += counts.runs,
            Some(Status::Running | Status::Waiting) | None => {}
        }
    });
    let open = app.console.live.by_agent(|tenant| visitor.sees(tenant));
    let default = app.default_agent().map(|agent| agent.id);
    let mut known: Vec<_> = app.agents().collect();
    known.sort_by_key(|agent| (Some(agent.id) != default, agent.name.clone()));
    let agents = known.into_iter().map(|agent| {
        let sum = sums.remove(&*agent.name).unwrap_or_default();
        let open = open.get(&*agent.name).copied().unwrap_or_default();
        described(&app, &visitor, agent, open, sum)
    });
    Json(AgentTable { agents: agents.collect() })
}

fn described(
    app: &App,
    visitor: &Visitor,
    agent: &Registered,
    (running, waiting): (u64, u64),
    (outcomes, sum): (Outcomes, Counts),
) -> AgentDetails {
    let about = agent.agent.about();
    let timeouts = &app.settings.timeouts;
    // What an agent did last may have been somebody else's run.
    let latest = Some(app.console.rollups.latest_of(&agent.name)).filter(|_| visitor.tenants().is_none());
    let latest = latest.unwrap_or_default();
    #[allow(clippy::cast_precision_loss)]
    let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
    AgentDetails {
        name: agent.name.to_string(),
        kind: match about.work {
            Work::Local => "local",
            Work::Agent => "agent",
            Work::Chat => "model",
        },
        provider: about.provider,
        model: about.model,
        max_attempts: agent.agent.max_attempts(),
        timeouts: AgentTimeouts { run: timeouts.run.as_secs_f64(), idle: timeouts.idle.as_secs_f64() },
        running,
        waiting,
        outcomes,
        first_packet_ms: Percentiles {
            p50: percentile(&sum.first_packet, 50),
            p95: percentile(&sum.first_packet, 95),
        },
        attempts_per_run: ratio(sum.attempts, sum.runs),
        calls_per_attempt: ratio(sum.calls, sum.attempts),
        last_success_at: latest.success,
        last_fault: latest.fault.map(|(code, at)| LastFault { code, at }),
        members: agent
            .agent
            .members()
            .into_iter()
            .map(|member| Member { name: member.name.to_string(), breaker: breaker(member.breaker) })
            .collect(),
    }
}

fn breaker(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "half_open",
        BreakerState::Open => "open",
    }
}

/// The tenants, and what they use of what they may.
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
    /// Runs begun in this minute, in this process.
    pub(crate) requests_per_minute: Use,
    pub(crate) sessions: Use,
    pub(crate) bytes: Use,
    pub(crate) tokens_today: Use,
    pub(crate) retention: TenantKept,
    pub(crate) no_store: bool,
    /// Requests of the last day that were refused, by code, in this process.
    pub(crate) refusals: BTreeMap<String, u64>,
}

/// How much of how much; no limit if null.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Use {
    pub(crate) used: u64,
    pub(crate) limit: Option<u64>,
}

/// What is kept.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TenantKept {
    pub(crate) max_age_seconds: f64,
    pub(crate) max_bytes: Option<u64>,
}

pub(crate) const TENANTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "What tenants use of what they may",
    says: "Those in sight, 200 at most.",
    answers: &[Answer::ok("The tenants.", &[Content::Json(model::<TenantTable>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn tenants(State(app): State<App>, visitor: Visitor) -> Result<Json<TenantTable>, Refusal> {
    let mut tenants = Vec::new();
    for name in visitor.known_tenants(&app).into_iter().take(MOST_TENANTS) {
        tenants.push(used_by(&app, name).await?);
    }
    Ok(Json(TenantTable { tenants }))
}

async fn used_by(app: &App, name: String) -> Result<TenantDetails, Refusal> {
    let (limits, now) = (&app.settings.limits, app.wall.now());
    let (usage, quota) = (app.journal.store().usage(&name, "").await?, app.quota_of(&name));
    let retention = app.settings.tenants.retention(&app.settings.retention, limits.unstored_bytes_per_tenant);
    let kept = retention.tenants.get(&name);
    let today = now.as_micros().div_euclid(DAY * 1_000_000);
    let tokens = if usage.tokens.day.window >= today { usage.tokens.day.tokens } else { 0 };
    let of = |used: u64, limit: Option<u64>| Use { used, limit };
    let mut refusals = BTreeMap::<String, u64>::new();
    let is_own = |key: &RollupKey| key.is_fault && key.tenant == name;
    app.console.rollups.since(before(now, DAY), now, is_own, |_, key, counts| {
        if counts.refused > 0 {
            *refusals.entry(key.code.clone()).or_default() += counts.refused;
        }
    });
    Ok(TenantDetails {
        runs: of(usage.running, quota.running),
        responses: of(app.limiter.readers_of(&name) as u64, Some(limits.readers_per_tenant as u64)),
        requests_per_minute: of(
            app.console.rollups.begun_by(&name, now),
            quota.per_minute.map(|most| most.get().into()),
        ),
        sessions: of(usage.sessions, quota.sessions),
        bytes: of(usage.bytes, kept.and_then(|kept| kept.max_bytes).into_iter().chain(quota.bytes).min()),
        tokens_today: of(tokens, quota.tokens_per_day),
        retention: TenantKept {
            max_age_seconds: kept.map_or(retention.max_age, |kept| kept.max_age).as_secs_f64(),
            max_bytes: kept.and_then(|kept| kept.max_bytes),
        },
        no_store: app.settings.tenants.is_unstored(&name),
        refusals,
        name,
    })
}

pub(crate) const REPLICAS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "The processes that share the journal",
    says: "As `GET /v1/replicas` tells it; for those who see the server.",
    answers: &[Answer::ok("The oldest lease first.", &[Content::Json(model::<ReplicaList>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn replicas(State(app): State<App>, visitor: Visitor) -> Result<Json<ReplicaList>, Refusal> {
    if !visitor.sees_server() {
        return Err(FaultKind::RouteNotFound.into());
    }
    let replicas = app.journal.store().replicas().await?;
    Ok(Json(ReplicaList { replicas: replicas.into_iter().map(listed).collect() }))
}

pub(crate) const EVENTS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "What happens, as it happens",
    says: "Server-sent events of this process, for those in sight: `run` when one began, failed in an attempt, waits, was armed or closed; \
        `refused`; `state` at the beginning and when the server drains; `lagged` if some were missed, after which one asks anew. A comment \
        every 15 seconds. Twenty may listen at once.",
    answers: &[Answer::ok("The events.", &[Content::Events(model::<FeedEvent>)])],
    faults: &[FaultKind::RouteNotFound, FaultKind::ServiceUnavailable, FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) async fn events(State(app): State<App>, visitor: Visitor) -> Result<Response, Refusal> {
    let health = about::line(&app, &visitor).await?;
    Ok(feed::respond(&app, visitor, &health)?)
}

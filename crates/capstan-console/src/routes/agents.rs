//! The agents, and how their runs ended.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use capstan_agent::{BreakerState, Work};
use capstan_journal::{Counts, RollupKey, Status};
use capstan_protocol::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::numbers::{DAY, FAULTS_OF_ANY, HOUR, before, sees};
use crate::Console;
use crate::rollups::percentile;
use crate::visitor::Visitor;
use capstan_engine::Registered;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};

/// The agents, and the results of their runs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentTable {
    /// The default agent first.
    pub(crate) agents: Vec<AgentDetails>,
}

/// An agent, and how its runs of the last day ended in this process.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentDetails {
    pub(crate) name: String,
    /// `local`, `agent` or `model`.
    pub(crate) kind: &'static str,
    pub(crate) provider: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// The host of its upstream, for visitors who may see the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// Whether that host gets a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_set: Option<bool>,
    pub(crate) max_attempts: u32,
    /// The timeouts, in seconds.
    pub(crate) timeouts: AgentTimeouts,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) first_packet_ms: Percentiles,
    /// The same for the last hour, for comparison.
    pub(crate) first_packet_ms_lately: Percentiles,
    pub(crate) attempts_per_run: Option<f64>,
    pub(crate) calls_per_attempt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_success_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_fault: Option<LastFault>,
    /// The members, if the agent is a route.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<Member>,
}

/// The timeouts of an agent.
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

/// The counts of an agent.
#[derive(Default)]
struct Sums {
    outcomes: Outcomes,
    day: Counts,
    hour: Counts,
}

/// Approximate percentiles; null if there were no values.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Percentiles {
    pub(crate) p50: Option<u64>,
    pub(crate) p95: Option<u64>,
}

impl Percentiles {
    fn of(counts: &Counts) -> Self {
        Self {
            p50: percentile(&counts.first_packet, 50),
            p95: percentile(&counts.first_packet, 95),
        }
    }
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
    summary: "List the agents",
    says: "Each agent, its limits, and how its visible runs of the last day ended in this process.",
    answers: &[Answer::ok("The agents.", &[Content::Json(model::<AgentTable>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn agents(State(console): State<Console>, visitor: Visitor) -> Json<AgentTable> {
    let (now, mut sums) = (console.engine.now(), HashMap::<String, Sums>::new());
    let is_seen = |key: &RollupKey| !key.is_fault && sees(&visitor, key);
    console.memory.rollups.since(before(now, DAY), now, is_seen, |at, key, counts| {
        let Sums { outcomes, day, hour } = sums.entry(key.agent.clone()).or_default();
        day.add(counts);
        if at >= before(now, HOUR) {
            hour.add(counts);
        }
        match Status::of_word(&key.code) {
            Some(Status::Done) => outcomes.done += counts.runs,
            Some(Status::Healed) => outcomes.healed += counts.runs,
            Some(Status::Failed) => outcomes.failed += counts.runs,
            Some(Status::Stopped) => outcomes.stopped += counts.runs,
            Some(Status::Running | Status::Waiting) | None => {}
        }
    });
    let open = console.engine.open_runs_by_agent(|tenant| visitor.sees(tenant));
    let default = console.engine.default_agent().map(|agent| agent.id);
    let mut known: Vec<_> = console.engine.agents().collect();
    known.sort_by_key(|agent| (Some(agent.id) != default, agent.name.clone()));
    let agents = known.into_iter().map(|agent| {
        let sum = sums.remove(&*agent.name).unwrap_or_default();
        let open = open.get(&*agent.name).copied().unwrap_or_default();
        described(&console, &visitor, agent, open, sum)
    });
    Json(AgentTable { agents: agents.collect() })
}

fn described(
    console: &Console,
    visitor: &Visitor,
    agent: &Registered,
    (running, waiting): (u64, u64),
    Sums { outcomes, day, hour }: Sums,
) -> AgentDetails {
    let about = agent.agent.about();
    // Tenants do not see how the server reaches its upstreams.
    let endpoint = agent.agent.endpoint().filter(|_| visitor.sees_server());
    let timeouts = &console.engine.settings().timeouts;
    // An agent's last failure may belong to another tenant's run.
    let latest =
        Some(console.memory.rollups.latest_of(&agent.name)).filter(|_| visitor.tenants().is_none());
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
        key_set: endpoint.as_ref().map(|endpoint| endpoint.has_key),
        host: endpoint.map(|endpoint| endpoint.host),
        max_attempts: agent.agent.max_attempts(),
        timeouts: AgentTimeouts {
            run: timeouts.run.as_secs_f64(),
            idle: timeouts.idle.as_secs_f64(),
        },
        running,
        waiting,
        outcomes,
        first_packet_ms: Percentiles::of(&day),
        first_packet_ms_lately: Percentiles::of(&hour),
        attempts_per_run: ratio(day.attempts, day.runs),
        calls_per_attempt: ratio(day.calls, day.attempts),
        last_success_at: latest.success,
        last_fault: latest.fault.map(|(code, at)| LastFault { code, at }),
        members: agent
            .agent
            .members()
            .into_iter()
            .map(|member| Member {
                name: member.name.to_string(),
                breaker: breaker(member.breaker),
            })
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

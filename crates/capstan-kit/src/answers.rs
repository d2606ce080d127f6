//! The JSON objects of responses. Their doc comments become descriptions in `/openapi.json`.

use std::time::Duration;

use capstan_engine::conversation::TurnRecord;
use capstan_engine::{Engine, cpu_offload};
use capstan_journal::{ReplicaState, Run, RunState, Standing, StoredTurn};
use capstan_protocol::{ChatMessage, StreamPacket, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::refusal::Refusal;

/// A run, without its body and its hash.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Stream<'a> {
    /// Its stream.
    stream_id: Uuid,
    /// The key under which it was started.
    request_id: &'a str,
    /// The agent's name.
    agent: &'a str,
    /// The conversation.
    session_id: &'a str,
    /// The run's state.
    state: RunState,
    /// The attempt under way, or the last one; 1 is the first.
    attempt: u32,
    /// The most attempts that the run may take.
    max_attempts: u32,
    /// The last packet's seq; 0 before the first.
    packets: u64,
    /// The length of all frames together.
    bytes: u64,
    /// When the request came.
    created_at: Timestamp,
    /// When the run last changed.
    updated_at: Timestamp,
    /// When the stream ended.
    closed_at: Option<Timestamp>,
    /// The next attempt does not start before this.
    not_before: Option<Timestamp>,
    /// The fault of the last attempt.
    fault: Option<&'a str>,
    /// The reason that CLOSE gives.
    reason: Option<&'a str>,
    /// The model that answered.
    model: Option<&'a str>,
    /// The usage that the agent reports.
    usage: Option<&'a Map<String, Value>>,
}

impl<'a> From<&'a Run> for Stream<'a> {
    fn from(run: &'a Run) -> Self {
        Self {
            stream_id: run.stream_id,
            request_id: &run.key,
            agent: &run.agent,
            session_id: &run.session,
            state: run.state,
            attempt: run.attempt,
            max_attempts: run.max_attempts,
            packets: run.last_seq,
            bytes: run.bytes,
            created_at: run.created_at,
            updated_at: run.updated_at,
            closed_at: run.closed_at,
            not_before: run.not_before,
            fault: run.fault.as_deref(),
            reason: run.reason.as_deref(),
            model: run.model.as_deref(),
            usage: run.usage.as_ref(),
        }
    }
}

/// A page of streams, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StreamPage<'a> {
    pub streams: Vec<Stream<'a>>,
    /// `before` of the next page, if there may be one.
    pub next: Option<Uuid>,
}

/// A page of packets, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PacketPage<'a> {
    pub stream: Stream<'a>,
    pub packets: Vec<StreamPacket>,
    /// `after` of the next page, if there are more packets.
    pub next: Option<u64>,
}

/// A read-only ticket for one stream.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StreamTicket<'a> {
    pub stream_id: Uuid,
    pub ticket: &'a str,
    /// When the ticket expires.
    pub expires_at: Timestamp,
    /// The URL that the ticket opens.
    pub url: String,
}

/// The stored turns of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Session<'a> {
    pub session_id: &'a str,
    /// Oldest first.
    pub turns: Vec<SessionTurn>,
    /// `from` of the next page, if there are more turns.
    pub next: Option<u64>,
}

/// What one run added to a conversation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionTurn {
    /// The stream of the run.
    pub stream_id: Uuid,
    /// The messages of the turn, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The questions that the run ended with, if they are still open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Value>,
    /// The run failed or was stopped: shown, but not sent to agents.
    pub partial: bool,
    /// When the run ended.
    pub closed_at: Timestamp,
}

/// An erased session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PurgedSession<'a> {
    pub session_id: &'a str,
    /// How many streams were erased with it.
    pub streams: usize,
}

/// The agents that there are.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AgentList<'a> {
    /// The default one first.
    pub agents: Vec<ListedAgent<'a>>,
}

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedAgent<'a> {
    /// The agent's name in paths.
    pub name: &'a str,
    /// The agent's id in `context.agent_id`.
    pub id: Uuid,
    /// Other names for it in paths and requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<&'a str>,
}

/// The processes that share the journal.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReplicaList {
    /// The oldest lease first.
    pub replicas: Vec<ListedReplica>,
}

/// A process that shares the journal.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedReplica {
    /// The id of the process's lease. It changes with a new lease.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The URL at which the others reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its version.
    pub version: String,
    /// Whether it accepts runs.
    pub state: Standing,
    /// Whether this process sent the response.
    pub is_self: bool,
    /// For how long it has had its lease.
    pub age_seconds: f64,
    /// The time since its last heartbeat.
    pub silent_seconds: f64,
    /// How many runs it works on.
    pub runs: u64,
    /// How many responses are open there, as of its last heartbeat. Absent if its build does not
    /// report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<u64>,
    /// The 95th percentile of its latest commits. Absent without a commit, or if its build does not
    /// report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_p95_ms: Option<f64>,
}

/// `output` of a run in one object.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunOutput<'a> {
    /// All of the text, after resets.
    pub text: String,
    /// The events, as they were written.
    pub events: Vec<Map<String, Value>>,
    pub stream_id: Uuid,
    /// The session.
    pub conversation_id: &'a str,
    /// How the stream was closed: a reason, or an object that holds one.
    pub close: Value,
}

/// `metrics` of a run in one object.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunMetrics<'a> {
    /// The usage that the agent reports.
    pub usage: Option<&'a Map<String, Value>>,
    /// The usage of each member of a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_by_member: Option<Value>,
    pub attempts: u32,
    /// Calls of upstreams, over all attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Value>,
    /// The member of a route that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<Value>,
}

/// Milliseconds, with microseconds as decimals.
pub fn millis(took: Duration) -> f64 {
    took.as_micros() as f64 / 1000.0
}

impl From<ReplicaState> for ListedReplica {
    fn from(replica: ReplicaState) -> Self {
        Self {
            id: replica.id,
            name: replica.name,
            url: replica.url,
            version: replica.version,
            state: replica.standing,
            is_self: replica.is_self,
            age_seconds: replica.age.as_secs_f64(),
            silent_seconds: replica.silent_for.as_secs_f64(),
            runs: replica.runs,
            responses: replica.load.map(|load| load.responses),
            append_p95_ms: replica.load.and_then(|load| load.append_p95).map(millis),
        }
    }
}

impl SessionTurn {
    /// Builds the turn of a response. It has questions only as long as nobody has answered them.
    pub async fn of(engine: &Engine, turn: StoredTurn) -> Result<Self, Refusal> {
        let (stream_id, closed_at, bytes) = (turn.stream_id, turn.closed_at, turn.said_bytes());
        let mut record = cpu_offload::run(bytes, || TurnRecord::of(turn));
        let (partial, mut interrupts) = (record.is_partial, std::mem::take(&mut record.interrupts));
        if !interrupts.is_empty() {
            let asked = engine.store().run(stream_id).await?.and_then(|run| run.asked);
            interrupts.retain(|_| asked.as_ref().is_some_and(|asked| asked.answered_by.is_none()));
        }
        let messages = cpu_offload::run(bytes, || record.into_messages());
        Ok(Self { stream_id, messages, interrupts, partial, closed_at })
    }
}

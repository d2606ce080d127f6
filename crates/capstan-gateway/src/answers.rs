//! The JSON objects that routes answer with. Their documentation is what `/openapi.json` says of
//! them.

use capstan_journal::{Run, RunState};
use capstan_protocol::{ChatMessage, StreamPacket, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// What may be said of a run: not its body, not its hash.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stream<'a> {
    /// Its stream.
    stream_id: Uuid,
    /// The key under which it was started.
    request_id: &'a str,
    /// The agent's name.
    agent: &'a str,
    /// The conversation.
    session_id: &'a str,
    /// Where it stands.
    state: RunState,
    /// The attempt under way, or the last one; 1 is the first.
    attempt: u32,
    /// How many attempts it may take.
    max_attempts: u32,
    /// The last packet's seq; 0 before the first.
    packets: u64,
    /// The length of all frames together.
    bytes: u64,
    /// When the request came.
    created_at: Timestamp,
    /// When anything last changed.
    updated_at: Timestamp,
    /// When the stream ended.
    closed_at: Option<Timestamp>,
    /// The next attempt does not start before this.
    not_before: Option<Timestamp>,
    /// The fault that the last attempt ended with.
    fault: Option<&'a str>,
    /// The reason that CLOSE gives.
    reason: Option<&'a str>,
    /// The model that answered.
    model: Option<&'a str>,
    /// What the run used, as the agent reports it.
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
pub(crate) struct StreamPage<'a> {
    pub(crate) streams: Vec<Stream<'a>>,
    /// `before` of the next page, if there may be one.
    pub(crate) next: Option<Uuid>,
}

/// A page of packets, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PacketPage<'a> {
    pub(crate) stream: Stream<'a>,
    pub(crate) packets: Vec<StreamPacket>,
    /// `after` of the next page, if there are more packets.
    pub(crate) next: Option<u64>,
}

/// A read-only ticket for one stream.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StreamTicket<'a> {
    pub(crate) stream_id: Uuid,
    pub(crate) ticket: &'a str,
    /// Until when it is valid.
    pub(crate) expires_at: Timestamp,
    /// What to open with it.
    pub(crate) url: String,
}

/// What a conversation remembers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Session<'a> {
    pub(crate) session_id: &'a str,
    /// Oldest first.
    pub(crate) turns: Vec<SessionTurn>,
    /// `from` of the next page, if there are more turns.
    pub(crate) next: Option<u64>,
}

/// What one run added to a conversation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionTurn {
    /// The stream of the run.
    pub(crate) stream_id: Uuid,
    /// What was asked, called, answered and said, oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// What the run ended by asking, if nobody has answered it yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) interrupts: Vec<Value>,
    /// The run failed or was stopped: shown, but not sent to agents.
    pub(crate) partial: bool,
    /// When the run ended.
    pub(crate) closed_at: Timestamp,
}

/// What was erased.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PurgedSession<'a> {
    pub(crate) session_id: &'a str,
    /// How many streams went with it.
    pub(crate) streams: usize,
}

/// The agents that there are.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentList<'a> {
    /// The default one first.
    pub(crate) agents: Vec<ListedAgent<'a>>,
}

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListedAgent<'a> {
    /// What stands in paths.
    pub(crate) name: &'a str,
    /// What `context.agent_id` may name.
    pub(crate) id: Uuid,
    /// Other names for it in paths and requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<&'a str>,
}

/// The processes that share the journal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReplicaList {
    /// The oldest lease first.
    pub(crate) replicas: Vec<ListedReplica>,
}

/// A process that shares the journal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListedReplica {
    /// Of its lease; another one if it had to begin a new one.
    pub(crate) id: Uuid,
    /// Its name.
    pub(crate) name: String,
    /// Where the others reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Its version.
    pub(crate) version: String,
    /// `live`, `draining`, or `gone`: others take over its runs.
    pub(crate) state: &'static str,
    /// Whether it is the one who answers.
    pub(crate) is_self: bool,
    /// For how long it has had its lease.
    pub(crate) age_seconds: f64,
    /// How long ago it gave its last sign of life.
    pub(crate) silent_seconds: f64,
    /// How many runs it works on.
    pub(crate) runs: u64,
    /// How many responses are open there, as of its last sign of life; absent of a build that does
    /// not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) responses: Option<u64>,
    /// 95 in a hundred of its latest commits took no longer; absent without one, or of a build that
    /// does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) append_p95_ms: Option<f64>,
}

/// `output` of a whole run in one object.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunOutput<'a> {
    /// All of the text, after resets.
    pub(crate) text: String,
    /// The events, as they were written.
    pub(crate) events: Vec<Map<String, Value>>,
    pub(crate) stream_id: Uuid,
    /// The session.
    pub(crate) conversation_id: &'a str,
    /// How the stream was closed: a reason, or an object that holds one.
    pub(crate) close: Value,
}

/// `metrics` of a whole run in one object.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunMetrics<'a> {
    /// What the run used, as the agent reports it.
    pub(crate) usage: Option<&'a Map<String, Value>>,
    /// The same by the members of a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage_by_member: Option<Value>,
    pub(crate) attempts: u32,
    /// Calls of upstreams, over all attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls: Option<Value>,
    /// The member of a route that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<Value>,
}

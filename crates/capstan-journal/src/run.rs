//! The types of a journal: runs, the claims that start them, their frames, and their sessions'
//! turns.

use bytes::Bytes;
use capstan_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A claim: one run for one key of one tenant. It is stored before the agent is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The tenant of the run.
    pub tenant: String,
    /// The idempotency key. The first claim of (tenant, key) wins.
    pub key: String,
    /// The id of the stream, a UUIDv7, so that ids are ordered by time.
    pub stream_id: Uuid,
    /// The agent's name.
    pub agent: String,
    /// The session.
    pub session: String,
    /// The protocol of the request.
    pub face: String,
    /// The hash of the canonical body. It tells a repeated request from a conflicting one.
    pub body_hash: [u8; 32],
    /// The body of the request, so that another process can make a later attempt.
    pub body: Bytes,
    /// The most attempts of the run.
    pub max_attempts: u32,
    /// Whether the client understands `stream_reset`.
    pub accepts_reset: bool,
    /// Whether the client collects the whole run before it shows anything.
    pub is_unseen: bool,
    /// The event types that the client listed, if it did.
    pub supported_events: Option<Vec<String>>,
    /// The stream of the run whose questions this request answers. Of several such claims the first
    /// wins.
    pub answers: Option<Uuid>,
    /// Who starts the next attempt after a failed one.
    pub armed_by: ArmedBy,
    /// When the request arrived.
    pub created_at: Timestamp,
    /// The number of the session's last turn in another store, if the session is split.
    pub turns_elsewhere: u64,
    /// The `X-Request-ID` of the request.
    pub request_id: Option<String>,
    /// The trace of the request.
    pub trace_id: Option<String>,
    /// The name of the caller's key in the log, if it used one.
    pub started_by: Option<String>,
    /// The process that owns the run, in a shared store.
    pub owner: Option<String>,
    /// The response that this one continues, for faces that chain responses.
    pub previous_response: Option<String>,
    /// The id of the chat, for faces that have one.
    pub chat: Option<String>,
    /// Whether the claim's caller also reads the run. Other processes learn of the reader together
    /// with the run. Later changes use [`crate::Cluster::mark_read`].
    pub is_read: bool,
}

impl Claim {
    /// Creates a claim with defaults: one attempt, no body, no capabilities.
    pub fn new(
        tenant: impl Into<String>,
        key: impl Into<String>,
        stream_id: Uuid,
        created_at: Timestamp,
    ) -> Self {
        Self {
            tenant: tenant.into(),
            key: key.into(),
            stream_id,
            agent: String::new(),
            session: String::new(),
            face: String::new(),
            body_hash: [0; 32],
            body: Bytes::new(),
            max_attempts: 1,
            accepts_reset: false,
            is_unseen: false,
            supported_events: None,
            answers: None,
            armed_by: ArmedBy::Client,
            created_at,
            turns_elsewhere: 0,
            request_id: None,
            trace_id: None,
            started_by: None,
            owner: None,
            previous_response: None,
            chat: None,
            is_read: false,
        }
    }

    /// The run that this claim starts: running, first attempt, no packets.
    pub fn to_run(&self) -> Run {
        let (request_id, trace_id) = (self.request_id.clone(), self.trace_id.clone());
        let first = Attempt { request_id, trace_id, ..Attempt::new(1, self.created_at) };
        Run {
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            stream_id: self.stream_id,
            agent: self.agent.clone(),
            session: self.session.clone(),
            face: self.face.clone(),
            body_hash: self.body_hash,
            max_attempts: self.max_attempts,
            accepts_reset: self.accepts_reset,
            is_unseen: self.is_unseen,
            supported_events: self.supported_events.clone(),
            armed_by: self.armed_by,
            created_at: self.created_at,
            state: RunState::Running,
            attempt: 1,
            not_before: None,
            updated_at: self.created_at,
            closed_at: None,
            last_seq: 0,
            bytes: 0,
            fault: None,
            reason: None,
            model: None,
            usage: None,
            tokens: 0,
            attempts: vec![first],
            request_id: self.request_id.clone(),
            trace_id: self.trace_id.clone(),
            started_by: self.started_by.clone(),
            turns_before: self.turns_elsewhere,
            owner: self.owner.clone(),
            far_id: None,
            asked: None,
            previous_response: self.previous_response.clone(),
            chat: self.chat.clone(),
            webhook: None,
            lost_after: None,
            viewers: None,
            sent_at: None,
            more: Map::new(),
        }
    }
}

/// Who starts the next attempt of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmedBy {
    /// The client, by repeating its request. Without a request the agent is not called again.
    #[default]
    Client,
    /// The gateway, because clients of this protocol never repeat a request.
    Gateway,
}

impl ArmedBy {
    fn is_client(&self) -> bool {
        *self == Self::Client
    }
}

/// The record of one attempt, for later analysis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attempt {
    /// Its number; 1 is the first.
    pub n: u32,
    /// When it began.
    pub began_at: Option<Timestamp>,
    /// When it wrote its first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_packet_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The seq of its first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<u64>,
    /// The seq of its last packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_seq: Option<u64>,
    /// The fault that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The severity of this fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// The `seq` of the packet with the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_seq: Option<u64>,
    /// The delay in seconds that the upstream asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// The `seq` to which it reset the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_to: Option<u64>,
    /// Bytes that it repeated from an earlier attempt, and that were not written again.
    #[serde(skip_serializing_if = "is_zero")]
    pub swallowed_bytes: u64,
    /// How it continued an answer that had broken off, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<ContinuedBy>,
    /// Its calls to upstreams.
    #[serde(skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The members of a route that it called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberUse>,
    /// Its usage, as the agent reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
    /// The `X-Request-ID` of the POST that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The trace of that POST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Members that a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How an attempt continues an answer that has broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContinuedBy {
    /// The model received the answer so far, and continued it.
    Prefill,
    /// A new call answered from the beginning, and the part that viewers had was left out.
    Comparison,
    /// A new call answered differently, and viewers were reset.
    Reset,
    /// The upstream had stored its stream, and sent the rest of it.
    UpstreamResume,
}

impl ContinuedBy {
    /// The name in records and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Comparison => "comparison",
            Self::Reset => "reset",
            Self::UpstreamResume => "upstream_resume",
        }
    }
}

/// An attempt's use of one member of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberUse {
    /// The member.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// The fault of its last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// It refused the call or could not be reached, so it cannot have begun any work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unreached: bool,
    /// Its usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
    /// Members that a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

// The only float is a delay in seconds, and never NaN.
impl Eq for Attempt {}

impl Attempt {
    /// The most attempts in a record: the first and the latest ones.
    pub const KEPT: usize = 32;

    /// An attempt that has begun.
    pub fn new(n: u32, began_at: Timestamp) -> Self {
        Self { n, began_at: Some(began_at), ..Self::default() }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The state of a run. The order is that of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// An attempt is running, or was when its process died.
    Running,
    /// The last attempt failed. The next POST with the key starts another.
    Waiting,
    /// The stream has ended, and the record does not change any more.
    Closed,
}

/// The record of a run. The store fills `last_seq` and `bytes` at every read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The tenant of the run.
    pub tenant: String,
    /// The idempotency key.
    pub key: String,
    /// The stream of the run.
    pub stream_id: Uuid,
    /// The agent's name.
    pub agent: String,
    /// The session.
    pub session: String,
    /// The protocol of the request.
    pub face: String,
    /// The hash of the canonical body.
    #[serde(with = "hex")]
    pub body_hash: [u8; 32],
    /// The most attempts of the run.
    pub max_attempts: u32,
    /// Whether the client understands `stream_reset`.
    pub accepts_reset: bool,
    /// Whether the client collects the whole run before it shows anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unseen: bool,
    /// The event types that the client listed, if it did.
    pub supported_events: Option<Vec<String>>,
    /// Who starts the next attempt.
    #[serde(default, skip_serializing_if = "ArmedBy::is_client")]
    pub armed_by: ArmedBy,
    /// When the request arrived.
    pub created_at: Timestamp,
    /// The state of the run.
    pub state: RunState,
    /// The running or last attempt; 1 is the first.
    pub attempt: u32,
    /// The next attempt starts at this time or later.
    pub not_before: Option<Timestamp>,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// When the stream ended.
    pub closed_at: Option<Timestamp>,
    /// The `seq` of the last frame; 0 before the first.
    pub last_seq: u64,
    /// The total bytes of all frames.
    pub bytes: u64,
    /// The fault that ended the last attempt.
    pub fault: Option<String>,
    /// The reason in its CLOSE packet.
    pub reason: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The usage of the run, as the agent reported it.
    pub usage: Option<Map<String, Value>>,
    /// The tokens of its ended attempts, as they count against a quota.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// The attempts, at most [`Attempt::KEPT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The `X-Request-ID` of the request that started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The trace of the request that started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The name of the caller's key in the log, if it used one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// The number of the session's last turn at the claim. The run sees no later turns. Set by the
    /// store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns_before: u64,
    /// The process that owns the run, in a shared store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The response that this one continues, for faces that chain responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_response: Option<String>,
    /// The id of the chat, for faces that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Where to deliver the end of the run, and the state of the delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Value>,
    /// A repair found damage after this packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<u64>,
    /// The id of the agent's remote work, which the agent can use to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_id: Option<String>,
    /// The questions with which the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Questions>,
    /// A summary of its viewers, as the process that ended it knew them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub viewers: Option<Viewers>,
    /// When its answer was last written completely to a client, for runs to which a repeated
    /// request may attach. Set by [`crate::Records::mark_sent`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// Members that a later build has added. They survive a rewrite by this one.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A summary of a run's viewers up to its end. Bytes that were written to a socket may not have
/// been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Viewers {
    /// How many viewers connected.
    pub joined: u64,
    /// How many of them resumed at a cursor.
    pub resumed: u64,
    /// How many came with a repeated request, in protocols without cursors.
    pub attached: u64,
    /// How many the server disconnected, because it stopped or could not read on.
    pub cut: u64,
    /// How many the server disconnected, because they did not read.
    pub stalled: u64,
    /// The highest `seq` that was written to one of them.
    pub last_cursor: u64,
}

/// The questions with which a run ended, and the run that answered them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    /// The id and the deadline of each question.
    pub questions: Vec<(String, Option<Timestamp>)>,
    /// The stream of the run whose claim had the answers.
    pub answered_by: Option<Uuid>,
    /// Members that a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Questions {
    /// Questions without an answer.
    pub fn new(questions: Vec<(String, Option<Timestamp>)>) -> Self {
        Self { questions, answered_by: None, more: Map::new() }
    }
}

impl Run {
    /// The hash of the body as 64 hexadecimal digits.
    pub fn body_hash_text(&self) -> String {
        self.body_hash.map(|byte| format!("{byte:02x}")).concat()
    }

    /// Whether more frames may follow.
    pub fn is_open(&self) -> bool {
        self.state != RunState::Closed
    }
}

/// An encoded frame of a stream. Clones share its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its number in the stream; the first is 1.
    pub seq: u64,
    /// The bytes as they are sent to clients.
    pub bytes: Bytes,
}

impl Frame {
    /// Creates a frame.
    pub fn new(seq: u64, bytes: impl Into<Bytes>) -> Self {
        Self { seq, bytes: bytes.into() }
    }
}

/// A turn: what a session stores of one run. The store numbers it and does not interpret its
/// content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredTurn {
    /// Its number in the session, from 1. The store sets it and never reuses one.
    #[serde(default)]
    pub number: u64,
    /// The run's stream.
    pub stream_id: Uuid,
    /// When the run ended.
    pub closed_at: Timestamp,
    /// The format version of `said`.
    pub version: u32,
    /// The content of the turn, as JSON.
    pub said: Value,
    /// Members that a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl StoredTurn {
    /// The approximate size of the content as text.
    pub fn said_bytes(&self) -> usize {
        text_bytes(&self.said)
    }

    /// Creates a turn without a number.
    pub fn new(stream_id: Uuid, closed_at: Timestamp, version: u32, said: Value) -> Self {
        Self { number: 0, stream_id, closed_at, version, said, more: Map::new() }
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(text_bytes).sum::<usize>() + 2,
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + 4 + text_bytes(value)).sum::<usize>()
                + 2
        }
    }
}

/// The names by which a tenant's run can be found, besides its stream id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// The idempotency key.
    Key,
    /// Its session.
    Session,
    /// The `X-Request-ID` of a request that started the run or one of its attempts.
    RequestId,
    /// Its chat.
    Chat,
    /// The hash of its body, as 64 hexadecimal digits.
    BodyHash,
}

impl NameKind {
    /// Whether the run has this name.
    pub fn names(self, run: &Run, name: &str) -> bool {
        match self {
            Self::Key => run.key == name,
            Self::Session => run.session == name,
            Self::RequestId => {
                let attempts =
                    run.attempts.iter().filter_map(|attempt| attempt.request_id.as_deref());
                run.request_id.as_deref().into_iter().chain(attempts).any(|id| id == name)
            }
            Self::Chat => run.chat.as_deref() == Some(name),
            Self::BodyHash => run.body_hash_text() == name,
        }
    }
}

/// A hash as 64 hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(
        hash: &[u8; 32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let whole = hash.map(|byte| format!("{byte:02x}")).concat();
        serializer.serialize_str(&whole)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        // The halves are two UUIDs in their simple form, so the UUID parser can read them.
        let parse = || {
            let (high, low) = text.split_at_checked(32)?;
            let halves =
                [Uuid::try_parse(high).ok()?.into_bytes(), Uuid::try_parse(low).ok()?.into_bytes()];
            <[u8; 32]>::try_from(halves.concat()).ok()
        };
        parse().ok_or_else(|| de::Error::custom("a hash is 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_round_trip() {
        let mut claim = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now());
        claim.body_hash = std::array::from_fn(|i| (i * 7) as u8);
        let run = claim.to_run();
        let text = serde_json::to_string(&run).unwrap();
        assert!(text.contains(r#""body_hash":"00070e15"#) && text.contains(r#""state":"running""#));
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);
    }

    #[test]
    fn unknown_members_survive_a_rewrite() {
        let run = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        let mut value = serde_json::to_value(&run).unwrap();
        value["mood"] = "good".into();
        value["attempts"] = serde_json::json!([{"n": 1, "began_at": null, "colour": "blue"}]);
        let read: Run = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
    }
}

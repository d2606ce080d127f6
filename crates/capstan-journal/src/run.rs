//! Runs as the journal keeps them, the claims that start them, their frames and the turns they
//! leave behind.

use bytes::Bytes;
use capstan_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// What is written, durably, before an agent is called: one run for one key of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose run it is.
    pub tenant: String,
    /// The request's id: the first claim of (tenant, key) wins.
    pub key: String,
    /// The stream to be, a UUIDv7, so that listing by id is listing by time.
    pub stream_id: Uuid,
    /// The agent's name.
    pub agent: String,
    /// The conversation.
    pub session: String,
    /// The protocol that asked.
    pub face: String,
    /// Hash of the canonical body, by which duplicates are told from conflicts.
    pub body_hash: [u8; 32],
    /// The request's body, so that a later attempt can be made by another process.
    pub body: Bytes,
    /// How many attempts the run may take.
    pub max_attempts: u32,
    /// Whether the caller understands `stream_reset`.
    pub accepts_reset: bool,
    /// Whether the caller waits for the whole run and sees nothing of it before its end.
    pub is_unseen: bool,
    /// The event types that the caller listed, if it did.
    pub supported_events: Option<Vec<String>>,
    /// The stream of the run whose questions this one answers: of several claims that do, the first
    /// wins.
    pub answers: Option<Uuid>,
    /// Who arms the next attempt of the run when one has failed.
    pub armed_by: ArmedBy,
    /// When the request came.
    pub created_at: Timestamp,
    /// The number of the session's last turn in another store, if its turns lie in two.
    pub turns_elsewhere: u64,
    /// The request's X-Request-ID.
    pub request_id: Option<String>,
    /// The trace that the request belongs to.
    pub trace_id: Option<String>,
    /// By what the one who asked is known in logs, if it showed a key.
    pub started_by: Option<String>,
    /// The process that works on the run, where several share a store.
    pub owner: Option<String>,
    /// The response that this one continues, in faces that chain them.
    pub previous_response: Option<String>,
    /// The conversation as a chat service calls it.
    pub chat: Option<String>,
    /// Whether whoever claims it reads it, which the other processes know as soon as they know of
    /// the run. From then on it is for [`crate::Cluster::mark_read`].
    pub is_read: bool,
}

impl Claim {
    /// A claim with everything optional left empty: one attempt, no body, no capabilities.
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

    /// The run that this claim starts: running, first attempt, nothing written yet.
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
            more: Map::new(),
        }
    }
}

/// Who arms the next attempt of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmedBy {
    /// The client that started it, by sending its request again. An agent is never run again
    /// unasked.
    #[default]
    Client,
    /// The gateway: in the protocol that asked nobody sends a request again.
    Gateway,
}

impl ArmedBy {
    fn is_client(&self) -> bool {
        *self == Self::Client
    }
}

/// What is known of one attempt, for whoever asks later why a run failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attempt {
    /// Which it was; 1 is the first.
    pub n: u32,
    /// When it began.
    pub began_at: Option<Timestamp>,
    /// When its first packet came.
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
    /// The fault that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// How severe that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// The seq of the packet that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_seq: Option<u64>,
    /// How many seconds the upstream asked to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// Back to which seq it took the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_to: Option<u64>,
    /// Bytes it repeated of the attempt before, which were not written again.
    #[serde(skip_serializing_if = "is_zero")]
    pub swallowed_bytes: u64,
    /// Calls it made upstream.
    #[serde(skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The members of a route that it called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberUse>,
    /// What it used, as the agent reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
    /// The X-Request-ID of the POST that armed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The trace of that POST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// What a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What an attempt made of one member of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberUse {
    /// The member.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// The fault that it was left with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// It refused, or could not be reached: nothing can have begun there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unreached: bool,
    /// What it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
    /// What a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

// The one float is a wait in seconds, never not-a-number.
impl Eq for Attempt {}

impl Attempt {
    /// How many a record keeps: the first and the latest.
    pub const KEPT: usize = 32;

    /// One that has begun.
    pub fn new(n: u32, began_at: Timestamp) -> Self {
        Self { n, began_at: Some(began_at), ..Self::default() }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where a run stands. The order is the order of one attempt's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// An attempt is under way (or was, when the process died).
    Running,
    /// The last attempt failed; the next POST with the key arms another.
    Waiting,
    /// The stream has ended. Nothing changes any more.
    Closed,
}

/// A run's record. `last_seq` and `bytes` are filled by the store whenever it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Whose run it is.
    pub tenant: String,
    /// The request's id.
    pub key: String,
    /// The stream of this run.
    pub stream_id: Uuid,
    /// The agent's name.
    pub agent: String,
    /// The conversation.
    pub session: String,
    /// The protocol that asked.
    pub face: String,
    /// Hash of the canonical body.
    #[serde(with = "hex")]
    pub body_hash: [u8; 32],
    /// How many attempts the run may take.
    pub max_attempts: u32,
    /// Whether the caller understands `stream_reset`.
    pub accepts_reset: bool,
    /// Whether the caller waits for the whole run and sees nothing of it before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unseen: bool,
    /// The event types that the caller listed, if it did.
    pub supported_events: Option<Vec<String>>,
    /// Who arms the next attempt.
    #[serde(default, skip_serializing_if = "ArmedBy::is_client")]
    pub armed_by: ArmedBy,
    /// When the request came.
    pub created_at: Timestamp,
    /// Where the run stands.
    pub state: RunState,
    /// The attempt under way, or the last one; 1 is the first.
    pub attempt: u32,
    /// The next attempt does not start before this.
    pub not_before: Option<Timestamp>,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// When the stream ended.
    pub closed_at: Option<Timestamp>,
    /// The last frame's seq; 0 before the first.
    pub last_seq: u64,
    /// The length of all frames together.
    pub bytes: u64,
    /// The fault that the last attempt ended with.
    pub fault: Option<String>,
    /// The reason that CLOSE gives.
    pub reason: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// What the run used, as the agent reports it.
    pub usage: Option<Map<String, Value>>,
    /// Tokens that its attempts have used so far, as they count against a quota: an attempt's when
    /// it ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// All attempts, [`Attempt::KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The starting request's X-Request-ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The trace that the starting request belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// By what the one who started it is known in logs, if it showed a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// The number of the session's last turn when the run was claimed: what it may know of. Set by
    /// the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns_before: u64,
    /// The process that works on the run, where several share a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The response that this one continues, in faces that chain them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_response: Option<String>,
    /// The conversation as a chat service calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Whom to tell of the end, and how far that has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Value>,
    /// What follows this packet was damaged, and a repair has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<u64>,
    /// What the agent works with elsewhere, under the id by which it can be ended; the agent's own
    /// word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_id: Option<String>,
    /// What the run ended by asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// Who watched it, as the process knew that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub viewers: Option<Viewers>,
    /// What a later build has added: it survives a rewrite by this one.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How a run was watched, up to its end. What was written to a socket was not therefore read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Viewers {
    /// How many came.
    pub joined: u64,
    /// How many of them with a cursor.
    pub resumed: u64,
    /// How many were cut off by the server: it stopped, or could not read on.
    pub cut: u64,
    /// How many were cut off because they took nothing.
    pub stalled: u64,
    /// The furthest packet that was written to one of them.
    pub last_cursor: u64,
}

/// The questions with which a run ended, and who answered them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What was asked: by which id it is answered, and until when.
    pub questions: Vec<(String, Option<Timestamp>)>,
    /// The stream of the run whose claim brought the answers.
    pub answered_by: Option<Uuid>,
    /// What a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Asked {
    /// What nobody has answered yet.
    pub fn new(questions: Vec<(String, Option<Timestamp>)>) -> Self {
        Self { questions, answered_by: None, more: Map::new() }
    }
}

impl Run {
    /// The hash of the body as 64 hexadecimal digits.
    pub fn body_hash_text(&self) -> String {
        self.body_hash.map(|byte| format!("{byte:02x}")).concat()
    }

    /// Whether frames may still come.
    pub fn is_open(&self) -> bool {
        self.state != RunState::Closed
    }
}

/// One encoded frame of a stream. Its bytes are shared, never copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its place in the stream; the first is 1.
    pub seq: u64,
    /// The frame as it goes over the wire.
    pub bytes: Bytes,
}

impl Frame {
    /// A frame of these bytes.
    pub fn new(seq: u64, bytes: impl Into<Bytes>) -> Self {
        Self { seq, bytes: bytes.into() }
    }
}

/// What a session remembers of one run. What that is, is the caller's business: the store only
/// keeps and numbers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredTurn {
    /// Its place in the session, from 1; set by the store, and never used twice.
    #[serde(default)]
    pub number: u64,
    /// The run's stream.
    pub stream_id: Uuid,
    /// When the run ended.
    pub closed_at: Timestamp,
    /// What the text of `said` means.
    pub version: u32,
    /// What was said, as JSON.
    pub said: Value,
    /// What a later build has added.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl StoredTurn {
    /// About how many bytes what was said takes as text.
    pub fn said_bytes(&self) -> usize {
        text_bytes(&self.said)
    }

    /// A turn that has no number yet.
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

/// By what a tenant's run can be found besides its stream id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// The key it was claimed with.
    Key,
    /// Its session.
    Session,
    /// The X-Request-ID of the request that started it, or armed one of its attempts.
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
        // Two UUIDs in their simple form are 32 bytes in hexadecimal: no crate and no digits by
        // hand.
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
    fn what_a_later_build_has_added_survives_a_rewrite() {
        let run = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        let mut value = serde_json::to_value(&run).unwrap();
        value["mood"] = "good".into();
        value["attempts"] = serde_json::json!([{"n": 1, "began_at": null, "colour": "blue"}]);
        let read: Run = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
    }
}

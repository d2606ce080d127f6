//! Requests (profile v1): the `ServiceRequest` envelope, the user, and the question.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::decode::{self, DecodeError, DecodeErrorKind};
use crate::message::ChatMessage;
use crate::time::Timestamp;

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserContext {
    /// The user's id at the identity provider.
    pub user_id: String,
    /// The user's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The user's subscription.
    pub tier: String,
    /// The user's language, such as `en-US`.
    pub locale: String,
}

impl UserContext {
    /// A user of the free tier who reads English.
    pub fn new(user_id: impl Into<String>) -> Self {
        Self { user_id: user_id.into(), email: None, tier: "free".into(), locale: "en-US".into() }
    }
}

/// The place of a request in a distributed trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceContext {
    /// The id of the whole trace.
    pub trace_id: Uuid,
    /// This step.
    pub span_id: Uuid,
    /// The step that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<Uuid>,
}

impl TraceContext {
    /// The root of a new trace.
    pub fn root() -> Self {
        Self { trace_id: Uuid::now_v7(), span_id: Uuid::now_v7(), parent_id: None }
    }
}

/// The session that a request belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionContext {
    /// The conversation.
    pub session_id: Uuid,
    /// The agent that is meant.
    pub agent_id: Uuid,
    /// The user.
    pub user: UserContext,
    /// The trace.
    pub trace: TraceContext,
    /// The user's permissions.
    pub permissions: Vec<String>,
    /// When the session began.
    pub created_at: Timestamp,
}

impl SessionContext {
    /// A session of `user` that is not bound to a particular agent and has no permissions.
    pub fn new(session_id: Uuid, user: UserContext) -> Self {
        let (agent_id, trace) = (Uuid::nil(), TraceContext::root());
        Self {
            session_id,
            agent_id,
            user,
            trace,
            permissions: Vec::new(),
            created_at: Timestamp::now(),
        }
    }
}

/// The abilities of the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientCapabilities {
    /// The event types that it can render.
    #[serde(default)]
    pub supported_events: Vec<String>,
    /// Whether the client prefers markdown to plain text.
    #[serde(default = "yes")]
    pub prefers_markdown: bool,
    /// The size of pictures that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_resolution: Option<String>,
}

fn yes() -> bool {
    true
}

/// The question, and the request that caused it.
///
/// Lineage: without a root the request is its own root; a parent needs an explicit root.
// `T` is the form of free-form objects: trees, or text (`RawObject`).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AgentRequest",
transform = crate::schema::agent_request))]
pub struct AgentRequest<T = Map<String, Value>> {
    /// This request.
    pub request_id: Uuid,
    /// The conversation.
    pub session_id: Uuid,
    /// The request that started it all.
    pub root_request_id: Uuid,
    /// The request that caused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_request_id: Option<Uuid>,
    /// When it was made.
    pub timestamp: Timestamp,
    /// The question, in a form that the agent understands.
    pub payload: T,
    /// The abilities of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<ClientCapabilities>,
    /// Anything else.
    pub metadata: T,
}

impl AgentRequest {
    /// A request with `payload` in a session, as its own root.
    pub fn new(session_id: Uuid, payload: Map<String, Value>) -> Self {
        let request_id = Uuid::now_v7();
        Self {
            request_id,
            session_id,
            root_request_id: request_id,
            parent_request_id: None,
            timestamp: Timestamp::now(),
            payload,
            capabilities: None,
            metadata: Map::new(),
        }
    }

    /// A request with messages: the last one is the turn, the earlier ones its history.
    pub fn messages(session_id: Uuid, messages: &[ChatMessage]) -> Self {
        let mut payload = Map::new();
        payload.insert("messages".into(), serde_json::to_value(messages).unwrap_or_default());
        Self::new(session_id, payload)
    }

    /// A request with plain text.
    pub fn query(session_id: Uuid, text: impl Into<String>) -> Self {
        let mut payload = Map::new();
        payload.insert("query".into(), Value::String(text.into()));
        Self::new(session_id, payload)
    }
}

/// A member's absence and an explicit null mean different things for `request_id` only.
#[derive(Deserialize)]
struct AgentRequestMembers<T> {
    #[serde(default = "Uuid::now_v7")]
    request_id: Uuid,
    session_id: Uuid,
    #[serde(default)]
    root_request_id: Option<Uuid>,
    #[serde(default)]
    parent_request_id: Option<Uuid>,
    #[serde(default = "Timestamp::now")]
    timestamp: Timestamp,
    payload: T,
    #[serde(default)]
    capabilities: Option<ClientCapabilities>,
    #[serde(default)]
    metadata: T,
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for AgentRequest<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let m = AgentRequestMembers::deserialize(deserializer)?;
        let root = root_of(m.request_id, m.root_request_id, m.parent_request_id.is_some());
        Ok(Self {
            request_id: m.request_id,
            session_id: m.session_id,
            root_request_id: root.map_err(decode::nested)?,
            parent_request_id: m.parent_request_id,
            timestamp: m.timestamp,
            payload: m.payload,
            capabilities: m.capabilities,
            metadata: m.metadata,
        })
    }
}

/// The lineage rule of both profiles.
pub(crate) fn root_of(
    own: Uuid,
    root: Option<Uuid>,
    has_parent: bool,
) -> Result<Uuid, DecodeError> {
    match root {
        Some(root) => Ok(root),
        None if has_parent => Err(DecodeError::new(
            DecodeErrorKind::Missing,
            "root_request_id",
            "required beside a parent_request_id",
        )),
        None => Ok(own),
    }
}

/// The envelope for `/assist`. Its `request_id` is the key under which the run starts at most once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(bound(deserialize = "T: Deserialize<'de> + Default"))]
#[cfg_attr(feature = "schema", schemars(rename = "ServiceRequest"))]
pub struct ServiceRequest<T = Map<String, Value>> {
    /// The key of the run.
    pub request_id: Uuid,
    /// User, session and agent.
    pub context: SessionContext,
    /// The question.
    pub payload: AgentRequest<T>,
}

impl ServiceRequest {
    /// An envelope with a fresh key.
    pub fn new(context: SessionContext, payload: AgentRequest) -> Self {
        Self { request_id: Uuid::now_v7(), context, payload }
    }
}

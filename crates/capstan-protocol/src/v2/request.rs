//! Requests of profile v2: flatter, with plain-string session ids.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::decode;
use crate::message::Role;
use crate::request::root_of;
use crate::response::Identity;
use crate::time::Timestamp;

/// A message: a role and one text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = crate::schema::stamped))]
pub struct ChatMessage {
    /// The author.
    pub role: Role,
    /// The content.
    pub content: String,
    /// The speaker's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tool call that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The time; by default now.
    #[serde(default = "Timestamp::now")]
    // The present time is no default to write into a schema.
    #[cfg_attr(feature = "schema", schemars(!default))]
    pub timestamp: Timestamp,
}

/// The user, the session and the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionContext {
    /// The conversation.
    pub session_id: String,
    /// The person.
    pub user: Identity,
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Identity>,
}

/// A question in plain text.
// `T` is the form of a free-form object, as in v1.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "AgentRequest",
transform = crate::schema::agent_request))]
pub struct AgentRequest<T = Map<String, Value>> {
    /// This request.
    pub request_id: Uuid,
    /// The request that started it all.
    pub root_request_id: Uuid,
    /// The request that caused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_request_id: Option<Uuid>,
    /// The question.
    pub query: String,
    /// Files that belong to it.
    pub files: Vec<String>,
    /// The conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Anything else.
    pub meta: T,
}

#[derive(Deserialize)]
struct Members<T> {
    #[serde(default = "Uuid::now_v7")]
    request_id: Uuid,
    #[serde(default)]
    root_request_id: Option<Uuid>,
    #[serde(default)]
    parent_request_id: Option<Uuid>,
    query: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    conversation_id: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    meta: T,
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for AgentRequest<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let m = Members::deserialize(deserializer)?;
        let root = root_of(m.request_id, m.root_request_id, m.parent_request_id.is_some());
        Ok(Self {
            request_id: m.request_id,
            root_request_id: root.map_err(decode::nested)?,
            parent_request_id: m.parent_request_id,
            query: m.query,
            files: m.files,
            conversation_id: m.conversation_id,
            session_id: m.session_id,
            meta: m.meta,
        })
    }
}

/// The envelope of v2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(bound(deserialize = "T: Deserialize<'de> + Default"))]
#[cfg_attr(feature = "schema", schemars(rename = "ServiceRequest"))]
pub struct ServiceRequest<T = Map<String, Value>> {
    /// The key of the run.
    pub request_id: Uuid,
    /// The user, the session and the agent.
    pub context: SessionContext,
    /// The question.
    pub payload: AgentRequest<T>,
}

impl ServiceRequest {
    /// Plain text in a conversation, with a fresh key.
    pub fn query(conversation: Uuid, user_id: &str, query: impl Into<String>) -> Self {
        let user = Identity { id: user_id.to_owned(), name: user_id.to_owned(), role: None };
        let request_id = Uuid::now_v7();
        let payload = AgentRequest {
            request_id,
            root_request_id: request_id,
            parent_request_id: None,
            query: query.into(),
            files: Vec::new(),
            conversation_id: Some(conversation.to_string()),
            session_id: None,
            meta: Map::new(),
        };
        let context = SessionContext { session_id: conversation.to_string(), user, agent: None };
        Self { request_id, context, payload }
    }
}

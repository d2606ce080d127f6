//! The runs of a tenant and the agents, as the server lists them.

use capstan_protocol::Timestamp;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::client::CapClient;
use crate::error::CapError;
use crate::exchange::read;

/// A page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StreamPage {
    /// The runs.
    pub streams: Vec<StreamSummary>,
    /// The start of the next page, if there is one.
    pub next: Option<Uuid>,
}

/// The server's summary of a run. It omits unknown members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StreamSummary {
    /// Its stream.
    pub stream_id: Uuid,
    /// The request key.
    pub request_id: String,
    /// The agent's name.
    pub agent: String,
    /// The conversation.
    pub session_id: String,
    /// `running`, `waiting` or `closed`.
    pub state: String,
    /// The attempt under way, or the last one.
    pub attempt: u32,
    /// The maximum number of attempts.
    pub max_attempts: u32,
    /// The last packet's seq.
    pub packets: u64,
    /// The length of all packets.
    pub bytes: u64,
    /// When the request came.
    pub created_at: Timestamp,
    /// When the run last moved.
    pub updated_at: Timestamp,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// The fault that the last attempt ended with.
    pub fault: Option<String>,
    /// The reason that CLOSE gives.
    pub reason: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The usage of the run.
    pub usage: Option<Map<String, Value>>,
}

/// An agent of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentSummary {
    /// The name in paths: `/v1/agents/<name>/assist`.
    pub name: String,
    /// The id for a request's `context.agent_id`.
    pub id: Uuid,
    /// Other names for it in paths and requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

#[derive(Deserialize)]
struct AgentList {
    agents: Vec<AgentSummary>,
}

impl CapClient {
    /// The agents of the server, the default one first.
    pub async fn agents(&self) -> Result<Vec<AgentSummary>, CapError> {
        let request = self.request(Method::GET, self.versioned("/agents"));
        read::<AgentList>(&self.exchange(request).await?).map(|list| list.agents)
    }

    /// The tenant's runs, newest first: at most `limit` of them, older than `before`.
    pub async fn streams(
        &self,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<StreamPage, CapError> {
        let mut url = self.versioned("/streams");
        url.query_pairs_mut().append_pair("limit", &limit.to_string());
        if let Some(before) = before {
            url.query_pairs_mut().append_pair("before", &before.to_string());
        }
        read(&self.exchange(self.request(Method::GET, url)).await?)
    }
}

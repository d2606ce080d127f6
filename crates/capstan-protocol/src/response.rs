//! Replies and small models that look the same in both profiles.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::time::Timestamp;

/// The answer of JSON mode: a whole run in one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceResponse {
    /// The request's key.
    pub request_id: Uuid,
    /// When the answer was complete.
    pub created_at: Timestamp,
    /// The answer.
    pub output: Map<String, Value>,
    /// Usage and attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Map<String, Value>>,
}

/// The health of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// Well.
    Ok,
    /// Serving, but not all of it works.
    Degraded,
    /// Closed on purpose.
    Maintenance,
}

/// The answer of `GET /health`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HealthCheckResponse {
    /// Its health.
    pub status: HealthStatus,
    /// The id of the default agent.
    pub agent_id: Uuid,
    /// Its version, by convention a semantic one.
    pub version: String,
    /// The time since its start.
    pub uptime_seconds: f64,
}

/// A named party.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Identity {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// One server-sent event as a JSON object, as the data contract describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerSentEvent {
    /// The event's name.
    pub event: String,
    /// The data.
    pub data: String,
    /// The id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

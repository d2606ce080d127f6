//! RFC 9457 problem details, as HTTP failures carry them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{ErrorDomain, ErrorSeverity};

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// A failed HTTP exchange. Members of foreign problems that are absent here get careful defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem: `/errors/<slug>`, a page for people.
    #[serde(rename = "type", default = "blank")]
    pub problem_type: String,
    /// A headline.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// The details of this case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The catalogue's wire code.
    #[serde(default)]
    pub code: String,
    /// The run's next step.
    #[serde(default = "fatal")]
    pub severity: ErrorSeverity,
    /// The origin of the failure.
    #[serde(default)]
    pub domain: ErrorDomain,
    /// May a new request succeed?
    #[serde(default)]
    pub retryable: bool,
    /// Seconds to wait, also in `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The request that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// More.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
}

/// RFC 9457's value for an absent type.
fn blank() -> String {
    "about:blank".into()
}

fn fatal() -> ErrorSeverity {
    ErrorSeverity::Fatal
}

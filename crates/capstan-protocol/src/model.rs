//! The models by name: what `capstan validate` checks and the schema generator writes.
//!
//! A new wire model is one row here.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::decode::{self, DecodeError};
use crate::{packet, v2};

/// The edition of the data contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// RFC 004 and 005: strict members, upper-case words.
    #[default]
    V1,
    /// The later contract: lower-case words, unknown members ignored.
    V2,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            _ => Err(format!("unknown profile {text:?}, expected v1 or v2")),
        }
    }
}

/// Gives the canonical JSON of a document, or why it is refused.
type Judge = fn(&str) -> Result<String, DecodeError>;

/// A wire model under the name that the data contract gives it.
pub struct Model {
    /// The name, such as `StreamPacket`.
    pub name: &'static str,
    /// The profile that it belongs to.
    pub profile: Profile,
    check: Judge,
    #[cfg(feature = "schema")]
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Model {
    /// The canonical JSON of a document, or why it is refused.
    pub fn canonical(&self, text: &str) -> Result<String, DecodeError> {
        (self.check)(text)
    }

    /// The model's JSON Schema.
    #[cfg(feature = "schema")]
    pub fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        (self.schema)(generator)
    }
}

/// Decodes strictly, writes canonically.
fn check<T: DeserializeOwned + Serialize>(text: &str) -> Result<String, DecodeError> {
    let value: T = decode::from_str_within(text, decode::REFERENCE_DEPTH)?;
    serde_json::to_string(&value).map_err(|e| DecodeError::value("", e.to_string()))
}

#[cfg(feature = "schema")]
use JsonSchema as Described;

/// Without the feature `schema`, a model's type needs no schema.
#[cfg(not(feature = "schema"))]
trait Described {}
#[cfg(not(feature = "schema"))]
impl<T> Described for T {}

const fn model<T: DeserializeOwned + Serialize + Described>(
    profile: Profile,
    name: &'static str,
) -> Model {
    judged::<T>(profile, name, check::<T>)
}

/// A model whose verdicts need more than its type.
const fn judged<T: Described>(profile: Profile, name: &'static str, check: Judge) -> Model {
    Model {
        name,
        profile,
        check,
        #[cfg(feature = "schema")]
        schema: |generator| generator.root_schema_for::<T>(),
    }
}

use Profile::{V1, V2};

/// Every model, by profile and name.
pub static MODELS: &[Model] = &[
    judged::<crate::StreamPacket>(V1, "StreamPacket", packet::canonical),
    model::<crate::StreamError>(V1, "StreamError"),
    model::<crate::PresentationEvent>(V1, "PresentationEvent"),
    model::<crate::CitationItem>(V1, "CitationItem"),
    model::<crate::CitationBlock>(V1, "CitationBlock"),
    model::<crate::ProgressUpdate>(V1, "ProgressUpdate"),
    model::<crate::MediaItem>(V1, "MediaItem"),
    model::<crate::MediaCarousel>(V1, "MediaCarousel"),
    model::<crate::MarkdownBlock>(V1, "MarkdownBlock"),
    model::<crate::ThoughtTrace>(V1, "ThoughtTrace"),
    model::<crate::UserError>(V1, "UserErrorData"),
    model::<crate::StreamReset>(V1, "StreamReset"),
    model::<crate::CloseReport>(V1, "CloseReport"),
    model::<crate::ServiceRequest>(V1, "ServiceRequest"),
    model::<crate::SessionContext>(V1, "SessionContext"),
    model::<crate::UserContext>(V1, "UserContext"),
    model::<crate::TraceContext>(V1, "TraceContext"),
    model::<crate::AgentRequest>(V1, "AgentRequest"),
    model::<crate::ClientCapabilities>(V1, "ClientCapabilities"),
    model::<crate::ChatMessage>(V1, "ChatMessage"),
    model::<crate::ServiceResponse>(V1, "ServiceResponse"),
    model::<crate::HealthCheckResponse>(V1, "HealthCheckResponse"),
    model::<crate::Identity>(V1, "Identity"),
    model::<crate::ServerSentEvent>(V1, "ServerSentEvent"),
    model::<crate::Problem>(V1, "Problem"),
    model::<crate::agui::AguiEvent>(V1, "AguiEvent"),
    model::<crate::agui::RunAgentInput>(V1, "RunAgentInput"),
    model::<crate::agui::RunError>(V1, "RunError"),
    judged::<v2::StreamPacket>(V2, "StreamPacket", v2::canonical_packet),
    model::<v2::StreamError>(V2, "StreamError"),
    model::<v2::PresentationEvent>(V2, "PresentationEvent"),
    model::<v2::PresentationEvent>(V2, "UserError-event"),
    model::<crate::UserError>(V2, "UserErrorData"),
    model::<v2::CitationItem>(V2, "CitationItem"),
    model::<v2::CitationBlock>(V2, "CitationBlock"),
    model::<v2::ProgressUpdate>(V2, "ProgressUpdate"),
    model::<v2::MediaItem>(V2, "MediaItem"),
    model::<v2::MediaCarousel>(V2, "MediaCarousel"),
    model::<v2::MarkdownBlock>(V2, "MarkdownBlock"),
    model::<v2::ServiceRequest>(V2, "ServiceRequest"),
    model::<v2::SessionContext>(V2, "SessionContext"),
    model::<v2::AgentRequest>(V2, "AgentRequest"),
    model::<v2::ChatMessage>(V2, "ChatMessage"),
    model::<crate::ServiceResponse>(V2, "ServiceResponse"),
    model::<crate::HealthCheckResponse>(V2, "HealthCheckResponse"),
    model::<crate::Identity>(V2, "Identity"),
    model::<v2::GraphEvent>(V2, "GraphEvent"),
    model::<v2::StreamReference>(V2, "StreamReference"),
    model::<v2::AgentCapabilities>(V2, "AgentCapabilities"),
];

/// Finds a model by its exact name.
pub fn find(profile: Profile, name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.profile == profile && model.name == name)
}

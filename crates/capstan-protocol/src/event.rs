//! Presentation events (profile v1): content of an EVENT packet for the user.
//!
//! A packet holds the raw object; [`Event::view`](crate::Event::view) types it on demand. An
//! unknown type is never an error.

use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use crate::decode::DecodeError;
use crate::error::ErrorDomain;
use crate::json::RawObject;
use crate::time::Timestamp;

/// The event types that profile v1's data contract knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PresentationEventType {
    /// A `CitationBlock`.
    CitationBlock,
    /// A `ProgressUpdate`.
    ProgressIndicator,
    /// A `MediaCarousel`.
    MediaCarousel,
    /// A `MarkdownBlock`.
    MarkdownBlock,
    /// A `ThoughtTrace`.
    ThoughtTrace,
}

impl PresentationEventType {
    /// Every type.
    pub const ALL: [Self; 5] = [
        Self::CitationBlock,
        Self::ProgressIndicator,
        Self::MediaCarousel,
        Self::MarkdownBlock,
        Self::ThoughtTrace,
    ];

    /// The spelling on the wire (v1); v2 uses the same word in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CitationBlock => "CITATION_BLOCK",
            Self::ProgressIndicator => "PROGRESS_INDICATOR",
            Self::MediaCarousel => "MEDIA_CAROUSEL",
            Self::MarkdownBlock => "MARKDOWN_BLOCK",
            Self::ThoughtTrace => "THOUGHT_TRACE",
        }
    }
}

/// The envelope of a presentation event, `data` untouched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PresentationEvent {
    /// The event's own id.
    pub id: Uuid,
    /// When it was made.
    pub timestamp: Timestamp,
    /// The kind of event.
    #[serde(rename = "type")]
    pub kind: PresentationEventType,
    /// The block.
    pub data: RawObject,
}

/// A source that backs the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CitationItem {
    /// The source's id.
    pub source_id: String,
    /// Its URI.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub uri: Url,
    /// Its title.
    pub title: String,
    /// The part that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// The agent's confidence, by convention 0 to 1.
    pub confidence: f64,
}

/// A list of sources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CitationBlock {
    /// The sources.
    pub citations: Vec<CitationItem>,
}

/// The progress of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// Going on.
    Running,
    /// Done.
    Complete,
    /// Failed.
    Failed,
}

/// A step of work that a person may watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProgressUpdate {
    /// The description of the work.
    pub label: String,
    /// Its status.
    pub status: ProgressStatus,
    /// The progress, by convention 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f64>,
}

/// A picture, a film, a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MediaItem {
    /// Its URL. It may have any scheme, so the renderer must decide which to follow.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub url: Url,
    /// Its media type.
    pub mime_type: String,
    /// A text alternative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alt_text: Option<String>,
}

/// Several media items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MediaCarousel {
    /// The items.
    pub items: Vec<MediaItem>,
}

/// Markdown to render.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MarkdownBlock {
    /// The text.
    pub content: String,
}

/// A thought of the agent, for users who want to see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThoughtTrace {
    /// The thought.
    pub thought: String,
}

/// A failure that the user should read while the agent continues: the data of a `user_error` event.
///
/// For a failure of the stream itself, see `StreamError`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserError {
    /// For the user.
    pub message: String,
    /// A number such as 429 or 503.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// The origin of the failure.
    #[serde(default)]
    pub domain: ErrorDomain,
    /// Whether to offer a retry.
    #[serde(default)]
    pub retryable: bool,
}

/// "Drop text and presentation events after `after_seq`; they follow again" (an extension).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamReset {
    /// The attempt whose output follows.
    pub attempt: u32,
    /// The last packet that still counts.
    pub after_seq: u64,
}

/// The spelling of the `user_error` event type, the same in both profiles.
pub const USER_ERROR: &str = "user_error";
/// The spelling of the `stream_reset` event type (an extension).
pub const STREAM_RESET: &str = "stream_reset";

/// The type of the event with a question of a run that ends with questions (v1; an extension).
pub const INTERRUPT: &str = "INTERRUPT";

#[derive(Serialize)]
struct Envelope<'a> {
    id: Uuid,
    timestamp: Timestamp,
    r#type: &'a str,
    data: RawObject,
}

/// Makes the payload of an EVENT packet: an envelope with a fresh id and the present time around
/// `data`.
pub fn envelope(kind: &str, data: &impl Serialize) -> Result<RawObject, DecodeError> {
    let data = RawObject::from_serialize(data)?;
    RawObject::from_serialize(&Envelope {
        id: Uuid::now_v7(),
        timestamp: Timestamp::now(),
        r#type: kind,
        data,
    })
}

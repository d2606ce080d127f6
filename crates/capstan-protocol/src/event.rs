//! Presentation events (profile v1): what an EVENT packet shows to a person.
//!
//! A packet keeps the raw object; [`Event::view`](crate::Event::view) types it on demand. An
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
    /// What kind of event.
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
    /// Where it is.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub uri: Url,
    /// Its title.
    pub title: String,
    /// The part that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// How sure the agent is, by convention 0 to 1.
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

/// How far a piece of work is.
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
    /// What is being done.
    pub label: String,
    /// How it stands.
    pub status: ProgressStatus,
    /// How far, by convention 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f64>,
}

/// A picture, a film, a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MediaItem {
    /// Where it is. Any scheme: whoever renders it decides what to follow.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub url: Url,
    /// What it is.
    pub mime_type: String,
    /// What it shows, in words.
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

/// A thought of the agent's, for those who want to see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThoughtTrace {
    /// The thought.
    pub thought: String,
}

/// A failure that the user should read while the agent carries on: the data of a `user_error`
/// event.
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
    /// Where the failure comes from.
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

/// The spelling of the event type with which a run that ends by asking says what it asks (v1; an
/// extension).
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

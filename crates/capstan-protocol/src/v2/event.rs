//! Presentation events of profile v2. Data is checked against the type that the event names.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use url::Url;
use uuid::Uuid;

use crate::decode;
use crate::event;
use crate::time::Timestamp;

/// A source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
}

/// A list of sources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CitationBlock {
    /// The sources.
    pub items: Vec<CitationItem>,
}

impl CitationBlock {
    /// Converts to v1. v2 has no confidence, so the result has full confidence.
    pub(crate) fn into_v1(self) -> event::CitationBlock {
        let citations = self.items.into_iter().map(|item| event::CitationItem {
            source_id: item.source_id,
            uri: item.uri,
            title: item.title,
            snippet: item.snippet,
            confidence: 1.0,
        });
        event::CitationBlock { citations: citations.collect() }
    }
}

/// A step of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgressUpdate {
    /// The description of the work.
    pub label: String,
    /// Its status.
    pub status: event::ProgressStatus,
    /// The progress, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "fraction")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub progress_percent: Option<f64>,
}

fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = Option::<f64>::deserialize(deserializer)?;
    match value {
        Some(x) if !(0.0..=1.0).contains(&x) => {
            Err(D::Error::custom(format!("{x} is outside 0 to 1")))
        }
        _ => Ok(value),
    }
}

/// A picture, a film, a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MediaItem {
    /// Its URL.
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
pub struct MediaCarousel {
    /// The items.
    pub items: Vec<MediaItem>,
}

/// Markdown to render.
pub type MarkdownBlock = event::MarkdownBlock;

/// A presentation event whose data fits its type.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = crate::schema::stamped))]
pub struct PresentationEvent {
    /// The event's id; made up when absent.
    pub id: Uuid,
    /// When it was made; now when absent.
    pub timestamp: Timestamp,
    /// Type and data.
    #[serde(flatten)]
    pub block: Block,
}

/// Type and data of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Block {
    /// Sources.
    CitationBlock(CitationBlock),
    /// Progress.
    ProgressIndicator(ProgressUpdate),
    /// Media.
    MediaCarousel(MediaCarousel),
    /// Markdown.
    MarkdownBlock(MarkdownBlock),
    /// A thought; any object.
    ThoughtTrace(Map<String, Value>),
    /// A failure for the user's eyes; any object, `UserError` by convention.
    UserError(Map<String, Value>),
}

#[derive(Deserialize)]
struct Members {
    #[serde(default = "Uuid::now_v7")]
    id: Uuid,
    #[serde(default = "Timestamp::now")]
    timestamp: Timestamp,
    #[serde(rename = "type")]
    kind: Kind,
    data: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    CitationBlock,
    ProgressIndicator,
    MediaCarousel,
    MarkdownBlock,
    ThoughtTrace,
    UserError,
}

impl<'de> Deserialize<'de> for PresentationEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let m = Members::deserialize(deserializer)?;
        let data = Value::Object(m.data);
        let wrong = |e: decode::DecodeError| decode::nested(e.inside("data"));
        let block = match m.kind {
            Kind::CitationBlock => Block::CitationBlock(decode::from_value(&data).map_err(wrong)?),
            Kind::ProgressIndicator => {
                Block::ProgressIndicator(decode::from_value(&data).map_err(wrong)?)
            }
            Kind::MediaCarousel => Block::MediaCarousel(decode::from_value(&data).map_err(wrong)?),
            Kind::MarkdownBlock => Block::MarkdownBlock(decode::from_value(&data).map_err(wrong)?),
            Kind::ThoughtTrace => Block::ThoughtTrace(decode::from_value(&data).map_err(wrong)?),
            Kind::UserError => Block::UserError(decode::from_value(&data).map_err(wrong)?),
        };
        Ok(Self { id: m.id, timestamp: m.timestamp, block })
    }
}

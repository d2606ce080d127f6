//! The payload of an EVENT packet, read in either profile.

use serde::Deserialize;
use serde_json::Value;

use crate::decode;
use crate::event::{
    CitationBlock, INTERRUPT, MarkdownBlock, MediaCarousel, PresentationEventType, ProgressUpdate,
    STREAM_RESET, StreamReset, ThoughtTrace, USER_ERROR, UserError,
};
use crate::interrupt::Interrupt;
use crate::json::RawObject;
use crate::v2;

/// The typed view of an event payload, in either profile.
#[derive(Debug, Clone, PartialEq)]
pub enum EventView {
    /// Sources.
    Citations(CitationBlock),
    /// Progress.
    Progress(ProgressUpdate),
    /// Media.
    Media(MediaCarousel),
    /// Markdown.
    Markdown(MarkdownBlock),
    /// A thought.
    Thought(ThoughtTrace),
    /// A failure for the user's eyes.
    UserError(UserError),
    /// Text and events after a seq no longer count.
    Reset(StreamReset),
    /// A question to the user.
    Interrupt(Box<Interrupt>),
    /// Anything else: an unknown type, or a known one whose data does not fit it.
    Other,
}

/// An event payload, read as `{id?, timestamp?, type?, data?}` without insisting on any of it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    /// The event's id, in any form.
    pub id: Option<Value>,
    /// The type's name on the wire.
    #[serde(rename = "type", deserialize_with = "text_or_nothing")]
    pub kind: Option<String>,
    /// The data.
    pub data: Value,
}

fn text_or_nothing<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_str().map(str::to_owned))
}

impl Event {
    /// Reads a raw payload. Never fails: what cannot be read is absent.
    pub fn of(raw: &RawObject) -> Self {
        serde_json::from_str(raw.get()).unwrap_or_default()
    }

    /// The typed view. Types are matched without regard to case, so v1 and v2 look the same here.
    pub fn view(&self) -> EventView {
        let kind = self.kind.as_deref().unwrap_or_default();
        let is = |t: PresentationEventType| kind.eq_ignore_ascii_case(t.as_str());
        let view = if is(PresentationEventType::CitationBlock) {
            self.read()
                .or_else(|| self.read().map(v2::CitationBlock::into_v1))
                .map(EventView::Citations)
        } else if is(PresentationEventType::ProgressIndicator) {
            self.read().map(EventView::Progress)
        } else if is(PresentationEventType::MediaCarousel) {
            self.read().map(EventView::Media)
        } else if is(PresentationEventType::MarkdownBlock) {
            self.read().map(EventView::Markdown)
        } else if is(PresentationEventType::ThoughtTrace) {
            self.read().map(EventView::Thought)
        } else if kind == USER_ERROR {
            self.read().map(EventView::UserError)
        } else if kind == STREAM_RESET {
            self.read().map(EventView::Reset)
        } else if kind.eq_ignore_ascii_case(INTERRUPT) {
            self.read().map(Box::new).map(EventView::Interrupt)
        } else {
            None
        };
        view.unwrap_or(EventView::Other)
    }

    fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        decode::from_value(&self.data).ok()
    }
}

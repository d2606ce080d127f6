//! What a stream amounts to: text and events as a viewer has them, resets applied.

use crate::error::StreamError;
use crate::event_view::{Event, EventView};
use crate::json::RawObject;
use crate::packet::{Close, Payload, StreamPacket};

/// A stream, folded.
///
/// ```
/// # use capstan_protocol::{Payload, StreamPacket, Timestamp, Transcript};
/// let mut transcript = Transcript::default();
/// for (seq, text) in [(1, "Hello, "), (2, "world")] {
///     let payload = Payload::Delta(text.into());
///     let (stream_id, t) = (Default::default(), Timestamp::now());
///     transcript.take(&StreamPacket { stream_id, seq, t, payload });
/// }
/// assert_eq!(transcript.text(), "Hello, world");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    text: String,
    /// For each packet with text: its seq and the end of its text, so that a reset can find its
    /// place.
    marks: Vec<(u64, usize)>,
    events: Vec<(u64, RawObject)>,
    error: Option<Box<StreamError>>,
    close: Option<Close>,
}

impl Transcript {
    /// Takes the next packet.
    pub fn take(&mut self, packet: &StreamPacket) {
        match &packet.payload {
            Payload::Delta(text) => {
                self.text.push_str(text);
                self.marks.push((packet.seq, self.text.len()));
            }
            Payload::Event(raw) => self.event(packet.seq, raw),
            Payload::Error(error) => self.error = Some(error.clone()),
            Payload::Close(close) => self.close = Some(close.clone()),
        }
    }

    fn event(&mut self, seq: u64, raw: &RawObject) {
        let EventView::Reset(reset) = Event::of(raw).view() else {
            self.events.push((seq, raw.clone()));
            return;
        };
        self.marks.retain(|(seq, _)| *seq <= reset.after_seq);
        self.events.retain(|(seq, _)| *seq <= reset.after_seq);
        self.text.truncate(self.marks.last().map_or(0, |(_, end)| *end));
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The presentation events so far.
    pub fn events(&self) -> impl Iterator<Item = &RawObject> {
        self.events.iter().map(|(_, raw)| raw)
    }

    /// The last error, of any severity.
    pub fn error(&self) -> Option<&StreamError> {
        self.error.as_deref()
    }

    /// The end of the stream, if it has ended.
    pub fn close(&self) -> Option<&Close> {
        self.close.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{Timestamp, event};

    fn packet(seq: u64, payload: Payload) -> StreamPacket {
        StreamPacket { stream_id: Uuid::nil(), seq, t: Timestamp::now(), payload }
    }

    fn some_event(kind: &str, data: serde_json::Value) -> Payload {
        Payload::Event(event::envelope(kind, &data).unwrap())
    }

    #[test]
    fn a_reset_drops_text_and_events_after_its_place() {
        let mut transcript = Transcript::default();
        let reset = json!({ "attempt": 2, "after_seq": 2 });
        for packet in [
            packet(1, Payload::Delta("a".into())),
            packet(2, some_event("X", json!({}))),
            packet(3, Payload::Delta("b".into())),
            packet(4, some_event("Y", json!({}))),
            packet(5, some_event(event::STREAM_RESET, reset)),
            packet(6, Payload::Delta("c".into())),
            packet(7, Payload::Close(Close::Reason("completed".into()))),
        ] {
            transcript.take(&packet);
        }
        assert_eq!((transcript.text(), transcript.events().count()), ("ac", 1));
        assert_eq!(transcript.close().map(Close::reason).as_deref(), Some("completed"));
    }
}

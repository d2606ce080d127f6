//! Text in, text out.

use capstan_protocol::{
    Close, Event, EventView, Payload, StreamError, StreamPacket, Transcript, event,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{CapError, RuntimeError};
use crate::stream::PacketStream;

/// The text of one answer, piece by piece.
///
/// A `stream_reset` takes back text that was already handed out, which an iterator of text cannot
/// express: it is an error of code `stream_reset` with the text so far.
/// [`CapClient::assist`](crate::CapClient::assist) with a [`Transcript`] follows it.
#[derive(Debug)]
pub struct ChatStream {
    packets: PacketStream,
    conversation: Uuid,
    transcript: Transcript,
}

impl ChatStream {
    pub(crate) fn new(packets: PacketStream, conversation: Uuid) -> Self {
        Self { packets, conversation, transcript: Transcript::default() }
    }

    /// The next piece of text; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<String>, CapError> {
        while let Some(packet) = self.packets.next().await.map_err(|error| self.with_text(error))? {
            self.transcript.take(&packet);
            if let Some(text) = text_of(packet).map_err(|error| self.with_text(error))? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Reads to the end; all of the text.
    pub async fn collect(mut self) -> Result<String, CapError> {
        while let Some(packet) = self.packets.next().await.map_err(|error| self.with_text(error))? {
            self.transcript.take(&packet);
        }
        Ok(self.transcript.text().to_owned())
    }

    /// The conversation, to be continued with [`CapClient::chat_in`](crate::CapClient::chat_in).
    /// Known at once.
    pub fn conversation_id(&self) -> Uuid {
        self.conversation
    }

    /// The stream, as soon as the server has named it.
    pub fn stream_id(&self) -> Option<Uuid> {
        self.packets.stream_id()
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        self.transcript.text()
    }

    /// The usage of the answer, if its CLOSE reports it.
    pub fn usage(&self) -> Option<Map<String, Value>> {
        let Some(Close::Report(report)) = self.transcript.close() else { return None };
        report.to_map().get("usage")?.as_object().cloned()
    }

    /// Why the answer ended, once it has: `completed`, `cancelled`, `length`, …
    pub fn reason(&self) -> Option<String> {
        self.transcript.close().map(Close::reason)
    }

    fn with_text(&self, error: CapError) -> CapError {
        match error {
            CapError::Runtime(mut runtime) => {
                runtime.partial_text = Some(self.transcript.text().to_owned());
                CapError::Runtime(runtime)
            }
            other @ (CapError::Connection(_) | CapError::Protocol(_)) => other,
        }
    }
}

fn text_of(packet: StreamPacket) -> Result<Option<String>, CapError> {
    match packet.payload {
        Payload::Delta(text) => Ok(Some(text)),
        Payload::Event(raw) if matches!(Event::of(&raw).view(), EventView::Reset(_)) => {
            Err(reset())
        }
        Payload::Event(_) | Payload::Error(_) | Payload::Close(_) => Ok(None),
    }
}

fn reset() -> CapError {
    let message = "A second attempt gave another answer; text that was already handed out is void.";
    let severity = capstan_protocol::ErrorSeverity::Transient;
    let error = Some(StreamError::new(event::STREAM_RESET, message, severity));
    CapError::Runtime(Box::new(RuntimeError { error, ..RuntimeError::default() }))
}

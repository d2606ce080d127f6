//! Assembles frames into complete messages, each with its error.
//!
//! When a stream breaks in the middle, the CLI closes it silently and reports the error later, in a
//! synthetic frame. The error belongs to the message that broke off, so this module joins them.

use serde_json::Value;

use super::error::AssistantError;
use super::frame::{AssistantMessage, Block, Frame, ResultMessage, StreamEvent};

/// The model name of the CLI's own frames.
const SYNTHETIC: &str = "<synthetic>";

/// A message of the agent's, assembled from its frames.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Message {
    /// The provider's id.
    pub id: Option<String>,
    /// The text: of the finished blocks, or of the pieces that came before the stream broke off.
    pub text: String,
    /// Whether it broke off before a block was complete.
    pub is_partial: bool,
    /// Why it is not an answer.
    pub error: Option<AssistantError>,
    /// The CLI's text about the error.
    pub error_text: Option<String>,
    /// The tool call of the subagent that wrote this.
    pub parent_tool_use_id: Option<String>,
}

/// The result of a run of the CLI.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// The messages, in the order in which they began.
    pub messages: Vec<Message>,
    /// The last result frame.
    pub result: Option<ResultMessage>,
}

impl Outcome {
    /// The error of the run, if the result reports a failure: the last one of a message outside
    /// subagents.
    pub fn error(&self) -> Option<&AssistantError> {
        let failed = self.result.as_ref().is_some_and(|result| result.is_error);
        let mut own = self.messages.iter().rev().filter(|m| m.parent_tool_use_id.is_none());
        if failed { own.find_map(|m| m.error.as_ref()) } else { None }
    }
}

/// Collects frames into messages.
#[derive(Debug, Default)]
pub struct Assembler {
    done: Outcome,
    /// The message whose stream is open, or was closed without a finished block.
    open: Option<Message>,
}

impl Assembler {
    /// An assembler that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next frame.
    pub fn push(&mut self, frame: &Frame) {
        match frame {
            Frame::Assistant(message) => self.assistant(message),
            Frame::StreamEvent(event) => self.stream_event(event),
            Frame::Result(result) => {
                self.close_open();
                self.done.result = Some(result.clone());
            }
            Frame::User(_)
            | Frame::System(_)
            | Frame::RateLimit(_)
            | Frame::ConversationReset
            | Frame::Unknown(_) => {}
        }
    }

    /// Returns the result of all frames.
    pub fn finish(mut self) -> Outcome {
        self.close_open();
        self.done
    }

    fn assistant(&mut self, frame: &AssistantMessage) {
        let error = frame.any_error().cloned();
        let belongs = |open: &mut Message| open.parent_tool_use_id == frame.parent_tool_use_id;
        if let Some(mut broken) =
            self.open.take_if(|open| belongs(open) && frame.model == SYNTHETIC && error.is_some())
        {
            broken.error = error;
            broken.error_text = Some(frame.text());
            return self.done.messages.push(broken);
        }
        // A finished block supersedes the pieces that were streamed for it.
        let had_stop_error = self
            .open
            .take_if(|open| open.id.is_some() && open.id == frame.id)
            .and_then(|open| open.error);
        let error = error.or(had_stop_error);
        if let Some(known) = self.known(frame) {
            known.text.push_str(&frame.text());
            known.error = error.or(known.error.take());
            return;
        }
        let is_word = error.is_some() && frame.model == SYNTHETIC;
        self.done.messages.push(Message {
            id: frame.id.clone(),
            text: frame.text(),
            is_partial: false,
            error_text: is_word.then(|| frame.text()),
            error,
            parent_tool_use_id: frame.parent_tool_use_id.clone(),
        });
    }

    /// One message may span several frames, a block each.
    fn known(&mut self, frame: &AssistantMessage) -> Option<&mut Message> {
        let id = frame.id.as_ref()?;
        self.done
            .messages
            .iter_mut()
            .rev()
            .find(|m| m.id.as_ref() == Some(id) && m.parent_tool_use_id == frame.parent_tool_use_id)
    }

    fn stream_event(&mut self, frame: &StreamEvent) {
        let event = &frame.event;
        match event.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                // After a retry, the text of the broken stream is not part of the answer.
                let id = event.pointer("/message/id").and_then(Value::as_str).map(str::to_owned);
                let parent_tool_use_id = frame.parent_tool_use_id.clone();
                self.open = Some(Message {
                    id,
                    is_partial: true,
                    parent_tool_use_id,
                    ..Message::default()
                });
            }
            Some("content_block_delta") => {
                let piece = event.pointer("/delta/text").and_then(Value::as_str);
                if let (Some(open), Some(piece)) = (&mut self.open, piece) {
                    open.text.push_str(piece);
                }
            }
            _ => {}
        }
        if let Some(error) = &frame.error {
            self.stop_error(error);
        }
    }

    /// An error on message_stop belongs to the open message, or to the one that was just finished.
    fn stop_error(&mut self, error: &AssistantError) {
        let target = self.open.as_mut().or(self.done.messages.last_mut());
        if let Some(message) = target {
            message.error = Some(error.clone());
        }
    }

    /// An unfinished stream with text still counts as a message.
    fn close_open(&mut self) {
        if let Some(open) = self.open.take_if(|open| !open.text.is_empty() || open.error.is_some())
        {
            self.done.messages.push(open);
        }
        self.open = None;
    }
}

impl Block {
    /// The text of a text block.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

//! The protocols of the provider: the form of an answer, an error and a heartbeat in each.

mod chat;
mod messages;
mod responses;

use serde_json::Value;

use crate::fault::Fault;
use crate::output::{Output, Piece};
use crate::protocol::{Complaint, Shape};
use crate::question::Question;

/// The purpose of a frame, which decides where faults strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Open,
    Token,
    Finish,
    Usage,
    Done,
}

/// The part of the answer that a frame belongs to. Places are found by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Thinking,
    Text,
    Call,
    /// The arguments of the first call.
    FirstArguments,
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    pub(crate) mark: Mark,
    pub(crate) part: Option<Part>,
    pub(crate) event: Option<&'static str>,
    pub(crate) data: String,
}

impl Frame {
    fn new(mark: Mark, data: &Value) -> Self {
        Self { mark, part: None, event: None, data: data.to_string() }
    }

    fn of(self, part: Part) -> Self {
        Self { part: Some(part), ..self }
    }

    fn named(mark: Mark, event: &'static str, data: &Value) -> Self {
        Self { event: Some(event), ..Self::new(mark, data) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let event = self.event.map(|event| format!("event: {event}\n")).unwrap_or_default();
        format!("{event}data: {}\n\n", self.data).into_bytes()
    }
}

impl Part {
    fn of(piece: &Piece) -> Self {
        match piece {
            Piece::Reasoning(_) | Piece::Seal(_) | Piece::Redacted(_) => Self::Thinking,
            Piece::Text(_) => Self::Text,
            Piece::Arguments { index: 0, .. } => Self::FirstArguments,
            Piece::Call { .. } | Piece::Arguments { .. } => Self::Call,
        }
    }
}

impl Shape {
    /// The answer as a stream. Some faults change how it is written.
    pub(crate) fn frames(
        self,
        question: &Question,
        output: &Output,
        fault: Option<Fault>,
    ) -> Vec<Frame> {
        match self {
            Self::Chat => chat::frames(question, output, fault),
            Self::Responses => responses::frames(question, output),
            Self::Messages => messages::frames(question, output),
        }
    }

    /// The answer as one document.
    pub(crate) fn collected(self, question: &Question, output: &Output) -> Value {
        match self {
            Self::Chat => chat::collected(question, output),
            Self::Responses => responses::collected(question, output),
            Self::Messages => messages::collected(question, output),
        }
    }

    /// A refusal's body.
    pub(crate) fn error(self, complaint: &Complaint) -> Value {
        match self {
            Self::Chat | Self::Responses => chat::error(complaint),
            Self::Messages => messages::error(complaint),
        }
    }

    /// A failure within a stream.
    pub(crate) fn error_frame(self, complaint: &Complaint) -> Frame {
        match self {
            Self::Chat => Frame::new(Mark::Finish, &chat::error(complaint)),
            Self::Responses => responses::error_frame(complaint),
            Self::Messages => Frame::named(Mark::Finish, "error", &messages::error(complaint)),
        }
    }

    /// A heartbeat without content.
    pub(crate) fn ping(self) -> Vec<u8> {
        match self {
            Self::Chat | Self::Responses => b": ping\n\n".to_vec(),
            Self::Messages => b"event: ping\ndata: {\"type\":\"ping\"}\n\n".to_vec(),
        }
    }

    /// A token without text.
    pub(crate) fn empty_delta(self, question: &Question) -> Vec<u8> {
        match self {
            Self::Chat => chat::empty_delta(question).bytes(),
            Self::Responses => responses::empty_delta().bytes(),
            Self::Messages => messages::empty_delta().bytes(),
        }
    }
}

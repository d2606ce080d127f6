//! What an agent writes, one thing at a time.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::agui::Interrupt;
use capstan_protocol::{NATIVE, RawObject, StreamError};
use serde_json::{Map, Value};

use crate::calls::{CallBegan, CallEnded};

/// One output of an agent. The type is small, because each token is one and moves several times.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Text.
    Delta(String),
    /// A presentation event: the complete payload.
    Event {
        /// Its type.
        kind: String,
        /// `{id, timestamp, type, data}`.
        payload: RawObject,
    },
    /// The agent repeats a part of this attempt. The first `keep` bytes of its text stay valid; the
    /// rest is compared with what was sent before. Upstreams that retry by themselves cause this.
    Again {
        /// Bytes of this attempt's text.
        keep: usize,
    },
    /// The upstream continues an answer that broke off: what follows adds to it.
    Continued(Continued),
    /// Something minor failed; the run continues.
    Warning(Box<StreamError>),
    /// The model that answers.
    Model(String),
    /// The usage so far.
    Usage(Map<String, Value>),
    /// Why the answer ends, if not because it is complete: `length`, for example.
    Reason(String),
    /// The id of work that this attempt started elsewhere, by which it can be ended.
    FarId(String),
    /// A question that the user must answer before the conversation can continue. It is valid only
    /// if the attempt then succeeds.
    Interrupt(Box<Interrupt>),
    /// An upstream is called.
    CallBegan(Box<CallBegan>),
    /// A call of a route's member is over.
    CallEnded(Box<CallEnded>),
    /// The member of a route that produces the following outputs.
    Member(Arc<str>),
}

impl Output {
    /// Whether it is a part of the answer. After the first such output the attempt may call no
    /// other member. A `NATIVE` event is none, because clients of other protocols never see it.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Event { kind, .. } => kind != NATIVE,
            Self::Delta(_) | Self::Again { .. } | Self::Interrupt(_) => true,
            Self::Continued(_)
            | Self::Warning(_)
            | Self::Model(_)
            | Self::Usage(_)
            | Self::Reason(_)
            | Self::FarId(_)
            | Self::CallBegan(_)
            | Self::CallEnded(_)
            | Self::Member(_) => false,
        }
    }
}

/// How an upstream continues an answer that broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continued {
    /// The model received the answer so far as the beginning of its own.
    Prefill,
    /// The upstream has stored its stream, and sends the rest of it.
    Resume,
}

/// The run was stopped, and nobody reads further outputs. Return it with `?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run was stopped")
    }
}

impl std::error::Error for Stopped {}

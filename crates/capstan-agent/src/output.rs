//! What an agent writes, one thing at a time.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::agui::Interrupt;
use capstan_protocol::{NATIVE, RawObject, StreamError};
use serde_json::{Map, Value};

use crate::calls::{CallBegan, CallEnded};

/// One thing that an agent wrote. It is small, since each token is one and is moved from hand to
/// hand.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Text.
    Delta(String),
    /// A presentation event: the whole payload.
    Event {
        /// Its type.
        kind: String,
        /// `{id, timestamp, type, data}`.
        payload: RawObject,
    },
    /// A part of this attempt is said anew: of its text the first `keep` bytes stand, what follows
    /// is compared with what was sent before. Upstreams do that when they retry by themselves.
    Again {
        /// Bytes of this attempt's text.
        keep: usize,
    },
    /// Something minor failed; the run goes on.
    Warning(Box<StreamError>),
    /// Which model answers.
    Model(String),
    /// What it took, so far.
    Usage(Map<String, Value>),
    /// Why the answer ends, if not because it is complete: `length`, for example.
    Reason(String),
    /// What this attempt works with elsewhere, under the id by which it can be ended.
    FarId(String),
    /// What a person must answer before the conversation can go on. It holds if the attempt then
    /// succeeds.
    Interrupt(Box<Interrupt>),
    /// An upstream is called.
    CallBegan(Box<CallBegan>),
    /// A call of a route's member is over.
    CallEnded(Box<CallEnded>),
    /// The member of a route that says what follows.
    Member(Arc<str>),
}

impl Output {
    /// Whether it is a part of the answer. After the first that is, nobody else may be asked within
    /// the attempt. A `NATIVE` event is none: clients of other protocols never see it.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Event { kind, .. } => kind != NATIVE,
            Self::Delta(_) | Self::Again { .. } | Self::Interrupt(_) => true,
            Self::Warning(_)
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

/// The run was stopped: nobody takes what is written any more. Returning it with `?` is the right
/// thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run was stopped")
    }
}

impl std::error::Error for Stopped {}

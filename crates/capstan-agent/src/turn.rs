//! What an agent is asked.

use std::sync::Arc;

use capstan_protocol::ChatMessage;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::cancel::Cancel;
use crate::trace::TraceParent;

/// One turn of a conversation, for one attempt.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The run, the same in all its attempts: a key for upstreams that start a run once.
    pub run: Uuid,
    /// The name under which the agent is asked.
    pub agent: Arc<str>,
    /// What the user says now.
    pub message: ChatMessage,
    /// What was said before, oldest first.
    pub history: Arc<Vec<ChatMessage>>,
    /// The conversation.
    pub session: String,
    /// The request's free-form payload, for agents that want more than the message.
    pub payload: Arc<Map<String, Value>>,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// What earlier attempts have already sent.
    pub sent: Sent,
    /// The trace that this attempt is a part of, to be passed on to whatever it calls.
    pub trace: Option<TraceParent>,
    /// Says why the attempt is broken off, if it is. Its future is dropped as well; this is for work that outlives it.
    pub cancel: Cancel,
}

/// What earlier attempts have sent to the reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    /// The text so far.
    pub text: String,
    /// How many presentation events so far.
    pub events: u64,
}

impl Turn {
    /// A first attempt at a lone message.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            run: Uuid::now_v7(),
            agent: Arc::from(""),
            message: ChatMessage::user(text),
            history: Arc::default(),
            session: String::new(),
            payload: Arc::default(),
            attempt: 1,
            sent: Sent::default(),
            trace: None,
            cancel: Cancel::default(),
        }
    }

    /// The text of the message.
    pub fn text(&self) -> String {
        self.message.text()
    }
}

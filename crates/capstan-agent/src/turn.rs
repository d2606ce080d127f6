//! What an agent is asked.

use std::ops::Range;
use std::sync::Arc;

use capstan_protocol::agui::{Context, ResumeEntry, Tool};
use capstan_protocol::{ChatMessage, Dialect, Parameters, RawJson, RawObject, Role};
use uuid::Uuid;

use crate::calls::CallsMade;
use crate::cancel::Cancel;
use crate::trace::TraceParent;

/// One turn of a conversation, for one attempt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Turn {
    /// The run, the same in all its attempts: a key for upstreams that start a run once.
    pub run: Uuid,
    /// The name under which the agent is asked.
    pub agent: Arc<str>,
    /// From the last user message on: the message itself, and what has been called and answered
    /// since.
    pub messages: Arc<[ChatMessage]>,
    /// What was said before, oldest first. Runs of one conversation share the messages.
    pub history: Arc<[Arc<ChatMessage>]>,
    /// Which messages of the conversation the session remembers. The request tells the others, so
    /// that they stand in the payload.
    pub stored: Range<usize>,
    /// The conversation.
    pub session: String,
    /// The caller's tools: a call of one is answered by the caller, in its next request.
    pub tools: Arc<[Tool]>,
    /// What the caller wants to be known besides.
    pub context: Arc<[Context]>,
    /// The caller's state.
    pub state: Option<Arc<RawJson>>,
    /// What the caller's application passes on.
    pub forwarded: Option<Arc<RawJson>>,
    /// Answers to what an earlier run asked.
    pub answers: Arc<[ResumeEntry]>,
    /// How a model should answer.
    pub parameters: Arc<Parameters>,
    /// The request's free-form payload as it came, for agents that want more than all this.
    pub payload: Arc<RawObject>,
    /// The protocol in which the payload is written, if it is a provider's own.
    pub dialect: Option<Dialect>,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// What earlier attempts have already sent.
    pub sent: Sent,
    /// What earlier attempts have called.
    pub made: CallsMade,
    /// The trace that this attempt is a part of, to be passed on to whatever it calls.
    pub trace: Option<TraceParent>,
    /// Says why the attempt is broken off, if it is. Its future is dropped as well; this is for
    /// work that outlives it.
    pub cancel: Cancel,
}

/// What earlier attempts have sent to the reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    /// The text so far.
    pub text: String,
    /// How many presentation events so far.
    pub events: u64,
    /// Whether a model could go on from the text: it is whole, and nothing was called after it or
    /// within it.
    pub can_continue: bool,
}

impl Turn {
    /// A first attempt at a lone message.
    pub fn new(text: impl Into<String>) -> Self {
        Self::of(ChatMessage::user(text))
    }

    /// A first attempt at a lone message of any parts.
    pub fn of(message: ChatMessage) -> Self {
        Self::talk(vec![message])
    }

    /// A first attempt at a conversation: what stands before its last user message is history.
    pub fn talk(mut messages: Vec<ChatMessage>) -> Self {
        let last = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let tail = messages.split_off(last);
        Self {
            run: Uuid::now_v7(),
            agent: Arc::from(""),
            messages: tail.into(),
            history: messages.into_iter().map(Arc::new).collect(),
            stored: 0..0,
            session: String::new(),
            tools: Arc::default(),
            context: Arc::default(),
            state: None,
            forwarded: None,
            answers: Arc::default(),
            parameters: Arc::default(),
            payload: Arc::default(),
            dialect: None,
            attempt: 1,
            sent: Sent::default(),
            made: CallsMade::default(),
            trace: None,
            cancel: Cancel::default(),
        }
    }

    /// What the user says; nothing if there is no user message at all.
    pub fn message(&self) -> Option<&ChatMessage> {
        self.messages.first().filter(|message| message.role == Role::User)
    }

    /// The text of what the user says.
    pub fn text(&self) -> String {
        self.message().map(ChatMessage::text).unwrap_or_default()
    }

    /// The whole conversation, oldest first.
    pub fn conversation(&self) -> impl Iterator<Item = &ChatMessage> {
        self.history.iter().map(Arc::as_ref).chain(self.messages.iter())
    }

    /// What the payload does not tell of the conversation, with the places of its messages.
    pub fn remembered(&self) -> impl Iterator<Item = (usize, &ChatMessage)> {
        let Range { start, end } = self.stored;
        self.conversation().enumerate().take(end).skip(start)
    }

    /// The answer to an interrupt, if it was answered.
    pub fn answer(&self, interrupt: &str) -> Option<&ResumeEntry> {
        self.answers.iter().find(|answer| answer.interrupt_id == interrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_tail_from_the_last_user_message_on() {
        let said = vec![
            ChatMessage::user("a"),
            ChatMessage::assistant("b"),
            ChatMessage::user("c"),
            ChatMessage::assistant("calls"),
            ChatMessage::tool("id", "result"),
        ];
        let turn = Turn::talk(said);
        assert_eq!((turn.history.len(), turn.messages.len(), turn.text().as_str()), (2, 3, "c"));
        assert_eq!(turn.conversation().count(), 5);
        let bare = Turn::talk(vec![ChatMessage::tool("id", "result")]);
        assert_eq!((bare.text().as_str(), bare.message()), ("", None));
    }
}

//! The input of an agent.

use std::ops::Range;
use std::sync::Arc;

use capstan_protocol::agui::{Context, ResumeEntry, Tool};
use capstan_protocol::{ChatMessage, DecodeError, Dialect, Parameters, RawJson, RawObject, Role};
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
    /// The name of the agent that the client requested.
    pub agent: Arc<str>,
    /// The last user message, and the calls and results after it.
    pub messages: Arc<[ChatMessage]>,
    /// The earlier messages, oldest first. Runs of one conversation share them.
    pub history: Arc<[Arc<ChatMessage>]>,
    /// The messages of the conversation that come from the session. The others are in the payload.
    pub stored: Range<usize>,
    /// The conversation.
    pub session: String,
    /// The caller's tools: a call of one is answered by the caller, in its next request.
    pub tools: Arc<[Tool]>,
    /// The caller's further information.
    pub context: Arc<[Context]>,
    /// The caller's state.
    pub state: Option<Arc<RawJson>>,
    /// The properties that the caller's application forwards.
    pub forwarded: Option<Arc<RawJson>>,
    /// Answers to the questions of the run before this one.
    pub answers: Arc<[ResumeEntry]>,
    /// Answers that earlier runs of the same turn got, oldest first: for agents that start anew and
    /// ask again.
    pub earlier_answers: Arc<[ResumeEntry]>,
    /// Parameters for the model.
    pub parameters: Arc<Parameters>,
    /// The request's unchanged free-form payload, for agents that need more.
    pub payload: Arc<RawObject>,
    /// The protocol in which the payload is written, if it is a provider's own.
    pub dialect: Option<Dialect>,
    /// The first thing in the payload that only agents of `dialect` can judge. Others refuse it.
    pub untranslatable: Option<DecodeError>,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The output of earlier attempts.
    pub sent: Sent,
    /// The calls of earlier attempts.
    pub made: CallsMade,
    /// The trace of this attempt, to forward to upstreams.
    pub trace: Option<TraceParent>,
    /// Tells why the attempt is cancelled. Its future is dropped as well; this is for work that
    /// outlives it.
    pub cancel: Cancel,
}

/// The output of earlier attempts that readers have received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    /// The text so far.
    pub text: String,
    /// The number of presentation events so far.
    pub events: u64,
    /// Whether a model could continue the text: it is complete so far, and no tool call follows it
    /// or is inside it.
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
            earlier_answers: Arc::default(),
            parameters: Arc::default(),
            payload: Arc::default(),
            dialect: None,
            untranslatable: None,
            attempt: 1,
            sent: Sent::default(),
            made: CallsMade::default(),
            trace: None,
            cancel: Cancel::default(),
        }
    }

    /// The user's message; none if there is no user message.
    pub fn message(&self) -> Option<&ChatMessage> {
        self.messages.first().filter(|message| message.role == Role::User)
    }

    /// The text of the user's message.
    pub fn text(&self) -> String {
        self.message().map(ChatMessage::text).unwrap_or_default()
    }

    /// All messages of the conversation, oldest first.
    pub fn conversation(&self) -> impl Iterator<Item = &ChatMessage> {
        self.history.iter().map(Arc::as_ref).chain(self.messages.iter())
    }

    /// The messages that the payload does not contain, with their places.
    pub fn remembered(&self) -> impl Iterator<Item = (usize, &ChatMessage)> {
        let Range { start, end } = self.stored;
        self.conversation().enumerate().take(end).skip(start)
    }

    /// All answers of the turn, oldest first.
    pub fn all_answers(&self) -> impl Iterator<Item = &ResumeEntry> {
        self.earlier_answers.iter().chain(self.answers.iter())
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

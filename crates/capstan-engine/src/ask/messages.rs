//! The messages of a request, or of a whole conversation.

use std::sync::Arc;

use capstan_protocol::{ChatMessage, Role};

/// Messages, oldest first, split at the last user message, where the agent's turn begins. Clones
/// share them.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    /// The messages before the last user message.
    pub history: Arc<[Arc<ChatMessage>]>,
    /// The last user message, and the messages after it.
    pub turn: Arc<[ChatMessage]>,
}

impl From<Vec<ChatMessage>> for Messages {
    fn from(messages: Vec<ChatMessage>) -> Self {
        messages.into_iter().map(Arc::new).collect::<Vec<_>>().into()
    }
}

impl From<Vec<Arc<ChatMessage>>> for Messages {
    fn from(mut messages: Vec<Arc<ChatMessage>>) -> Self {
        let last = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let turn = messages.split_off(last).into_iter().map(Arc::unwrap_or_clone).collect();
        Self { history: messages.into(), turn }
    }
}

impl Messages {
    /// The messages in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ChatMessage> {
        self.history.iter().map(Arc::as_ref).chain(self.turn.iter())
    }

    pub(crate) fn has_user(&self) -> bool {
        self.turn.first().is_some_and(|first| first.role == Role::User)
    }
}

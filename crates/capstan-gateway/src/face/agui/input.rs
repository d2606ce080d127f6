//! What a run was given, for those who are told the conversation anew.

use capstan_journal::{JournalError, Run};
use capstan_protocol::{ChatMessage, Role};
use serde_json::{Value, json};
use uuid::Uuid;

use super::NAME;
use crate::app::App;

#[derive(Debug, Default)]
pub(super) struct Input {
    /// AG-UI messages as the client sent them, or as a request of another face would look in AG-UI.
    pub(super) messages: Vec<Value>,
    pub(super) state: Option<Value>,
}

impl Input {
    pub(super) async fn load(app: &App, stream: Uuid) -> Result<Self, JournalError> {
        let store = app.journal.store();
        let Some(run) = store.run(stream).await? else { return Ok(Self::default()) };
        let Some(body) = store.body(stream).await? else { return Ok(Self::default()) };
        Ok(if run.face == NAME { Self::of_agui(&body) } else { Self::of_other(app, &run, &body) })
    }

    fn of_agui(body: &[u8]) -> Self {
        let input: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut messages = input.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
        for message in messages.iter_mut().filter_map(Value::as_object_mut) {
            // Absent is the only spelling that all clients take.
            message.retain(|_, value| !value.is_null());
        }
        Self { messages, state: input.get("state").filter(|state| state.is_object()).cloned() }
    }

    fn of_other(app: &App, run: &Run, body: &[u8]) -> Self {
        let Ok(ask) = app.asked(run, body) else { return Self::default() };
        let stream = run.stream_id;
        let messages = ask
            .messages
            .iter()
            .enumerate()
            .filter_map(|(n, message)| of_chat(&format!("{stream}:in.{n}"), message));
        Self { messages: messages.collect(), state: None }
    }
}

/// Tool messages are left out: the calls that they answer have no place in a request of CAP's.
fn of_chat(id: &str, message: &ChatMessage) -> Option<Value> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => return None,
    };
    Some(json!({ "id": id, "role": role, "content": message.text() }))
}

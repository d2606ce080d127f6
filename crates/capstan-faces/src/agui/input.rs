//! The messages that a run was given, for viewers that get the whole conversation.

use std::collections::BTreeMap;

use bytes::Bytes;
use capstan_journal::{JournalError, Run};
use capstan_protocol::{ChatMessage, RawJson, Role};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::NAME;
use crate::face::FaceContext;

#[derive(Debug, Default)]
pub(super) struct Input {
    /// AG-UI messages as the client sent them, or those of another face's request in AG-UI's
    /// format.
    pub(super) messages: Vec<RawJson>,
    pub(super) state: Option<RawJson>,
}

/// The messages and the state of a body.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Restated {
    messages: Vec<BTreeMap<String, RawJson>>,
    state: Option<RawJson>,
}

impl Input {
    pub(super) async fn load(cx: &FaceContext, stream: Uuid) -> Result<Self, JournalError> {
        let store = cx.engine.store();
        let Some(run) = store.run(stream).await? else { return Ok(Self::default()) };
        let Some(body) = store.body(stream).await? else { return Ok(Self::default()) };
        Ok(if run.face == NAME { Self::of_agui(&body) } else { Self::of_other(cx, &run, body) })
    }

    fn of_agui(body: &[u8]) -> Self {
        let Restated { mut messages, state } = serde_json::from_slice(body).unwrap_or_default();
        // All clients accept an absent member, but not null.
        messages.iter_mut().for_each(|message| message.retain(|_, value| value.get() != "null"));
        let messages =
            messages.iter().filter_map(|message| RawJson::from_serialize(message).ok()).collect();
        Self { messages, state: state.filter(|state| state.get().starts_with('{')) }
    }

    /// The memory that it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        self.messages.iter().chain(&self.state).map(|text| text.get().len()).sum()
    }

    fn of_other(cx: &FaceContext, run: &Run, body: Bytes) -> Self {
        let Ok(ask) = cx.engine.asked(run, body) else { return Self::default() };
        let stream = run.stream_id;
        let messages = ask
            .messages
            .iter()
            .enumerate()
            .filter_map(|(n, message)| of_chat(&format!("{stream}:in.{n}"), message));
        Self { messages: messages.collect(), state: None }
    }
}

/// Tool messages are left out, because a CAP request does not contain the calls that they answer.
fn of_chat(id: &str, message: &ChatMessage) -> Option<RawJson> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => return None,
    };
    Some(json!({ "id": id, "role": role, "content": message.text() }).into())
}

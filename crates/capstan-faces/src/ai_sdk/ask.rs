//! Decodes the request of a page.

use std::sync::Arc;

use capstan_protocol::{DecodeError, Fault, RawJson};
use serde::Deserialize;
use uuid::Uuid;

use super::message::{UiMessage, UiRole};
use capstan_engine::ask::{Ask, Extras, LONGEST_ID, Payload, RequestBody, invalid, is_whole};

/// The trigger of a request for another answer.
const REGENERATE: &str = "regenerate-message";

/// The whole chat, or only its new message.
type Posted = Payload<Vec<UiMessage>, UiMessage>;

/// The transport sends the whole chat. A page with a chat on its server sends the last message.
/// A request is new, and gets a key, even if its body equals an earlier one, if its chat is unknown
/// (`WorkflowChatTransport` sends no id), or if it wants another answer.
pub(super) fn from_ai_sdk(body: &RequestBody) -> Result<Ask, Fault> {
    let mut posted: Posted = body.decode()?;
    let chat = chat_of(posted.id.take())?;
    let is_another =
        |trigger: RawJson| trigger.decode().map_or(true, |word: String| word == REGENERATE);
    let is_new = chat.is_none() || posted.trigger.take().is_some_and(is_another);
    let (messages, message) = (posted.messages.take().unwrap_or_default(), posted.message.take());
    let extras = posted.into_extras(body.object()?);
    let goes_on = message.as_ref().or(messages.last());
    let goes_on = goes_on.filter(|last| last.role == UiRole::Assistant);
    let answers = goes_on.map(UiMessage::answers).unwrap_or_default();
    let (told, place) = match &message {
        Some(message) if message.role == UiRole::Assistant => (message.results(), "message"),
        Some(message) => (message.to_chat(true), "message"),
        None => {
            let last = messages.len().saturating_sub(1);
            let chat = messages.iter().enumerate();
            let chat = chat.flat_map(|(at, message)| message.to_chat(at == last));
            (chat.collect(), "messages")
        }
    };
    let is_whole = is_whole(&told, !answers.is_empty(), place)? && message.is_none();
    let key = if is_new { Uuid::now_v7().to_string() } else { String::new() };
    let session = chat.clone().unwrap_or_default();
    let extras = Extras { answers, ..extras };
    Ok(Ask { chat, is_whole, extras, ..Ask::new(key, session, told) })
}

/// The chat's id.
fn chat_of(id: Option<RawJson>) -> Result<Option<String>, Fault> {
    let Some(id) = id else { return Ok(None) };
    let id: String = id.decode().map_err(|error| invalid(&error.inside("id")))?;
    if id.is_empty() || id.len() > LONGEST_ID {
        let wrong = format!("must have 1 to {LONGEST_ID} bytes");
        return Err(invalid(&DecodeError::value("id", wrong)));
    }
    Ok(Some(id))
}

/// The values that the face reads from a stored body, after a restart and for later viewers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RunOptions {
    messages: Vec<UiMessage>,
    message: Option<UiMessage>,
    /// The page uses dynamic tool types.
    pub(super) dynamic_tools: bool,
}

impl RunOptions {
    pub(super) fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The message that the run continues: one whose calls or questions were answered.
    pub(super) fn continued(self) -> Option<Arc<UiMessage>> {
        let last = self.message.or_else(|| self.messages.into_iter().last())?;
        (last.role == UiRole::Assistant && !last.id.is_empty()).then(|| Arc::new(last))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(body: &Value) -> Result<Ask, Fault> {
        from_ai_sdk(&body.clone().into())
    }

    fn user() -> Value {
        json!({ "id": "u", "role": "user", "parts": [{ "type": "text", "text": "Hi" }] })
    }

    #[test]
    fn the_chat_is_the_session_and_its_messages_are_all_of_it() {
        let asked = ask(&json!({ "id": "c", "messages": [user()], "trigger": "submit-message",
            "tools": [{ "name": "f", "description": "d" }], "temperature": 0.5 }))
        .unwrap();
        assert_eq!(
            (asked.session.as_str(), asked.chat.as_deref(), asked.is_whole),
            ("c", Some("c"), true)
        );
        assert_eq!((asked.extras.tools.len(), asked.extras.parameters.temperature), (1, Some(0.5)));
        let asked = ask(&json!({ "id": "c", "message": user() })).unwrap();
        assert!(!asked.is_whole && asked.messages.turn[0].text() == "Hi");
    }

    #[test]
    fn without_a_chat_each_question_is_another() {
        let body = json!({ "messages": [user()] });
        let asked = ask(&body).unwrap();
        assert_eq!((asked.session.as_str(), asked.chat), ("", None));
        assert!(!asked.key.is_empty());
        let asked = ask(&json!({ "id": "c", "messages": [user()] })).unwrap();
        assert!(asked.key.is_empty(), "its body is its key");
        let again = json!({ "id": "c", "messages": [user()], "trigger": REGENERATE });
        assert!(!ask(&again).unwrap().key.is_empty());
    }

    #[test]
    fn tool_results_alone_continue_the_stored_conversation() {
        let tool = json!({ "type": "tool-f", "toolCallId": "c", "state": "output-available",
        "input": {}, "output": 1 });
        let message =
            json!({ "id": "a", "role": "assistant", "parts": [{ "type": "step-start" }, tool] });
        let asked = ask(&json!({ "id": "c", "message": message })).unwrap();
        assert!(!asked.is_whole);
        assert_eq!(asked.messages.iter().count(), 1);
        let options =
            RunOptions::of(json!({ "messages": [user(), message] }).to_string().as_bytes());
        assert_eq!(options.continued().unwrap().id, "a");
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        for (body, place) in [
            (json!({ "id": 1, "messages": [user()] }), "id: "),
            (json!({ "id": "", "messages": [user()] }), "id: must have"),
            (json!({ "id": "c" }), "messages: holds no message of role user"),
            (
                json!({ "id": "c", "messages": [{ "role": "robot", "parts": [] }] }),
                "messages[0].role: ",
            ),
            (json!({ "id": "c", "messages": [user()], "tools": "all" }), "tools: "),
        ] {
            let fault = ask(&body).unwrap_err();
            assert!(fault.message().starts_with(place), "{fault}");
        }
    }
}

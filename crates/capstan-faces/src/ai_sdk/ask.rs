//! Decodes the request of a page.

use std::sync::Arc;

use capstan_protocol::{DecodeError, Fault, RawObject, decode};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::message::{UiMessage, UiRole};
use capstan_engine::ask::{Ask, Extras, LONGEST_ID, Payload, invalid, is_whole};

/// The trigger of a request for another answer.
const REGENERATE: &str = "regenerate-message";

/// The members that a chat's transport sends, beside the page's own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    /// The chat's id. `WorkflowChatTransport` does not send it.
    id: Option<String>,
    /// All messages.
    messages: Option<Vec<UiMessage>>,
    /// Or only the new message.
    message: Option<UiMessage>,
}

impl Posted {
    fn last(&self) -> Option<&UiMessage> {
        self.message.as_ref().or_else(|| self.messages.as_ref()?.last())
    }
}

/// The transport sends the whole chat. A page with a chat on its server sends the last message.
pub(super) fn from_ai_sdk(body: &[u8]) -> Result<Ask, Fault> {
    let posted: Posted = decode::from_slice(body).map_err(|e| invalid(&e))?;
    if posted.id.as_ref().is_some_and(|id| id.is_empty() || id.len() > LONGEST_ID) {
        return Err(invalid(&DecodeError::value(
            "id",
            format!("must have 1 to {LONGEST_ID} bytes"),
        )));
    }
    let payload: RawObject = decode::from_slice(body).map_err(|e| invalid(&e))?;
    let beside: Payload<IgnoredAny> = decode::from_slice(body).map_err(|e| invalid(&e))?;
    let extras = beside.into_extras(payload);
    let goes_on = posted.last().filter(|last| last.role == UiRole::Assistant);
    let answers = goes_on.map(UiMessage::answers).unwrap_or_default();
    let (messages, place) = match &posted.message {
        Some(message) if message.role == UiRole::Assistant => (message.results(), "message"),
        Some(message) => (message.to_chat(true), "message"),
        None => {
            let all = posted.messages.as_deref().unwrap_or_default();
            let last = all.len().saturating_sub(1);
            let chat = all.iter().enumerate().flat_map(|(at, message)| message.to_chat(at == last));
            (chat.collect(), "messages")
        }
    };
    let is_whole = is_whole(&messages, !answers.is_empty(), place)? && posted.message.is_none();
    let (chat, session) = (posted.id.clone(), posted.id.unwrap_or_default());
    let extras = Extras { answers, ..extras };
    Ok(Ask { chat, is_whole, extras, ..Ask::new(String::new(), session, messages) })
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

/// Whether this request is new even if its body equals an earlier one: its chat is unknown, or it
/// wants another answer.
pub(super) fn is_another(body: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    struct Asked {
        id: Option<IgnoredAny>,
        trigger: Option<String>,
    }
    let asked: Asked = serde_json::from_slice(body).unwrap_or_default();
    asked.id.is_none() || asked.trigger.as_deref() == Some(REGENERATE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(body: &Value) -> Result<Ask, Fault> {
        from_ai_sdk(body.to_string().as_bytes())
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
        assert!(is_another(body.to_string().as_bytes()));
        assert!(!is_another(json!({ "id": "c", "messages": [user()] }).to_string().as_bytes()));
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

//! Decodes AG-UI's run input. The last user message is the turn, and earlier messages are the
//! history.

use std::sync::Arc;

use capstan_protocol::agui::{AguiMessage, ContentPart, MessageContent, PartSource, RunAgentInput};
use capstan_protocol::{Arguments, ChatMessage, DecodeError, Fault, Modality, Part, Role, agui};

use capstan_engine::ask::{Ask, Extras, LONGEST_ID, RequestBody, invalid, is_whole, parameters_of};

/// Decodes an AG-UI body. The agent gets tools, state, context and the rest unchanged.
pub(super) fn from_agui(body: &RequestBody) -> Result<Ask, Fault> {
    let input: RunAgentInput = body.decode()?;
    for (name, value) in [("runId", &input.run_id), ("threadId", &input.thread_id)] {
        if value.is_empty() || value.len() > LONGEST_ID {
            let wrong = format!("must have 1 to {LONGEST_ID} bytes");
            return Err(invalid(&DecodeError::value(name, wrong)));
        }
    }
    let messages: Vec<ChatMessage> = input.messages.iter().filter_map(message).collect();
    let answers = input.resume.unwrap_or_default();
    let is_whole = is_whole(&messages, !answers.is_empty(), "messages")?;
    let extras = Extras {
        tools: input.tools.into(),
        context: input.context.into(),
        state: input.state.map(Arc::new),
        parameters: Arc::new(parameters_of(input.forwarded_props.as_ref())),
        forwarded: input.forwarded_props.map(Arc::new),
        answers,
        payload: Arc::new(body.object()?),
        ..Extras::default()
    };
    let protocol_version = input.protocol_version;
    Ok(Ask {
        is_whole,
        extras,
        protocol_version,
        ..Ask::new(input.run_id, input.thread_id, messages)
    })
}

/// Converts a message for the agent. Activities are left out, because they are the front end's own
/// display.
fn message(message: &AguiMessage) -> Option<ChatMessage> {
    Some(match message {
        AguiMessage::Developer { content, .. } | AguiMessage::System { content, .. } => {
            ChatMessage::system(content)
        }
        AguiMessage::User { content, .. } => {
            ChatMessage { role: Role::User, parts: parts(content), name: None }
        }
        AguiMessage::Assistant { content, tool_calls, .. } => {
            let text = content.iter().map(|text| Part::Text { content: text.clone() });
            let calls = tool_calls.iter().flatten().map(call);
            ChatMessage { role: Role::Assistant, parts: text.chain(calls).collect(), name: None }
        }
        AguiMessage::Tool { content, tool_call_id, error, .. } => {
            let (text, error) = (content.text(), error.clone().unwrap_or_default());
            ChatMessage::tool(tool_call_id, if text.is_empty() { error } else { text })
        }
        AguiMessage::Reasoning { content, .. } => {
            let thought = Part::Reasoning { content: content.clone() };
            ChatMessage { role: Role::Assistant, parts: vec![thought], name: None }
        }
        AguiMessage::Activity { .. } => return None,
    })
}

fn call(call: &agui::ToolCall) -> Part {
    Part::ToolCall {
        name: call.function.name.clone(),
        arguments: Arguments::Text(call.function.arguments.clone()),
        id: Some(call.id.clone()),
    }
}

fn parts(content: &MessageContent) -> Vec<Part> {
    match content {
        MessageContent::Text(text) => vec![Part::Text { content: text.clone() }],
        MessageContent::Parts(parts) => parts.iter().filter_map(part).collect(),
    }
}

fn part(part: &ContentPart) -> Option<Part> {
    match part {
        ContentPart::Text { text } => Some(Part::Text { content: text.clone() }),
        ContentPart::Image { source } => Some(bytes(source, Modality::Image)),
        ContentPart::Audio { source } => Some(bytes(source, Modality::Audio)),
        ContentPart::Video { source } => Some(bytes(source, Modality::Video)),
        // There is no modality for documents, so their media type identifies them.
        ContentPart::Document { source } => Some(bytes(source, Modality::Text)),
        ContentPart::Binary { mime_type, id, url, data, filename } => {
            let (modality, mime_type) = (modality(mime_type), Some(mime_type.clone()));
            let blob = data.clone().map(|content| Part::Blob {
                content,
                modality,
                mime_type: mime_type.clone(),
                filename: filename.clone(),
            });
            let link = || {
                url.clone().map(|uri| Part::Uri {
                    uri,
                    modality,
                    mime_type: mime_type.clone(),
                    filename: filename.clone(),
                })
            };
            let file = || {
                id.clone().map(|file_id| Part::File {
                    file_id,
                    modality,
                    mime_type: mime_type.clone(),
                    filename: filename.clone(),
                })
            };
            blob.or_else(link).or_else(file)
        }
    }
}

fn bytes(source: &PartSource, modality: Modality) -> Part {
    let filename = None;
    match source {
        PartSource::Data { value, mime_type } => {
            let mime_type = Some(mime_type.clone());
            Part::Blob { content: value.clone(), modality, mime_type, filename }
        }
        PartSource::Url { value, mime_type } => {
            Part::Uri { uri: value.clone(), modality, mime_type: mime_type.clone(), filename }
        }
        PartSource::File { value, mime_type, .. } => {
            Part::File { file_id: value.clone(), modality, mime_type: mime_type.clone(), filename }
        }
    }
}

fn modality(mime_type: &str) -> Modality {
    match mime_type.split('/').next() {
        Some("image") => Modality::Image,
        Some("audio") => Modality::Audio,
        Some("video") => Modality::Video,
        _ => Modality::Text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(input: &Value) -> Result<Ask, Fault> {
        from_agui(&input.clone().into())
    }

    #[test]
    fn the_last_user_message_is_the_turn_and_the_rest_is_for_the_agent() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "f",
        "arguments": "{}" } });
        let asked =
            ask(&json!({ "threadId": "t", "runId": "r", "state": { "n": 1 }, "context": [],
            "tools": [{ "name": "f", "description": "d" }], "messages": [
                { "id": "1", "role": "system", "content": "Be brief." },
                { "id": "2", "role": "assistant", "content": "Yes?", "toolCalls": [call] },
                { "id": "3", "role": "tool", "content": "42", "toolCallId": "c" },
                { "id": "4", "role": "user", "content": [{ "type": "text", "text": "Hi" },
                    { "type": "binary", "mimeType": "image/png", "data": "AA==" }] } ] }))
            .unwrap();
        assert_eq!((asked.key.as_str(), asked.session.as_str()), ("r", "t"));
        let roles: Vec<Role> = asked.messages.iter().map(|m| m.role).collect();
        assert_eq!(roles, [Role::System, Role::Assistant, Role::Tool, Role::User]);
        assert_eq!(
            (asked.messages.turn[0].text().as_str(), asked.messages.turn[0].parts.len()),
            ("Hi", 2)
        );
        assert_eq!(asked.extras.state.unwrap().get(), r#"{"n":1}"#);
        assert_eq!(asked.extras.tools[0].name, "f");
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        let message = json!([{ "id": "1", "role": "user", "content": "Hi" }]);
        for (input, place) in [
            (json!({ "threadId": "t", "runId": "", "messages": message }), "runId: "),
            (json!({ "threadId": "t", "runId": "x".repeat(2000), "messages": message }), "runId: "),
            (
                json!({ "threadId": "t", "runId": "r", "messages": [] }),
                "messages: holds no message of role user, nor results",
            ),
        ] {
            let fault = ask(&input).unwrap_err();
            assert!(fault.message().starts_with(place), "{fault}");
        }
    }
}

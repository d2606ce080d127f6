//! A turn as input items of Responses.

use capstan_agent::Turn;
use capstan_protocol::{Arguments, ChatMessage, Fault, Modality, Part, Role};
use serde_json::{Value, json};

use crate::parts::{self, PartPath, call_id, mime, refused, response_text};

/// The system prompt and what the request wants to be known.
pub(super) fn instructions(turn: &Turn, system: Option<&str>) -> Option<String> {
    let all: Vec<String> =
        system.map(str::to_owned).into_iter().chain(parts::context(turn)).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

pub(super) fn items(turn: &Turn) -> Result<Vec<Value>, Fault> {
    let mut items = Vec::new();
    for (index, message) in parts::messages(turn) {
        append(index, message, &mut items)?;
    }
    Ok(items)
}

/// Calls and their answers are items of their own, between the messages.
fn append(index: usize, message: &ChatMessage, out: &mut Vec<Value>) -> Result<(), Fault> {
    let mut content = Vec::new();
    for (at, part) in message.parts.iter().enumerate() {
        let place = PartPath { message: index, part: at };
        match part {
            Part::ToolCall { name, arguments, id } => {
                say(message.role, &mut content, out);
                let arguments = match arguments {
                    Arguments::Object(object) => object.get().to_owned(),
                    Arguments::Text(text) => text.clone(),
                };
                out.push(
                    json!({ "type": "function_call", "call_id": call_id(id, at), "name": name,
                "arguments": arguments }),
                );
            }
            Part::ToolCallResponse { response, id } => {
                let output = response_text(response);
                out.push(json!({ "type": "function_call_output", "call_id": call_id(id, at),
                    "output": output }));
            }
            // What a model thought does not go back to it: a message holds no proof that it was so.
            Part::Reasoning { .. } | Part::Native(_) => {}
            Part::Text { .. } | Part::Blob { .. } | Part::File { .. } | Part::Uri { .. } => {
                content.push(piece(place, message.role, part)?);
            }
        }
    }
    say(message.role, &mut content, out);
    Ok(())
}

fn say(role: Role, content: &mut Vec<Value>, out: &mut Vec<Value>) {
    if !content.is_empty() {
        let role = match role {
            Role::System => "system",
            Role::User | Role::Tool => "user",
            Role::Assistant => "assistant",
        };
        out.push(json!({ "role": role, "content": std::mem::take(content) }));
    }
}

fn piece(place: PartPath, role: Role, part: &Part) -> Result<Value, Fault> {
    let refuse = |why: &str| Err(refused(place, part, why));
    match part {
        Part::Text { content } if role == Role::Assistant => {
            Ok(json!({ "type": "output_text", "text": content }))
        }
        Part::Text { content } => Ok(json!({ "type": "input_text", "text": content })),
        Part::Blob { content, modality, mime_type } => {
            let data = format!("data:{};base64,{content}", mime(place, part, mime_type)?);
            match modality {
                Modality::Image => Ok(json!({ "type": "input_image", "image_url": data })),
                Modality::Text => {
                    Ok(json!({ "type": "input_file", "filename": "attachment", "file_data": data }))
                }
                Modality::Audio => refuse("of audio cannot be taken by this agent"),
                Modality::Video => refuse("of video cannot be taken by this agent"),
            }
        }
        Part::File { file_id, modality: Modality::Image, .. } => {
            Ok(json!({ "type": "input_image", "file_id": file_id }))
        }
        Part::File { file_id, modality: Modality::Text, .. } => {
            Ok(json!({ "type": "input_file", "file_id": file_id }))
        }
        Part::File { .. } => refuse("can be a document or an image only for this agent"),
        Part::Uri { uri, modality: Modality::Image, .. } => {
            Ok(json!({ "type": "input_image", "image_url": uri }))
        }
        Part::Uri { uri, modality: Modality::Text, .. } => {
            Ok(json!({ "type": "input_file", "file_url": uri }))
        }
        Part::Uri { .. } => refuse("can be a document or an image only for this agent"),
        Part::Reasoning { .. }
        | Part::ToolCall { .. }
        | Part::ToolCallResponse { .. }
        | Part::Native(_) => refuse("cannot stand here"),
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::RawObject;

    use super::*;

    #[test]
    fn calls_and_answers_are_items_between_the_messages() {
        let call = Part::ToolCall {
            name: "f".into(),
            arguments: Arguments::Object(RawObject::default()),
            id: Some("c1".into()),
        };
        let said = vec![Part::Text { content: "Wait.".into() }, call];
        let history = vec![
            ChatMessage::user("a"),
            ChatMessage { role: Role::Assistant, parts: said, name: None },
            ChatMessage::tool("c1", "42"),
            ChatMessage::user("b"),
        ];
        let sent = items(&Turn::talk(history)).unwrap();
        assert_eq!(
            sent[0],
            json!({ "role": "user", "content": [{ "type": "input_text", "text": "a" }] })
        );
        assert_eq!(sent[1]["content"], json!([{ "type": "output_text", "text": "Wait." }]));
        assert_eq!(
            sent[2],
            json!({ "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}" })
        );
        assert_eq!(
            sent[3],
            json!({ "type": "function_call_output", "call_id": "c1", "output": "42" })
        );
        assert_eq!(sent.len(), 5);
    }
}

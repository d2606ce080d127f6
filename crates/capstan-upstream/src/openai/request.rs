//! A turn as Chat Completions messages.

use capstan_agent::Turn;
use capstan_protocol::{Arguments, ChatMessage, Fault, Modality, Part, Role};
use serde_json::{Map, Value, json};

use crate::parts::{self, PartPath, call_id, mime, refused};

pub(super) fn messages(turn: &Turn, system: Option<&str>) -> Result<Vec<Value>, Fault> {
    let mut messages = Vec::new();
    messages.extend(system.map(|text| json!({ "role": "system", "content": text })));
    for (index, message) in parts::messages(turn) {
        append(index, message, &mut messages)?;
    }
    Ok(messages)
}

/// A message may become several: each tool's answer is one of its own.
fn append(index: usize, message: &ChatMessage, out: &mut Vec<Value>) -> Result<(), Fault> {
    let (mut content, mut calls, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for (at, part) in message.parts.iter().enumerate() {
        let place = PartPath { message: index, part: at };
        match part {
            Part::ToolCall { name, arguments, id } => calls.push(call(at, name, arguments, id)),
            Part::ToolCallResponse { response, id } => {
                let text = response.as_str().map_or_else(|| response.to_string(), str::to_owned);
                answers.push(json!({ "role": "tool", "tool_call_id": call_id(id, at), "content": text }));
            }
            Part::Text { .. }
            | Part::Blob { .. }
            | Part::File { .. }
            | Part::Uri { .. }
            | Part::Reasoning { .. } => content.push(piece(place, part)?),
        }
    }
    out.append(&mut answers);
    let content = flat(content);
    // A turn that said nothing, as one of nothing but tools has it in a stored conversation.
    if content.is_null() && calls.is_empty() {
        return Ok(());
    }
    let mut object = Map::new();
    object.insert("role".into(), role(message.role).into());
    object.insert("content".into(), content);
    if !calls.is_empty() {
        object.insert("tool_calls".into(), calls.into());
    }
    if let Some(name) = &message.name {
        object.insert("name".into(), name.as_str().into());
    }
    out.push(Value::Object(object));
    Ok(())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// Plain text goes as a string: every compatible server reads that.
fn flat(content: Vec<Value>) -> Value {
    let texts: Option<String> = content.iter().map(|piece| piece.get("text")?.as_str()).collect();
    match texts {
        Some(text) if !text.is_empty() => text.into(),
        Some(_) => Value::Null,
        None => content.into(),
    }
}

fn call(at: usize, name: &str, arguments: &Arguments, id: &Option<String>) -> Value {
    let arguments = match arguments {
        Arguments::Object(object) => Value::Object(object.clone()).to_string(),
        Arguments::Text(text) => text.clone(),
    };
    json!({ "id": call_id(id, at), "type": "function", "function": { "name": name, "arguments": arguments } })
}

fn piece(place: PartPath, part: &Part) -> Result<Value, Fault> {
    let refuse = |why: &str| Err(refused(place, part, why));
    match part {
        Part::Text { content } => Ok(json!({ "type": "text", "text": content })),
        Part::Blob { content, modality, mime_type } => {
            let mime = mime(place, part, mime_type)?;
            let data = || format!("data:{mime};base64,{content}");
            match (modality, mime) {
                (Modality::Image, _) => Ok(image(&data())),
                (Modality::Audio, "audio/wav" | "audio/x-wav" | "audio/wave") => Ok(audio(content, "wav")),
                (Modality::Audio, "audio/mpeg" | "audio/mp3") => Ok(audio(content, "mp3")),
                (Modality::Text, _) => {
                    Ok(json!({ "type": "file", "file": { "filename": "attachment", "file_data": data() } }))
                }
                (Modality::Audio, _) => refuse("of audio must be audio/wav or audio/mpeg for this agent"),
                (Modality::Video, _) => refuse("of video cannot be taken by this agent"),
            }
        }
        Part::File { file_id, modality: Modality::Text, .. } => {
            Ok(json!({ "type": "file", "file": { "file_id": file_id } }))
        }
        Part::File { .. } => refuse("can be a document only for this agent"),
        Part::Uri { uri, modality: Modality::Image, .. } => Ok(image(uri)),
        Part::Uri { .. } => refuse("can be an image only for this agent"),
        Part::Reasoning { .. } => refuse("cannot be sent back to this agent"),
        Part::ToolCall { .. } | Part::ToolCallResponse { .. } => refuse("cannot stand here"),
    }
}

fn image(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn audio(data: &str, format: &str) -> Value {
    json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn turn(parts: Vec<Part>) -> Turn {
        Turn { message: ChatMessage { role: Role::User, parts, name: None }, ..Turn::new("") }
    }

    #[test]
    fn history_system_and_tools_are_sent_along() {
        let history = vec![
            ChatMessage::user("a"),
            ChatMessage {
                role: Role::Assistant,
                parts: vec![Part::ToolCall {
                    name: "f".into(),
                    arguments: Arguments::Object(Map::new()),
                    id: Some("c1".into()),
                }],
                name: None,
            },
            ChatMessage::tool("c1", "42"),
        ];
        let turn = Turn { history: Arc::new(history), ..Turn::new("b") };
        let sent = messages(&turn, Some("Be kind.")).unwrap();
        assert_eq!(sent[0], json!({ "role": "system", "content": "Be kind." }));
        assert_eq!(sent[1], json!({ "role": "user", "content": "a" }));
        assert_eq!(sent[2]["tool_calls"][0]["function"], json!({ "name": "f", "arguments": "{}" }));
        assert_eq!(sent[3], json!({ "role": "tool", "tool_call_id": "c1", "content": "42" }));
        assert_eq!(sent[4], json!({ "role": "user", "content": "b" }));
    }

    #[test]
    fn a_turn_that_said_nothing_is_left_out() {
        let turn = Turn { history: Arc::new(vec![ChatMessage::assistant("")]), ..Turn::new("b") };
        assert_eq!(messages(&turn, None).unwrap(), [json!({ "role": "user", "content": "b" })]);
    }

    #[test]
    fn parts_reach_the_provider_in_its_own_form() {
        let mime = |m: &str| Some(m.to_owned());
        let sent = messages(
            &turn(vec![
                Part::Text { content: "look".into() },
                Part::Blob {
                    content: "QQ==".into(),
                    modality: Modality::Image,
                    mime_type: mime("image/png"),
                },
                Part::Uri { uri: "https://x/y.png".into(), modality: Modality::Image, mime_type: None },
                Part::File { file_id: "file-1".into(), modality: Modality::Text, mime_type: None },
                Part::Blob {
                    content: "QQ==".into(),
                    modality: Modality::Audio,
                    mime_type: mime("audio/wav"),
                },
            ]),
            None,
        )
        .unwrap();
        let content = &sent[0]["content"];
        assert_eq!(content[1]["image_url"]["url"], "data:image/png;base64,QQ==");
        assert_eq!(content[2]["image_url"]["url"], "https://x/y.png");
        assert_eq!(content[3]["file"]["file_id"], "file-1");
        assert_eq!(content[4]["input_audio"]["format"], "wav");
    }

    #[test]
    fn a_part_that_cannot_be_taken_is_named() {
        let film = Part::Uri { uri: "https://x/y.mp4".into(), modality: Modality::Video, mime_type: None };
        let fault = messages(&turn(vec![Part::Text { content: "a".into() }, film]), None).unwrap_err();
        assert_eq!(fault.code(), "invalid_request");
        assert_eq!(fault.details()["path"], "messages[0].parts[1]");
        let bare = Part::Blob { content: "QQ==".into(), modality: Modality::Image, mime_type: None };
        assert!(messages(&turn(vec![bare]), None).unwrap_err().message().contains("mime_type"));
    }
}

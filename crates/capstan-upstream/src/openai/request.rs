//! Encodes a turn as messages of Chat Completions.

use capstan_agent::Turn;
use capstan_protocol::{Arguments, ChatMessage, Fault, Modality, NativeOrigin, Part, Role};
use serde_json::{Map, Value, json};

use super::kept::{CALLS, THOUGHTS, merge};
use crate::native;
use crate::parts::{self, PartPath, UNNAMED, call_id, mime, refused, response_text};

pub(super) fn messages(
    turn: &Turn,
    system: Option<&str>,
    origin: &NativeOrigin,
) -> Result<Vec<Value>, Fault> {
    let context = parts::context(turn);
    told(system.into_iter().chain(context.as_deref()), parts::messages(turn), origin)
}

/// Encodes messages, with their indices, after the system messages.
pub(super) fn told<'a>(
    system: impl IntoIterator<Item = &'a str>,
    conversation: impl Iterator<Item = (usize, &'a ChatMessage)>,
    origin: &NativeOrigin,
) -> Result<Vec<Value>, Fault> {
    let system = system.into_iter().map(|text| json!({ "role": "system", "content": text }));
    let mut messages: Vec<Value> = system.collect();
    for (index, message) in conversation {
        append(index, message, origin, &mut messages)?;
    }
    Ok(messages)
}

/// Encodes a message. It becomes several if it has tool results: each is a message of its own.
fn append(
    index: usize,
    message: &ChatMessage,
    origin: &NativeOrigin,
    out: &mut Vec<Value>,
) -> Result<(), Fault> {
    let (mut content, mut calls, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    let mut own = Map::new();
    for (at, part) in message.parts.iter().enumerate() {
        let place = PartPath { message: index, part: at };
        match part {
            Part::ToolCall { name, arguments, id } => calls.push(call(at, name, arguments, id)),
            Part::ToolCallResponse { response, id } => {
                let text = response_text(response);
                answers.push(
                    json!({ "role": "tool", "tool_call_id": call_id(id, at), "content": text }),
                );
            }
            // Members of the message, or of its calls.
            Part::Native(part) => {
                if let Some(Value::Object(members)) = native::own(part, Some(origin)) {
                    own.extend(members);
                }
            }
            Part::Reasoning { .. } => {}
            Part::Text { .. } | Part::Blob { .. } | Part::File { .. } | Part::Uri { .. } => {
                content.push(piece(place, part)?);
            }
        }
    }
    out.append(&mut answers);
    let content = flat(content);
    // An empty message, for example a stored turn of tool results only.
    if content.is_null() && calls.is_empty() {
        return Ok(());
    }
    give_back(&mut own, &mut calls);
    if calls.is_empty() {
        // Some servers need the text of thoughts back with calls, and refuse it elsewhere.
        THOUGHTS.iter().for_each(|name| {
            own.remove(*name);
        });
    }
    if message.role == Role::Assistant && join(out.last_mut(), &content, &mut calls) {
        return Ok(());
    }
    let mut object = own;
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

/// Moves the native members of calls into the calls, by id. The others stay with the message.
fn give_back(own: &mut Map<String, Value>, calls: &mut [Value]) {
    let Some(Value::Object(by_call)) = own.remove(CALLS) else { return };
    for call in calls.iter_mut().filter_map(Value::as_object_mut) {
        let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
        if let Some(Value::Object(members)) = by_call.get(id) {
            merge(call, members.clone());
        }
    }
}

/// Joins an assistant message with the one before it. Front ends may send a text and each of its
/// calls as messages of their own, but results must follow the message with their calls. Returns
/// false if the message stays alone.
fn join(last: Option<&mut Value>, content: &Value, calls: &mut Vec<Value>) -> bool {
    let Some(Value::Object(last)) = last else { return false };
    let is_text =
        |value: Option<&Value>| value.is_some_and(|value| value.is_string() || value.is_null());
    let is_joined =
        last.get("role").is_some_and(|role| role == "assistant") && is_text(last.get("content"));
    if !is_joined || !is_text(Some(content)) {
        return false;
    }
    let texts =
        [last.get("content"), Some(content)].into_iter().flatten().filter_map(Value::as_str);
    let text = texts.collect::<Vec<_>>().join("\n\n");
    last.insert("content".into(), if text.is_empty() { Value::Null } else { text.into() });
    if !calls.is_empty() {
        let known = last.entry("tool_calls").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(known) = known {
            known.append(calls);
        }
    }
    true
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// Content of text alone becomes a string, which every compatible server reads.
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
        Arguments::Object(object) => object.get().to_owned(),
        Arguments::Text(text) => text.clone(),
    };
    json!({ "id": call_id(id, at), "type": "function", "function": { "name": name,
    "arguments": arguments } })
}

fn piece(place: PartPath, part: &Part) -> Result<Value, Fault> {
    let refuse = |why: &str| Err(refused(place, part, why));
    match part {
        Part::Text { content } => Ok(json!({ "type": "text", "text": content })),
        Part::Blob { content, modality, mime_type, filename } => {
            let mime = mime(place, part, mime_type)?;
            let data = || format!("data:{mime};base64,{content}");
            match (modality, mime) {
                (Modality::Image, _) => Ok(image(&data())),
                (Modality::Audio, "audio/wav" | "audio/x-wav" | "audio/wave") => {
                    Ok(audio(content, "wav"))
                }
                (Modality::Audio, "audio/mpeg" | "audio/mp3") => Ok(audio(content, "mp3")),
                (Modality::Text, _) => {
                    let filename = filename.as_deref().unwrap_or(UNNAMED);
                    let file = json!({ "filename": filename, "file_data": data() });
                    Ok(json!({ "type": "file", "file": file }))
                }
                (Modality::Audio, _) => {
                    refuse("of audio must be audio/wav or audio/mpeg for this agent")
                }
                (Modality::Video, _) => refuse("of video cannot be taken by this agent"),
            }
        }
        Part::File { file_id, modality: Modality::Text, .. } => {
            Ok(json!({ "type": "file", "file": { "file_id": file_id } }))
        }
        Part::File { .. } => refuse("can be a document only for this agent"),
        Part::Uri { uri, modality: Modality::Image, .. } => Ok(image(uri)),
        Part::Uri { .. } => refuse("can be an image only for this agent"),
        Part::Reasoning { .. }
        | Part::ToolCall { .. }
        | Part::ToolCallResponse { .. }
        | Part::Native(_) => refuse("cannot stand here"),
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
    use capstan_protocol::RawObject;

    use super::*;

    fn messages(turn: &Turn, system: Option<&str>) -> Result<Vec<Value>, Fault> {
        super::messages(turn, system, &origin("m"))
    }

    fn origin(model: &str) -> NativeOrigin {
        let dialect = capstan_protocol::Dialect::OpenaiChat;
        NativeOrigin { dialect, provider: "p".into(), model: model.into() }
    }

    #[test]
    fn signatures_come_back_on_the_calls_that_had_them() {
        let part = json!({ "type": "native", "dialect": "openai-chat", "provider": "p",
            "model": "m", "text_at": "/reasoning_content", "text": "Hm.", "part": {
                "reasoning_content": null, "reasoning_details": [{ "data": "x" }],
                "calls": { "c": { "extra_content": { "google": { "thought_signature": "s" } } } },
            } });
        let call = Part::ToolCall {
            name: "f".into(),
            arguments: Arguments::Text("{}".into()),
            id: Some("c".into()),
        };
        let native: Part = serde_json::from_value(part).unwrap();
        let told = |parts: Vec<Part>, model: &str| {
            let message = ChatMessage { role: Role::Assistant, parts, name: None };
            told([], [(0, &message)].into_iter(), &origin(model)).unwrap().remove(0)
        };
        let own = told(vec![native.clone(), call.clone()], "m");
        assert_eq!(own["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "s");
        assert_eq!((&own["reasoning_content"], &own["calls"]), (&"Hm.".into(), &Value::Null));
        let other = told(vec![native.clone(), call], "n");
        assert_eq!(other["tool_calls"][0]["extra_content"], Value::Null);
        let text = told(vec![native, Part::Text { content: "a".into() }], "m");
        assert_eq!(text["reasoning_content"], Value::Null);
        assert_eq!(text["reasoning_details"][0]["data"], "x");
    }

    fn turn(parts: Vec<Part>) -> Turn {
        Turn::of(ChatMessage { role: Role::User, parts, name: None })
    }

    #[test]
    fn history_system_and_tools_are_sent_along() {
        let history = vec![
            ChatMessage::user("a"),
            ChatMessage {
                role: Role::Assistant,
                parts: vec![Part::ToolCall {
                    name: "f".into(),
                    arguments: Arguments::Object(RawObject::default()),
                    id: Some("c1".into()),
                }],
                name: None,
            },
            ChatMessage::tool("c1", "42"),
        ];
        let turn = Turn::talk([history, vec![ChatMessage::user("b")]].concat());
        let sent = messages(&turn, Some("Be kind.")).unwrap();
        assert_eq!(sent[0], json!({ "role": "system", "content": "Be kind." }));
        assert_eq!(sent[1], json!({ "role": "user", "content": "a" }));
        assert_eq!(sent[2]["tool_calls"][0]["function"], json!({ "name": "f", "arguments": "{}" }));
        assert_eq!(sent[3], json!({ "role": "tool", "tool_call_id": "c1", "content": "42" }));
        assert_eq!(sent[4], json!({ "role": "user", "content": "b" }));
    }

    #[test]
    fn a_turn_that_said_nothing_is_left_out() {
        let turn = Turn::talk(vec![ChatMessage::assistant(""), ChatMessage::user("b")]);
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
                    filename: None,
                },
                Part::Uri {
                    uri: "https://x/y.png".into(),
                    modality: Modality::Image,
                    mime_type: None,
                    filename: None,
                },
                Part::File {
                    file_id: "file-1".into(),
                    modality: Modality::Text,
                    mime_type: None,
                    filename: None,
                },
                Part::Blob {
                    content: "QQ==".into(),
                    modality: Modality::Audio,
                    mime_type: mime("audio/wav"),
                    filename: None,
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
        let film = Part::Uri {
            uri: "https://x/y.mp4".into(),
            modality: Modality::Video,
            mime_type: None,
            filename: None,
        };
        let fault =
            messages(&turn(vec![Part::Text { content: "a".into() }, film]), None).unwrap_err();
        assert_eq!(fault.code(), "invalid_request");
        assert_eq!(fault.details()["path"], "messages[0].parts[1]");
        let bare = Part::Blob {
            content: "QQ==".into(),
            modality: Modality::Image,
            mime_type: None,
            filename: None,
        };
        assert!(messages(&turn(vec![bare]), None).unwrap_err().message().contains("mime_type"));
    }
}

//! A turn as Messages content blocks; `command` sends the same blocks to processes.

use capstan_agent::Turn;
use capstan_protocol::{Arguments, ChatMessage, Fault, Modality, NativeOrigin, Part, Role};
use serde_json::{Value, json};

use super::own_tools::{OwnTools, is_of_tool, kind_of};
use crate::native;
use crate::parts::{self, PartPath, call_id, mime, refused, response_text};
use crate::request_body::{Raw, RequestBody, raw};

/// The pictures that can be sent inline.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";

/// Returns the system prompt and the messages.
pub(super) fn messages(
    turn: &Turn,
    system: Option<&str>,
    origin: &NativeOrigin,
) -> Result<(Option<String>, Vec<Value>), Fault> {
    let (told, messages) = told(parts::messages(turn), origin)?;
    let instructions: Vec<String> =
        system.map(str::to_owned).into_iter().chain(parts::context(turn)).chain(told).collect();
    let system = (!instructions.is_empty()).then(|| instructions.join("\n\n"));
    Ok((system, messages))
}

/// Returns the system prompt of a request of Messages, after the configured one.
pub(super) fn system(configured: Option<&str>, request: &RequestBody) -> Option<Raw> {
    let asked = request.get("system").filter(|system| system.get() != "null");
    let Some(configured) = configured else { return asked.map(ToOwned::to_owned) };
    let text = |text: &str| raw(&json!({ "type": "text", "text": text }));
    let mut blocks = vec![text(configured)];
    match request.read::<String>("system") {
        Some(asked) => blocks.push(text(&asked)),
        None => blocks.extend(request.list("system")),
    }
    Some(raw(&blocks))
}

/// Returns the text of the system messages, and the other messages. Each message comes with its
/// place.
pub(super) fn told<'a>(
    conversation: impl Iterator<Item = (usize, &'a ChatMessage)>,
    origin: &NativeOrigin,
) -> Result<(Vec<String>, Vec<Value>), Fault> {
    let conversation: Vec<_> = conversation.collect();
    let tools = OwnTools::of(conversation.iter().map(|(_, message)| *message), origin);
    let (mut instructions, mut messages) = (Vec::new(), Messages::default());
    for (index, message) in conversation {
        if message.role == Role::System {
            instructions.push(message.text());
            continue;
        }
        let role = if message.role == Role::Assistant { ASSISTANT } else { USER };
        for block in blocks(index, message, Some(origin))? {
            let (role, block) = tools.own_form(role, block);
            messages.push(role, block);
        }
    }
    Ok((instructions, messages.into_values()))
}

const ASSISTANT: &str = "assistant";
const USER: &str = "user";

/// Messages whose roles alternate, as the provider demands. Answers to calls that were made
/// together stand in one message.
#[derive(Default)]
struct Messages(Vec<(&'static str, Vec<Value>)>);

impl Messages {
    fn push(&mut self, role: &'static str, block: Value) {
        if role == USER {
            self.end_answer();
        }
        match self.0.last_mut() {
            Some((last, blocks)) if *last == role => blocks.push(block),
            _ => self.0.push((role, vec![block])),
        }
    }

    /// Leaves out thinking at the end of an answer: the provider refuses a message that ends so.
    fn end_answer(&mut self) {
        let Some((ASSISTANT, blocks)) = self.0.last_mut() else { return };
        while blocks.last().is_some_and(|block| kind_of(block).ends_with("thinking")) {
            blocks.pop();
        }
        if blocks.is_empty() {
            self.0.pop();
        }
    }

    fn into_values(mut self) -> Vec<Value> {
        self.end_answer();
        let messages = self.0.into_iter();
        messages.map(|(role, content)| json!({ "role": role, "content": content })).collect()
    }
}

/// Returns the blocks of one message. Reasoning goes back only to the model that made it.
pub(crate) fn blocks(
    index: usize,
    message: &ChatMessage,
    origin: Option<&NativeOrigin>,
) -> Result<Vec<Value>, Fault> {
    let mut blocks = Vec::with_capacity(message.parts.len());
    for (at, part) in message.parts.iter().enumerate() {
        match part {
            Part::Native(part) => {
                blocks.extend(native::own(part, origin).filter(|block| !is_of_tool(block)));
            }
            Part::Reasoning { .. } => {}
            // The provider refuses an empty text.
            Part::Text { content } if content.is_empty() => {}
            Part::Text { .. }
            | Part::Blob { .. }
            | Part::File { .. }
            | Part::Uri { .. }
            | Part::ToolCall { .. }
            | Part::ToolCallResponse { .. } => {
                blocks.push(block(PartPath { message: index, part: at }, part)?);
            }
        }
    }
    Ok(blocks)
}

/// Whether a request refers to uploaded files.
pub(super) fn has_files(turn: &Turn) -> bool {
    let mut parts = turn.conversation().flat_map(|message| &message.parts);
    parts.any(|part| matches!(part, Part::File { .. }))
}

fn block(place: PartPath, part: &Part) -> Result<Value, Fault> {
    let refuse = |why: &str| Err(refused(place, part, why));
    match part {
        Part::Text { content } => Ok(json!({ "type": "text", "text": content })),
        Part::Blob { content, modality, mime_type, filename } => {
            let mime = mime(place, part, mime_type)?;
            let source = json!({ "type": "base64", "media_type": mime, "data": content });
            match modality {
                Modality::Image if PICTURES.contains(&mime) => Ok(image(source)),
                Modality::Text if mime == PDF => Ok(document(source, filename)),
                Modality::Image => {
                    refuse("of an image must be JPEG, PNG, GIF or WebP for this agent")
                }
                Modality::Text => refuse("of text must be a PDF for this agent"),
                Modality::Audio | Modality::Video => {
                    refuse("of audio or video cannot be taken by this agent")
                }
            }
        }
        Part::File { file_id, modality, filename, .. } => {
            let source = json!({ "type": "file", "file_id": file_id });
            placed(*modality, source, filename).ok_or_else(|| {
                refused(place, part, "must be an image or a document for this agent")
            })
        }
        Part::Uri { uri, modality, filename, .. } => {
            let source = json!({ "type": "url", "url": uri });
            placed(*modality, source, filename).ok_or_else(|| {
                refused(place, part, "must be an image or a document for this agent")
            })
        }
        Part::ToolCall { name, arguments, id } => {
            let input = match arguments {
                Arguments::Object(object) => Value::Object(object.to_map()),
                // The arguments of a call may be empty.
                Arguments::Text(text) if text.trim().is_empty() => json!({}),
                Arguments::Text(text) => serde_json::from_str(text).unwrap_or_default(),
            };
            if !input.is_object() {
                return refuse("needs an object as arguments for this agent");
            }
            Ok(json!({ "type": "tool_use", "id": call_id(id, place.part), "name": name,
                "input": input }))
        }
        Part::ToolCallResponse { response, id } => {
            let text = response_text(response);
            Ok(json!({ "type": "tool_result", "tool_use_id": call_id(id, place.part),
                "content": text }))
        }
        Part::Reasoning { .. } | Part::Native(_) => refuse("cannot stand here"),
    }
}

fn placed(modality: Modality, source: Value, filename: &Option<String>) -> Option<Value> {
    match modality {
        Modality::Image => Some(image(source)),
        Modality::Text => Some(document(source, filename)),
        Modality::Audio | Modality::Video => None,
    }
}

fn image(source: Value) -> Value {
    json!({ "type": "image", "source": source })
}

fn document(source: Value, filename: &Option<String>) -> Value {
    let mut block = json!({ "type": "document", "source": source });
    if let (Some(name), Some(members)) = (filename, block.as_object_mut()) {
        members.insert("title".into(), name.as_str().into());
    }
    block
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Dialect;

    use super::*;

    fn messages(turn: &Turn, system: Option<&str>) -> Result<(Option<String>, Vec<Value>), Fault> {
        super::messages(turn, system, &origin("m"))
    }

    fn origin(model: &str) -> NativeOrigin {
        let dialect = Dialect::AnthropicMessages;
        NativeOrigin { dialect, provider: "p".into(), model: model.into() }
    }

    #[test]
    fn signed_thinking_comes_back_to_the_model_that_signed_it() {
        let part = json!({ "type": "native", "dialect": "anthropic-messages", "provider": "p",
            "model": "m", "part": { "type": "thinking", "thinking": null, "signature": "s" },
            "text_at": "/thinking", "text": "Hm." });
        let parts = vec![serde_json::from_value(part).unwrap(), Part::Text { content: "a".into() }];
        let message = ChatMessage { role: Role::Assistant, parts, name: None };
        let own = blocks(0, &message, Some(&origin("m"))).unwrap();
        let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
        assert_eq!((&own[0], own.len()), (&thinking, 2));
        assert_eq!(blocks(0, &message, Some(&origin("n"))).unwrap().len(), 1);
        assert_eq!(blocks(0, &message, None).unwrap().len(), 1);
    }

    fn turn(parts: Vec<Part>) -> Turn {
        Turn::of(ChatMessage { role: Role::User, parts, name: None })
    }

    #[test]
    fn system_messages_join_the_configured_prompt() {
        let history = vec![
            ChatMessage::system("Be brief."),
            ChatMessage::user("a"),
            ChatMessage::assistant("b"),
        ];
        let turn = Turn::talk([history, vec![ChatMessage::user("c")]].concat());
        let (system, sent) = messages(&turn, Some("Be kind.")).unwrap();
        assert_eq!(system.as_deref(), Some("Be kind.\n\nBe brief."));
        let roles: Vec<&Value> = sent.iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
    }

    #[test]
    fn parts_reach_the_provider_in_its_own_form() {
        let mime = |m: &str| Some(m.to_owned());
        let turn = turn(vec![
            Part::Blob {
                content: "QQ==".into(),
                modality: Modality::Image,
                mime_type: mime("image/png"),
                filename: None,
            },
            Part::Blob {
                content: "QQ==".into(),
                modality: Modality::Text,
                mime_type: mime(PDF),
                filename: None,
            },
            Part::Uri {
                uri: "https://x/y.png".into(),
                modality: Modality::Image,
                mime_type: None,
                filename: None,
            },
            Part::File {
                file_id: "file_1".into(),
                modality: Modality::Text,
                mime_type: None,
                filename: None,
            },
        ]);
        assert!(has_files(&turn));
        let (_, sent) = messages(&turn, None).unwrap();
        let content = &sent[0]["content"];
        assert_eq!(content[0]["source"]["media_type"], "image/png");
        assert_eq!(content[1]["type"], "document");
        assert_eq!(content[2]["source"], json!({ "type": "url", "url": "https://x/y.png" }));
        assert_eq!(content[3]["source"]["file_id"], "file_1");
    }

    #[test]
    fn a_part_that_cannot_be_taken_is_named() {
        for part in [
            Part::Blob {
                content: "QQ==".into(),
                modality: Modality::Audio,
                mime_type: Some("audio/wav".into()),
                filename: None,
            },
            Part::Blob {
                content: "QQ==".into(),
                modality: Modality::Image,
                mime_type: Some("image/tiff".into()),
                filename: None,
            },
            Part::File {
                file_id: "f".into(),
                modality: Modality::Video,
                mime_type: None,
                filename: None,
            },
            Part::ToolCall { name: "f".into(), arguments: Arguments::Text("[]".into()), id: None },
        ] {
            let fault = messages(&turn(vec![part]), None).unwrap_err();
            assert_eq!(
                (fault.code(), &fault.details()["path"]),
                ("invalid_request", &json!("messages[0].parts[0]"))
            );
        }
    }
}

//! Makes input items of Responses from a turn.

use std::collections::HashSet;
use std::mem::take;

use capstan_agent::{Turn, sealed};
use capstan_protocol::{
    Arguments, ChatMessage, Fault, Modality, NativeOrigin, Part, RawJson, Role,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::native;
use crate::parts::{self, PartPath, UNNAMED, call_id, mime, refused, response_text};
use crate::request_body::{Raw, RequestBody, raw};

/// The system prompt and the context of the request.
pub(super) fn instructions(turn: &Turn, system: Option<&str>) -> Option<String> {
    let all: Vec<String> =
        system.map(str::to_owned).into_iter().chain(parts::context(turn)).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// The instructions of a request in Responses' form, after the configured ones.
pub(super) fn instructions_before(
    configured: Option<&str>,
    request: &RequestBody,
) -> Option<String> {
    let asked = request.read::<String>("instructions");
    let all: Vec<&str> = configured.into_iter().chain(asked.as_deref()).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// The items of a request in Responses' form. A text becomes an item. Sealed items are opened, and
/// those of other makers are left out.
pub(super) fn of_request(request: &RequestBody, origin: &NativeOrigin) -> Vec<Raw> {
    match request.read::<String>("input") {
        Some(text) => vec![raw(&json!({ "role": "user", "content": text }))],
        None => request.list("input").into_iter().flat_map(|item| own_item(item, origin)).collect(),
    }
}

fn own_item(item: Raw, origin: &NativeOrigin) -> Vec<Raw> {
    #[derive(Deserialize)]
    struct Reasoning {
        #[serde(rename = "type")]
        kind: String,
        id: Option<String>,
        encrypted_content: Option<String>,
    }
    let Ok(read) = serde_json::from_str::<Reasoning>(item.get()) else { return vec![item] };
    let is_ours = |id: String| id.strip_prefix("rs_").is_some_and(|rest| rest.contains('_'));
    match read.encrypted_content {
        Some(sealed) if sealed::is_sealed(&sealed) => {
            native::unsealed(&sealed, origin).iter().map(raw).collect()
        }
        // Another agent of the gateway thought it: the provider does not know its id.
        None if read.kind == "reasoning" && read.id.is_some_and(is_ours) => Vec::new(),
        Some(_) | None => vec![item],
    }
}

/// Items from messages, each with its position.
pub(super) fn items<'a>(
    conversation: impl Iterator<Item = (usize, &'a ChatMessage)>,
    origin: &NativeOrigin,
) -> Result<Vec<Raw>, Fault> {
    let client = NativeOrigin::client(origin.dialect);
    let mut items = Items { origin, client, out: Vec::new(), custom: HashSet::new() };
    for (index, message) in conversation {
        items.append(index, message)?;
    }
    Ok(without_dead_ends(items.out))
}

/// An item of an earlier request, as it came. The part may say nothing.
fn client_item(part: &RawJson, origin: &NativeOrigin) -> Vec<Raw> {
    match part.get() {
        "null" => Vec::new(),
        _ => own_item(raw(part), origin),
    }
}

/// Leaves out reasoning that no item of the answer follows, because the provider refuses it.
fn without_dead_ends(mut items: Vec<Raw>) -> Vec<Raw> {
    let mut is_followed = false;
    items.reverse();
    items.retain(|item| {
        let head: Head = serde_json::from_str(item.get()).unwrap_or_default();
        let is_reasoning = head.kind.as_deref() == Some("reasoning");
        if !is_reasoning {
            is_followed = !head.is_input();
        }
        !is_reasoning || is_followed
    });
    items.reverse();
    items
}

/// The members that say whose an item is.
#[derive(Default, Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
}

impl Head {
    /// Whether the item is the client's, and not part of an answer.
    fn is_input(&self) -> bool {
        match self.kind.as_deref().unwrap_or("message") {
            "message" => self.role.as_deref() != Some("assistant"),
            kind => kind.ends_with("_output") || kind == "mcp_approval_response",
        }
    }
}

struct Items<'a> {
    origin: &'a NativeOrigin,
    client: NativeOrigin,
    out: Vec<Raw>,
    /// The ids of calls whose arguments are a free text.
    custom: HashSet<String>,
}

impl Items<'_> {
    /// Appends a message. Calls and their results are separate items between the messages.
    fn append(&mut self, index: usize, message: &ChatMessage) -> Result<(), Fault> {
        let (mut content, mut template) = (Vec::new(), Map::new());
        // An item of an earlier request says the same as the parts behind it, and more.
        let mut has_item = false;
        for (at, part) in message.parts.iter().enumerate() {
            let place = PartPath { message: index, part: at };
            match part {
                Part::Native(item) if item.origin == self.client => {
                    self.say(message.role, &mut content, &mut template);
                    self.out.extend(client_item(&item.part, self.origin));
                    has_item = true;
                }
                _ if has_item => {}
                Part::ToolCall { name, arguments, id } => {
                    self.say(message.role, &mut content, &mut template);
                    let call = self.call(name, arguments, call_id(id, at), take(&mut template));
                    self.out.push(raw(&call));
                }
                Part::ToolCallResponse { response, id } => {
                    let answer = self.answer(call_id(id, at), response);
                    self.out.push(raw(&answer));
                }
                Part::Native(part) => {
                    let Some(Value::Object(item)) = native::own(part, Some(self.origin)) else {
                        continue;
                    };
                    self.say(message.role, &mut content, &mut template);
                    match item.get("type").and_then(Value::as_str) {
                        Some("message" | "function_call" | "custom_tool_call") => template = item,
                        _ => self.out.push(raw(&item)),
                    }
                }
                Part::Reasoning { .. } => {}
                // Clients of chats collect an empty text before calls.
                Part::Text { content: text }
                    if text.is_empty() && message.role == Role::Assistant => {}
                Part::Text { .. } | Part::Blob { .. } | Part::File { .. } | Part::Uri { .. } => {
                    content.push(piece(place, message.role, part)?);
                }
            }
        }
        self.say(message.role, &mut content, &mut template);
        Ok(())
    }

    fn say(&mut self, role: Role, content: &mut Vec<Value>, template: &mut Map<String, Value>) {
        if content.is_empty() {
            return;
        }
        let role = match role {
            Role::System => "system",
            Role::User | Role::Tool => "user",
            Role::Assistant => "assistant",
        };
        let mut item = take(template);
        item.insert("role".into(), role.into());
        item.insert("content".into(), take(content).into());
        self.out.push(raw(&item));
    }

    /// A call, with the provider's other members.
    fn call(
        &mut self,
        name: &str,
        arguments: &Arguments,
        id: String,
        template: Map<String, Value>,
    ) -> Value {
        let arguments = match arguments {
            Arguments::Object(object) => object.get().to_owned(),
            Arguments::Text(text) => text.clone(),
        };
        let is_custom = template.get("type").is_some_and(|kind| kind == "custom_tool_call");
        let (kind, place) = if is_custom {
            self.custom.insert(id.clone());
            ("custom_tool_call", "input")
        } else {
            ("function_call", "arguments")
        };
        let mut item = template;
        item.insert("type".into(), kind.into());
        item.insert("call_id".into(), id.into());
        item.entry("name").or_insert_with(|| name.into());
        item.insert(place.into(), arguments.into());
        item.into()
    }

    fn answer(&self, id: String, response: &RawJson) -> Value {
        let kind = match self.custom.contains(&id) {
            true => "custom_tool_call_output",
            false => "function_call_output",
        };
        json!({ "type": kind, "call_id": id, "output": response_text(response) })
    }
}

fn piece(place: PartPath, role: Role, part: &Part) -> Result<Value, Fault> {
    let refuse = |why: &str| Err(refused(place, part, why));
    match part {
        Part::Text { content } if role == Role::Assistant => {
            Ok(json!({ "type": "output_text", "text": content }))
        }
        Part::Text { content } => Ok(json!({ "type": "input_text", "text": content })),
        Part::Blob { content, modality, mime_type, filename } => {
            let data = format!("data:{};base64,{content}", mime(place, part, mime_type)?);
            match modality {
                Modality::Image => Ok(json!({ "type": "input_image", "image_url": data })),
                Modality::Text => {
                    let filename = filename.as_deref().unwrap_or(UNNAMED);
                    Ok(json!({ "type": "input_file", "filename": filename, "file_data": data }))
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
    use capstan_protocol::{Dialect, NativePart, RawJson, RawObject};

    use super::*;

    fn origin() -> NativeOrigin {
        let dialect = Dialect::OpenaiResponses;
        NativeOrigin { dialect, provider: "p".into(), model: "m".into() }
    }

    /// The items as values.
    fn items<'a>(
        conversation: impl Iterator<Item = (usize, &'a ChatMessage)>,
        origin: &NativeOrigin,
    ) -> Result<Vec<Value>, Fault> {
        let items = super::items(conversation, origin)?;
        Ok(items.iter().map(|item| serde_json::from_str(item.get()).unwrap()).collect())
    }

    fn native(origin: NativeOrigin, part: Value) -> Part {
        let part = RawJson::from(part);
        Part::Native(Box::new(NativePart { origin, part, text_at: None, text: String::new() }))
    }

    #[test]
    fn reasoning_and_free_text_calls_come_back_to_whoever_made_them() {
        let call = Part::ToolCall {
            name: "apply_patch".into(),
            arguments: Arguments::Text("*** Begin".into()),
            id: Some("c1".into()),
        };
        let reasoning = json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "x" });
        let custom = json!({ "type": "custom_tool_call", "id": "ctc_1", "input": null });
        let said = |origin: NativeOrigin| {
            let parts = vec![
                native(origin.clone(), reasoning.clone()),
                native(origin, custom.clone()),
                call.clone(),
            ];
            let said = ChatMessage { role: Role::Assistant, parts, name: None };
            [said, ChatMessage::tool("c1", "Done.")]
        };
        let own = items(said(origin()).iter().enumerate(), &origin()).unwrap();
        assert_eq!(own[0], reasoning);
        let sent = json!({ "type": "custom_tool_call", "id": "ctc_1", "call_id": "c1",
            "name": "apply_patch", "input": "*** Begin" });
        assert_eq!(own[1], sent);
        assert_eq!(own[2]["type"], "custom_tool_call_output");
        let other = NativeOrigin { provider: "q".into(), ..origin() };
        let foreign = items(said(other).iter().enumerate(), &origin()).unwrap();
        let kinds: Vec<&Value> = foreign.iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["function_call", "function_call_output"]);
    }

    #[test]
    fn calls_and_answers_are_items_between_the_messages() {
        let call = Part::ToolCall {
            name: "f".into(),
            arguments: Arguments::Object(RawObject::default()),
            id: Some("c1".into()),
        };
        let said = vec![Part::Text { content: "Wait.".into() }, call];
        let history = [
            ChatMessage::user("a"),
            ChatMessage { role: Role::Assistant, parts: said, name: None },
            ChatMessage::tool("c1", "42"),
            ChatMessage::user("b"),
        ];
        let sent = items(history.iter().enumerate(), &origin()).unwrap();
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

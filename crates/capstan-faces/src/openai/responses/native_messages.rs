//! The messages of a stored request with its items as native parts. An agent of Responses gets the
//! items in later turns as the client wrote them; every other agent gets what they became.

use capstan_protocol::{
    ChatMessage, Dialect, NativeOrigin, NativePart, Part, RawJson, RawObject, Role, decode,
};
use serde::Deserialize;
use serde_json::Value;

use super::super::content::pictures_behind_results;
use super::super::foreign::Foreign;
use super::ask::{Item, append};
use crate::text_or::TextOr;

/// Reads the items of a request, each before what it becomes.
pub(super) fn of(body: &[u8]) -> Option<Vec<ChatMessage>> {
    #[derive(Deserialize)]
    struct Request {
        input: TextOr<RawJson>,
    }
    let request: Request = decode::from_slice(body).ok()?;
    let TextOr::Many(items) = request.input else { return None };
    let (mut messages, mut foreign) = (Vec::with_capacity(items.len()), Foreign::default());
    for (n, raw) in items.into_iter().enumerate() {
        let item: Item = raw.decode().ok()?;
        if !item.is_about_question() {
            let message = item.into_message(n, &mut foreign).ok()?;
            append(&mut messages, with_item(message, raw));
        }
    }
    Some(pictures_behind_results(messages))
}

/// A message behind the item that it was made of. Pictures of a result may get another place, so
/// they have a part of their own before them, which says nothing.
fn with_item(message: Option<ChatMessage>, item: RawJson) -> ChatMessage {
    let nothing = || ChatMessage { role: Role::Assistant, parts: Vec::new(), name: None };
    let mut message = message.unwrap_or_else(nothing);
    if message.role == Role::Tool && message.parts.len() > 1 {
        message.parts.insert(1, native(Value::Null.into()));
    }
    message.parts.insert(0, native(item));
    message
}

fn native(part: RawJson) -> Part {
    let origin = NativeOrigin::client(Dialect::OpenaiResponses);
    Part::Native(Box::new(NativePart { origin, part, text_at: None, text: String::new() }))
}

/// Whether the messages of a request say less than its items. Texts and results that are texts have
/// the same form in a later turn, so their bodies need not be read again.
pub(super) fn says_more(payload: &RawObject) -> bool {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the form counts")]
    struct Request {
        input: Option<TextOr<PlainItem>>,
    }
    payload.decode::<Request>().is_err()
}

/// An item of which messages say all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the form counts")]
struct PlainItem {
    #[serde(rename = "type")]
    kind: Option<PlainKind>,
    role: Option<PlainRole>,
    content: Option<TextOr<PlainPart>>,
    call_id: Option<String>,
    output: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlainKind {
    Message,
    FunctionCallOutput,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlainRole {
    User,
    System,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the form counts")]
struct PlainPart {
    #[serde(rename = "type")]
    kind: PlainPartKind,
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlainPartKind {
    InputText,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_requests_whose_messages_leave_something_out_are_read_again() {
        let says_more = |input: Value| {
            let payload = json!({ "model": "m", "input": input, "metadata": { "a": "b" } });
            super::says_more(&decode::from_str(&payload.to_string()).unwrap())
        };
        let text = json!({ "type": "input_text", "text": "Hi" });
        for plain in [
            json!("Hi"),
            json!([{ "role": "user", "content": "Hi" }]),
            json!([{ "type": "message", "role": "system", "content": [text, text] }]),
            json!([{ "type": "function_call_output", "call_id": "c", "output": "42" }]),
        ] {
            assert!(!says_more(plain.clone()), "{plain}");
        }
        let picture = json!({ "type": "input_image", "image_url": "https://a.example/b" });
        for more in [
            json!([{ "role": "developer", "content": "Hi" }]),
            json!([{ "role": "assistant", "content": "Hi" }]),
            json!([{ "role": "user", "content": [picture] }]),
            json!([{ "role": "user", "content": "Hi", "x": 1 }]),
            json!([{ "role": "user", "content": [{ "type": "input_text", "text": "a", "x": 1 }] }]),
            json!([{ "type": "function_call_output", "call_id": "c", "output": [text] }]),
            json!([{ "type": "reasoning", "summary": [], "encrypted_content": "x" }]),
        ] {
            assert!(says_more(more.clone()), "{more}");
        }
    }

    #[test]
    fn pictures_of_results_are_said_by_their_item_alone() {
        let picture = json!({ "type": "input_image", "image_url": "https://a.example/b" });
        let result = json!({ "type": "function_call_output", "call_id": "c", "output": [picture] });
        let asks = json!({ "role": "user", "content": "What is it?" });
        let body = json!({ "input": [result, asks] }).to_string();
        let messages = of(body.as_bytes()).unwrap();
        let items = |message: &ChatMessage| -> Vec<Option<Value>> {
            let item = |part: &Part| match part {
                Part::Native(native) => Some(native.to_value()),
                _ => None,
            };
            message.parts.iter().map(item).collect()
        };
        assert_eq!(items(&messages[0]), [Some(result), None]);
        assert_eq!(items(&messages[1]), [Some(Value::Null), None, Some(asks), None]);
    }
}

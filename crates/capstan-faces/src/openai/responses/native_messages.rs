//! The messages of a stored request with its items as native parts. An agent of Responses gets the
//! items in later turns as the client wrote them; every other agent gets what they became.

use capstan_protocol::{
    ChatMessage, Dialect, NativeOrigin, NativePart, Part, RawJson, Role, decode,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pictures_of_results_are_said_by_their_item_alone() {
        let picture = json!({ "type": "input_image", "image_url": "https://a.example/b" });
        let result = json!({ "type": "function_call_output", "call_id": "c", "output": [picture] });
        let asks = json!({ "role": "user", "content": "What is it?" });
        let body = json!({ "input": [result, asks] }).to_string();
        let messages = of(body.as_bytes()).unwrap();
        let items = |message: &ChatMessage| -> Vec<Option<Value>> {
            let item = |part: &Part| {
                let Part::Native(native) = part else { return None };
                Some(native.to_value())
            };
            message.parts.iter().map(item).collect()
        };
        assert_eq!(items(&messages[0]), [Some(result), None]);
        assert_eq!(items(&messages[1]), [Some(Value::Null), None, Some(asks), None]);
    }
}

//! The items of which messages say all, so that a later turn need not read them again.

use capstan_protocol::RawObject;
use serde::Deserialize;

use crate::text_or::TextOr;

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
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_requests_whose_messages_leave_something_out_are_read_again() {
        let says_more = |input: Value| {
            let payload = json!({ "model": "m", "input": input, "metadata": { "a": "b" } });
            super::says_more(&RawObject::parse(&payload.to_string()).unwrap())
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
}

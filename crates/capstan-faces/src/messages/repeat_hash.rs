//! The hash that identifies a repeated request of a client that names its session, such as Claude
//! Code. It covers the meaning of the request only, because such a client changes members when it
//! repeats one: marks of caches, `stream`, `max_tokens`, texts as lists, and blanks at the end of
//! texts.

use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};

use super::{NAME, routes};
use capstan_engine::ask::Canonical;

/// The headers that identify the session, the agent and the prompt of a request.
const ASKERS: [&str; 3] =
    [routes::SESSION.name, "x-claude-code-agent-id", "x-claude-code-prompt-id"];
/// Members that are no part of the question.
const OF_SENDING: [&str; 3] = ["stream", "max_tokens", CACHE];
const CACHE: &str = "cache_control";

/// The client of a request; `None` if no header names it.
pub(super) fn asker(headers: &HeaderMap) -> Option<String> {
    let askers = ASKERS.map(|name| headers.get(name));
    let bytes = |header: Option<&HeaderValue>| {
        let bytes = header.map_or(&b""[..], HeaderValue::as_bytes);
        String::from_utf8_lossy(bytes).into_owned()
    };
    askers.iter().any(Option::is_some).then(|| askers.map(bytes).join("\u{b7}"))
}

/// The hash of a client and the meaning of its request.
pub(super) fn of_members(asker: &str, members: &Map<String, Value>) -> [u8; 32] {
    let mut form = Canonical::default();
    let members = members.iter().filter(|(name, _)| !OF_SENDING.contains(&name.as_str()));
    form.object(members, |form, name, value| match (name, value) {
        ("system" | "tools", list) => blocks(form, list),
        ("messages", Value::Array(messages)) => form.array(messages, message),
        _ => form.value(value),
    });
    form.hash(Some(asker), NAME)
}

fn message(form: &mut Canonical, message: &Value) {
    let Value::Object(members) = message else { return form.value(message) };
    form.object(members, |form, name, value| match name {
        "content" => blocks(form, value),
        _ => form.value(value),
    });
}

/// Writes a list of blocks or tools. A text is a list of one block.
fn blocks(form: &mut Canonical, list: &Value) {
    match list {
        Value::String(text) => form.array([text.trim_end()], |form, text| {
            form.object([("type", "text"), ("text", text)], |form, _, text| form.text(text));
        }),
        Value::Array(list) => form.array(list, block),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => form.value(list),
    }
}

fn block(form: &mut Canonical, block: &Value) {
    let Value::Object(members) = block else { return form.value(block) };
    let is_result = members.get("type").is_some_and(|kind| kind == "tool_result");
    let members = members.iter().filter(|(name, _)| *name != CACHE);
    form.object(members, |form, name, value| match (name, value) {
        ("text", Value::String(text)) => form.text(text.trim_end()),
        ("content", content) if is_result => blocks(form, content),
        _ => form.value(value),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(body: &Value) -> [u8; 32] {
        of_members("s", body.as_object().unwrap())
    }

    fn body(content: &Value) -> Value {
        json!({ "model": "m", "messages": [{ "role": "user", "content": content }] })
    }

    #[test]
    fn what_a_client_changes_between_repeats_does_not_count() {
        let text = json!({ "type": "text", "text": "Hi" });
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "42" });
        let first = body(&json!([text, result]));
        let marked = json!({ "type": "text", "text": "Hi \n", "cache_control": { "type": "x" } });
        let listed = json!({ "type": "tool_result", "tool_use_id": "t",
            "content": [{ "type": "text", "text": "42", "cache_control": {} }] });
        let mut again = body(&json!([marked, listed]));
        for (name, value) in [("stream", json!(true)), ("max_tokens", json!(7)), (CACHE, json!({}))]
        {
            again[name] = value;
        }
        assert_eq!(hash(&first), hash(&again));
        assert_eq!(hash(&body(&json!("Hi"))), hash(&body(&json!([text]))));
    }

    #[test]
    fn another_question_has_another_hash() {
        let first = body(&json!("Hi"));
        let mut system = first.clone();
        system["system"] = json!("Be brief.");
        let result = |content: &str| {
            body(&json!([{ "type": "tool_result", "tool_use_id": "t", "content": content }]))
        };
        for other in [body(&json!("Ho")), body(&json!(null)), system, result("a"), result("b")] {
            assert_ne!(hash(&first), hash(&other), "{other}");
        }
        assert_ne!(hash(&result("a")), hash(&result("b")));
        assert_ne!(hash(&first), of_members("z", first.as_object().unwrap()));
    }
}

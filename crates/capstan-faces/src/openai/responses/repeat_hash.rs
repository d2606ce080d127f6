//! The hash that identifies a repeated request of Codex. Codex repeats a failed request without a
//! key or a count, under the session headers. Only members about the sending differ.

use http::HeaderValue;
use http::request::Parts;
use serde_json::{Map, Value};

use super::NAME;
use crate::face::repeats::KEY;
use capstan_engine::ask::Canonical;

/// The headers that distinguish clients.
const CLIENT: [&str; 2] = ["session-id", "thread-id"];
/// The member in which Codex describes itself and each sending: it contains times, and differs
/// between a WebSocket and a POST.
const ABOUT_SENDING: &str = "client_metadata";
/// The parts of that member that distinguish questions.
const OF_QUESTION: [&str; 3] = ["session_id", "thread_id", "turn_id"];
/// Members of an answer's items that clients leave out when they send the items back.
const NOT_SENT_BACK: [&str; 3] = ["status", "annotations", "logprobs"];

/// Whether a request names its session.
pub(super) fn has_session(parts: &Parts) -> bool {
    parts.headers.contains_key(CLIENT[0])
}

/// The client of a request; `None` if the request has a key, or names no session.
pub(super) fn client(parts: &Parts) -> Option<String> {
    if !has_session(parts) || parts.headers.contains_key(KEY.name) {
        return None;
    }
    let client = CLIENT.map(|name| parts.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes));
    Some(client.map(String::from_utf8_lossy).join("\u{b7}"))
}

/// The hash of a client and its question. Members about the sending do not count.
pub(super) fn of_members(client: &str, members: &Map<String, Value>) -> [u8; 32] {
    let mut form = Canonical::default();
    form.object(members, |form, name, value| match name {
        ABOUT_SENDING => ids_of_question(form, value),
        "input" => without_empty(form, value),
        _ => form.value(value),
    });
    form.hash(Some(client), NAME)
}

fn ids_of_question(form: &mut Canonical, metadata: &Value) {
    let ids = OF_QUESTION.iter().filter_map(|name| Some((*name, metadata.get(*name)?)));
    form.object(ids.filter(|(_, id)| **id != ""), |form, _, id| form.value(id));
}

/// Writes items without members that say nothing. A WebSocket connection composes a request from
/// the items that it sent. A client that connects again leaves such members out.
fn without_empty(form: &mut Canonical, value: &Value) {
    match value {
        Value::Array(items) => form.array(items, without_empty),
        Value::Object(members) => {
            let counts = |(name, value): &(&String, &Value)| {
                !value.is_null() && !NOT_SENT_BACK.contains(&name.as_str())
            };
            let kept = members.iter().filter(counts);
            form.object(kept, |form, _, value| without_empty(form, value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => form.value(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash(session: Option<&str>, body: &Value) -> Option<[u8; 32]> {
        let mut request = http::Request::builder();
        if let Some(session) = session {
            request = request.header("session-id", session);
        }
        let client = client(&request.body(()).unwrap().into_parts().0)?;
        Some(of_members(&client, body.as_object().unwrap()))
    }

    #[test]
    fn a_repeat_is_known_by_session_question_and_turn() {
        let body = |text: &str, turn: &str, sent: u64| {
            let metadata = json!({ "turn_id": turn, "sent": sent });
            json!({ "input": text, "client_metadata": metadata })
        };
        let first = hash(Some("s"), &body("Hi", "t", 1));
        assert!(first.is_some());
        assert_eq!(first, hash(Some("s"), &body("Hi", "t", 2)), "only the sending differs");
        for other in [
            hash(Some("z"), &body("Hi", "t", 1)),
            hash(Some("s"), &body("Ho", "t", 1)),
            hash(Some("s"), &body("Hi", "u", 1)),
            hash(None, &body("Hi", "t", 1)),
        ] {
            assert_ne!(first, other);
        }
        assert_eq!(hash(None, &body("Hi", "t", 1)), None);
    }

    #[test]
    fn items_that_come_back_without_empty_members_are_the_same() {
        let told = json!({ "input": [
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
            { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{ "type": "output_text", "text": "Hi", "annotations": [],
                    "logprobs": [] }] }] });
        let back = |text: &str, sealed: &str| {
            json!({ "input": [
                { "type": "reasoning", "id": "rs_1", "summary": [], "content": null,
                    "encrypted_content": sealed },
                { "type": "message", "id": "msg_1", "role": "assistant", "phase": null,
                    "content": [{ "type": "output_text", "text": text }] }] })
        };
        assert_eq!(hash(Some("s"), &told), hash(Some("s"), &back("Hi", "x")));
        assert_ne!(hash(Some("s"), &told), hash(Some("s"), &back("Ho", "x")));
        assert_ne!(hash(Some("s"), &told), hash(Some("s"), &back("Hi", "y")));
    }
}

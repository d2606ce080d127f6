//! By what a repeat of Codex is known. It sends a request that failed again as it was, with neither
//! a key nor a count, under the head of its session. Only what it says of the sending differs.

use http::HeaderValue;
use http::request::Parts;
use serde_json::{Map, Value};

use super::NAME;
use crate::face::repeats::KEY;
use capstan_engine::ask::{body_hash, decoded_body_hash};
use capstan_engine::cpu_offload;

/// The headers that tell one asker from another.
const ASKERS: [&str; 2] = ["session-id", "thread-id"];
/// What Codex says of itself with each request. Times are in it, and over a WebSocket others than
/// by POST.
const ABOUT_SENDING: &str = "client_metadata";
/// What of that tells one question from another.
const OF_QUESTION: [&str; 3] = ["session_id", "thread_id", "turn_id"];

/// Whether a request says of which session it is.
pub(super) fn has_session(parts: &Parts) -> bool {
    parts.headers.contains_key(ASKERS[0])
}

/// Who asks; `None` for whoever has a key, or names no session.
pub(super) fn asker(parts: &Parts) -> Option<String> {
    if !has_session(parts) || parts.headers.contains_key(KEY.name) {
        return None;
    }
    let asker = ASKERS.map(|name| parts.headers.get(name).map_or(&b""[..], HeaderValue::as_bytes));
    Some(asker.map(String::from_utf8_lossy).join("\u{b7}"))
}

/// The hash of who asks and what; `None` for whoever has a key, or names no session.
pub(super) fn of(parts: &Parts, body: &[u8]) -> Option<[u8; 32]> {
    let asker = asker(parts)?;
    cpu_offload::run(body.len(), || {
        let members = serde_json::from_slice(body).ok();
        let hash = members.map(|members| of_members(&asker, members));
        Some(hash.unwrap_or_else(|| body_hash(body, Some(&asker), NAME)))
    })
}

/// The same of a body that was read. What is only about its sending does not count.
pub(super) fn of_members(asker: &str, mut members: Map<String, Value>) -> [u8; 32] {
    if let Some(told) = members.remove(ABOUT_SENDING) {
        let kept = OF_QUESTION.iter().filter_map(|name| {
            Some(((*name).to_owned(), told.get(name).filter(|id| **id != "")?.clone()))
        });
        members.insert(ABOUT_SENDING.into(), kept.collect::<Map<_, _>>().into());
    }
    decoded_body_hash(&members, Some(asker), NAME)
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
        of(&request.body(()).unwrap().into_parts().0, body.to_string().as_bytes())
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
}

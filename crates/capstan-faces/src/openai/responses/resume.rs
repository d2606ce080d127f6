//! Resuming behind complete items. A client that was cut sends its request again, with the complete
//! items of the answer at the end of its input. It gets the rest of the same run, so that nobody
//! pays for a second answer.

use std::collections::BTreeSet;

use http::request::Parts;
use serde_json::{Map, Value};

use super::item::items;
use super::object::Echo;
use super::seen::Seen;
use super::{NAME, Responses, fold, repeat_hash};
use crate::face::FaceContext;
use crate::face::repeats::{self, ReaderGuardSlot};
use crate::identity::caller::Caller;
use capstan_engine::ask::RequestBody;
use capstan_engine::cpu_offload;
use capstan_journal::Run;

/// The most items at the end of an input that are compared with an answer.
const MOST: usize = 64;

/// A request for the rest of an answer, rewritten as the request for all of it.
pub(super) struct Resumed {
    pub(super) body: RequestBody,
    pub(super) hash: [u8; 32],
    pub(super) place: Place,
}

/// Where the client resumes. The extensions of the request's head carry it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The key of the run.
    pub(super) key: String,
    pub(super) seen: Seen,
}

impl Place {
    /// The items that the client has, as its request shows.
    pub(super) fn seen_by(parts: &Parts) -> Seen {
        parts.extensions.get::<Self>().map(|place| place.seen.clone()).unwrap_or_default()
    }
}

/// Finds the run whose rest a request asks for: one that nobody reads, and that has sent the items
/// at the end of the request's input. As few items as possible count as sent, because a request may
/// itself begin with items of an earlier answer. Returns the hash of the whole request as well.
pub(super) async fn find(
    face: &Responses,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    question: Question,
) -> ([u8; 32], Option<Resumed>) {
    let hash = question.hash();
    if !face.attaches_repeats || !question.ends_with_answer() {
        return (hash, None);
    }
    (hash, find_rest(face, cx, caller, parts, question).await)
}

async fn find_rest(
    face: &Responses,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    mut question: Question,
) -> Option<Resumed> {
    let may_repeat = |run: &Run| face.sent_answers.may_repeat(cx, run, parts);
    loop {
        let hash = question.hash();
        let found = repeats::repeated(cx, &caller.tenant, parts, hash, NAME, &may_repeat).await;
        if let Some(run) = found.ok()? {
            if let Some(seen) = sent_ids(cx, &run, &question.seen).await {
                let body = question.into_body();
                return Some(Resumed { body, hash, place: Place { key: run.key, seen } });
            }
            parts.extensions.get::<ReaderGuardSlot>().map(ReaderGuardSlot::release);
        }
        question = question.shorter()?;
    }
}

/// A request of a client that names its session, without the items at the end of its input that
/// count as sent.
pub(super) struct Question {
    client: String,
    members: Map<String, Value>,
    /// The size of the request.
    size: usize,
    seen: Vec<Value>,
}

impl Question {
    /// Reads a request; `None` if it has a key, names no session, or is no object.
    pub(super) fn read(parts: &Parts, body: &RequestBody) -> Option<Self> {
        let client = repeat_hash::client(parts)?;
        let members =
            cpu_offload::run(body.size(), || serde_json::from_slice(body.bytes())).ok()?;
        Some(Self { client, members, size: body.size(), seen: Vec::new() })
    }

    /// Whether a streamed request ends with an item that an answer may have sent.
    fn ends_with_answer(&self) -> bool {
        let input = self.members.get("input").and_then(Value::as_array);
        self.members.get("stream").is_some_and(|stream| *stream == true)
            && input.and_then(|input| input.last()).is_some_and(may_be_of_answer)
    }

    fn hash(&self) -> [u8; 32] {
        cpu_offload::run(self.size, || repeat_hash::of_members(&self.client, &self.members))
    }

    /// The question without its last item, if an answer may have sent that item.
    fn shorter(mut self) -> Option<Self> {
        let input = self.members.get_mut("input")?.as_array_mut()?;
        let item =
            input.pop_if(|item| may_be_of_answer(item)).filter(|_| self.seen.len() < MOST)?;
        if input.is_empty() {
            return None;
        }
        self.seen.push(item);
        Some(self)
    }

    fn into_body(self) -> RequestBody {
        cpu_offload::run(self.size, || Value::Object(self.members).into())
    }
}

/// Whether an answer may have sent this item. Messages of users and outputs of calls are no part of
/// an answer.
fn may_be_of_answer(item: &Value) -> bool {
    let word = |name| item.get(name).and_then(Value::as_str).unwrap_or_default();
    match word("type") {
        "" => false,
        "message" => word("role") == "assistant",
        kind => !kind.ends_with("_output") && !word("id").is_empty(),
    }
}

/// The ids of these items, if the run has sent all of them.
async fn sent_ids(cx: &FaceContext, run: &Run, seen: &[Value]) -> Option<Seen> {
    if seen.is_empty() {
        return Some(Seen::default());
    }
    let body = cx.engine.store().body(run.stream_id).await.ok()??;
    let echo = Echo::of(cx, std::str::from_utf8(&body).ok()?);
    let so_far = fold::so_far(cx, run, &echo.offered).await.ok()?;
    so_far.encode(|it| {
        // Such an answer is complete, and its client has to send the next request.
        if it.transcript.more.get("end_turn").is_some_and(|ends| *ends == false) {
            return None;
        }
        let sent = items(run.stream_id, &it.transcript, echo.form(), "completed");
        let sent: Vec<Value> =
            sent.iter().filter_map(|item| serde_json::to_value(item).ok()).collect();
        let is_sent = |seen: &Value| sent.iter().any(|sent| is_same(sent, seen));
        let ids = seen.iter().filter(|seen| is_sent(seen)).filter_map(id_of);
        let ids: BTreeSet<String> = ids.map(str::to_owned).collect();
        (ids.len() == seen.len()).then(|| Seen::of(ids))
    })
}

fn id_of(item: &Value) -> Option<&str> {
    item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

/// Whether a client sends this item back. It may leave members out.
fn is_same(sent: &Value, seen: &Value) -> bool {
    id_of(sent).is_some() && id_of(sent) == id_of(seen) && agrees(sent, seen)
}

/// Whether two values are equal in all members that both have.
fn agrees(sent: &Value, seen: &Value) -> bool {
    match (sent, seen) {
        (Value::Null, _) | (_, Value::Null) => true,
        (Value::Object(sent), Value::Object(seen)) => seen
            .iter()
            .filter(|(name, _)| *name != "status")
            .all(|(name, seen)| sent.get(name).is_none_or(|sent| agrees(sent, seen))),
        (Value::Array(sent), Value::Array(seen)) => {
            sent.len() == seen.len() && sent.iter().zip(seen).all(|(sent, seen)| agrees(sent, seen))
        }
        _ => sent == seen,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(input: &Value) -> Option<Question> {
        let head = http::Request::builder().header("session-id", "s").body(()).unwrap();
        let body = json!({ "stream": true, "input": input }).into();
        let question = Question::read(&head.into_parts().0, &body);
        question.filter(Question::ends_with_answer)
    }

    #[test]
    fn items_of_an_answer_are_taken_from_the_end_one_by_one() {
        let user = json!({ "type": "message", "role": "user", "content": "Hi" });
        let thought = json!({ "type": "reasoning", "id": "rs_1" });
        let text = json!({ "type": "message", "id": "msg_1", "role": "assistant" });
        let first = question(&json!([user, thought, text])).unwrap();
        assert!(first.seen.is_empty());
        let second = first.shorter().unwrap();
        let third = second.shorter().unwrap();
        assert_eq!(third.members["input"], json!([user]));
        assert_eq!(third.seen, [text, thought]);
        assert!(third.shorter().is_none(), "the question itself stays");
    }

    #[test]
    fn a_request_that_ends_with_a_new_item_resumes_nothing() {
        let text = json!({ "type": "message", "id": "msg_1", "role": "assistant" });
        for last in [
            json!({ "type": "message", "id": "msg_2", "role": "user" }),
            json!({ "type": "function_call_output", "id": "fco_1" }),
            json!({ "role": "assistant", "content": "x" }),
            json!({ "type": "additional_tools" }),
        ] {
            assert!(question(&json!([text, last])).is_none(), "{last}");
        }
        assert!(question(&json!("Hi")).is_none());
    }

    #[test]
    fn an_item_is_known_by_its_id_and_its_members() {
        let sent = json!({ "type": "message", "id": "msg_1", "status": "completed",
            "content": [{ "type": "output_text", "text": "Hi", "logprobs": [] }] });
        let with = |name: &str, value: Value| {
            let mut seen = sent.clone();
            seen[name] = value;
            seen
        };
        let said = |text: &str| json!([{ "type": "output_text", "text": text }]);
        assert!(is_same(&sent, &with("content", said("Hi"))));
        assert!(is_same(&sent, &with("status", "incomplete".into())));
        assert!(is_same(&sent, &with("phase", "commentary".into())));
        for other in [
            with("id", "msg_2".into()),
            with("id", Value::Null),
            with("content", said("Ho")),
            with("content", json!([])),
            with("type", "reasoning".into()),
        ] {
            assert!(!is_same(&sent, &other), "{other}");
        }
    }
}

//! A client that was cut within a text or a call, behind blocks that were complete, does not send
//! its request again: it sends those blocks back and asks the model to go on from there. Where the
//! run has gone on below it, its own blocks are what the client waits for, and no second answer
//! has to be paid for.

use bytes::Bytes;
use http::request::Parts;
use serde_json::Value;

use super::blocks::is_thought;
use super::request;
use super::telling::Telling;
use super::whole::{self, Packets};
use super::{DIALECT, Messages, NAME, offered, repeat_hash};
use crate::face::FaceContext;
use crate::face::reader;
use crate::face::repeats;
use crate::identity::caller::Caller;
use capstan_journal::Run;

/// How Claude Code asks for the rest.
const GO_ON: &str = "Your response above was cut off mid-stream.";

/// A request for the rest of an answer, as the request for all of it.
pub(super) struct Resumed {
    pub(super) body: Bytes,
    pub(super) hash: [u8; 32],
    pub(super) place: Place,
}

/// Where the client reads on. It travels in the extensions of the request's head.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The key of the run.
    pub(super) key: String,
    /// So many blocks the client has.
    pub(super) blocks: usize,
}

/// The run whose rest is asked for, if there is one that nobody reads and that has told what the
/// client has of it.
pub(super) async fn find(
    face: &Messages,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    body: &[u8],
) -> Option<Resumed> {
    let may_repeat = |run: &Run| face.sent_answers.may_repeat(run, parts);
    let (mut cut, mut later) = (CutOff::of(body), Vec::new());
    // What was cut may itself have been the rest of an answer.
    while let Some(CutOff { body, mut seen }) = cut {
        // The rest of an answer begins with the thoughts of its beginning.
        later.retain(|block| !is_thought(block) || !seen.iter().any(|seen| is_same(seen, block)));
        seen.append(&mut later);
        let hash = repeat_hash(&parts.headers, &body);
        let found = repeats::repeated(cx, &caller.tenant, parts, hash, NAME, &may_repeat).await;
        if let Some(run) = found.ok()?
            && (seen.is_empty() || has_told(cx, &run, &body, &seen).await)
        {
            let place = Place { key: run.key, blocks: seen.len() };
            return Some(Resumed { body: body.into(), hash, place });
        }
        (cut, later) = (CutOff::of(&body), seen);
    }
    None
}

/// Whether these are the run's first blocks.
async fn has_told(cx: &FaceContext, run: &Run, body: &[u8], seen: &[Value]) -> bool {
    let Ok(ask) = request::from_body(body) else { return false };
    let Ok(so_far) = reader::collect_so_far::<Packets>(cx, run).await else { return false };
    let telling = Telling::new(run, offered(&ask), 0, cx.sealer(DIALECT));
    let told = so_far.encode(|it| whole::blocks(&it.transcript, telling));
    told.len() >= seen.len() && told.iter().zip(seen).all(|(told, seen)| is_same(told, seen))
}

/// A block as it was told and as the client sends it back.
fn is_same(told: &Value, seen: &Value) -> bool {
    let text = |block: &Value, name: &str| {
        block.get(name).and_then(Value::as_str).map(|text| text.trim().to_owned())
    };
    ["type", "text", "id", "signature"].iter().all(|name| text(told, name) == text(seen, name))
}

/// What was asked before the cut, and what the client has of the answer.
#[derive(Debug)]
struct CutOff {
    body: Vec<u8>,
    seen: Vec<Value>,
}

impl CutOff {
    fn of(body: &[u8]) -> Option<Self> {
        // Few requests are one: the others need not be taken apart.
        let text = std::str::from_utf8(body).ok()?;
        if !text.contains(GO_ON) {
            return None;
        }
        let mut body: Value = serde_json::from_str(text).ok()?;
        let messages = body.get_mut("messages")?.as_array_mut()?;
        // Instructions may stand behind it.
        let at = messages.iter().rposition(|message| !is_by(message, "system"))?;
        let last = messages.get_mut(at).filter(|message| is_by(message, "user"))?;
        let is_alone = match last.get_mut("content")? {
            Value::String(text) if text.starts_with(GO_ON) => true,
            Value::Array(blocks) => {
                let text = blocks.last()?.get("text")?.as_str()?;
                if !text.starts_with(GO_ON) {
                    return None;
                }
                blocks.pop();
                blocks.is_empty()
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => return None,
        };
        let mut seen = Vec::new();
        if is_alone {
            messages.remove(at);
            let before = at.checked_sub(1)?;
            if messages.get(before).is_some_and(|message| is_by(message, "assistant")) {
                seen = blocks_of(messages.remove(before));
            }
        }
        Some(Self { body: serde_json::to_vec(&body).ok()?, seen })
    }
}

fn is_by(message: &Value, role: &str) -> bool {
    message.get("role").is_some_and(|by| by == role)
}

fn blocks_of(mut message: Value) -> Vec<Value> {
    match message.get_mut("content").map(Value::take) {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => vec![serde_json::json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cut_off(messages: Value) -> Option<(Value, usize)> {
        let body = json!({ "model": "m", "messages": messages }).to_string();
        let CutOff { body, seen } = CutOff::of(body.as_bytes())?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        Some((body["messages"].clone(), seen.len()))
    }

    #[test]
    fn what_was_asked_before_a_cut_is_found_again() {
        let asked = json!({ "role": "user", "content": [{ "type": "text", "text": "Hi" }] });
        let go_on = format!("{GO_ON} Resume directly.");
        let seen = json!({ "role": "assistant", "content": [{ "type": "thinking" },
            { "type": "text", "text": "a" }] });
        let alone = json!({ "role": "user", "content": go_on });
        let listed = json!({ "role": "user", "content": [{ "type": "text", "text": go_on }] });
        for last in [alone, listed] {
            let found = cut_off(json!([asked, seen, last]));
            assert_eq!(found, Some((json!([asked]), 2)));
        }
        let beside = json!({ "role": "user", "content": [{ "type": "text", "text": "Hi" },
            { "type": "text", "text": go_on }] });
        let rules = json!({ "role": "system", "content": "Be brief." });
        assert_eq!(cut_off(json!([beside, rules])), Some((json!([asked, rules]), 0)));
    }

    #[test]
    fn who_only_speaks_of_a_cut_asks_something_else() {
        let quote = format!("What does {GO_ON:?} mean?");
        assert_eq!(cut_off(json!([{ "role": "user", "content": quote }])), None);
        assert_eq!(cut_off(json!([{ "role": "assistant", "content": GO_ON }])), None);
    }
}

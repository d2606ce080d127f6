//! A client that was cut behind complete blocks does not send its request again. It sends those
//! blocks back, and asks the model for the rest, or for all of it anew, or with the results of the
//! calls among them. Where the run has gone on below the client, its own blocks are the answer to
//! that, and no second answer has to be paid for.

use std::ops::RangeInclusive;

use bytes::Bytes;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::answer_events::AnswerEvents;
use super::blocks::is_thought;
use super::collected::{self, Packets};
use super::request;
use super::{DIALECT, Messages, NAME, offered, repeat_hash};
use crate::face::FaceContext;
use crate::face::reader;
use crate::face::repeats::{self, ReaderGuardSlot};
use crate::identity::caller::Caller;
use capstan_engine::ask::RequestBody;
use capstan_engine::cpu_offload;
use capstan_journal::Run;

/// How Claude Code asks for the rest.
const REST: &str = "Your response above was cut off mid-stream. Resume directly";
/// How its subagents ask for all of it.
const ANEW: &str = "Your response above was cut off mid-stream and only your next message";

/// A request for the rest of an answer, as the request for all of it.
pub(super) struct Resumed {
    pub(super) body: RequestBody,
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

/// A request of a client that names its session, without the messages behind a cut.
pub(super) struct Question<'a> {
    asker: &'a str,
    members: Map<String, Value>,
    /// The size of the request.
    size: usize,
}

impl<'a> Question<'a> {
    /// Reads a request; `None` if it is no object.
    pub(super) fn read(asker: &'a str, body: &RequestBody) -> Option<Self> {
        let members =
            cpu_offload::run(body.size(), || serde_json::from_slice(body.bytes())).ok()?;
        Some(Self { asker, members, size: body.size() })
    }

    pub(super) fn hash(&self) -> [u8; 32] {
        cpu_offload::run(self.size, || repeat_hash::of_members(self.asker, &self.members))
    }

    fn messages(&self) -> Option<&Vec<Value>> {
        self.members.get("messages")?.as_array()
    }

    fn to_body(&self) -> RequestBody {
        let write = || serde_json::to_vec(&self.members).unwrap_or_default();
        cpu_offload::run(self.size, || Bytes::from(write()).into())
    }
}

/// A request in which an answer may be resumed.
struct Lookup<'a> {
    face: &'a Messages,
    cx: &'a FaceContext,
    caller: &'a Caller,
    parts: &'a Parts,
}

/// The run whose rest is asked for, if there is one that nobody reads and that has told what the
/// client has of it.
pub(super) async fn find(
    face: &Messages,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    question: Question<'_>,
) -> Option<Resumed> {
    let is_shared = cx.engine.store().is_shared();
    let may_be_calls = face.cut_sessions.may_have(parts, is_shared);
    let cut = CutOff::of(&question).filter(|cut| cut.wanted != Wanted::Calls || may_be_calls)?;
    Lookup { face, cx, caller, parts }.resume(question, cut).await
}

impl Lookup<'_> {
    async fn resume(&self, mut question: Question<'_>, first: CutOff) -> Option<Resumed> {
        let (wanted, mut cut, mut later) = (first.wanted, Some(first), Vec::new());
        // What was cut may itself have been the rest of an answer.
        while let Some(CutOff { place, mut seen, wanted: here }) = cut {
            place.remove_from(&mut question)?;
            if here == Wanted::All {
                later.clear();
            }
            // The rest of an answer begins with the thoughts of its beginning.
            later.retain(|block| !is_thought(block) || !seen.iter().any(|own| is_same(own, block)));
            seen.append(&mut later);
            if let Some(resumed) = self.find(&question, &seen, wanted).await {
                return Some(resumed);
            }
            (cut, later) = (CutOff::of(&question), seen);
        }
        None
    }

    async fn find(
        &self,
        question: &Question<'_>,
        seen: &[Value],
        wanted: Wanted,
    ) -> Option<Resumed> {
        let max_tokens = question.members.get("max_tokens").and_then(Value::as_u64);
        let may_repeat = |run: &Run| self.face.may_repeat(self.cx, run, self.parts, max_tokens);
        let hash = question.hash();
        let (cx, tenant) = (self.cx, &self.caller.tenant);
        let found = repeats::repeated(cx, tenant, self.parts, hash, NAME, &may_repeat).await;
        let run = found.ok()??;
        let body = question.to_body();
        let is_all = seen.is_empty() && wanted != Wanted::Calls;
        if !is_all && !self.has_blocks(&run, &body, seen, wanted).await {
            // Somebody else may have it.
            self.parts.extensions.get().map(ReaderGuardSlot::release);
            return None;
        }
        let blocks = if wanted == Wanted::All { 0 } else { seen.len() };
        Some(Resumed { body, hash, place: Place { key: run.key, blocks } })
    }

    /// Whether these are the run's first blocks. Behind results of its first calls it must have
    /// more calls; so it is read to its end.
    async fn has_blocks(
        &self,
        run: &Run,
        body: &RequestBody,
        seen: &[Value],
        wanted: Wanted,
    ) -> bool {
        let Ok(ask) = request::from_body(body) else { return false };
        let read = match wanted {
            Wanted::Calls => reader::collect_to_end::<Packets>(self.cx, run).await,
            Wanted::Rest | Wanted::All => reader::collect_so_far::<Packets>(self.cx, run).await,
        };
        let Ok(read) = read else { return false };
        let events = AnswerEvents::new(run, offered(&ask), 0, self.cx.sealer(DIALECT));
        let told = read.encode(|it| collected::blocks(&it.transcript, events));
        let is_beginning =
            told.len() >= seen.len() && told.iter().zip(seen).all(|(told, own)| is_same(told, own));
        let more = told.get(seen.len()..).unwrap_or_default();
        is_beginning && (wanted != Wanted::Calls || more.iter().any(is_call))
    }
}

/// A block as it was told and as the client sends it back.
fn is_same(told: &Value, seen: &Value) -> bool {
    let text = |block: &Value, name: &str| {
        block.get(name).and_then(Value::as_str).map(|text| text.trim().to_owned())
    };
    ["type", "text", "id", "signature"].iter().all(|name| text(told, name) == text(seen, name))
}

fn is_call(block: &Value) -> bool {
    block.get("type").is_some_and(|kind| kind == "tool_use")
}

/// What a client asks for behind a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The blocks that it does not have.
    Rest,
    /// All blocks, in an answer of their own.
    All,
    /// It sends the results of the calls that it has. If the answer has more calls, they are due.
    Calls,
}

/// A cut in a conversation, and what the client has of the answer.
#[derive(Debug)]
struct CutOff {
    place: CutPlace,
    seen: Vec<Value>,
    wanted: Wanted,
}

/// What a client has added to the conversation since a cut.
#[derive(Debug)]
enum CutPlace {
    /// These messages.
    Messages(RangeInclusive<usize>),
    /// The last block of this message.
    BlockOf(usize),
}

impl CutPlace {
    /// Takes the client's additions away. What is left was asked before the cut.
    fn remove_from(self, question: &mut Question<'_>) -> Option<()> {
        let messages = question.members.get_mut("messages")?.as_array_mut()?;
        match self {
            Self::Messages(range) => drop(messages.drain(range)),
            Self::BlockOf(at) => {
                messages.get_mut(at)?.get_mut("content")?.as_array_mut()?.pop();
            }
        }
        Some(())
    }
}

impl CutOff {
    fn of(question: &Question<'_>) -> Option<Self> {
        let messages = question.messages()?;
        // Instructions may stand behind it.
        let at = messages.iter().rposition(|message| !is_by(message, "system"))?;
        let last = messages.get(at).filter(|message| is_by(message, "user"))?;
        let (wanted, is_alone) = wanted_by(last.get("content")?)?;
        let before = at.checked_sub(1).and_then(|before| messages.get(before));
        let before = before.filter(|message| is_alone && is_by(message, "assistant"));
        let (seen, first) = match before {
            Some(message) => (blocks_of(message), at - 1),
            None => (Vec::new(), at),
        };
        if wanted == Wanted::Calls && !seen.iter().any(is_call) {
            return None;
        }
        let place = if is_alone { CutPlace::Messages(first..=at) } else { CutPlace::BlockOf(at) };
        Some(Self { place, seen, wanted })
    }
}

/// What the content of the last message asks for, and whether that is all of it.
fn wanted_by(content: &Value) -> Option<(Wanted, bool)> {
    let said = |text: &str| match text {
        text if text.starts_with(REST) => Some(Wanted::Rest),
        text if text.starts_with(ANEW) => Some(Wanted::All),
        _ => None,
    };
    match content {
        Value::String(text) => Some((said(text)?, true)),
        Value::Array(blocks) => {
            let is_result =
                |block: &Value| block.get("type").is_some_and(|kind| kind == "tool_result");
            if !blocks.is_empty() && blocks.iter().all(is_result) {
                return Some((Wanted::Calls, true));
            }
            let text = blocks.last()?.get("text")?.as_str()?;
            Some((said(text)?, blocks.len() == 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn is_by(message: &Value, role: &str) -> bool {
    message.get("role").is_some_and(|by| by == role)
}

fn blocks_of(message: &Value) -> Vec<Value> {
    match message.get("content") {
        Some(Value::Array(blocks)) => blocks.clone(),
        Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cut_off(messages: Value) -> Option<(Value, usize)> {
        let body = json!({ "model": "m", "messages": messages }).into();
        let mut question = Question::read("s", &body).unwrap();
        let CutOff { place, seen, .. } = CutOff::of(&question)?;
        place.remove_from(&mut question).unwrap();
        Some((question.members["messages"].clone(), seen.len()))
    }

    #[test]
    fn the_request_before_a_cut_is_found_again() {
        let asked = json!({ "role": "user", "content": [{ "type": "text", "text": "Hi" }] });
        let go_on = format!("{REST} from where it stops.");
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
    fn results_of_calls_ask_for_what_follows_them() {
        let asked = json!({ "role": "user", "content": "Hi" });
        let seen = json!({ "role": "assistant", "content": [
            { "type": "text", "text": "a" }, { "type": "tool_use", "id": "t" }] });
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "b" });
        let results = json!({ "role": "user", "content": [result] });
        assert_eq!(cut_off(json!([asked, seen, results])), Some((json!([asked]), 2)));
        let spoken =
            json!({ "role": "user", "content": [result, { "type": "text", "text": "c" }] });
        assert_eq!(cut_off(json!([asked, seen, spoken])), None);
    }

    #[test]
    fn a_quoted_cut_notice_is_an_ordinary_question() {
        let quote = format!("What does {REST:?} mean?");
        assert_eq!(cut_off(json!([{ "role": "user", "content": quote }])), None);
        assert_eq!(cut_off(json!([{ "role": "assistant", "content": REST }])), None);
    }
}

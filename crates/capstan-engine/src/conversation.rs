//! A conversation: the stored turns of a session, the messages that a request adds, and the
//! messages that the agent gets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use capstan_journal::{StoredTurn, TurnRange};
use capstan_protocol::{
    Arguments, ChatMessage, DecodeError, Dialect, Fault, Part, Role, Timestamp,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::Engine;
use crate::ask::{Ask, Messages, invalid};
use crate::faults::journal_fault;

/// The size of a page of stored turns.
const PAGE_TURNS: usize = 64;
const PAGE_BYTES: usize = 1024 * 1024;

/// A conversation for an agent.
pub(crate) struct Whole {
    pub(crate) messages: Messages,
    /// The number of messages at its beginning that come from the session and not from the request.
    pub(crate) stored: usize,
}

/// Builds the conversation for an agent. A request that does not contain it continues the stored
/// one. `reads` says of which protocols the agent reads the items of clients.
pub(crate) fn whole(
    ask: &Ask,
    stored: &[Arc<PastTurn>],
    reads: impl Fn(Dialect) -> bool,
) -> Result<Whole, Fault> {
    if ask.is_whole {
        return Ok(Whole { messages: with_native(&ask.messages, stored), stored: 0 });
    }
    let mut messages = told(&line(stored, ask.previous), &ask.messages);
    leave_out_items(&mut messages, reads);
    check(&ask.messages, &messages)?;
    let stored = messages.len();
    if ask.messages.has_user() {
        messages.extend(ask.messages.history.iter().cloned());
        let stored = tidy(&mut messages, stored);
        let turn = Arc::clone(&ask.messages.turn);
        return Ok(Whole { messages: Messages { history: messages.into(), turn }, stored });
    }
    messages.extend(ask.messages.iter().cloned().map(Arc::new));
    let stored = tidy(&mut messages, stored);
    Ok(Whole { messages: messages.into(), stored })
}

/// Whether a request needs the stored turns: it does not contain the conversation, or it contains
/// calls in a protocol that has no reasoning.
pub(crate) fn needs_stored(ask: &Ask) -> bool {
    let has_calls = || ask.messages.iter().flat_map(|message| &message.parts).any(is_call);
    !ask.is_whole || (ask.extras.dialect.is_none() && !ask.session.is_empty() && has_calls())
}

fn is_call(part: &Part) -> bool {
    matches!(part, Part::ToolCall { .. })
}

/// Adds to a client's conversation the parts that only their provider understands. The client does
/// not know them.
///
/// An answer that the session remembers replaces the client's, if both say the same: then each part
/// is in its place. Otherwise the parts stand before the answer whose calls they led to.
fn with_native(messages: &Messages, stored: &[Arc<PastTurn>]) -> Messages {
    let mut by_call = native_by_call(stored);
    if by_call.is_empty() {
        return messages.clone();
    }
    let answers = answers_by_call(stored);
    let all: Vec<Arc<ChatMessage>> = messages.iter().cloned().map(Arc::new).collect();
    let mut out = Vec::with_capacity(all.len());
    // A text and the calls after it may be messages of their own, and are one answer.
    let is_answer = |message: &Arc<ChatMessage>| message.role == Role::Assistant;
    for group in all.chunk_by(|a, b| is_answer(a) && is_answer(b)) {
        let calls = || group.iter().flat_map(|message| &message.parts).filter_map(called);
        let native: Vec<Part> = calls().filter_map(|id| by_call.remove(id)).flatten().collect();
        let answer = calls().next().and_then(|id| answers.get(id));
        match answer.filter(|answer| !native.is_empty() && says(group) == says(&[answer])) {
            Some(answer) => out.push(Arc::clone(answer)),
            None => out.extend(behind(native, group)),
        }
    }
    out.into()
}

/// The messages of an answer, with these parts at its beginning.
fn behind(native: Vec<Part>, group: &[Arc<ChatMessage>]) -> Vec<Arc<ChatMessage>> {
    let mut group = group.to_vec();
    if let Some(first) = group.first_mut().filter(|_| !native.is_empty()) {
        Arc::make_mut(first).parts.splice(0..0, native);
    }
    group
}

/// The text of an answer without white space, which clients change, and its calls.
fn says<M: AsRef<ChatMessage>>(messages: &[M]) -> (String, Vec<(&str, Value)>) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for part in messages.iter().flat_map(|message| &message.as_ref().parts) {
        match part {
            Part::Text { content } => text.extend(content.chars().filter(|c| !c.is_whitespace())),
            Part::ToolCall { id, arguments, .. } => {
                let arguments = match arguments {
                    Arguments::Object(object) => object.get(),
                    Arguments::Text(text) => text,
                };
                let arguments = serde_json::from_str(arguments).unwrap_or_default();
                calls.push((id.as_deref().unwrap_or_default(), arguments));
            }
            Part::Blob { .. }
            | Part::File { .. }
            | Part::Uri { .. }
            | Part::ToolCallResponse { .. }
            | Part::Reasoning { .. }
            | Part::Native(_) => {}
        }
    }
    (text, calls)
}

/// The stored answers, by the ids of their first calls.
fn answers_by_call(stored: &[Arc<PastTurn>]) -> HashMap<&str, &Arc<ChatMessage>> {
    let messages = stored.iter().flat_map(|turn| &turn.messages);
    messages
        .filter(|message| message.role == Role::Assistant)
        .filter_map(|message| Some((message.parts.iter().find_map(called)?, message)))
        .collect()
}

/// The native parts before each call. Those behind the last call belong to it.
fn native_by_call(stored: &[Arc<PastTurn>]) -> HashMap<&str, Vec<Part>> {
    let mut by_call: HashMap<&str, Vec<Part>> = HashMap::new();
    for message in stored.iter().flat_map(|turn| &turn.messages) {
        let (mut native, mut last) = (Vec::new(), None);
        for part in &message.parts {
            if let Part::Native(made) = part {
                native.extend((!made.origin.is_client()).then(|| part.clone()));
            } else if let Some(id) = called(part) {
                last = Some(id);
                by_call.entry(id).or_default().append(&mut native);
            }
        }
        if let Some(id) = last {
            by_call.entry(id).or_default().append(&mut native);
        }
    }
    by_call.retain(|_, native| !native.is_empty());
    by_call
}

/// Refuses results of calls that the conversation does not have, because a model would refuse the
/// conversation. This happens before a run exists. `turns` is the number of stored turns.
pub(crate) async fn check_results(
    engine: &Engine,
    tenant: &str,
    ask: &Ask,
    turns: u64,
) -> Result<(), Fault> {
    if results(ask.messages.iter()).next().is_none() {
        return Ok(());
    }
    if ask.is_whole {
        return check(&ask.messages, &[]);
    }
    // Results nearly always answer calls of the last turn, otherwise of any turn. The search goes
    // page by page, and remembers only ids.
    let mut open: HashSet<&str> = results(ask.messages.iter()).collect();
    for message in ask.messages.iter() {
        message.parts.iter().filter_map(called).for_each(|id| {
            open.remove(id);
        });
    }
    for first in [turns.max(1), 1] {
        let mut from = first;
        while !open.is_empty() {
            let page = engine
                .journal
                .store()
                .turns(TurnRange {
                    tenant,
                    session: &ask.session,
                    from,
                    limit: PAGE_TURNS,
                    max_bytes: PAGE_BYTES,
                })
                .await;
            let page = page.map_err(journal_fault)?;
            let Some(last) = page.last().map(|turn| turn.number) else { break };
            from = last + 1;
            for said in page.into_iter().map(TurnRecord::of) {
                // A call without its whole arguments cannot be answered.
                let is_partial = said.is_partial;
                let parts = said.into_messages().into_iter().flat_map(|message| message.parts);
                for part in parts.filter(|part| !is_partial || is_complete(part)) {
                    if let Some(id) = called(&part) {
                        open.remove(id);
                    }
                }
            }
        }
    }
    open.into_iter().next().map_or(Ok(()), |id| Err(unknown_call(id)))
}

/// Results must answer calls of the conversation.
fn check(messages: &Messages, stored: &[Arc<ChatMessage>]) -> Result<(), Fault> {
    if results(messages.iter()).next().is_none() {
        return Ok(());
    }
    let known = stored.iter().map(Arc::as_ref).chain(messages.iter());
    let calls: HashSet<&str> =
        known.flat_map(|message| &message.parts).filter_map(called).collect();
    results(messages.iter())
        .find(|id| !calls.contains(id))
        .map_or(Ok(()), |id| Err(unknown_call(id)))
}

fn unknown_call(id: &str) -> Fault {
    let what = format!("hold a result of the call {id:?}, which this conversation does not have");
    invalid(&DecodeError::value("messages", what)).with_detail("tool_call_id", id)
}

fn results<'a>(messages: impl Iterator<Item = &'a ChatMessage>) -> impl Iterator<Item = &'a str> {
    messages.flat_map(|message| &message.parts).filter_map(answered)
}

/// Returns the messages of stored turns for an agent. A run that broke off counts up to its last
/// answered call, because a caller may have acted on what it saw. The answer may be in a later
/// turn.
fn told(stored: &[&PastTurn], added: &Messages) -> Vec<Arc<ChatMessage>> {
    let with_calls = stored.iter().filter(|turn| turn.has_calls).flat_map(|turn| &turn.messages);
    let results: HashSet<&str> = results(with_calls.map(Arc::as_ref).chain(added.iter())).collect();
    let is_done = |part: &Part| {
        answered(part).is_some()
            || called(part).is_some_and(|id| results.contains(id)) && is_complete(part)
    };
    let mut messages = Vec::with_capacity(stored.iter().map(|turn| turn.messages.len()).sum());
    for turn in stored {
        match turn.is_partial {
            true => messages.extend(up_to(&turn.messages, is_done)),
            false => messages.extend_from_slice(&turn.messages),
        }
    }
    messages
}

/// Leaves out the items of clients that an agent does not read: it gets what they became.
fn leave_out_items(messages: &mut Vec<Arc<ChatMessage>>, reads: impl Fn(Dialect) -> bool) {
    let is_unread = |part: &Part| {
        let Part::Native(native) = part else { return false };
        native.origin.is_client() && !reads(native.origin.dialect)
    };
    for message in messages.iter_mut() {
        if message.parts.iter().any(is_unread) {
            Arc::make_mut(message).parts.retain(|part| !is_unread(part));
        }
    }
    messages.retain(|message| !message.parts.is_empty());
}

/// Returns the messages up to the last wanted part, or none.
fn up_to(
    messages: &[Arc<ChatMessage>],
    is_wanted: impl Fn(&Part) -> bool,
) -> Vec<Arc<ChatMessage>> {
    let last = messages.iter().rposition(|message| message.parts.iter().any(&is_wanted));
    let mut messages: Vec<_> = messages.iter().take(last.map_or(0, |at| at + 1)).cloned().collect();
    if let Some(message) = messages.last_mut() {
        let last = message.parts.iter().rposition(is_wanted).map_or(0, |at| at + 1);
        if last < message.parts.len() {
            Arc::make_mut(message).parts.truncate(last);
        }
    }
    messages
}

/// Removes calls without a result and results without their call, because models refuse them, and
/// the native parts that belong to them. A stored conversation has them if a caller continued
/// without an answer. What else a provider refuses, its adapter leaves out. Returns how many of the
/// first `stored` messages are left.
fn tidy(messages: &mut Vec<Arc<ChatMessage>>, stored: usize) -> usize {
    let ids = |of: fn(&Part) -> Option<&str>| -> HashSet<String> {
        messages
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(of)
            .map(str::to_owned)
            .collect()
    };
    let (calls, results) = (ids(called), ids(answered));
    let is_left_out = |part: &Part| {
        called(part).is_some_and(|id| !results.contains(id))
            || answered(part).is_some_and(|id| !calls.contains(id))
    };
    for message in messages.iter_mut() {
        let left_out = message.parts.iter().filter(|part| is_left_out(part));
        let ids: Vec<String> = left_out
            .filter_map(|part| called(part).or(answered(part)))
            .map(str::to_owned)
            .collect();
        // Other runs may share the message, so only a changed one is copied.
        if !ids.is_empty() {
            let is_of_them = |part: &Part| {
                let Part::Native(native) = part else { return false };
                ids.iter().any(|id| native.is_of_call(id))
            };
            let parts = &mut Arc::make_mut(message).parts;
            parts.retain(|part| !is_left_out(part) && !is_of_them(part));
        }
    }
    let is_left = |message: &Arc<ChatMessage>| !message.parts.is_empty();
    let left = messages.iter().take(stored).filter(|message| is_left(message)).count();
    messages.retain(is_left);
    left
}

fn called(part: &Part) -> Option<&str> {
    if let Part::ToolCall { id, .. } = part { id.as_deref() } else { None }
}

fn answered(part: &Part) -> Option<&str> {
    if let Part::ToolCallResponse { id, .. } = part { id.as_deref() } else { None }
}

/// Whether the arguments of a call are whole. A run that breaks off leaves a part of them.
fn is_complete(part: &Part) -> bool {
    let Part::ToolCall { arguments: Arguments::Text(text), .. } = part else { return true };
    text.trim().is_empty() || serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Returns the messages that a request adds to its session. If it contains the whole conversation,
/// these are the messages after the last answer. A client that answers an interrupt repeats
/// messages of the last turn, which do not count again.
pub(crate) fn added<'a>(ask: &'a Ask, last: &[ChatMessage]) -> Vec<&'a ChatMessage> {
    let is_known = |message: &&ChatMessage| ask.is_whole && message.role == Role::Assistant;
    let is_repeated =
        |message: &ChatMessage| !ask.extras.answers.is_empty() && last.contains(message);
    let mut added: Vec<_> =
        ask.messages.iter().rev().take_while(|message| !is_known(message)).collect();
    added.reverse();
    added.retain(|message| !is_repeated(message));
    added
}

/// Returns the turns that a run continues: all of them, or in a tree of answers those on the path
/// to
/// `last`. Each turn closed before the next one on its path began.
fn line(turns: &[Arc<PastTurn>], last: Option<Uuid>) -> Vec<&PastTurn> {
    if last.is_none() {
        return turns.iter().map(Arc::as_ref).collect();
    }
    let (mut next, mut line) = (last, Vec::new());
    for turn in turns.iter().rev() {
        if next == Some(turn.stream) {
            next = turn.previous;
            line.push(turn.as_ref());
        }
    }
    line.reverse();
    line
}

/// A stored turn, decoded once and shared by all runs of its session.
#[derive(Debug)]
pub(crate) struct PastTurn {
    pub(crate) number: u64,
    pub(crate) stream: Uuid,
    previous: Option<Uuid>,
    is_partial: bool,
    /// Calls or results are among its messages.
    has_calls: bool,
    messages: Vec<Arc<ChatMessage>>,
    /// The first so many messages say less than the body of the run.
    abridged: Option<usize>,
    /// The size of its stored text.
    pub(crate) bytes: usize,
}

impl PastTurn {
    pub(crate) fn of(turn: StoredTurn) -> Self {
        let (number, stream, bytes) = (turn.number, turn.stream_id, turn.said_bytes());
        let said = TurnRecord::of(turn);
        let (previous, is_partial, abridged) = (said.previous, said.is_partial, said.abridged);
        let messages: Vec<_> = said.into_messages().into_iter().map(Arc::new).collect();
        let mut parts = messages.iter().flat_map(|message| &message.parts);
        let has_calls = parts.any(|part| called(part).or_else(|| answered(part)).is_some());
        Self { number, stream, previous, is_partial, has_calls, messages, abridged, bytes }
    }

    /// Whether the run's body says more than the messages.
    pub(crate) fn is_abridged(&self) -> bool {
        self.abridged.is_some()
    }

    /// Replaces the shorter messages by those of the run's body, which has so many bytes.
    pub(crate) fn unabridge(&mut self, messages: Vec<ChatMessage>, bytes: usize) {
        let asked = self.abridged.take().unwrap_or(0).min(self.messages.len());
        self.messages.splice(..asked, messages.into_iter().map(Arc::new));
        self.bytes += bytes;
    }

    /// Whether both are the same turn of the same session.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.number, self.stream) == (other.number, other.stream)
    }

    /// Its approximate memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        const MESSAGE: usize = 256;
        self.bytes + (self.messages.len() + 1) * MESSAGE
    }
}

/// The content of a stored turn. The journal does not read it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnRecord {
    /// The messages that the run added to the conversation, oldest first.
    messages: Vec<Value>,
    /// The run that this one continues, if that is not the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Uuid>,
    /// The interrupts with which the run ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Value>,
    /// The run failed or was stopped. Agents get it only up to its last answered call.
    pub is_partial: bool,
    /// The first so many messages say less than the body of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    abridged: Option<usize>,
    /// The user's message, in turns of version 1.
    #[serde(skip_serializing)]
    user: Value,
    /// The whole answer, in turns of version 1.
    #[serde(skip_serializing)]
    assistant: String,
}

impl TurnRecord {
    /// The version of this format. Version 1 was a question and its answer.
    const VERSION: u32 = 2;

    pub(crate) fn new<'a>(
        messages: impl Iterator<Item = &'a ChatMessage>,
        is_partial: bool,
    ) -> Self {
        let messages =
            messages.map(|message| serde_json::to_value(message).unwrap_or_default()).collect();
        Self { messages, is_partial, ..Self::default() }
    }

    /// Sets the run that this one continues.
    pub(crate) fn after(self, previous: Option<Uuid>) -> Self {
        Self { previous, ..self }
    }

    /// Sets how many of the first messages say less than the body of the run.
    pub(crate) fn abridging(self, abridged: Option<usize>) -> Self {
        Self { abridged, ..self }
    }

    /// Reads a stored turn. One of a later version that this one cannot read is empty and partial.
    pub fn of(turn: StoredTurn) -> Self {
        serde_json::from_value(turn.said).unwrap_or(Self { is_partial: true, ..Self::default() })
    }

    pub(crate) fn into_turn(self, stream: Uuid, closed_at: Timestamp) -> StoredTurn {
        StoredTurn::new(
            stream,
            closed_at,
            Self::VERSION,
            serde_json::to_value(self).unwrap_or_default(),
        )
    }

    /// The messages of the turn.
    pub fn into_messages(self) -> Vec<ChatMessage> {
        if self.messages.is_empty() && !self.user.is_null() {
            let user = serde_json::from_value(self.user).ok();
            return user.into_iter().chain([ChatMessage::assistant(self.assistant)]).collect();
        }
        self.messages
            .into_iter()
            .filter_map(|message| serde_json::from_value(message).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(version: u32, said: Value) -> StoredTurn {
        StoredTurn::new(Uuid::nil(), Timestamp::from_micros(0), version, said)
    }

    #[test]
    fn turns_are_read_as_they_were_written_by_every_version() {
        let messages = [ChatMessage::user("q"), ChatMessage::assistant("a")];
        let first = json!({"user": messages[0], "assistant": "a", "is_partial": false});
        let said = TurnRecord::of(turn(1, first));
        assert!(!said.is_partial);
        assert_eq!(said.into_messages(), messages);
        let mut said = TurnRecord::new(messages.iter(), true);
        said.interrupts.push("?".into());
        let said = TurnRecord::of(said.into_turn(Uuid::nil(), Timestamp::from_micros(0)));
        assert_eq!((said.is_partial, said.interrupts.clone()), (true, vec!["?".into()]));
        assert_eq!(said.into_messages(), messages);
        let unknown = TurnRecord::of(turn(3, json!("a word")));
        assert!(unknown.is_partial && unknown.into_messages().is_empty());
    }

    #[test]
    fn where_answers_form_a_tree_only_the_line_that_leads_to_one_counts() {
        let ids: Vec<_> = (0..4).map(Uuid::from_u128).collect();
        // The second and the third both go on from the first, and the fourth from the second.
        let previous = [None, Some(ids[0]), Some(ids[0]), Some(ids[1])];
        let turns: Vec<_> = ids
            .iter()
            .zip(previous)
            .map(|(stream, previous)| {
                let said = TurnRecord::new([ChatMessage::user("q")].iter(), false).after(previous);
                Arc::new(PastTurn::of(said.into_turn(*stream, Timestamp::from_micros(0))))
            })
            .collect();
        let line = |last: Option<Uuid>| -> Vec<_> {
            line(&turns, last).iter().map(|turn| turn.stream).collect()
        };
        assert_eq!(line(None), ids);
        assert_eq!(line(Some(ids[3])), [ids[0], ids[1], ids[3]]);
        assert_eq!(line(Some(ids[2])), [ids[0], ids[2]]);
        assert!(line(Some(Uuid::max())).is_empty());
    }

    #[test]
    fn messages_are_shared_with_whoever_is_told_of_them_and_only_what_changes_is_copied() {
        let call = Part::ToolCall {
            id: Some("c".into()),
            name: "f".into(),
            arguments: Arguments::Text("{}".into()),
        };
        let mut calls = ChatMessage::assistant("I call.");
        calls.parts.push(call);
        let said = TurnRecord::new([ChatMessage::user("q"), calls].iter(), false);
        let turn = Arc::new(PastTurn::of(said.into_turn(Uuid::nil(), Timestamp::from_micros(0))));
        let ask = Ask::new("k".into(), "s".into(), vec![ChatMessage::user("And now?")]);
        let history = whole(&ask, &[Arc::clone(&turn)], |_| true).unwrap().messages.history;
        assert!(Arc::ptr_eq(&history[0], &turn.messages[0]));
        assert_eq!(
            (history[1].parts.len(), turn.messages[1].parts.len()),
            (1, 2),
            "nobody answered the call"
        );
    }

    #[test]
    fn a_call_that_nobody_answered_goes_with_its_native_parts_alone() {
        let native = |part: Value| {
            let part = json!({ "type": "native", "dialect": "openai-responses",
                "provider": "p", "model": "m", "part": part });
            serde_json::from_value::<Part>(part).unwrap()
        };
        let template = |id: &str| native(json!({ "type": "custom_tool_call", "call_id": id }));
        let call = |id: &str| Part::ToolCall {
            id: Some(id.into()),
            name: "f".into(),
            arguments: Arguments::Text(String::new()),
        };
        let (thought, picture) = (native(json!({ "id": "rs" })), native(json!({ "id": "ig" })));
        let parts = vec![thought, template("a"), call("a"), template("b"), call("b"), picture];
        let answer = ChatMessage { role: Role::Assistant, parts: parts.clone(), name: None };
        let said = TurnRecord::new([ChatMessage::user("q"), answer].iter(), false);
        let turn = Arc::new(PastTurn::of(said.into_turn(Uuid::nil(), Timestamp::from_micros(0))));
        let ask = Ask::new("k".into(), "s".into(), vec![ChatMessage::tool("b", "42")]);
        let messages = whole(&ask, &[turn], |_| true).unwrap().messages;
        let left = [&parts[..1], &parts[3..]].concat();
        assert_eq!(messages.iter().nth(1).unwrap().parts, left);
    }

    #[test]
    fn stored_answer_replaces_the_clients_if_both_say_the_same() {
        let native = |n: u32| {
            let part = json!({ "type": "native", "dialect": "anthropic-messages",
                "provider": "p", "model": "m", "part": { "n": n } });
            serde_json::from_value::<Part>(part).unwrap()
        };
        let text = |content: &str| Part::Text { content: content.into() };
        let call = |arguments: &str| Part::ToolCall {
            id: Some("c".into()),
            name: "f".into(),
            arguments: Arguments::Text(arguments.into()),
        };
        let answer = |parts: Vec<Part>| ChatMessage { role: Role::Assistant, parts, name: None };
        let stored = answer(vec![native(1), text("I "), text("look."), native(2), call("{}")]);
        let said = TurnRecord::new([ChatMessage::user("q"), stored.clone()].iter(), false);
        let turn = Arc::new(PastTurn::of(said.into_turn(Uuid::nil(), Timestamp::from_micros(0))));
        let told = |content: &str, arguments: &str| {
            let messages = vec![
                ChatMessage::user("q"),
                answer(vec![text(content)]),
                answer(vec![call(arguments)]),
                ChatMessage::tool("c", "42"),
            ];
            let ask = Ask { is_whole: true, ..Ask::new("k".into(), "s".into(), messages) };
            whole(&ask, &[Arc::clone(&turn)], |_| true)
                .unwrap()
                .messages
                .iter()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(told("I look.\n", "{ }")[1..], [stored, ChatMessage::tool("c", "42")]);
        let edited = [answer(vec![native(1), native(2), text("No.")]), answer(vec![call("{}")])];
        assert_eq!(told("No.", "{}")[1..3], edited, "the client's own text has the last word");
        assert_eq!(told("I look.", r#"{"a":1}"#)[2], answer(vec![call(r#"{"a":1}"#)]));
    }
}

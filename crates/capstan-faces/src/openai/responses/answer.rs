//! The items of a response, folded from the packets of its run, in the order in which they began.
//!
//! The events of a stream and the object at its end are made from the same items, so they agree.
//! Content that only OpenAI's models have (ids, encrypted reasoning, calls of built-in tools) comes
//! in the native lane and is sent unchanged.

use std::collections::VecDeque;
use std::sync::Arc;

use capstan_agent::sealed::Sealer;
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    Close, Dialect, Event, NATIVE, NativeEvent, NativeOrigin, Payload, RawJson, RawObject,
    StreamError, StreamPacket,
};
use serde_json::{Map, Value, json};

use super::super::native::ends_attempt;
use super::super::output::{ClientEvent, INTERRUPT, Offered, Source, block};
use super::thought_part::{ThoughtPart, ThoughtParts};
use crate::face::reader::Fold;

/// The protocol of these answers.
const DIALECT: Dialect = Dialect::OpenaiResponses;

/// The items of a response, and how it ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) items: Vec<Entry>,
    /// The tools that the request offers.
    pub(super) offered: Arc<Offered>,
    /// The open message and the open reasoning item.
    message: Option<usize>,
    reasoning: Option<usize>,
    /// The provider's members of the next item, without its text.
    template: Template,
    /// The messages of the present attempt that have a template.
    messages: usize,
    /// The provider's members of the next piece of text.
    pub(super) delta_members: Map<String, Value>,
    /// Sources in the provider's form. Each replaces the citation that follows it.
    raw_sources: VecDeque<Value>,
    has_text: bool,
    /// Members of the response that only the provider knows.
    pub(super) more: Map<String, Value>,
    pub(super) error: Option<Box<StreamError>>,
    pub(super) close: Option<Close>,
    sealer: Sealer,
    /// Another attempt has begun, and has no new output yet.
    is_repeating: bool,
    /// The reasoning of that attempt, if its place in the answer has passed, each with its packet.
    /// It is added before the next item. Without a next item it would be the last, and providers
    /// refuse a turn that ends with reasoning.
    late: Vec<(u64, Late)>,
}

/// Reasoning whose place in the answer has passed.
#[derive(Debug)]
enum Late {
    Thought(String),
    Part(NativeEvent),
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            message: None,
            reasoning: None,
            template: Template::default(),
            messages: 0,
            has_text: false,
            more: Map::new(),
            error: None,
            close: None,
            offered: Arc::default(),
            delta_members: Map::new(),
            raw_sources: VecDeque::new(),
            sealer: Sealer::new(DIALECT, []),
            is_repeating: false,
            late: Vec::new(),
        }
    }
}

/// An item.
#[derive(Debug)]
pub(super) struct Entry {
    /// The packet that began it.
    pub(super) seq: u64,
    pub(super) what: What,
    /// The text, the thoughts or the arguments.
    pub(super) text: String,
    /// For each packet with text: its seq, and the end of its text.
    marks: Vec<(u64, usize)>,
    /// Sources of a text, each with its packet.
    sources: Vec<(u64, Value)>,
    /// The parts of a reasoning item.
    pub(super) thoughts: ThoughtParts,
    /// The provider's members, without the text.
    pub(super) native: Template,
    /// The provider's members of the text part.
    pub(super) part_members: Map<String, Value>,
    /// The provider's members of the complete item that its beginning does not have.
    pub(super) end_members: Map<String, Value>,
    /// The packet that ended it.
    done: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Message,
    Reasoning,
    Call {
        id: String,
        name: String,
        /// The agent itself answered the call.
        is_answered: bool,
        /// The call is an interrupt: a question of the run to a person.
        is_question: bool,
    },
    /// An item that only OpenAI's models make.
    Native,
}

/// The provider's members of an item.
#[derive(Debug, Clone, Default)]
pub(super) struct Template {
    pub(super) members: Map<String, Value>,
    /// The JSON pointer of its text.
    pub(super) text_at: Option<String>,
    /// Whether these are the members of the complete item.
    pub(super) is_whole: bool,
    /// Who made it.
    pub(super) origin: Option<NativeOrigin>,
}

impl Template {
    fn new(members: Map<String, Value>) -> Self {
        Self { members, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn kind(&self) -> &str {
        self.word("type")
    }

    pub(super) fn word(&self, name: &str) -> &str {
        self.members.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A change by a packet. Items are named by their position.
#[derive(Debug)]
pub(super) enum Change {
    Begun(usize),
    /// The text from this offset on is new.
    Text(usize, usize),
    /// The source at this position is new.
    Source(usize, usize),
    Done(usize),
    /// A part of a reasoning item began.
    Part(usize),
    /// An event of the provider, about this item if it names a known one.
    Event(Option<usize>, Map<String, Value>),
    /// Members of the next event of a type.
    Beside(Map<String, Value>),
}

impl Entry {
    pub(super) fn is_done(&self) -> bool {
        self.done.is_some()
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &Value> {
        self.sources.iter().map(|(_, source)| source)
    }

    pub(super) fn source(&self, at: usize) -> Option<&Value> {
        self.sources.get(at).map(|(_, source)| source)
    }

    /// Whether a client can execute a call. Some agents send no end of calls.
    pub(super) fn is_complete(&self) -> bool {
        self.is_done() || serde_json::from_str::<serde::de::IgnoredAny>(&self.text).is_ok()
    }

    fn new(seq: u64, what: What, native: Template) -> Self {
        Self {
            seq,
            what,
            text: String::new(),
            marks: Vec::new(),
            sources: Vec::new(),
            thoughts: ThoughtParts::default(),
            native,
            part_members: Map::new(),
            end_members: Map::new(),
            done: None,
        }
    }

    /// The same item at its beginning, without text.
    pub(super) fn begun(&self) -> Self {
        Self::new(self.seq, self.what.clone(), self.native.clone())
    }

    /// Drops everything after a packet.
    fn reset(&mut self, after: u64) {
        self.thoughts.reset(after);
        self.marks.retain(|(seq, _)| *seq <= after);
        self.sources.retain(|(seq, _)| *seq <= after);
        self.text.truncate(self.marks.last().map_or(0, |(_, end)| *end));
        self.done = self.done.filter(|seq| *seq <= after);
    }
}

impl Answer {
    /// An answer without items yet, to a request that offers these tools.
    pub(super) fn new(offered: Arc<Offered>) -> Self {
        Self { offered, ..Self::default() }
    }

    /// Applies a packet, and appends its changes.
    pub(super) fn apply(&mut self, packet: &StreamPacket, changes: &mut Vec<Change>) {
        let seq = packet.seq;
        match &packet.payload {
            Payload::Delta(text) => self.say(seq, text, changes),
            Payload::Event(raw) => self.event(seq, raw, changes),
            Payload::Error(error) => {
                self.error = Some(error.clone());
                if ends_attempt(error) {
                    self.messages = 0;
                    self.is_repeating |= !self.items.is_empty();
                }
            }
            Payload::Close(close) => self.close = Some(close.clone()),
        }
    }

    fn event(&mut self, seq: u64, raw: &RawObject, changes: &mut Vec<Change>) {
        match ClientEvent::of(raw) {
            ClientEvent::Block(content) => self.say(seq, &block(&content, self.has_text), changes),
            ClientEvent::Thought(text) => self.think(seq, text, changes),
            ClientEvent::Citations(sources) => self.cite(seq, &sources, changes),
            ClientEvent::Call { id, name } => {
                let (is_answered, is_question) = (false, false);
                self.begin(seq, What::Call { id, name, is_answered, is_question }, changes);
            }
            ClientEvent::Arguments { id, more } => {
                if let Some(at) = self.call(&id) {
                    self.add(at, seq, &more, changes);
                }
            }
            ClientEvent::End { id } => {
                if let Some(at) = self.call(&id) {
                    self.end(at, seq, changes);
                }
            }
            ClientEvent::Result { id } => self.answered(&id),
            ClientEvent::Interrupt(interrupt) => self.ask(seq, &interrupt, changes),
            ClientEvent::Reset(reset) => self.reset(reset.after_seq),
            ClientEvent::Other if raw.get().contains(NATIVE) => {
                if let Ok(native) = serde_json::from_value(Event::of(raw).data) {
                    self.native(seq, native, changes);
                }
            }
            ClientEvent::Other => {}
        }
    }

    fn think(&mut self, seq: u64, text: String, changes: &mut Vec<Change>) {
        if self.is_past_reasoning() {
            match self.late.last_mut() {
                Some((_, Late::Thought(thought))) => thought.push_str(&text),
                Some((_, Late::Part(_))) | None => self.late.push((seq, Late::Thought(text))),
            }
            return;
        }
        let at = self.reasoning.unwrap_or_else(|| self.begin(seq, What::Reasoning, changes));
        self.reasoning = Some(at);
        self.sealer.thought(&text);
        self.add(at, seq, &text, changes);
    }

    /// Whether the present attempt repeats an answer in which more than reasoning has come.
    fn is_past_reasoning(&self) -> bool {
        let last = self.items.last();
        self.is_repeating && last.is_some_and(|entry| !matches!(entry.what, What::Reasoning))
    }

    fn add_late(&mut self, next: u64, changes: &mut Vec<Change>) {
        for (seq, late) in std::mem::take(&mut self.late) {
            match late {
                Late::Thought(text) => self.think(seq, text, changes),
                Late::Part(part) => self.native(seq, part, changes),
            }
        }
        self.end_reasoning(next, changes);
    }

    fn say(&mut self, seq: u64, text: &str, changes: &mut Vec<Change>) {
        if text.is_empty() {
            return;
        }
        self.has_text = true;
        let at = self.open_message(seq, changes);
        self.add(at, seq, text, changes);
    }

    fn open_message(&mut self, seq: u64, changes: &mut Vec<Change>) -> usize {
        self.end_reasoning(seq, changes);
        let at = self.message.unwrap_or_else(|| self.begin(seq, What::Message, changes));
        self.message = Some(at);
        at
    }

    fn cite(&mut self, seq: u64, sources: &[Source], changes: &mut Vec<Change>) {
        let at = self.open_message(seq, changes);
        let Some(entry) = self.items.get_mut(at) else { return };
        let chars = entry.text.chars().count();
        for source in sources {
            let raw = self.raw_sources.pop_front();
            changes.push(Change::Source(at, entry.sources.len()));
            entry.sources.push((seq, raw.unwrap_or_else(|| source.annotation(chars))));
        }
    }

    /// Begins an item. A message ends before a call that the client answers: clients order items by
    /// their ends.
    fn begin(&mut self, seq: u64, what: What, changes: &mut Vec<Change>) -> usize {
        let kinds: &[&str] = match &what {
            What::Message => &["message"],
            What::Reasoning => &["reasoning"],
            What::Call { .. } => &["function_call", "custom_tool_call"],
            What::Native => &[],
        };
        let native = match kinds.contains(&self.template.kind()) {
            true => std::mem::take(&mut self.template),
            false => Template::default(),
        };
        if let What::Call { name, .. } = &what
            && (self.offered.has(name) || !native.is_empty())
        {
            self.end_message(seq, changes);
        }
        self.push(seq, what, native, changes)
    }

    /// Adds an item. Those that are no calls follow one another.
    fn push(&mut self, seq: u64, what: What, native: Template, changes: &mut Vec<Change>) -> usize {
        self.is_repeating = false;
        if !self.late.is_empty() {
            self.add_late(seq, changes);
        }
        if matches!(what, What::Reasoning | What::Native) {
            self.end_message(seq, changes);
        }
        if !matches!(what, What::Reasoning) {
            self.end_reasoning(seq, changes);
        }
        let at = self.items.len();
        self.items.push(Entry::new(seq, what, native));
        changes.push(Change::Begun(at));
        at
    }

    fn add(&mut self, at: usize, seq: u64, text: &str, changes: &mut Vec<Change>) {
        let Some(entry) = self.items.get_mut(at).filter(|_| !text.is_empty()) else { return };
        self.is_repeating = false;
        if matches!(entry.what, What::Reasoning) && entry.thoughts.is_empty() {
            entry.thoughts.begin(seq, 0, ThoughtPart::default());
            changes.push(Change::Part(at));
        }
        changes.push(Change::Text(at, entry.text.len()));
        entry.text.push_str(text);
        entry.marks.push((seq, entry.text.len()));
    }

    fn end(&mut self, at: usize, seq: u64, changes: &mut Vec<Change>) {
        if let Some(entry) = self.items.get_mut(at).filter(|entry| !entry.is_done()) {
            entry.done = Some(seq);
            changes.push(Change::Done(at));
        }
    }

    fn end_reasoning(&mut self, seq: u64, changes: &mut Vec<Change>) {
        if let Some(at) = self.reasoning.take() {
            self.end(at, seq, changes);
        }
    }

    fn end_message(&mut self, seq: u64, changes: &mut Vec<Change>) {
        if let Some(at) = self.message.take() {
            self.end(at, seq, changes);
        }
    }

    fn call(&self, wanted: &str) -> Option<usize> {
        self.items.iter().rposition(
            |entry| matches!(&entry.what, What::Call { id, .. } if id.as_str() == wanted),
        )
    }

    fn answered(&mut self, wanted: &str) {
        let at = self.call(wanted);
        let entry = at.and_then(|at| self.items.get_mut(at));
        if let Some(Entry { what: What::Call { is_answered, .. }, .. }) = entry {
            *is_answered = true;
        }
    }

    /// Adds an interrupt as a call, whose output will be the answer. If the interrupt is about a
    /// call of the agent, it replaces that call.
    fn ask(&mut self, seq: u64, interrupt: &Interrupt, changes: &mut Vec<Change>) {
        if let Some(id) = &interrupt.tool_call_id {
            self.answered(id);
        }
        let (id, name) = (interrupt.id.clone(), INTERRUPT.to_owned());
        let what = What::Call { id, name, is_answered: false, is_question: true };
        let at = self.push(seq, what, Template::default(), changes);
        self.add(at, seq, &serde_json::to_string(interrupt).unwrap_or_default(), changes);
        self.end(at, seq, changes);
    }

    fn reset(&mut self, after: u64) {
        self.late.retain(|(seq, _)| *seq <= after);
        self.items.retain(|entry| entry.seq <= after);
        self.items.iter_mut().for_each(|entry| entry.reset(after));
        let is_open = |at: &usize| self.items.get(*at).is_some_and(|entry| !entry.is_done());
        (self.message, self.reasoning) =
            (self.message.filter(is_open), self.reasoning.filter(is_open));
        self.has_text = self.items.iter().any(|e| matches!(e.what, What::Message));
        self.messages = self.messages_with_template();
    }

    /// Applies an event of the native lane.
    fn native(&mut self, seq: u64, native: NativeEvent, changes: &mut Vec<Change>) {
        if self.is_past_reasoning() && is_reasoning(&native) {
            // Without thoughts it is the reasoning of the attempt before, or has no place.
            if matches!(self.late.last(), Some((_, Late::Thought(_)))) && native.part.is_some() {
                self.late.push((seq, Late::Part(native)));
            }
            return;
        }
        if native.origin.dialect != DIALECT {
            return self.foreign(seq, native, changes);
        }
        if let Some(Value::Object(members)) = native.part.map(|part| part.to_value()) {
            let (text_at, origin) = (native.text_at, Some(native.origin));
            self.sealer.skip();
            self.part(seq, Template { members, text_at, origin, is_whole: true }, changes);
        }
        if let Some(Value::Object(event)) = native.event.map(|event| event.to_value()) {
            self.native_event(seq, event, changes);
        }
    }

    /// A part of another protocol: sealed reasoning, which the client sends back. A later attempt
    /// may send it again.
    fn foreign(&mut self, seq: u64, native: NativeEvent, changes: &mut Vec<Change>) {
        let Some(sealed) = self.sealer.seal(native).filter(|_| !self.is_repeating) else { return };
        let has_text = self.reasoning.is_some();
        let summary = match has_text {
            true => json!([{ "type": "summary_text", "text": null }]),
            false => json!([]),
        };
        let item = json!({ "type": "reasoning", "summary": summary, "encrypted_content": sealed });
        let Value::Object(members) = item else { return };
        let text_at = has_text.then(|| "/summary/0/text".to_owned());
        let part = Template { members, text_at, origin: None, is_whole: true };
        self.part(seq, part, changes);
    }

    fn part(&mut self, seq: u64, part: Template, changes: &mut Vec<Change>) {
        match part.kind() {
            "reasoning" => {
                let at =
                    self.reasoning.unwrap_or_else(|| self.begin(seq, What::Reasoning, changes));
                if let Some(entry) = self.items.get_mut(at) {
                    entry.native = part;
                }
                self.reasoning = Some(at);
                self.end_reasoning(seq, changes);
            }
            "message" => self.message_part(seq, part, changes),
            "function_call" | "custom_tool_call" => self.template = part,
            _ => {
                let at = self
                    .by_id(part.word("id"))
                    .unwrap_or_else(|| self.push(seq, What::Native, part.clone(), changes));
                if let Some(entry) = self.items.get_mut(at) {
                    entry.native = part;
                }
                self.end(at, seq, changes);
            }
        }
    }

    /// The template of a message, which ends the message before it. A later attempt sends the
    /// templates of known messages again.
    fn message_part(&mut self, seq: u64, part: Template, changes: &mut Vec<Change>) {
        self.messages += 1;
        if self.messages > self.messages_with_template() {
            self.end_message(seq, changes);
            self.template = part;
        }
    }

    fn messages_with_template(&self) -> usize {
        let is_one = |e: &&Entry| matches!(e.what, What::Message) && !e.native.is_empty();
        let is_next = self.template.kind() == "message";
        self.items.iter().filter(is_one).count() + usize::from(is_next)
    }

    fn native_event(&mut self, seq: u64, mut event: Map<String, Value>, changes: &mut Vec<Change>) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "" => {
                if let Some(Value::Object(response)) = event.remove("response") {
                    self.more = response;
                }
                if let Some(Value::Object(members)) = event.remove("beside") {
                    changes.push(Change::Beside(members));
                }
                if let Some(Value::Object(members)) = event.remove("item") {
                    self.end_members(members);
                }
            }
            "response.output_item.added" => {
                if let Some(Value::Object(item)) = event.remove("item") {
                    self.native_begun(seq, Template::new(item), changes);
                }
            }
            // An attempt that repeats a message may end it before its new text comes.
            "response.output_item.done" if self.is_repeating => {}
            "response.output_item.done" => self.end_message(seq, changes),
            "response.output_text.delta" => {
                event.remove("type");
                self.delta_members = event;
            }
            "response.output_text.annotation.added" => {
                self.raw_sources.extend(event.remove("annotation"));
            }
            "response.content_part.done" => {
                let entry = self.message.and_then(|at| self.items.get_mut(at));
                if let (Some(entry), Some(Value::Object(part))) = (entry, event.remove("part")) {
                    entry.part_members = part;
                }
            }
            _ => match ThoughtPart::of(kind, &event) {
                Some(part) => self.thought_part(seq, part, changes),
                None => self.unknown_event(event, changes),
            },
        }
    }

    /// Adds members of a complete call, or of the message that ends.
    fn end_members(&mut self, mut members: Map<String, Value>) {
        let at = match members.remove("call_id") {
            Some(id) => self.call(id.as_str().unwrap_or_default()),
            None => self.message,
        };
        if let Some(entry) = at.and_then(|at| self.items.get_mut(at)) {
            entry.end_members.extend(members);
        }
    }

    /// An item began that CAP does not have, or reasoning whose id is known before its end.
    fn native_begun(&mut self, seq: u64, item: Template, changes: &mut Vec<Change>) {
        if item.kind() != "reasoning" {
            self.push(seq, What::Native, item, changes);
        } else if self.reasoning.is_none() {
            self.reasoning = Some(self.push(seq, What::Reasoning, item, changes));
        }
    }

    fn thought_part(&mut self, seq: u64, part: ThoughtPart, changes: &mut Vec<Change>) {
        let at = self.reasoning.unwrap_or_else(|| self.begin(seq, What::Reasoning, changes));
        self.reasoning = Some(at);
        if let Some(entry) = self.items.get_mut(at) {
            entry.thoughts.begin(seq, entry.text.len(), part);
            changes.push(Change::Part(at));
        }
    }

    /// An event of an unknown kind. If it names an item by an id that was never sent, it means the
    /// last item, which has one of our ids.
    fn unknown_event(&self, event: Map<String, Value>, changes: &mut Vec<Change>) {
        let id = event.get("item_id").and_then(Value::as_str);
        let at = id.and_then(|id| self.by_id(id).or(self.items.len().checked_sub(1)));
        changes.push(Change::Event(at, event));
    }

    /// The last item with this id of the provider.
    fn by_id(&self, id: &str) -> Option<usize> {
        let has_id = |entry: &Entry| entry.native.word("id") == id;
        self.items.iter().rposition(has_id).filter(|_| !id.is_empty())
    }
}

/// Whether an event is about reasoning, or brings a part of it.
fn is_reasoning(said: &NativeEvent) -> bool {
    let is_about_it = |raw: &RawJson| {
        let value = raw.to_value();
        let kind = value.pointer("/item/type").or(value.get("type")).and_then(Value::as_str);
        kind.is_some_and(|kind| kind == "reasoning" || kind.starts_with("response.reasoning"))
    };
    said.origin.dialect != DIALECT || said.part.iter().chain(&said.event).any(is_about_it)
}

impl Fold for Answer {
    fn add(&mut self, packet: &StreamPacket) {
        self.apply(packet, &mut Vec::new());
    }

    fn error(&self) -> Option<&StreamError> {
        self.error.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ErrorSeverity, Timestamp, event};
    use uuid::Uuid;

    use super::*;

    fn answer(payloads: Vec<Payload>) -> Answer {
        let mut answer = Answer::default();
        for (seq, payload) in (1..).zip(payloads) {
            let t = Timestamp::now();
            Fold::add(&mut answer, &StreamPacket { stream_id: Uuid::nil(), seq, t, payload });
        }
        answer
    }

    fn payload(kind: &str, data: Value) -> Payload {
        Payload::Event(event::envelope(kind, &data).unwrap())
    }

    fn native(more: Value) -> Payload {
        let mut data = json!({ "dialect": "openai-responses", "provider": "p", "model": "m" });
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload(NATIVE, data)
    }

    #[test]
    fn thoughts_are_one_item_with_their_signature() {
        let part = json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "x",
            "summary": [{ "type": "summary_text", "text": null }] });
        let answer = answer(vec![
            payload("THOUGHT_TRACE", json!({ "thought": "a" })),
            payload("THOUGHT_TRACE", json!({ "thought": "b" })),
            native(json!({ "part": part, "text_at": "/summary/0/text" })),
            Payload::Delta("Hi".into()),
        ]);
        let kinds: Vec<_> = answer.items.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(kinds, ["ab", "Hi"]);
        assert!(answer.items[0].is_done() && !answer.items[1].is_done());
        assert_eq!(answer.items[0].native.word("encrypted_content"), "x");
    }

    #[test]
    fn a_reset_removes_output_after_its_packet() {
        let answer = answer(vec![
            Payload::Delta("a".into()),
            payload("THOUGHT_TRACE", json!({ "thought": "hm" })),
            Payload::Delta("b".into()),
            payload("THOUGHT_TRACE", json!({ "thought": "no" })),
            payload(event::STREAM_RESET, json!({ "attempt": 2, "after_seq": 2 })),
            Payload::Delta("c".into()),
        ]);
        let texts: Vec<_> = answer.items.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(texts, ["a", "hm", "c"]);
    }

    #[test]
    fn a_repeated_message_goes_on_behind_its_end() {
        let error = StreamError::new("cut", "", ErrorSeverity::Transient);
        let answer = answer(vec![
            Payload::Delta("On".into()),
            Payload::Error(Box::new(error)),
            native(json!({ "event": { "type": "response.output_item.done" } })),
            Payload::Delta("e.".into()),
        ]);
        let texts: Vec<_> = answer.items.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(texts, ["One."]);
    }
}

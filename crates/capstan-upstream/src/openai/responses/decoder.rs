//! Decodes the events of a Responses stream.

use std::collections::{BTreeMap, BTreeSet};

use capstan_agent::Output;
use capstan_protocol::{Fault, FaultKind, GATEWAY_RESPONSE_MEMBERS};
use serde_json::{Map, Value, json};

use super::event::{Event, without_empty};
use crate::api_key::ApiKey;
use crate::citation;
use crate::decode::{self, Decode, Step, malformed, member, text, truncated};
use crate::json_text::{self, Halves, Raw, mend};
use crate::native::{Lane, has_others, without};
use crate::thoughts::Thoughts;
use crate::tools::Tools;
use crate::upstream_failure::UpstreamFailure;
use crate::usage;

/// The events that begin and end an item.
const ADDED: &str = "response.output_item.added";
const DONE: &str = "response.output_item.done";
/// The event that brings a piece of a text.
const TEXT: &str = "response.output_text.delta";
/// The event that brings a source of a text.
const ANNOTATION: &str = "response.output_text.annotation.added";
/// The event that brings a part of a text item as a whole.
const PART: &str = "response.content_part.done";
/// The event that begins a part of a summary.
const SUMMARY_PART: &str = "response.reasoning_summary_part.added";
/// The events that bring pieces of reasoning: of its summary, and of its text. Some servers have a
/// shorter name for the latter.
const SUMMARY: &str = "response.reasoning_summary_text.delta";
const REASONING: &str = "response.reasoning_text.delta";
const REASONING_SHORT: &str = "response.reasoning.delta";
/// The members of a call, and of a message, that CAP has too.
const CALL: &[&str] = &["type", "id", "call_id", "name", "arguments", "status"];
const MESSAGE: &[&str] = &["type", "id", "role", "content", "status"];

/// The length of an id that fits into a URL.
const LONGEST_ID: usize = 128;

/// Reads one answer of Responses.
#[derive(Debug, Default)]
pub struct Decoder {
    secret: ApiKey,
    id: Option<String>,
    last: Option<u64>,
    has_model: bool,
    has_calls: bool,
    /// Items came one by one.
    has_items: bool,
    /// Items that have begun and are not complete.
    open: BTreeSet<u64>,
    /// The members of a call or a message that CAP does not have, as it began.
    begun: BTreeMap<u64, Map<String, Value>>,
    /// The item of them that is reasoning.
    reasoning: Option<u64>,
    is_finished: bool,
    refusal: String,
    /// The messages that have begun, and those of them whose text has come.
    messages: BTreeSet<u64>,
    said: BTreeSet<u64>,
    /// The last item is a message, which is complete.
    is_message_done: bool,
    halves: Halves,
    /// The number of sources that have come, by item.
    annotations: BTreeMap<u64, usize>,
    /// The part of a reasoning item whose text came last, by item.
    thought: BTreeMap<u64, ThoughtPart>,
    thoughts: Thoughts,
    tools: Tools,
    lane: Lane,
    /// The provider does not store the answer.
    is_unstored: bool,
}

/// A part of a reasoning item.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThoughtPart {
    /// The event that brings pieces of its text.
    delta: &'static str,
    index: u64,
}

impl ThoughtPart {
    /// The part to which a delta belongs.
    fn of(delta: &'static str, event: &Event<'_>) -> Self {
        Self { delta, index: event.part_index() }
    }

    /// The event that tells a client of the same protocol that this part begins.
    fn begun(&self) -> Value {
        match self.delta {
            SUMMARY => json!({ "type": SUMMARY_PART, "summary_index": self.index }),
            delta => json!({ "type": delta, "content_index": self.index }),
        }
    }
}

impl Decoder {
    /// Creates a decoder. It removes the key from the errors that it reports.
    pub fn new(secret: ApiKey) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Sends through this native lane what CAP does not have.
    pub(crate) fn in_lane(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// Sets whether the provider stores the answer.
    pub(super) fn of_stored(self, is_stored: bool) -> Self {
        Self { is_unstored: !is_stored, ..self }
    }

    /// The id of the answer and the number of its last event; none if the provider does not store
    /// it.
    pub(super) fn place(&self) -> Option<(&str, u64)> {
        if self.is_unstored {
            return None;
        }
        Some((self.id.as_deref()?, self.last?))
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        data: &str,
        out: &mut Vec<Output>,
    ) -> Result<Step, Fault> {
        // A resumed stream may repeat events.
        if event.sequence_number.is_some() && event.sequence_number <= self.last {
            return Ok(Step::Quiet);
        }
        self.last = event.sequence_number.or(self.last);
        let index = event.output_index.unwrap_or(0);
        self.beside(event, out);
        match json_text::text(event.kind).as_deref() {
            Some(TEXT) => return Ok(self.say(index, event, out)),
            Some(
                "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta",
            ) => {
                let piece = json_text::text(event.delta);
                self.tools.arguments(index, piece.as_deref().unwrap_or_default(), out);
                return Ok(heard(piece.is_some()));
            }
            Some("response.refusal.delta") => {
                let piece = json_text::text(event.delta);
                self.refusal.push_str(piece.as_deref().unwrap_or_default());
                return Ok(heard(piece.is_some()));
            }
            Some(SUMMARY) => return Ok(self.think_piece(index, SUMMARY, event, out)),
            Some(REASONING) => return Ok(self.think_piece(index, REASONING, event, out)),
            Some(REASONING_SHORT) => {
                return Ok(self.think_piece(index, REASONING_SHORT, event, out));
            }
            Some(ADDED) => {
                (self.has_items, self.is_message_done) = (true, false);
                self.open.insert(index);
                return Ok(self.begin(index, &value(event.item), out));
            }
            Some(DONE) => {
                self.has_items = true;
                self.open.remove(&index);
                self.reasoning.take_if(|open| *open == index);
                return Ok(self.end(index, &value(event.item), out));
            }
            Some(ANNOTATION) => {
                self.annotate(index, &value(event.annotation), out);
                return Ok(Step::Heard);
            }
            Some(kind @ ("response.created" | "response.in_progress" | "response.queued")) => {
                let response = value(event.response);
                self.begun(&response, out);
                if kind == "response.created" {
                    self.members(&response, out);
                }
            }
            Some(
                "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled",
            ) => {
                return self.read_whole(&value(event.response), out).map(|()| Step::Done);
            }
            Some("error") | None => {
                let failure =
                    UpstreamFailure::found_in(&serde_json::from_str(data).unwrap_or_default());
                if let Some(failure) = failure {
                    return Err(failure.to_fault(&self.secret));
                }
            }
            Some(kind) if is_known(kind) => {}
            // A client of another protocol gets what the complete item says.
            Some(_) => {
                self.thoughts.flush(out);
                // In CAP a message ends with the next item.
                if std::mem::take(&mut self.is_message_done) {
                    self.lane.event(&json!({ "type": DONE }), out);
                }
                self.lane.event(&event_of(data), out);
            }
        }
        Ok(Step::Quiet)
    }

    /// Sends the members of an event, and of its part, that only a client of the same protocol
    /// understands. They stand before what CAP has of the event.
    fn beside(&self, event: &Event<'_>, out: &mut Vec<Output>) {
        let kind = json_text::text(event.kind).unwrap_or_default();
        if !self.lane.is_followed() || !has_members_beside(&kind) {
            return;
        }
        let mut members = event.others();
        if kind.ends_with(".done") {
            members.remove("logprobs");
        }
        let part = event.part_others();
        if !part.is_empty() && kind != "response.content_part.done" {
            members.insert("part".into(), part.into());
        }
        if members.is_empty() {
            return;
        }
        for (name, index) in
            [("summary_index", event.summary_index), ("content_index", event.content_index)]
        {
            members.extend(index.map(|index| (name.to_owned(), index.into())));
        }
        members.insert("type".into(), kind.into());
        self.lane.event(&json!({ "beside": members }), out);
    }

    fn begun(&mut self, response: &Value, out: &mut Vec<Output>) {
        let is_plain = |id: &&str| {
            id.len() <= LONGEST_ID
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        };
        self.id = text(response, "id").filter(is_plain).map(str::to_owned).or(self.id.take());
        if let Some(model) = text(response, "model").filter(|_| !self.has_model) {
            self.has_model = true;
            out.push(Output::Model(model.to_owned()));
        }
    }

    /// Sends the members of a response that the gateway does not answer itself.
    fn members(&self, response: &Value, out: &mut Vec<Output>) {
        let mut members = without(response, GATEWAY_RESPONSE_MEMBERS);
        members.retain(|_, value| !value.is_null());
        if !members.is_empty() {
            self.lane.event(&json!({ "response": members }), out);
        }
    }

    /// Sends a piece of text. An empty piece is no sign of life: a server that sends nothing else
    /// counts as silent.
    fn say(&mut self, index: u64, event: &Event<'_>, out: &mut Vec<Output>) -> Step {
        let text =
            event.delta.and_then(|raw| self.halves.join(raw.get())).filter(|text| !text.is_empty());
        if let Some(text) = &text {
            self.thoughts.flush(out);
            if self.said.insert(index) {
                let item = json!({ "type": "message", "role": "assistant" });
                self.begin_message(index, &item, out);
            }
            if self.lane.is_followed() {
                let mut others = event.others();
                if !others.is_empty() {
                    others.insert("type".into(), TEXT.into());
                    self.lane.event(&others, out);
                }
            }
            out.push(Output::Delta(text.clone().into_owned()));
        }
        heard(text.is_some())
    }

    fn think_piece(
        &mut self,
        index: u64,
        delta: &'static str,
        event: &Event<'_>,
        out: &mut Vec<Output>,
    ) -> Step {
        let piece = json_text::text(event.delta);
        let part = ThoughtPart::of(delta, event);
        self.think(index, part, piece.as_deref().unwrap_or_default(), out);
        heard(piece.is_some())
    }

    /// Sends a piece of reasoning. An empty line separates the parts of an item, unless the client
    /// gets them as parts.
    fn think(&mut self, index: u64, part: ThoughtPart, piece: &str, out: &mut Vec<Output>) {
        let before = self.thought.insert(index, part.clone());
        if before.as_ref() != Some(&part) {
            if before.is_some() && !self.lane.is_followed() {
                self.thoughts.push("\n\n", out);
            }
            self.thoughts.flush(out);
            if before.is_some() || part != (ThoughtPart { delta: SUMMARY, index: 0 }) {
                self.lane.event(&part.begun(), out);
            }
        }
        self.thoughts.push(piece, out);
    }

    /// Sends a source of the text: as it came to a client of the same protocol, and as a citation.
    fn annotate(&mut self, index: u64, annotation: &Value, out: &mut Vec<Output>) {
        *self.annotations.entry(index).or_default() += 1;
        self.lane.event(&json!({ "type": ANNOTATION, "annotation": annotation }), out);
        let (url, title) = (text(annotation, "url"), text(annotation, "title").unwrap_or_default());
        out.extend(citation::block(url, "citation", title, None));
    }

    fn begin(&mut self, index: u64, item: &Value, out: &mut Vec<Output>) -> Step {
        match text(item, "type") {
            Some(kind @ ("function_call" | "custom_tool_call")) => {
                self.thoughts.flush(out);
                self.has_calls = true;
                self.begun.insert(index, without(item, CALL));
                if kind == "custom_tool_call" || has_others(item, CALL) {
                    self.template(
                        item,
                        if kind == "custom_tool_call" { "input" } else { "arguments" },
                        out,
                    );
                }
                let id = text(item, "call_id").or_else(|| text(item, "id")).unwrap_or_default();
                self.tools.start(index, id, text(item, "name").unwrap_or_default(), out);
                if kind == "custom_tool_call" {
                    self.tools.takes_text(index);
                }
                Step::Heard
            }
            Some("message") => {
                self.begin_message(index, item, out);
                Step::Quiet
            }
            None => Step::Quiet,
            Some("reasoning") => {
                self.reasoning = Some(index);
                self.thoughts.flush(out);
                // The encrypted content at its beginning is not the one that has to come back.
                let item = without(item, &["encrypted_content"]);
                self.lane.event(&json!({ "type": ADDED, "item": item }), out);
                Step::Heard
            }
            Some(_) => {
                self.thoughts.flush(out);
                self.lane.event(&json!({ "type": ADDED, "item": item }), out);
                Step::Heard
            }
        }
    }

    /// Begins a message. Its template separates its text from the text of the message before it.
    fn begin_message(&mut self, index: u64, item: &Value, out: &mut Vec<Output>) {
        let is_first = self.messages.is_empty();
        if !self.messages.insert(index) {
            return;
        }
        self.begun.insert(index, without(item, MESSAGE));
        if !is_first || has_others(item, MESSAGE) {
            self.thoughts.flush(out);
            self.template(item, "content", out);
        }
    }

    /// Sends the provider's members of the next text or call. `text` is the member that CAP has.
    fn template(&self, item: &Value, text: &str, out: &mut Vec<Output>) {
        self.lane.part(&without(item, &[text, "status"]), None, out);
    }

    /// Ends an item. Sends what was not streamed.
    fn end(&mut self, index: u64, item: &Value, out: &mut Vec<Output>) -> Step {
        match text(item, "type") {
            Some(kind @ ("function_call" | "custom_tool_call")) => {
                self.thoughts.flush(out);
                let said = if kind == "custom_tool_call" { "input" } else { "arguments" };
                if !self.tools.has_arguments(index) {
                    if !self.tools.is_open(index) {
                        self.begin(index, item, out);
                    }
                    self.tools.arguments(index, text(item, said).unwrap_or_default(), out);
                }
                self.new_members(index, item, CALL, out);
                self.tools.end(index, out);
                out.push(Output::Reason("tool_calls".into()));
            }
            Some("message") => {
                self.thoughts.flush(out);
                self.begin_message(index, item, out);
                self.message(index, item, out);
                self.new_members(index, item, MESSAGE, out);
                self.is_message_done = true;
            }
            Some("reasoning") => self.reasoning(index, item, out),
            Some(kind) => {
                self.thoughts.flush(out);
                self.lane.whole(kind, item, out);
            }
            None => return Step::Quiet,
        }
        Step::Heard
    }

    /// Sends the members of a complete item that it did not have when it began.
    fn new_members(&mut self, index: u64, item: &Value, known: &[&str], out: &mut Vec<Output>) {
        let begun = self.begun.remove(&index).unwrap_or_default();
        let mut members = without_empty(without(item, known));
        members.retain(|name, value| name != "input" && begun.get(name) != Some(value));
        if !members.is_empty() {
            members.extend(text(item, "call_id").map(|id| ("call_id".to_owned(), id.into())));
            self.lane.event(&json!({ "item": members }), out);
        }
    }

    fn message(&mut self, index: u64, item: &Value, out: &mut Vec<Output>) {
        let parts = item.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if !self.said.contains(&index) {
            for part in parts {
                out.extend(text(part, "text").map(|text| Output::Delta(text.to_owned())));
                self.refusal.push_str(text(part, "refusal").unwrap_or_default());
            }
        }
        let sent = self.annotations.get(&index).copied().unwrap_or(0);
        let all = parts.iter().filter_map(|part| part.get("annotations")?.as_array()).flatten();
        for annotation in all.skip(sent) {
            self.annotate(index, annotation, out);
        }
        if let [part] = parts {
            let others = without_empty(without(part, &["type", "text", "annotations"]));
            if !others.is_empty() && text(part, "type") == Some("output_text") {
                self.lane.event(&json!({ "type": PART, "part": others }), out);
            }
        }
    }

    /// Ends a reasoning item and sends it with its encrypted content. A text in a single place is
    /// left out there, because the thoughts have it.
    fn reasoning(&mut self, index: u64, item: &Value, out: &mut Vec<Output>) {
        let texts = |name: &str| {
            let list = item.get(name).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(|part| text(part, "text")).collect::<Vec<_>>()
        };
        let (summary, content) = (texts("summary"), texts("content"));
        if !self.thought.contains_key(&index) {
            let (delta, texts) =
                if summary.is_empty() { (REASONING, &content) } else { (SUMMARY, &summary) };
            for (nth, text) in (0..).zip(texts) {
                self.think(index, ThoughtPart { delta, index: nth }, text, out);
            }
        }
        self.thoughts.flush(out);
        let place = match (summary.len(), content.len()) {
            (1, 0) => Some("/summary/0/text"),
            (0, 1) => Some("/content/0/text"),
            _ => None,
        };
        let mut part = item.clone();
        if let Some(text) = place.and_then(|at| part.pointer_mut(at)) {
            *text = Value::Null;
        }
        self.lane.part(&part, place, out);
    }

    /// Reads the whole response: the last event of a stream, or a document. Its items were streamed
    /// already, unless the server streams none.
    fn read_whole(&mut self, response: &Value, out: &mut Vec<Output>) -> Result<(), Fault> {
        self.begun(response, out);
        let items = response.get("output").and_then(Value::as_array).into_iter().flatten();
        let items: Vec<_> = (0..).zip(items).filter(|(_, item)| !self.was_streamed(item)).collect();
        for (index, item) in items {
            self.end(index, item, out);
        }
        self.finish(response, out)
    }

    /// Whether anything of an item's kind came before the whole response. Servers number items in
    /// different ways, so the number of an item does not tell.
    fn was_streamed(&self, item: &Value) -> bool {
        match text(item, "type") {
            _ if self.has_items => true,
            Some("message") => !self.said.is_empty(),
            Some("reasoning") => !self.thought.is_empty(),
            Some(_) | None => false,
        }
    }

    fn finish(&mut self, response: &Value, out: &mut Vec<Output>) -> Result<(), Fault> {
        self.thoughts.flush(out);
        out.extend(self.halves.rest().map(|text| Output::Delta(text.to_owned())));
        self.members(response, out);
        out.extend(usage::counts(member(response, "usage")).map(Output::Usage));
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Err(UpstreamFailure::from_error(error).to_fault(&self.secret));
        }
        let why = text(member(response, "incomplete_details"), "reason");
        match (text(response, "status"), why) {
            (_, Some("content_filter")) => return Err(Fault::new(FaultKind::ContentRefused)),
            (Some("incomplete"), _) => {
                self.tools.end_whole(out);
                out.push(Output::Reason("length".into()));
            }
            (Some("failed"), _) => return Err(Fault::new(FaultKind::UpstreamError)),
            (Some("cancelled" | "in_progress" | "queued"), _) => return Err(truncated()),
            _ => self.tools.end_all(out),
        }
        if !self.refusal.is_empty() {
            let fault = Fault::new(FaultKind::ContentRefused);
            return Err(fault.with_detail("refusal", self.secret.scrub(&self.refusal)));
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Decode for Decoder {
    fn frame(&mut self, event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        if event == "error" {
            return Err(decode::told(data, &self.secret));
        }
        // Some servers end with the sentinel of the older protocol.
        if data.trim() == "[DONE]" {
            return if self.is_finished { Ok(Step::Done) } else { Err(truncated()) };
        }
        match serde_json::from_str::<Event<'_>>(data) {
            Ok(event) => self.event(&event, data, out),
            Err(error) => {
                match UpstreamFailure::found_in(&serde_json::from_str(data).unwrap_or_default()) {
                    Some(failure) => Err(failure.to_fault(&self.secret)),
                    None => Err(malformed(format!("an event cannot be read: {error}"))),
                }
            }
        }
    }

    fn whole(&mut self, document: &str, out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        let read = |json: &str| serde_json::from_str::<Value>(json).ok();
        let response = read(document).or_else(|| read(&mend(document)))?;
        response.get("output").and_then(Value::as_array)?;
        Some(self.read_whole(&response, out))
    }

    /// Without summaries reasoning is silent.
    fn is_thinking(&self) -> bool {
        self.reasoning.is_some()
    }

    /// Whether the answer counts as complete although its body broke off: it ends behind a complete
    /// call. The client acts on that call, and another answer might call something else. An answer
    /// that the provider stores is read on instead.
    fn is_complete(&self) -> bool {
        let has_only_whole = self.has_calls && self.open.is_empty();
        self.is_finished || (self.is_unstored && has_only_whole)
    }
}

/// Whether a client gets an event of this type that has the members of the provider's event. The
/// beginning of a response is the gateway's own; other types have forms of their own.
fn has_members_beside(kind: &str) -> bool {
    matches!(
        kind,
        ADDED
            | ANNOTATION
            | SUMMARY
            | REASONING
            | REASONING_SHORT
            | "response.output_item.done"
            | "response.function_call_arguments.delta"
            | "response.custom_tool_call_input.delta"
            | "response.completed"
            | "response.incomplete"
    ) || is_known(kind)
}

/// Whether events of this type only repeat other events.
fn is_known(kind: &str) -> bool {
    matches!(
        kind,
        "response.output_text.done"
            | "response.content_part.added"
            | "response.content_part.done"
            | "response.refusal.done"
            | "response.function_call_arguments.done"
            | "response.custom_tool_call_input.done"
            | "response.reasoning_text.done"
            | "response.reasoning_summary_text.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done"
    )
}

fn event_of(data: &str) -> Value {
    serde_json::from_str(data).or_else(|_| serde_json::from_str(&mend(data))).unwrap_or_default()
}

fn heard(is_heard: bool) -> Step {
    if is_heard { Step::Heard } else { Step::Quiet }
}

fn value(raw: Raw<'_>) -> Value {
    let read = |json: &str| serde_json::from_str(json).ok();
    raw.and_then(|raw| read(raw.get()).or_else(|| read(&mend(raw.get())))).unwrap_or_default()
}

//! Writes a run as the events of a response. The number of each event follows from its packet, so
//! that a reader that resumes needs no stored state: the writer makes all events again from the
//! start, and leaves out those that the reader has.

use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, Run, RunState};
use capstan_protocol::{
    ErrorSeverity, Exposure, Fault, FaultKind, NATIVE, Payload, RawObject, StreamError,
    StreamPacket, sse,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::errors::ApiError;
use super::super::output::{ClientEvent, Offered};
use super::answer::{Answer, Change, Entry, What};
use super::fold;
use super::item::{Item, Summary, TextPart, entry_id, is_late, is_streamed, item};
use super::object::{Echo, ResponseObject, Status};
use super::seen::Seen;
use super::thought_part::{SUMMARY_PART, ThoughtPart};
use crate::face::FaceContext;
use crate::face::reader::{Collected, ViewerKind};
use crate::face::sent_answers::SentAnswer;
use crate::face::taken_back::TakenBack;
use crate::face::{BodyStep, Emit, FaceWriter};

/// The numbers of a packet's events: the first event of packet 3 is 3072.
const PER_PACKET: u64 = 1024;
/// More sources would need the numbers of the next packet.
const MOST_SOURCES: usize = 1000;

/// The number of the last event that a reader has.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartingAfter(pub(super) u64);

impl StartingAfter {
    /// Whether there can be such an event yet.
    pub(super) fn is_in(self, run: &Run) -> bool {
        run.state == RunState::Closed || self.0 / PER_PACKET <= run.last_seq
    }
}

/// An event of a response.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ResponseEvent {
    /// Its type, such as `response.output_text.delta`.
    #[serde(rename = "type")]
    kind: String,
    /// Grows from event to event, with gaps: what `starting_after` takes.
    sequence_number: u64,
    /// The members of this type.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// Writes one response.
pub(super) struct ResponsesWriter {
    run: Run,
    echo: Arc<Echo>,
    offered: Arc<Offered>,
    exposure: Exposure,
    options: ViewOptions,
    /// The number of the next event.
    next: u64,
    answer: Answer,
    /// The index of each item, if it has one yet.
    indices: Vec<Option<u32>>,
    /// The number of items with an index.
    sent: u32,
    changes: Vec<Change>,
    beside: Vec<Members>,
    /// The first events have been written.
    is_begun: bool,
}

/// Members that the provider's event of a type has, for the next event of this type.
type Members = Map<String, Value>;

/// The options of one response.
#[derive(Default)]
pub(super) struct ViewOptions {
    /// The last event that the reader has.
    pub(super) after: Option<u64>,
    /// Items that the reader has.
    pub(super) seen: Seen,
    /// The reader also gets events that OpenAI does not have.
    pub(super) has_all_events: bool,
    /// Packets that a later attempt has reset.
    pub(super) taken_back: TakenBack,
    /// Records that the response was sent to its end.
    pub(super) sent_answer: Option<SentAnswer>,
    /// The response begins with members of the provider's response, so it waits for them.
    pub(super) is_native: bool,
}

impl ResponsesWriter {
    pub(super) fn new(run: &Run, echo: Echo, options: ViewOptions, exposure: Exposure) -> Self {
        let offered = echo.offered.clone();
        Self {
            run: run.clone(),
            echo: echo.into(),
            offered: offered.clone(),
            exposure,
            options,
            next: 0,
            answer: Answer::new(offered),
            indices: Vec::new(),
            sent: 0,
            changes: Vec::new(),
            beside: Vec::new(),
            is_begun: false,
        }
    }

    /// Writes an event, unless the reader has it. `body` is an object, `kind` a plain name.
    fn write(&mut self, kind: &str, body: &impl Serialize, out: &mut Vec<u8>) {
        let number = self.next;
        self.next += 1;
        let body = serde_json::to_string(body).unwrap_or_default();
        let body = if self.beside.is_empty() { body } else { self.with_beside(kind, body) };
        if self.options.after.is_some_and(|after| number <= after) {
            return;
        }
        let members = body.strip_prefix('{').unwrap_or("}");
        let comma = if members == "}" { "" } else { "," };
        let event = format!("{{\"type\":\"{kind}\",\"sequence_number\":{number}{comma}{members}");
        sse::encode_json(None, Some(kind), &event, out);
    }

    /// Stores members for the next event of their type and part.
    fn put_beside(&mut self, members: Members) {
        let place = |of: &Members| ["type", PARTS[0], PARTS[1]].map(|name| of.get(name).cloned());
        self.beside.retain(|known| place(known) != place(&members));
        self.beside.push(members);
    }

    /// Adds the members that the provider's event has.
    fn with_beside(&mut self, kind: &str, body: String) -> String {
        let Ok(Value::Object(mut event)) = serde_json::from_str(&body) else { return body };
        let is_of = |of: &Members| {
            let is_part =
                |name: &str| event.get(name).zip(of.get(name)).is_none_or(|(own, of)| own == of);
            of.get("type").is_some_and(|of| of == kind) && PARTS.iter().all(|name| is_part(name))
        };
        let Some(at) = self.beside.iter().position(is_of) else { return body };
        let mut members = self.beside.remove(at);
        members.remove("type");
        merge(&mut event, members);
        Value::Object(event).to_string()
    }

    /// Writes the first events, once. Their numbers do not depend on when that is.
    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        self.next = 0;
        let (run, echo) = (self.run.clone(), self.echo.clone());
        let members = self.answer.more.clone();
        let mut response = ResponseObject::begun(&run, &echo);
        response.take_from_provider(&members);
        for kind in ["response.created", "response.in_progress"] {
            self.write(kind, &OfResponse { response: &response }, out);
        }
    }

    /// Writes the events of a packet. Returns how the answer ends, if it does.
    fn packet(&mut self, packet: StreamPacket, out: &mut Vec<u8>) -> Option<End> {
        if self.options.taken_back.has(packet.seq) {
            return None;
        }
        let mut changes = std::mem::take(&mut self.changes);
        self.answer.apply(&packet, &mut changes);
        if !self.is_warning(&packet.payload) {
            self.begin(out);
        }
        self.next = packet.seq * PER_PACKET;
        if let Payload::Event(raw) = &packet.payload {
            match ClientEvent::of(raw) {
                // Clients of Responses cannot take text back.
                ClientEvent::Reset(_) => return Some(End::Diverged),
                ClientEvent::Other if !raw.get().contains(NATIVE) => {
                    self.write_own("capstan.event", &OwnEvent { event: raw }, out);
                }
                ClientEvent::Block(_)
                | ClientEvent::Thought(_)
                | ClientEvent::Citations(_)
                | ClientEvent::Call { .. }
                | ClientEvent::Arguments { .. }
                | ClientEvent::End { .. }
                | ClientEvent::Result { .. }
                | ClientEvent::Interrupt(_)
                | ClientEvent::Other => {}
            }
        }
        changes.drain(..).for_each(|change| self.change(change, out));
        self.changes = changes;
        match packet.payload {
            Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                self.fail(&Fault::from(*error), out);
            }
            Payload::Error(error) => {
                let is_warning = error.severity == ErrorSeverity::Warning;
                let kind = if is_warning { "capstan.warning" } else { "capstan.attempt" };
                self.write_own(kind, &json!({ "error": error }), out);
            }
            Payload::Close(_) => return Some(End::Closed),
            Payload::Delta(_) | Payload::Event(_) => {}
        }
        None
    }

    /// Whether the client gets nothing of a packet: a warning, or a failure that is not the last.
    fn is_warning(&self, payload: &Payload) -> bool {
        let is_final = |error: &StreamError| error.severity == ErrorSeverity::Fatal;
        match payload {
            Payload::Error(error) => !(self.options.has_all_events || is_final(error)),
            Payload::Delta(_) | Payload::Event(_) | Payload::Close(_) => false,
        }
    }

    /// Writes an event that OpenAI does not have, if the client asked for such events.
    fn write_own(&mut self, kind: &str, body: &impl Serialize, out: &mut Vec<u8>) {
        if self.options.has_all_events {
            self.write(kind, body, out);
        }
    }

    fn change(&mut self, change: Change, out: &mut Vec<u8>) {
        match change {
            Change::Begun(at) => {
                let is_new = self.answer.items.get(at).is_some_and(|entry| {
                    is_streamed(entry, &self.offered) && !self.has_seen(entry)
                });
                self.indices.resize(at + 1, None);
                if is_new {
                    self.begin_item(at, out);
                }
            }
            Change::Text(at, from) => self.text(at, from, out),
            Change::Source(at, nth) => self.source(at, nth, out),
            Change::Done(at) => self.end_item(at, "in_progress", out),
            Change::Part(at) => self.begin_thoughts(at, out),
            Change::Event(at, event) => self.native_event(at, event, out),
            Change::Beside(members) => self.put_beside(members),
        }
    }

    /// An event in the provider's form, with the place and the id under which its item was sent.
    fn native_event(&mut self, at: Option<usize>, mut body: Map<String, Value>, out: &mut Vec<u8>) {
        if let Some(at) = at {
            let Some((index, entry)) = self.index(at).zip(self.answer.items.get(at)) else {
                return;
            };
            let id = self.id_of(entry);
            body.insert("item_id".into(), id.into());
            body.insert("output_index".into(), index.into());
        }
        let kind = body.remove("type");
        body.remove("sequence_number");
        if let Some(kind) = kind.as_ref().and_then(Value::as_str).filter(|kind| is_plain(kind)) {
            self.write(kind, &body, out);
        }
    }

    fn index(&self, at: usize) -> Option<u32> {
        self.indices.get(at).copied().flatten()
    }

    fn begin_item(&mut self, at: usize, out: &mut Vec<u8>) {
        let index = self.sent;
        self.sent += 1;
        if let Some(place) = self.indices.get_mut(at) {
            *place = Some(index);
        }
        let Some(entry) = self.answer.items.get(at).map(Entry::begun) else { return };
        let echo = self.echo.clone();
        let item = item(self.run.stream_id, &entry, echo.form(), "in_progress");
        let body = OfItem { output_index: index, item: &item };
        self.write("response.output_item.added", &body, out);
        if matches!(entry.what, What::Message) {
            let part = TextPart::empty();
            let item_id = item.id();
            let body = OfPart { output_index: index, item_id, content_index: 0, part: &part };
            self.write("response.content_part.added", &body, out);
        }
    }

    /// Writes the beginning of a part of a reasoning item. OpenAI has no such event for a text that
    /// is no summary.
    fn begin_thoughts(&mut self, at: usize, out: &mut Vec<u8>) {
        let Some((index, entry)) = self.index(at).zip(self.answer.items.get(at)) else { return };
        let Some(part) = entry.thoughts.last().filter(|part| part.is_summary()) else { return };
        let (part, item_id) = (part.clone(), self.id_of(entry));
        let place = Place::new(index, &item_id, &part);
        self.write(SUMMARY_PART, &SummaryPart { place, part: Summary::new("") }, out);
    }

    /// Calls `write` with an item in its present form.
    fn with_item(
        &mut self,
        at: usize,
        status: &'static str,
        write: impl FnOnce(&mut Self, &Entry, &Item<'_>),
    ) {
        let (answer, echo) = (std::mem::take(&mut self.answer), self.echo.clone());
        if let Some(entry) = answer.items.get(at) {
            write(self, entry, &item(self.run.stream_id, entry, echo.form(), status));
        }
        self.answer = answer;
    }

    /// The id of an item in this response.
    fn id_of(&self, entry: &Entry) -> String {
        entry_id(self.run.stream_id, entry, &self.offered)
    }

    fn has_seen(&self, entry: &Entry) -> bool {
        self.options.seen.has(&self.id_of(entry))
    }

    /// Writes new text of a message, of reasoning, or of the arguments of a call.
    fn text(&mut self, at: usize, from: usize, out: &mut Vec<u8>) {
        let Some(index) = self.index(at) else { return };
        let mut answer = std::mem::take(&mut self.answer);
        let more = std::mem::take(&mut answer.delta_members);
        if let Some(entry) = answer.items.get(at) {
            let delta = entry.text.get(from..).unwrap_or_default();
            let item_id = &*self.id_of(entry);
            match &entry.what {
                What::Message => {
                    let body = Delta::new(index, item_id, delta, &more);
                    self.write("response.output_text.delta", &body, out);
                }
                What::Reasoning => {
                    let part = entry.thoughts.last().cloned().unwrap_or_default();
                    let place = Place::new(index, item_id, &part);
                    let body = ThoughtText { place, delta: Some(delta), text: None };
                    self.write(&part.delta, &body, out);
                }
                What::Call { name, .. } => {
                    self.arguments(Piece { index, item_id, name, delta }, entry, out)
                }
                What::Native => {}
            }
        }
        self.answer = answer;
    }

    /// Writes a piece of a call. The input of a translated free-text tool is a member of the
    /// arguments, so it is known only at their end.
    fn arguments(&mut self, piece: Piece<'_>, entry: &Entry, out: &mut Vec<u8>) {
        let Piece { index, item_id, name, delta } = piece;
        let body = CallDelta { output_index: index, item_id, delta };
        if entry.native.word("type") == "custom_tool_call" {
            self.write("response.custom_tool_call_input.delta", &body, out);
        } else if !self.offered.tool(name).is_some_and(|tool| tool.is_free_text) {
            self.write("response.function_call_arguments.delta", &body, out);
        }
    }

    fn source(&mut self, at: usize, nth: usize, out: &mut Vec<u8>) {
        let Some(index) = self.index(at).filter(|_| nth < MOST_SOURCES) else { return };
        let answer = std::mem::take(&mut self.answer);
        if let Some(entry) = answer.items.get(at) {
            let body = json!({ "output_index": index, "item_id": self.id_of(entry),
                "content_index": 0, "annotation_index": nth, "annotation": entry.source(nth) });
            self.write("response.output_text.annotation.added", &body, out);
        }
        self.answer = answer;
    }

    /// Writes the end of an item.
    fn end_item(&mut self, at: usize, status: &'static str, out: &mut Vec<u8>) {
        let Some(index) = self.index(at) else { return };
        self.with_item(at, status, |writer, entry, item| {
            writer.end_parts(index, entry, item, out);
            writer.write("response.output_item.done", &OfItem { output_index: index, item }, out);
        });
    }

    fn end_parts(&mut self, index: u32, entry: &Entry, item: &Item<'_>, out: &mut Vec<u8>) {
        let item_id = item.id();
        match &entry.what {
            What::Message => {
                let (text, part) = (entry.text.as_str(), TextPart::of(entry));
                let logprobs = part.logprobs();
                let done = Text { output_index: index, item_id, content_index: 0, text, logprobs };
                self.write("response.output_text.done", &done, out);
                let body = OfPart { output_index: index, item_id, content_index: 0, part: &part };
                self.write("response.content_part.done", &body, out);
            }
            What::Reasoning => self.end_thoughts(index, entry, item_id, out),
            What::Call { .. } if entry.is_complete() => self.end_call(index, entry, item, out),
            What::Call { .. } | What::Native => {}
        }
    }

    fn end_thoughts(&mut self, index: u32, entry: &Entry, item_id: &str, out: &mut Vec<u8>) {
        for (part, text) in entry.thoughts.texts(&entry.text) {
            let place = Place::new(index, item_id, part);
            let done = ThoughtText { place, delta: None, text: Some(text) };
            self.write(&part.done(), &done, out);
            if part.is_summary() {
                let done = SummaryPart { place, part: Summary::new(text) };
                self.write("response.reasoning_summary_part.done", &done, out);
            }
        }
    }

    fn end_call(&mut self, index: u32, entry: &Entry, item: &Item<'_>, out: &mut Vec<u8>) {
        let item_id = item.id();
        match item {
            Item::CustomToolCall { input, .. } => {
                let body = CallDelta { output_index: index, item_id, delta: input };
                self.write("response.custom_tool_call_input.delta", &body, out);
                let body = json!({ "output_index": index, "item_id": item_id, "input": input });
                self.write("response.custom_tool_call_input.done", &body, out);
            }
            Item::Native(members) if entry.native.word("type") == "custom_tool_call" => {
                let body = json!({ "output_index": index, "item_id": item_id,
                    "input": members.get("input") });
                self.write("response.custom_tool_call_input.done", &body, out);
            }
            Item::Native(_)
            | Item::FunctionCall { .. }
            | Item::Message { .. }
            | Item::Reasoning { .. } => {
                let What::Call { name, .. } = &entry.what else { return };
                let body = json!({ "output_index": index, "item_id": item_id, "name": name,
                    "arguments": entry.text });
                self.write("response.function_call_arguments.done", &body, out);
            }
        }
    }

    /// Writes an error: at the top level, as documented, and nested, because both SDKs raise only
    /// then.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        let error = ApiError::of(fault, self.exposure);
        let body = json!({ "code": error.code, "message": error.message, "param": error.param,
        "error": error });
        self.write("error", &body, out);
    }

    async fn end(
        &mut self,
        cx: &FaceContext,
        end: End,
        mut out: Vec<u8>,
    ) -> Result<BodyStep, JournalError> {
        let whole = match end {
            End::Closed => fold::so_far(cx, &self.run, &self.offered).await,
            End::Diverged => Err(Fault::new(FaultKind::AttemptDiverged)),
        };
        match whole {
            Ok(whole) => self.finish(&whole, &mut out),
            // The answer is too large for one object, or differs from what the client has.
            Err(fault) => {
                self.fail(&fault, &mut out);
                let error = ApiError::of(&fault, self.exposure);
                let (run, echo) = (self.run.clone(), self.echo.clone());
                let response = ResponseObject::begun(&run, &echo).failed(error);
                self.write("response.failed", &OfResponse { response: &response }, &mut out);
            }
        }
        if let Some(answer) = &self.options.sent_answer {
            answer.record();
        }
        Ok(BodyStep::Last(out.into()))
    }

    fn finish(&mut self, whole: &Collected<Answer>, out: &mut Vec<u8>) {
        let status = Status::of(whole);
        if status != Status::Failed {
            self.finish_items(status.of_items(), out);
        }
        let echo = self.echo.clone();
        let mut response = ResponseObject::of(whole, &echo, self.exposure);
        response.leave_out(&self.options.seen);
        self.write(status.last_event(), &OfResponse { response: &response }, out);
    }

    /// Writes the ends of open items, then the calls of tools that the request does not offer.
    fn finish_items(&mut self, status: &'static str, out: &mut Vec<u8>) {
        let is_open = |at: &usize| {
            self.index(*at).is_some() && self.answer.items.get(*at).is_some_and(|e| !e.is_done())
        };
        let open: Vec<usize> = (0..self.answer.items.len()).filter(is_open).collect();
        open.into_iter().for_each(|at| self.end_item(at, status, out));
        let offered = &self.offered;
        let is_new = |entry: &Entry| is_late(entry, offered) && !self.has_seen(entry);
        let late = self.answer.items.iter().enumerate().filter(|(_, entry)| is_new(entry));
        let late: Vec<usize> = late.map(|(at, _)| at).collect();
        for at in late {
            self.begin_item(at, out);
            self.text(at, 0, out);
            self.end_item(at, status, out);
        }
    }
}

/// The members that name a part of an item.
const PARTS: [&str; 2] = ["summary_index", "content_index"];

/// Adds members to an event and to the objects within it. What the gateway says stays.
fn merge(event: &mut Members, members: Members) {
    for (name, value) in members {
        match (event.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(members)) => merge(known, members),
            (Some(_), _) => {}
            (None, value) => {
                event.insert(name, value);
            }
        }
    }
}

/// Whether a type is fit for the name of a server-sent event.
fn is_plain(kind: &str) -> bool {
    kind.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

enum End {
    Closed,
    Diverged,
}

// The members of events, without copies of the text.
#[derive(Serialize)]
struct OfResponse<'a> {
    response: &'a ResponseObject<'a>,
}

#[derive(Serialize)]
struct OwnEvent<'a> {
    event: &'a RawObject,
}

#[derive(Serialize)]
struct OfItem<'a> {
    output_index: u32,
    item: &'a Item<'a>,
}

#[derive(Serialize)]
struct OfPart<'a> {
    output_index: u32,
    item_id: &'a str,
    content_index: u32,
    part: &'a TextPart<'a>,
}

/// A piece of a call.
struct Piece<'a> {
    index: u32,
    item_id: &'a str,
    name: &'a str,
    delta: &'a str,
}

#[derive(Serialize)]
struct CallDelta<'a> {
    output_index: u32,
    item_id: &'a str,
    delta: &'a str,
}

/// A part of a reasoning item.
#[derive(Clone, Copy, Serialize)]
struct Place<'a> {
    output_index: u32,
    item_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u64>,
}

impl<'a> Place<'a> {
    fn new(output_index: u32, item_id: &'a str, part: &ThoughtPart) -> Self {
        let summary_index = part.is_summary().then_some(part.index);
        let content_index = (!part.is_summary()).then_some(part.index);
        Self { output_index, item_id, summary_index, content_index }
    }
}

#[derive(Serialize)]
struct SummaryPart<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    part: Summary<'a>,
}

#[derive(Serialize)]
struct ThoughtText<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

#[derive(Serialize)]
struct Delta<'a> {
    output_index: u32,
    item_id: &'a str,
    content_index: u32,
    delta: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
    /// Members that only the provider knows.
    #[serde(flatten)]
    more: &'a Map<String, Value>,
}

impl<'a> Delta<'a> {
    fn new(
        output_index: u32,
        item_id: &'a str,
        delta: &'a str,
        more: &'a Map<String, Value>,
    ) -> Self {
        let logprobs = (!more.contains_key("logprobs")).then_some([]);
        Self { output_index, item_id, content_index: 0, delta, logprobs, more }
    }
}

#[derive(Serialize)]
struct Text<'a> {
    output_index: u32,
    item_id: &'a str,
    content_index: u32,
    text: &'a str,
    logprobs: &'a Value,
}

impl FaceWriter for ResponsesWriter {
    fn base(&self) -> u64 {
        0
    }

    fn opening(&mut self, _: &FaceContext) -> Bytes {
        let mut out = Vec::new();
        if !self.options.is_native {
            self.begin(&mut out);
        }
        out.into()
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        let mut out = Vec::new();
        let mut end = None;
        for packet in frames.iter().filter_map(sse::decode_packet) {
            end = self.packet(packet, &mut out);
            if end.is_some() {
                break;
            }
        }
        match end {
            None => Emit::Now(BodyStep::Write(out.into())),
            Some(end) => Emit::Later(Box::pin(self.end(cx, end, out))),
        }
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
            // The reader would have received the end of the run.
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// Cuts the body: clients take a clean end without a last event for success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }
}

//! A run as the events of a response. Each has a number that follows from its packet, so that
//! whoever reads on needs no memory of ours: everything is made again from the start, and what has
//! been told is left out.

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, Run, RunState};
use capstan_protocol::{
    ErrorSeverity, Exposure, Fault, FaultKind, NATIVE, Payload, RawObject, StreamPacket, sse,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::errors::ApiError;
use super::super::output::Said;
use super::answer::{Answer, Change, Entry, What};
use super::item::{Item, Summary, TextPart, entry_id, is_late, is_streamed, item};
use super::object::{Echo, ResponseObject, Status};
use super::seen::Seen;
use crate::face::FaceContext;
use crate::face::reader::{self, Collected, ViewerKind};
use crate::face::sent_answers::SentAnswer;
use crate::face::taken_back::TakenBack;
use crate::face::{BodyStep, Emit, FaceWriter};

/// So many numbers a packet has: the first event of packet 3 is 3072.
const PER_PACKET: u64 = 1024;
/// Sources beyond these would run into the next packet's numbers.
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
    /// What happened, such as `response.output_text.delta`.
    #[serde(rename = "type")]
    kind: String,
    /// Grows from event to event, with gaps: what `starting_after` takes.
    sequence_number: u64,
    /// What the type brings along.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// One response.
pub(super) struct ResponsesWriter {
    run: Run,
    echo: Echo,
    exposure: Exposure,
    manner: Manner,
    /// The number of the next event.
    next: u64,
    answer: Answer,
    /// The index of each item, if it has one yet.
    indices: Vec<Option<u32>>,
    /// How many have one.
    told: u32,
    changes: Vec<Change>,
}

/// How a response is told.
#[derive(Debug, Default)]
pub(super) struct Manner {
    /// The last event that the reader has.
    pub(super) after: Option<u64>,
    /// Items that the reader has.
    pub(super) seen: Seen,
    /// What OpenAI has no word for is told, too.
    pub(super) has_all_events: bool,
    /// What is left out.
    pub(super) taken_back: TakenBack,
    /// Notes that it was told to its end.
    pub(super) sent_answer: Option<SentAnswer>,
}

impl ResponsesWriter {
    pub(super) fn new(run: &Run, echo: Echo, manner: Manner, exposure: Exposure) -> Self {
        Self {
            run: run.clone(),
            echo,
            exposure,
            manner,
            next: 0,
            answer: Answer::default(),
            indices: Vec::new(),
            told: 0,
            changes: Vec::new(),
        }
    }

    /// Tells an event, unless the reader has it. `body` is an object that is not empty.
    fn tell(&mut self, kind: &str, body: &impl Serialize, out: &mut Vec<u8>) {
        let number = self.next;
        self.next += 1;
        if self.manner.after.is_some_and(|after| number <= after) {
            return;
        }
        let body = serde_json::to_string(body).unwrap_or_default();
        let members = body.strip_prefix('{').unwrap_or("}");
        let event = format!("{{\"type\":\"{kind}\",\"sequence_number\":{number},{members}");
        sse::encode_json(None, Some(kind), &event, out);
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        let (run, echo) = (self.run.clone(), std::mem::take(&mut self.echo));
        let response = ResponseObject::begun(&run, &echo);
        for kind in ["response.created", "response.in_progress"] {
            self.tell(kind, &Told { response: &response }, out);
        }
        drop(response);
        self.echo = echo;
    }

    /// Takes a packet; how the answer ends, if it does.
    fn take(&mut self, packet: StreamPacket, out: &mut Vec<u8>) -> Option<End> {
        self.next = packet.seq * PER_PACKET;
        if self.manner.taken_back.has(packet.seq) {
            return None;
        }
        if let Payload::Event(raw) = &packet.payload {
            match Said::of(raw) {
                // What was said cannot be taken back.
                Said::Reset(_) => return Some(End::Diverged),
                Said::Other if !raw.get().contains(NATIVE) => {
                    self.tell_ours("capstan.event", &Ours { event: raw }, out);
                }
                Said::Block(_)
                | Said::Thought(_)
                | Said::Citations(_)
                | Said::Call { .. }
                | Said::Arguments { .. }
                | Said::End { .. }
                | Said::Result { .. }
                | Said::Interrupt(_)
                | Said::Other => {}
            }
        }
        let mut changes = std::mem::take(&mut self.changes);
        self.answer.take(&packet, &mut changes);
        changes.drain(..).for_each(|change| self.change(change, out));
        self.changes = changes;
        match packet.payload {
            Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                self.fail(&Fault::from(*error), out);
            }
            Payload::Error(error) => {
                let is_warning = error.severity == ErrorSeverity::Warning;
                let kind = if is_warning { "capstan.warning" } else { "capstan.attempt" };
                self.tell_ours(kind, &json!({ "error": error }), out);
            }
            Payload::Close(_) => return Some(End::Closed),
            Payload::Delta(_) | Payload::Event(_) => {}
        }
        None
    }

    /// What OpenAI has no word for, to whoever asked for it.
    fn tell_ours(&mut self, kind: &str, body: &impl Serialize, out: &mut Vec<u8>) {
        if self.manner.has_all_events {
            self.tell(kind, body, out);
        }
    }

    fn change(&mut self, change: Change, out: &mut Vec<u8>) {
        match change {
            Change::Begun(at) => {
                let is_told = self.answer.items.get(at).is_some_and(|entry| {
                    is_streamed(entry, &self.echo.offered) && !self.has_seen(entry)
                });
                self.indices.resize(at + 1, None);
                if is_told {
                    self.begin_item(at, out);
                }
            }
            Change::Text(at, from) => self.text(at, from, out),
            Change::Source(at, nth) => self.source(at, nth, out),
            Change::Done(at) => self.end_item(at, "in_progress", out),
            Change::Event(at, event) => {
                let Some(index) = self.index(at) else { return };
                let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                let mut body = event;
                ["type", "sequence_number"].iter().for_each(|name| drop(body.remove(*name)));
                body.insert("output_index".into(), index.into());
                self.tell(&kind, &body, out);
            }
        }
    }

    fn index(&self, at: usize) -> Option<u32> {
        self.indices.get(at).copied().flatten()
    }

    fn begin_item(&mut self, at: usize, out: &mut Vec<u8>) {
        let index = self.told;
        self.told += 1;
        if let Some(place) = self.indices.get_mut(at) {
            *place = Some(index);
        }
        let Some(entry) = self.answer.items.get(at).map(Entry::begun) else { return };
        let echo = std::mem::take(&mut self.echo);
        let item = item(self.run.stream_id, &entry, &echo, "in_progress");
        let body = OfItem { output_index: index, item: &item };
        self.tell("response.output_item.added", &body, out);
        if matches!(entry.what, What::Message) {
            let part = TextPart::new("", Vec::new());
            let item_id = item.id();
            let body = OfPart { output_index: index, item_id, content_index: 0, part: &part };
            self.tell("response.content_part.added", &body, out);
        }
        drop(item);
        self.echo = echo;
    }

    /// Calls with an item as it stands. The answer is put back behind it.
    fn with_item(
        &mut self,
        at: usize,
        status: &'static str,
        tell: impl FnOnce(&mut Self, &Entry, &Item<'_>),
    ) {
        let (answer, echo) = (std::mem::take(&mut self.answer), std::mem::take(&mut self.echo));
        if let Some(entry) = answer.items.get(at) {
            tell(self, entry, &item(self.run.stream_id, entry, &echo, status));
        }
        (self.answer, self.echo) = (answer, echo);
    }

    /// The id under which an item is told.
    fn id_of(&self, entry: &Entry) -> String {
        entry_id(self.run.stream_id, entry, &self.echo.offered)
    }

    fn has_seen(&self, entry: &Entry) -> bool {
        self.manner.seen.has(&self.id_of(entry))
    }

    /// What is new of a text, of thoughts, or of the arguments of a call.
    fn text(&mut self, at: usize, from: usize, out: &mut Vec<u8>) {
        let Some(index) = self.index(at) else { return };
        let answer = std::mem::take(&mut self.answer);
        if let Some(entry) = answer.items.get(at) {
            let delta = entry.text.get(from..).unwrap_or_default();
            let item_id = &*self.id_of(entry);
            match &entry.what {
                What::Message => {
                    let body = Delta {
                        output_index: index,
                        item_id,
                        content_index: 0,
                        delta,
                        logprobs: [],
                    };
                    self.tell("response.output_text.delta", &body, out);
                }
                What::Reasoning => {
                    let place = Place { output_index: index, item_id, summary_index: 0 };
                    if from == 0 {
                        let part = SummaryPart { place, part: Summary::new("") };
                        self.tell("response.reasoning_summary_part.added", &part, out);
                    }
                    let body = SummaryText { place, delta: Some(delta), text: None };
                    self.tell("response.reasoning_summary_text.delta", &body, out);
                }
                What::Call { name, .. } => {
                    self.arguments(Piece { index, item_id, name, delta }, entry, out)
                }
                What::Native => {}
            }
        }
        self.answer = answer;
    }

    /// A piece of a call. What a tool of free text is told is a text within the arguments, which is
    /// known at their end.
    fn arguments(&mut self, piece: Piece<'_>, entry: &Entry, out: &mut Vec<u8>) {
        let Piece { index, item_id, name, delta } = piece;
        let body = CallDelta { output_index: index, item_id, delta };
        if entry.native.word("type") == "custom_tool_call" {
            self.tell("response.custom_tool_call_input.delta", &body, out);
        } else if !self.echo.offered.tool(name).is_some_and(|tool| tool.is_free_text) {
            self.tell("response.function_call_arguments.delta", &body, out);
        }
    }

    fn source(&mut self, at: usize, nth: usize, out: &mut Vec<u8>) {
        let Some(index) = self.index(at).filter(|_| nth < MOST_SOURCES) else { return };
        let answer = std::mem::take(&mut self.answer);
        if let Some(entry) = answer.items.get(at) {
            let body = json!({ "output_index": index, "item_id": self.id_of(entry),
                "content_index": 0, "annotation_index": nth, "annotation": entry.source(nth) });
            self.tell("response.output_text.annotation.added", &body, out);
        }
        self.answer = answer;
    }

    /// The end of an item. One that broke off has no whole arguments.
    fn end_item(&mut self, at: usize, status: &'static str, out: &mut Vec<u8>) {
        let Some(index) = self.index(at) else { return };
        self.with_item(at, status, |writer, entry, item| {
            writer.end_parts(index, entry, item, out);
            writer.tell("response.output_item.done", &OfItem { output_index: index, item }, out);
        });
    }

    fn end_parts(&mut self, index: u32, entry: &Entry, item: &Item<'_>, out: &mut Vec<u8>) {
        let item_id = item.id();
        match &entry.what {
            What::Message => {
                let text = entry.text.as_str();
                let done =
                    Text { output_index: index, item_id, content_index: 0, text, logprobs: [] };
                self.tell("response.output_text.done", &done, out);
                let part = TextPart::of(entry);
                let body = OfPart { output_index: index, item_id, content_index: 0, part: &part };
                self.tell("response.content_part.done", &body, out);
            }
            What::Reasoning if !entry.text.is_empty() => {
                let place = Place { output_index: index, item_id, summary_index: 0 };
                let text = SummaryText { place, delta: None, text: Some(&entry.text) };
                self.tell("response.reasoning_summary_text.done", &text, out);
                let part = SummaryPart { place, part: Summary::new(&entry.text) };
                self.tell("response.reasoning_summary_part.done", &part, out);
            }
            What::Call { .. } if entry.is_complete() => self.end_call(index, entry, item, out),
            What::Call { .. } | What::Reasoning | What::Native => {}
        }
    }

    fn end_call(&mut self, index: u32, entry: &Entry, item: &Item<'_>, out: &mut Vec<u8>) {
        let item_id = item.id();
        match item {
            Item::CustomToolCall { input, .. } => {
                let body = CallDelta { output_index: index, item_id, delta: input };
                self.tell("response.custom_tool_call_input.delta", &body, out);
                let body = json!({ "output_index": index, "item_id": item_id, "input": input });
                self.tell("response.custom_tool_call_input.done", &body, out);
            }
            Item::Native(members) if entry.native.word("type") == "custom_tool_call" => {
                let body = json!({ "output_index": index, "item_id": item_id,
                    "input": members.get("input") });
                self.tell("response.custom_tool_call_input.done", &body, out);
            }
            Item::Native(_)
            | Item::FunctionCall { .. }
            | Item::Message { .. }
            | Item::Reasoning { .. } => {
                let What::Call { name, .. } = &entry.what else { return };
                let body = json!({ "output_index": index, "item_id": item_id, "name": name,
                    "arguments": entry.text });
                self.tell("response.function_call_arguments.done", &body, out);
            }
        }
    }

    /// Flat, as it is documented, and nested, as both SDKs need it to raise.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        let error = ApiError::of(fault, self.exposure);
        let body = json!({ "code": error.code, "message": error.message, "param": error.param,
        "error": error });
        self.tell("error", &body, out);
    }

    async fn end(
        &mut self,
        cx: &FaceContext,
        end: End,
        mut out: Vec<u8>,
    ) -> Result<BodyStep, JournalError> {
        let whole = match end {
            End::Closed => reader::collect_so_far::<Answer>(cx, &self.run).await,
            End::Diverged => Err(Fault::new(FaultKind::AttemptDiverged)),
        };
        match whole {
            Ok(whole) => self.finish(&whole, &mut out),
            // The answer is more than one object may hold, or cannot be told.
            Err(fault) => {
                self.fail(&fault, &mut out);
                let error = ApiError::of(&fault, self.exposure);
                let (run, echo) = (self.run.clone(), std::mem::take(&mut self.echo));
                let response = ResponseObject::begun(&run, &echo).failed(error);
                self.tell("response.failed", &Told { response: &response }, &mut out);
            }
        }
        if let Some(answer) = &self.manner.sent_answer {
            answer.record();
        }
        Ok(BodyStep::Last(out.into()))
    }

    fn finish(&mut self, whole: &Collected<Answer>, out: &mut Vec<u8>) {
        let status = Status::of(whole);
        if status != Status::Failed {
            self.finish_items(status.of_items(), out);
        }
        let echo = std::mem::take(&mut self.echo);
        let mut response = ResponseObject::of(whole, &echo, self.exposure);
        response.leave_out(&self.manner.seen);
        self.tell(status.last_event(), &Told { response: &response }, out);
    }

    /// The end of what is still being made, and the calls that are told late.
    fn finish_items(&mut self, status: &'static str, out: &mut Vec<u8>) {
        let is_open = |at: &usize| {
            self.index(*at).is_some() && self.answer.items.get(*at).is_some_and(|e| !e.is_done())
        };
        let open: Vec<usize> = (0..self.answer.items.len()).filter(is_open).collect();
        open.into_iter().for_each(|at| self.end_item(at, status, out));
        let offered = &self.echo.offered;
        let is_told = |entry: &Entry| is_late(entry, offered) && !self.has_seen(entry);
        let late = self.answer.items.iter().enumerate().filter(|(_, entry)| is_told(entry));
        let late: Vec<usize> = late.map(|(at, _)| at).collect();
        for at in late {
            self.begin_item(at, out);
            self.text(at, 0, out);
            self.end_item(at, status, out);
        }
    }
}

enum End {
    Closed,
    Diverged,
}

// What events hold, without copies of the text.
#[derive(Serialize)]
struct Told<'a> {
    response: &'a ResponseObject<'a>,
}

#[derive(Serialize)]
struct Ours<'a> {
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

#[derive(Clone, Copy, Serialize)]
struct Place<'a> {
    output_index: u32,
    item_id: &'a str,
    summary_index: u32,
}

#[derive(Serialize)]
struct SummaryPart<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    part: Summary<'a>,
}

#[derive(Serialize)]
struct SummaryText<'a> {
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
    logprobs: [(); 0],
}

#[derive(Serialize)]
struct Text<'a> {
    output_index: u32,
    item_id: &'a str,
    content_index: u32,
    text: &'a str,
    logprobs: [(); 0],
}

impl FaceWriter for ResponsesWriter {
    fn base(&self) -> u64 {
        0
    }

    fn opening(&mut self, _: &FaceContext) -> Bytes {
        let mut out = Vec::new();
        self.begin(&mut out);
        out.into()
    }

    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a> {
        let mut out = Vec::new();
        let mut end = None;
        for packet in frames.iter().filter_map(sse::decode_packet) {
            end = self.take(packet, &mut out);
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
            // Its end would have been told.
            RunState::Closed => BodyStep::Cut,
        }
    }

    /// A clean end without a last event would be read as success.
    fn closing(&mut self) -> BodyStep {
        BodyStep::Cut
    }
}

//! A run as the events of a response. Each has a number that follows from its packet, so that
//! whoever reads on needs no memory of ours: everything is made again from the start, and what has
//! been told is left out.

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, Run, RunState};
use capstan_protocol::{
    ErrorSeverity, Exposure, Fault, FaultKind, Payload, RawObject, StreamPacket, sse,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::errors::ApiError;
use super::super::output::{Offered, Output, Said, Source, block};
use super::object::{Echo, Item, ResponseObject, Summary, TextPart, item_id, items};
use crate::face::FaceContext;
use crate::face::reader::{self, ViewerKind, Whole};
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
    /// How many items have begun.
    items: u32,
    /// The text's place among them, and the packet that began it.
    message: Option<(u32, u64)>,
    /// How long the text is: where a source belongs.
    chars: usize,
    /// The tools whose calls are told as they are written.
    offered: Offered,
    /// Such calls that were not told to their end.
    calls: Vec<OpenCall>,
}

/// A call that is being written.
struct OpenCall {
    index: u32,
    /// The packet that began it.
    seq: u64,
    id: String,
    name: String,
    arguments: String,
}

/// How a response is told.
#[derive(Debug, Default)]
pub(super) struct Manner {
    /// The last event that the reader has.
    pub(super) after: Option<u64>,
    /// What OpenAI has no word for is told, too.
    pub(super) has_all_events: bool,
    /// What is left out.
    pub(super) taken_back: TakenBack,
}

impl ResponsesWriter {
    pub(super) fn new(run: &Run, echo: Echo, manner: Manner, exposure: Exposure) -> Self {
        let offered = echo.offered();
        Self {
            run: run.clone(),
            echo,
            exposure,
            manner,
            next: 0,
            items: 0,
            message: None,
            chars: 0,
            offered,
            calls: Vec::new(),
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
        match packet.payload {
            Payload::Delta(text) => self.say(packet.seq, &text, out),
            Payload::Event(raw) => match Said::of(&raw) {
                Said::Block(content) => self.say(packet.seq, &block(&content, self.chars > 0), out),
                Said::Thought(text) => self.think(packet.seq, &text, out),
                Said::Citations(sources) => self.cite(packet.seq, &sources, out),
                // What was said cannot be taken back.
                Said::Reset(_) => return Some(End::Diverged),
                Said::Call { id, name } => self.begin_call(packet.seq, id, name, out),
                Said::Arguments { id, more } => self.go_on_with_call(&id, &more, out),
                Said::End { id } => self.end_call(&id, out),
                // Calls that the caller did not offer are told at the end: then it is known which
                // of them are the caller's to answer.
                Said::Result { .. } | Said::Interrupt(_) => {}
                Said::Other => self.tell_ours("capstan.event", &Ours { event: &raw }, out),
            },
            Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                self.fail(&Fault::from(*error), out);
            }
            Payload::Error(error) => {
                let is_warning = error.severity == ErrorSeverity::Warning;
                let kind = if is_warning { "capstan.warning" } else { "capstan.attempt" };
                self.tell_ours(kind, &json!({ "error": error }), out);
            }
            Payload::Close(_) => return Some(End::Closed),
        }
        None
    }

    /// What OpenAI has no word for, to whoever asked for it.
    fn tell_ours(&mut self, kind: &str, body: &impl Serialize, out: &mut Vec<u8>) {
        if self.manner.has_all_events {
            self.tell(kind, body, out);
        }
    }

    /// The text's item and its place, begun if it is not there yet.
    fn open_message(&mut self, seq: u64, out: &mut Vec<u8>) -> (u32, String) {
        let (index, began) = self.message.unwrap_or((self.items, seq));
        let id = item_id("msg", self.run.stream_id, began);
        if self.message.is_none() {
            (self.message, self.items) = (Some((index, began)), self.items + 1);
            let item = Item::Message {
                id: id.clone(),
                status: "in_progress",
                role: "assistant",
                content: Vec::new(),
            };
            self.tell(
                "response.output_item.added",
                &OfItem { output_index: index, item: &item },
                out,
            );
            let part = TextPart::new("", Vec::new());
            let body = OfPart { output_index: index, item_id: &id, content_index: 0, part: &part };
            self.tell("response.content_part.added", &body, out);
        }
        (index, id)
    }

    fn say(&mut self, seq: u64, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let (index, id) = self.open_message(seq, out);
        self.chars += text.chars().count();
        let body = Delta {
            output_index: index,
            item_id: &id,
            content_index: 0,
            delta: text,
            logprobs: [],
        };
        self.tell("response.output_text.delta", &body, out);
    }

    fn cite(&mut self, seq: u64, sources: &[Source], out: &mut Vec<u8>) {
        let (index, id) = self.open_message(seq, out);
        for (n, source) in sources.iter().take(MOST_SOURCES).enumerate() {
            let body = json!({ "output_index": index, "item_id": id, "content_index": 0,
            "annotation_index": n,
                "annotation": source.annotation(self.chars) });
            self.tell("response.output_text.annotation.added", &body, out);
        }
    }

    /// A thought comes whole, so its item begins and ends at once.
    fn think(&mut self, seq: u64, text: &str, out: &mut Vec<u8>) {
        let (index, id) = (self.items, item_id("rs", self.run.stream_id, seq));
        self.items += 1;
        let empty = Item::Reasoning { id: id.clone(), summary: Vec::new() };
        self.tell("response.output_item.added", &OfItem { output_index: index, item: &empty }, out);
        let place = |more: Value| {
            let mut body = json!({ "output_index": index, "item_id": id, "summary_index": 0 });
            if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
                body.extend(more);
            }
            body
        };
        let part = |text: &str| json!({ "part": { "type": "summary_text", "text": text } });
        self.tell("response.reasoning_summary_part.added", &place(part("")), out);
        self.tell("response.reasoning_summary_text.delta", &place(json!({ "delta": text })), out);
        self.tell("response.reasoning_summary_text.done", &place(json!({ "text": text })), out);
        self.tell("response.reasoning_summary_part.done", &place(part(text)), out);
        let item = Item::Reasoning { id, summary: vec![Summary::new(text)] };
        self.tell("response.output_item.done", &OfItem { output_index: index, item: &item }, out);
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
            End::Closed => reader::so_far::<Output>(cx, &self.run).await,
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
        Ok(BodyStep::Last(out.into()))
    }

    fn finish(&mut self, whole: &Whole<Output>, out: &mut Vec<u8>) {
        let echo = std::mem::take(&mut self.echo);
        let response = ResponseObject::of(whole, &echo, self.exposure);
        let kind = response.last_event();
        if kind != "response.failed" {
            self.finish_items(&whole.transcript, response.status_of_items(), out);
        }
        self.tell(kind, &Told { response: &response }, out);
    }

    fn finish_items(&mut self, output: &Output, status: &'static str, out: &mut Vec<u8>) {
        let all = items(self.run.stream_id, output, &self.offered, status);
        if let (Some((index, _)), Some(message)) = (self.message, &output.message) {
            let id = item_id("msg", self.run.stream_id, message.seq);
            let done = Text {
                output_index: index,
                item_id: &id,
                content_index: 0,
                text: &message.text,
                logprobs: [],
            };
            self.tell("response.output_text.done", &done, out);
            let part = TextPart::new(&message.text, message.annotations());
            let body = OfPart { output_index: index, item_id: &id, content_index: 0, part: &part };
            self.tell("response.content_part.done", &body, out);
            if let Some(item) = all.get(index as usize) {
                self.tell("response.output_item.done", &OfItem { output_index: index, item }, out);
            }
        }
        for call in std::mem::take(&mut self.calls) {
            if let Some(item) = all.get(call.index as usize) {
                self.finish_call(&call, item, out);
            }
        }
        let late: Vec<_> = output.late(&self.offered).collect();
        let first = self.items as usize;
        for (call, item) in late.into_iter().zip(all.iter().skip(first)) {
            let call = self.open_call(call.seq, call.id.clone(), call.name.clone(), out);
            self.finish_call(&call, item, out);
        }
    }

    /// A call of a tool that the caller offers.
    fn begin_call(&mut self, seq: u64, id: String, name: String, out: &mut Vec<u8>) {
        if self.offered.has(&name) {
            let call = self.open_call(seq, id, name, out);
            self.calls.push(call);
        }
    }

    fn open_call(&mut self, seq: u64, id: String, name: String, out: &mut Vec<u8>) -> OpenCall {
        let (index, arguments) = (self.items, String::new());
        self.items += 1;
        let item = Item::FunctionCall {
            id: item_id("fc", self.run.stream_id, seq),
            status: "in_progress",
            call_id: &id,
            name: &name,
            arguments: "",
        };
        self.tell("response.output_item.added", &OfItem { output_index: index, item: &item }, out);
        OpenCall { index, seq, id, name, arguments }
    }

    fn go_on_with_call(&mut self, id: &str, more: &str, out: &mut Vec<u8>) {
        let call = self.calls.iter_mut().rfind(|call| call.id == id);
        let Some(call) = call.filter(|_| !more.is_empty()) else { return };
        call.arguments.push_str(more);
        let (index, id) = (call.index, item_id("fc", self.run.stream_id, call.seq));
        let body = json!({ "output_index": index, "item_id": id, "delta": more });
        self.tell("response.function_call_arguments.delta", &body, out);
    }

    fn end_call(&mut self, id: &str, out: &mut Vec<u8>) {
        let Some(at) = self.calls.iter().rposition(|call| call.id == id) else { return };
        let call = self.calls.remove(at);
        let item = Item::FunctionCall {
            id: item_id("fc", self.run.stream_id, call.seq),
            status: "completed",
            call_id: &call.id,
            name: &call.name,
            arguments: &call.arguments,
        };
        self.finish_call(&call, &item, out);
    }

    /// What was not told of a call yet, and its end. One that broke off has no whole arguments.
    fn finish_call(&mut self, call: &OpenCall, item: &Item<'_>, out: &mut Vec<u8>) {
        let Item::FunctionCall { id, status, arguments, .. } = item else { return };
        let rest = arguments.get(call.arguments.len()..).unwrap_or_default();
        if !rest.is_empty() {
            let body = json!({ "output_index": call.index, "item_id": id, "delta": rest });
            self.tell("response.function_call_arguments.delta", &body, out);
        }
        if *status == "completed" {
            let body = json!({ "output_index": call.index, "item_id": id, "name": call.name,
            "arguments": arguments });
            self.tell("response.function_call_arguments.done", &body, out);
        }
        let done = OfItem { output_index: call.index, item };
        self.tell("response.output_item.done", &done, out);
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

//! Turns the packets of a run into the events of an answer. A run of an `anthropic` agent has its
//! provider's own events in the native lane; they are put back where they were. For every other run
//! the events are made here.

use std::collections::HashSet;

use capstan_agent::sealed::{self, Sealer};
use capstan_journal::Run;
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    Close, CloseReport, Dialect, ErrorSeverity, Event as CapEvent, EventView, Fault, FaultKind,
    NATIVE, NativeEvent, Payload, RawJson, StreamError, StreamPacket,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::blocks::{Blocks, Kind, Shown};
use super::event::{Event, Piece, Sink};

/// Makes the events of one answer.
pub(super) struct AnswerEvents {
    /// The id of a message to which no provider gave one.
    id: String,
    /// Whether the message gets this id although its provider gave one.
    is_renamed: bool,
    model: String,
    /// The caller's tools.
    offered: HashSet<String>,
    blocks: Blocks,
    has_begun: bool,
    /// Whether the agent's provider speaks this protocol.
    is_native: bool,
    /// The beginning of the next block, as its provider wrote it.
    template: Option<Value>,
    /// The provider's end of its message, and its packet.
    ending: Option<(u64, Value)>,
    /// Calls of tools that the caller does not have. If the agent does not answer them itself, they
    /// are sent at the end.
    held: Vec<HeldCall>,
    /// Whether another attempt has begun and has added nothing yet.
    is_repeating: bool,
    /// The last packet of which something was sent.
    last: u64,
    sealer: Sealer,
}

struct HeldCall {
    seq: u64,
    id: String,
    name: String,
    arguments: String,
}

/// The end of an answer.
#[derive(Debug)]
pub(super) enum End {
    /// All of it was sent.
    Complete,
    Failed(Fault),
    /// A later attempt took back thoughts, and nothing else was sent. The client repeats its
    /// request and gets the run without these thoughts.
    Repeat(Fault),
    /// The run was stopped.
    Stopped,
}

impl AnswerEvents {
    /// Makes the events of a run's answer behind its first blocks, which the client has.
    pub(super) fn new(run: &Run, offered: HashSet<String>, behind: usize, sealer: Sealer) -> Self {
        Self {
            id: format!("msg_{}", run.stream_id.simple()),
            is_renamed: false,
            model: run.agent.clone(),
            offered,
            blocks: Blocks::behind(behind),
            has_begun: false,
            is_native: false,
            template: None,
            ending: None,
            held: Vec::new(),
            is_repeating: false,
            last: 0,
            sealer,
        }
    }

    /// Gives the message an id of its own. Claude Code joins the blocks of messages with one id, so
    /// it would have the blocks of an answer that was cut twice.
    pub(super) fn renamed(self) -> Self {
        Self { id: format!("msg_{}", Uuid::now_v7().simple()), is_renamed: true, ..self }
    }

    /// Takes the next packet. Returns the end of the answer if this packet ends it.
    pub(super) fn take(&mut self, packet: StreamPacket, sink: &mut impl Sink) -> Option<End> {
        let seq = packet.seq;
        match packet.payload {
            Payload::Delta(text) => self.say(seq, &text, sink),
            Payload::Event(raw) => return self.event(seq, CapEvent::of(&raw), sink),
            Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                return Some(self.fail(*error, sink));
            }
            // An attempt may have failed. The next one may repeat it.
            Payload::Error(_) => self.is_repeating = true,
            Payload::Close(close) => return Some(self.close(&close, sink)),
        }
        None
    }

    /// Notes that something new is sent.
    fn shows(&mut self, seq: u64, sink: &mut impl Sink) {
        (self.last, self.is_repeating) = (seq, false);
        self.begin(None, sink);
    }

    fn begin(&mut self, message: Option<&Value>, sink: &mut impl Sink) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let mut start = match message {
            Some(message) => message.clone(),
            None => json!({ "id": self.id, "type": "message", "role": "assistant",
                "model": self.model, "stop_reason": null, "stop_sequence": null,
                "usage": usage(None) }),
        };
        if let Some(members) = start.as_object_mut() {
            members.insert("content".into(), json!([]));
            if self.is_renamed {
                members.insert("id".into(), self.id.as_str().into());
            }
        }
        sink.take(Event::MessageStart { message: &start });
    }

    fn say(&mut self, seq: u64, text: &str, sink: &mut impl Sink) {
        if text.is_empty() {
            return;
        }
        self.shows(seq, sink);
        self.spend_template(sink);
        if !self.blocks.is_open(&Kind::Text) {
            self.blocks.open(Kind::Text, json!({ "type": "text", "text": "" }), sink);
        }
        self.blocks.add(Piece::text(text), sink);
    }

    fn think(&mut self, seq: u64, thought: &str, sink: &mut impl Sink) {
        self.shows(seq, sink);
        self.sealer.thought(thought);
        if !self.blocks.is_open(&Kind::Thinking) {
            let start = self.template_of(|kind| kind == "thinking", sink);
            self.blocks.open(Kind::Thinking, start.unwrap_or_else(no_thought), sink);
        }
        self.blocks.add(Piece::thinking(thought), sink);
    }

    fn event(&mut self, seq: u64, event: CapEvent, sink: &mut impl Sink) -> Option<End> {
        if event.kind.as_deref() == Some(NATIVE) {
            self.native(seq, event.data, sink);
            return None;
        }
        match event.view() {
            EventView::Thought(trace) => self.think(seq, &trace.thought, sink),
            EventView::Markdown(block) => {
                let lead = if self.blocks.shown() == Shown::More { "\n\n" } else { "" };
                self.say(seq, &format!("{lead}{}\n\n", block.content), sink);
            }
            // The provider's own citations are in the native lane.
            EventView::Citations(_) if self.is_native => {}
            EventView::Citations(block) => {
                for item in block.citations {
                    self.cite(seq, &item.title, &String::from(item.uri), sink);
                }
            }
            EventView::Interrupt(interrupt) => self.ask(seq, &interrupt),
            EventView::Reset(reset) => return self.reset(reset.after_seq),
            EventView::Progress(_) | EventView::Media(_) | EventView::UserError(_) => {}
            EventView::Other => self.tool(seq, &event, sink),
        }
        None
    }

    fn cite(&mut self, seq: u64, title: &str, url: &str, sink: &mut impl Sink) {
        self.shows(seq, sink);
        if !self.blocks.is_open(&Kind::Text) {
            self.blocks.open(Kind::Text, json!({ "type": "text", "text": "" }), sink);
        }
        let citation = json!({ "type": "web_search_result_location", "url": url, "title": title,
            "cited_text": "", "encrypted_index": "" });
        let delta = json!({ "type": "citations_delta", "citation": citation });
        self.blocks.add(Piece::Raw(delta), sink);
    }

    /// Makes a question to a person a call, whose result is the answer. A question about a call of
    /// the agent replaces this call.
    fn ask(&mut self, seq: u64, interrupt: &Interrupt) {
        self.held.retain(|call| Some(&call.id) != interrupt.tool_call_id.as_ref());
        let arguments = serde_json::to_string(interrupt).unwrap_or_default();
        let (id, name) = (interrupt.id.clone(), INTERRUPT.to_owned());
        self.held.push(HeldCall { seq, id, name, arguments });
    }

    fn tool(&mut self, seq: u64, event: &CapEvent, sink: &mut impl Sink) {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).unwrap_or_default();
        let id = text("toolCallId");
        match event.kind.as_deref() {
            Some("TOOL_CALL_START") => self.call(seq, id, text("toolCallName"), sink),
            Some("TOOL_CALL_ARGS") => {
                let piece = text("delta");
                if self.blocks.add_to_call(id, Piece::json(piece), sink) {
                    (self.last, self.is_repeating) = (seq, false);
                } else if let Some(call) = self.held.iter_mut().rfind(|call| call.id == id) {
                    call.arguments.push_str(piece);
                }
            }
            Some("TOOL_CALL_END") => {
                self.blocks.end_call(id, sink);
            }
            Some("TOOL_CALL_RESULT") => {
                self.held.retain(|call| call.id != id);
                let template = self.template_of(|kind| kind.ends_with("_tool_result"), sink);
                if let Some(mut block) = template {
                    self.shows(seq, sink);
                    put(&mut block, "content", content_of(text("content")));
                    self.blocks.open(Kind::Other, block, sink);
                    self.blocks.end(sink);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, seq: u64, id: &str, name: &str, sink: &mut impl Sink) {
        let template = self.template_of(|kind| kind.ends_with("tool_use"), sink);
        let is_callers = template.is_some() || self.is_native || self.offered.contains(name);
        if !is_callers {
            let (id, name) = (id.to_owned(), name.to_owned());
            self.held.push(HeldCall { seq, id, name, arguments: String::new() });
            return;
        }
        self.shows(seq, sink);
        let mut block = template.unwrap_or_else(|| json!({ "type": "tool_use", "name": name }));
        put(&mut block, "id", id.into());
        put(&mut block, "input", json!({}));
        self.blocks.open(Kind::Call(id.to_owned()), block, sink);
    }

    /// Ends the answer if a later attempt takes back what was sent.
    fn reset(&mut self, after: u64) -> Option<End> {
        self.held.retain(|call| call.seq <= after);
        self.ending = self.ending.take().filter(|(seq, _)| *seq <= after);
        match self.blocks.shown() {
            _ if self.last <= after => None,
            Shown::Nothing => None,
            Shown::Thinking => Some(End::Repeat(Fault::new(FaultKind::AttemptDiverged))),
            Shown::More => Some(End::Failed(Fault::new(FaultKind::AttemptDiverged))),
        }
    }

    fn fail(&mut self, error: StreamError, sink: &mut impl Sink) -> End {
        let fault = Fault::from(error);
        if !is_refusal(&fault) {
            return End::Failed(fault);
        }
        self.finish("refusal", None, sink);
        End::Complete
    }

    fn close(&mut self, close: &Close, sink: &mut impl Sink) -> End {
        let reason = close.reason();
        if reason == Close::CANCELLED {
            return End::Stopped;
        }
        for call in std::mem::take(&mut self.held) {
            self.shows(call.seq, sink);
            let block =
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
            self.blocks.open(Kind::Call(call.id), block, sink);
            self.blocks.add(Piece::json(&call.arguments), sink);
            self.blocks.end(sink);
        }
        let stop_reason = match reason.as_str() {
            "length" => "max_tokens",
            "content_filter" => "refusal",
            "tool_calls" => "tool_use",
            _ if self.blocks.has_calls() => "tool_use",
            _ => "end_turn",
        };
        let report: Option<CloseReport> = match close {
            Close::Report(report) => report.decode().ok(),
            Close::Reason(_) | Close::Unstated => None,
        };
        self.finish(stop_reason, report.and_then(|report| report.usage).as_ref(), sink);
        End::Complete
    }

    fn finish(&mut self, reason: &str, counts: Option<&Map<String, Value>>, sink: &mut impl Sink) {
        self.begin(None, sink);
        self.spend_template(sink);
        self.blocks.end_all(sink);
        let made = || {
            json!({ "type": "message_delta",
                "delta": { "stop_reason": reason, "stop_sequence": null },
                "usage": usage(counts) })
        };
        let ending = self.ending.take().map_or_else(made, |(_, ending)| ending);
        sink.take(Event::Raw(&ending));
        sink.take(Event::MessageStop);
    }
}

/// The native lane.
impl AnswerEvents {
    fn native(&mut self, seq: u64, data: Value, sink: &mut impl Sink) {
        let Ok(native) = serde_json::from_value::<NativeEvent>(data) else { return };
        let is_own = native.origin.dialect == Dialect::AnthropicMessages;
        self.is_native |= is_own;
        let of_tool = native.part.as_ref().filter(|part| is_own && sealed::is_of_tool(part));
        if let Some(part) = of_tool {
            self.native_block(seq, &part.to_value(), sink);
        } else if native.part.is_some() && self.sealer.seals(&native.origin) {
            self.sealed(seq, native, sink);
        } else if let Some(part) = native.part.filter(|_| is_own) {
            self.part(seq, &part.to_value(), sink);
        } else if let Some(event) = native.event.filter(|_| is_own) {
            self.native_event(seq, &event.to_value(), sink);
        }
    }

    /// A part that another agent could get in the next turn. The thoughts that are being shown are
    /// its text; one without any becomes a block that nobody reads.
    fn sealed(&mut self, seq: u64, native: NativeEvent, sink: &mut impl Sink) {
        let is_thinking = match native.origin.dialect {
            Dialect::AnthropicMessages => {
                let part = native.part.as_ref().map(RawJson::to_value);
                part.is_some_and(|part| type_of(&part) == "thinking")
            }
            Dialect::OpenaiChat | Dialect::OpenaiResponses => self.blocks.is_open(&Kind::Thinking),
        };
        let Some(sealed) = self.sealer.seal(native) else { return };
        let part = match is_thinking {
            true => json!({ "type": "thinking", "signature": sealed }),
            false => json!({ "type": "redacted_thinking", "data": sealed }),
        };
        self.part(seq, &part, sink);
    }

    fn native_event(&mut self, seq: u64, event: &Value, sink: &mut impl Sink) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        match kind {
            // A later attempt is a new message for the provider, but not for the client.
            "message_start" if self.has_begun => self.is_repeating = true,
            "message_start" => self.begin(event.get("message"), sink),
            "message_delta" => self.ending = Some((seq, event.clone())),
            "content_block_start" => {
                if let Some(block) = event.get("content_block") {
                    self.native_block(seq, block, sink);
                }
            }
            "content_block_delta" => {
                let delta = event.get("delta").cloned().unwrap_or_default();
                // Progress of a hidden thought. Attempts are not compared by it.
                if type_of(&delta) == "thinking_delta" {
                    if self.blocks.is_open(&Kind::Thinking) {
                        self.blocks.add(Piece::Raw(delta), sink);
                    }
                    return;
                }
                self.spend_template(sink);
                if self.blocks.add(Piece::Raw(delta), sink) {
                    (self.last, self.is_repeating) = (seq, false);
                }
            }
            "content_block_stop" => {
                self.spend_template(sink);
                self.blocks.end(sink);
            }
            // The face makes its own ends and heartbeats.
            "message_stop" | "ping" | "error" => {}
            _ => {
                self.shows(seq, sink);
                sink.take(Event::Raw(event));
            }
        }
    }

    /// Keeps the beginning of a block whose content comes as CAP events. Only those are sent once
    /// over all attempts.
    fn native_block(&mut self, seq: u64, block: &Value, sink: &mut impl Sink) {
        self.spend_template(sink);
        let kind = type_of(block);
        // A thought may stay hidden for minutes, so the client sees its beginning at once.
        if kind == "thinking" && !self.is_repeating {
            self.shows(seq, sink);
            let mut start = block.clone();
            put(&mut start, "thinking", "".into());
            put(&mut start, "signature", "".into());
            return self.blocks.open(Kind::Thinking, start, sink);
        }
        let waits = kind == "thinking"
            || kind.ends_with("tool_use")
            || kind.ends_with("_tool_result") && block.get("content").is_none();
        if waits {
            self.template = Some(block.clone());
            return;
        }
        self.shows(seq, sink);
        let own = if kind == "text" { Kind::Text } else { Kind::Other };
        self.blocks.open(own, block.clone(), sink);
    }

    /// Ends a thinking block with its signature. Its text, if any, came before.
    fn part(&mut self, seq: u64, part: &Value, sink: &mut impl Sink) {
        let is_open = self.blocks.is_open(&Kind::Thinking);
        // A later attempt has another signature for the same thought. The client has the first.
        if self.is_repeating && !is_open && !self.blocks.is_empty() {
            return;
        }
        let is_repeating = self.is_repeating;
        self.shows(seq, sink);
        // The attempt may repeat more behind it.
        self.is_repeating = is_repeating;
        if type_of(part) != "thinking" {
            self.spend_template(sink);
            self.blocks.open(Kind::Other, part.clone(), sink);
            self.blocks.end(sink);
            return;
        }
        if !is_open {
            let template = self.template_of(|kind| kind == "thinking", sink);
            let mut start = template.unwrap_or_else(|| part.clone());
            put(&mut start, "thinking", "".into());
            put(&mut start, "signature", "".into());
            self.blocks.open(Kind::Thinking, start, sink);
        }
        if let Some(signature) = part.get("signature").and_then(Value::as_str) {
            self.blocks.add(Piece::signature(signature), sink);
        }
        self.blocks.end(sink);
    }

    /// Takes the template if it is of this kind. A template of another kind is a block of its own.
    fn template_of(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        sink: &mut impl Sink,
    ) -> Option<Value> {
        if self.template.as_ref().is_some_and(|block| is_wanted(type_of(block))) {
            return self.template.take();
        }
        self.spend_template(sink);
        None
    }

    /// Sends the template as a complete block, because no content followed it.
    fn spend_template(&mut self, sink: &mut impl Sink) {
        if let Some(block) = self.template.take() {
            self.begin(None, sink);
            self.blocks.open(Kind::Other, block, sink);
            self.blocks.end(sink);
        }
    }
}

/// Whether the model refused in its answer, rather than by an error.
pub(super) fn is_refusal(fault: &Fault) -> bool {
    let status = fault.details().get("upstream_status").and_then(Value::as_u64);
    fault.kind() == FaultKind::ContentRefused && status.is_none_or(|status| status < 400)
}

/// The name of the tool by which a run asks a person.
const INTERRUPT: &str = "interrupt";

fn no_thought() -> Value {
    json!({ "type": "thinking", "thinking": "", "signature": "" })
}

fn type_of(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn put(block: &mut Value, name: &str, value: Value) {
    if let Some(members) = block.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// The result of a provider's own tool: a list or an object, which CAP has as text.
fn content_of(text: &str) -> Value {
    let read: Option<Value> = serde_json::from_str(text).ok();
    read.filter(|value| value.is_array() || value.is_object()).unwrap_or_else(|| text.into())
}

/// Token counts under Anthropic's names; zeros if the agent counts none. Anthropic's input excludes
/// what came from a cache or went into one.
fn usage(counts: Option<&Map<String, Value>>) -> Value {
    let count = |name: &str| counts.and_then(|counts| counts.get(name)?.as_u64()).unwrap_or(0);
    let (read, written) = (count("cached_input_tokens"), count("cache_creation_input_tokens"));
    let input = count("input_tokens").saturating_sub(read.saturating_add(written));
    json!({ "input_tokens": input, "output_tokens": count("output_tokens"),
        "cache_creation_input_tokens": written, "cache_read_input_tokens": read })
}

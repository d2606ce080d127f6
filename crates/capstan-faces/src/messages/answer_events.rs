//! Turns the packets of a run into the events of an answer. A run of an `anthropic` agent has its
//! provider's own events in the native lane; they are put back where they were. For every other run
//! the events are made here.

mod again;
mod native;

use std::collections::HashSet;

use capstan_agent::sealed::Sealer;
use capstan_journal::Run;
use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    Close, CloseReport, ErrorSeverity, Event as CapEvent, EventView, Fault, FaultKind, NATIVE,
    Payload, StreamError, StreamPacket,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::again::Again;
use self::native::Native;
use super::blocks::{Blocks, Kind, Shown};
use super::event::{Event, Members, Piece, Sink};

/// Makes the events of one answer.
pub(super) struct AnswerEvents {
    stream: Uuid,
    /// The id of a message to which no provider gave one.
    id: String,
    /// Whether the message gets this id although its provider gave one.
    is_renamed: bool,
    model: String,
    /// The caller's tools.
    offered: HashSet<String>,
    blocks: Blocks,
    has_begun: bool,
    native: Native,
    /// The text that comes again after a reset, and that the client has.
    again: Option<Again>,
    /// Calls of tools that the caller does not have. If the agent does not answer them itself, they
    /// are sent at the end.
    held: Vec<HeldCall>,
    /// The last packet of which something was sent.
    last: u64,
    /// The last one of them that was neither text nor a thought.
    last_other: u64,
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
    /// This packet took back thoughts and text. The text may come again.
    TakenBack(u64),
    /// The run was stopped.
    Stopped,
}

impl AnswerEvents {
    /// Makes the events of a run's answer behind its first blocks, which the client has.
    pub(super) fn new(run: &Run, offered: HashSet<String>, behind: usize, sealer: Sealer) -> Self {
        Self {
            stream: run.stream_id,
            id: format!("msg_{}", run.stream_id.simple()),
            is_renamed: false,
            model: run.agent.clone(),
            offered,
            blocks: Blocks::behind(behind),
            has_begun: false,
            native: Native::default(),
            again: None,
            held: Vec::new(),
            last: 0,
            last_other: 0,
            sealer,
        }
    }

    /// The stream of the run.
    pub(super) fn stream(&self) -> Uuid {
        self.stream
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
            Payload::Delta(text) if self.again.is_some() => {
                return self.say_again(seq, &text, sink);
            }
            Payload::Delta(text) => self.say(seq, &text, sink),
            Payload::Event(raw) if self.again.is_some() => {
                return self.event_again(seq, CapEvent::of(&raw));
            }
            Payload::Event(raw) => return self.event(seq, CapEvent::of(&raw), sink),
            Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
                return Some(self.fail(*error, sink));
            }
            Payload::Error(_) => {}
            Payload::Close(close) => return Some(self.close(&close, sink)),
        }
        None
    }

    /// Notes that something new is sent.
    fn shows(&mut self, seq: u64, sink: &mut impl Sink) {
        self.last = seq;
        self.begin(None, &Members::new(), sink);
    }

    /// Notes that something new is sent that is neither text nor a thought.
    fn shows_other(&mut self, seq: u64, sink: &mut impl Sink) {
        self.last_other = seq;
        self.shows(seq, sink);
    }

    fn begin(&mut self, message: Option<&Value>, beside: &Members, sink: &mut impl Sink) {
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
        sink.take(Event::MessageStart { message: &start, beside });
    }

    fn say(&mut self, seq: u64, text: &str, sink: &mut impl Sink) {
        if text.is_empty() {
            return;
        }
        self.shows(seq, sink);
        let (own, beside) = self.native.members_of("text_delta");
        self.spend_native(sink);
        self.open_text(sink);
        self.blocks.add(Piece::text(text).with(own), beside, sink);
    }

    fn open_text(&mut self, sink: &mut impl Sink) {
        if !self.blocks.is_open(&Kind::Text) {
            self.blocks.open(Kind::Text, json!({ "type": "text", "text": "" }), sink);
        }
    }

    fn think(&mut self, seq: u64, thought: &str, sink: &mut impl Sink) {
        self.shows(seq, sink);
        self.sealer.thought(thought);
        let (own, beside) = self.native.members_of("thinking_delta");
        if !self.blocks.is_open(&Kind::Thinking) {
            self.spend_native(sink);
            self.blocks.open(Kind::Thinking, no_thought(), sink);
        }
        self.blocks.add(Piece::thinking(thought).with(own), beside, sink);
    }

    fn event(&mut self, seq: u64, event: CapEvent, sink: &mut impl Sink) -> Option<End> {
        if event.kind.as_deref() == Some(NATIVE) {
            self.native(seq, event.data, sink);
            return None;
        }
        match event.view() {
            EventView::Thought(trace) => self.think(seq, &trace.thought, sink),
            EventView::Markdown(block) => {
                self.last_other = seq;
                let lead = if self.blocks.shown() == Shown::More { "\n\n" } else { "" };
                self.say(seq, &format!("{lead}{}\n\n", block.content), sink);
            }
            // The provider's own citations are in the native lane.
            EventView::Citations(_) if self.native.is_own => {}
            EventView::Citations(block) => {
                for item in block.citations {
                    self.cite(seq, &item.title, &String::from(item.uri), sink);
                }
            }
            EventView::Interrupt(interrupt) => self.ask(seq, &interrupt),
            EventView::Reset(reset) => return self.reset(seq, reset.after_seq),
            EventView::Progress(_) | EventView::Media(_) | EventView::UserError(_) => {}
            EventView::Other => self.tool(seq, &event, sink),
        }
        None
    }

    fn cite(&mut self, seq: u64, title: &str, url: &str, sink: &mut impl Sink) {
        self.shows_other(seq, sink);
        self.open_text(sink);
        let citation = json!({ "type": "web_search_result_location", "url": url, "title": title,
            "cited_text": "", "encrypted_index": "" });
        let delta = json!({ "type": "citations_delta", "citation": citation });
        self.blocks.add(Piece::Raw(delta), Members::new(), sink);
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
                let (own, beside) = self.native.members_of("input_json_delta");
                if self.blocks.add_to_call(id, Piece::json(piece).with(own), beside, sink) {
                    (self.last, self.last_other) = (seq, seq);
                } else if let Some(call) = self.held.iter_mut().rfind(|call| call.id == id) {
                    call.arguments.push_str(piece);
                }
            }
            Some("TOOL_CALL_END") => {
                self.spend_members(sink);
                self.blocks.end_call(id, self.native.stop(), sink);
            }
            Some("TOOL_CALL_RESULT") => {
                self.held.retain(|call| call.id != id);
                let template = self.template_of(|kind| kind.ends_with("_tool_result"), sink);
                if let Some(mut start) = template {
                    self.shows_other(seq, sink);
                    // A later attempt may continue a call under the id that the client has.
                    put(&mut start.block, "tool_use_id", id.into());
                    put(&mut start.block, "content", content_of(text("content")));
                    self.blocks.open(Kind::Other, start, sink);
                    self.blocks.end(self.native.stop(), sink);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, seq: u64, id: &str, name: &str, sink: &mut impl Sink) {
        let template = self.template_of(|kind| kind.ends_with("tool_use"), sink);
        let is_callers = template.is_some() || self.native.is_own || self.offered.contains(name);
        if !is_callers {
            let (id, name) = (id.to_owned(), name.to_owned());
            self.held.push(HeldCall { seq, id, name, arguments: String::new() });
            return;
        }
        self.shows_other(seq, sink);
        let made = || json!({ "type": "tool_use", "name": name }).into();
        let mut start = template.unwrap_or_else(made);
        put(&mut start.block, "id", id.into());
        put(&mut start.block, "input", json!({}));
        self.blocks.open(Kind::Call(id.to_owned()), start, sink);
    }

    /// Ends the answer if a later attempt takes back what was sent.
    fn reset(&mut self, seq: u64, after: u64) -> Option<End> {
        self.held.retain(|call| call.seq <= after);
        self.native.reset(after);
        let diverged = || Fault::new(FaultKind::AttemptDiverged);
        match self.blocks.shown() {
            _ if self.again.is_some() => Some(End::TakenBack(seq)),
            _ if self.last <= after => None,
            Shown::Nothing => None,
            Shown::Thinking => Some(End::Repeat(diverged())),
            Shown::More if self.last_other <= after && self.blocks.is_open(&Kind::Text) => {
                Some(End::TakenBack(seq))
            }
            Shown::More => Some(End::Failed(diverged())),
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
        if self.again.is_some() {
            return End::Failed(Fault::new(FaultKind::AttemptDiverged));
        }
        for call in std::mem::take(&mut self.held) {
            self.shows(call.seq, sink);
            let block =
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
            self.blocks.open(Kind::Call(call.id), block, sink);
            self.blocks.add(Piece::json(&call.arguments), Members::new(), sink);
            self.blocks.end(Members::new(), sink);
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
        self.begin(None, &Members::new(), sink);
        self.spend_native(sink);
        self.blocks.end_all(sink);
        let made = || {
            json!({ "type": "message_delta",
                "delta": { "stop_reason": reason, "stop_sequence": null },
                "usage": usage(counts) })
        };
        let ending = self.native.ending().unwrap_or_else(made);
        sink.take(Event::Raw(&ending));
        sink.take(Event::MessageStop { beside: &self.native.message_stop() });
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

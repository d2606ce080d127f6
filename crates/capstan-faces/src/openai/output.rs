//! The answer of a run in OpenAI's terms. Text and markdown are one message. A thought is an item,
//! and so is a call that the client has to answer. Calls that the agent answers itself are left
//! out.
//!
//! A call of a tool that the request offers belongs to the client and is streamed. For any other
//! call, only the end of the run shows whether the agent has answered it.

use std::collections::BTreeMap;

use capstan_protocol::agui::Interrupt;
use capstan_protocol::{
    Close, Event, EventView, NativeEvent, Payload, RawObject, StreamError, StreamPacket,
    StreamReset,
};
use serde_json::{Map, Value, json};

use super::native::{self, Native};
use super::parameters::{OfferedTool, ToolSpec};
use crate::face::reader::Fold;

/// The answer so far.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) message: Option<Message>,
    pub(super) thoughts: Vec<Thought>,
    calls: Vec<Call>,
    /// Sources, each with its packet and its place in the text.
    citations: Vec<(u64, usize, Source)>,
    pub(super) native: Native,
    /// The parts that the next turn must contain, each with its packet.
    pub(super) parts: Vec<(u64, NativeEvent)>,
    /// Another attempt has begun, and has sent nothing new yet.
    is_repeating: bool,
    /// The number of parts that this attempt has sent again.
    repeated: usize,
    pub(super) error: Option<Box<StreamError>>,
    pub(super) close: Option<Close>,
}

/// The text of the answer, and the packet that began it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) seq: u64,
    pub(super) text: String,
    /// For each packet with text: its seq, and the end of its text.
    marks: Vec<(u64, usize)>,
}

#[derive(Debug)]
pub(super) struct Thought {
    pub(super) seq: u64,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) seq: u64,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The agent sent the result itself.
    is_answered: bool,
    /// The agent sent its end.
    is_ended: bool,
    /// The call is a question of the run to a person.
    is_question: bool,
}

impl Call {
    /// Whether the client can act on the call. Some agents send no end.
    pub(super) fn is_complete(&self) -> bool {
        self.is_ended || serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    /// Whether the call is streamed.
    pub(super) fn is_streamed(&self, offered: &Offered) -> bool {
        !self.is_question && offered.has(&self.name)
    }
}

/// The tools that a request offers, by the names under which an agent knows them.
#[derive(Debug, Clone, Default)]
pub(super) struct Offered(BTreeMap<String, OfferedTool>);

impl Offered {
    pub(super) fn new(names: impl Iterator<Item = String>) -> Self {
        let tool = |name: String| (name.clone(), OfferedTool { name, ..OfferedTool::default() });
        Self(names.map(tool).collect())
    }

    /// Creates the set from a request's tools, including those in namespaces.
    pub(super) fn of(specs: impl Iterator<Item = ToolSpec>) -> Self {
        Self(specs.flat_map(ToolSpec::offered).collect())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn tool(&self, name: &str) -> Option<&OfferedTool> {
        self.0.get(name)
    }
}

impl Output {
    pub(super) fn text(&self) -> &str {
        self.message.as_ref().map_or("", |message| &message.text)
    }

    /// The calls that the client has to answer.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| !call.is_answered && call.is_complete())
    }

    /// The calls that are sent at the end.
    pub(super) fn late(&self, offered: &Offered) -> impl Iterator<Item = &Call> {
        self.calls().filter(|call| !call.is_streamed(offered))
    }

    /// All thoughts as one text.
    pub(super) fn reasoning(&self) -> String {
        self.thoughts.iter().map(|thought| thought.text.as_str()).collect()
    }

    /// All sources, as annotations of a chat.
    pub(super) fn annotations(&self) -> Vec<Value> {
        self.citations.iter().map(|(_, at, source)| source.chat_annotation(*at)).collect()
    }

    fn message(&mut self, seq: u64) -> &mut Message {
        self.message.get_or_insert_with(|| Message { seq, text: String::new(), marks: Vec::new() })
    }

    fn say(&mut self, seq: u64, text: &str) {
        if text.is_empty() {
            return;
        }
        self.is_repeating = false;
        let message = self.message(seq);
        message.text.push_str(text);
        message.marks.push((seq, message.text.len()));
    }

    fn event(&mut self, seq: u64, raw: &RawObject) {
        match ClientEvent::of(raw) {
            ClientEvent::Block(content) => {
                let block = block(&content, !self.text().is_empty());
                self.say(seq, &block);
            }
            ClientEvent::Thought(text) => {
                if std::mem::take(&mut self.is_repeating) {
                    self.drop_abandoned();
                }
                self.thoughts.push(Thought { seq, text });
            }
            ClientEvent::Call { id, name } => {
                self.is_repeating = false;
                let arguments = String::new();
                let (is_answered, is_ended, is_question) = (false, false, false);
                let call = Call { seq, id, name, arguments, is_answered, is_ended, is_question };
                self.calls.push(call);
            }
            ClientEvent::Arguments { id, more } => {
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.id == id) {
                    call.arguments.push_str(&more);
                }
            }
            ClientEvent::End { id } => {
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.id == id) {
                    call.is_ended = true;
                }
            }
            ClientEvent::Result { id } => {
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.id == id) {
                    (call.is_answered, call.is_ended) = (true, true);
                }
            }
            ClientEvent::Interrupt(interrupt) => self.ask(seq, &interrupt),
            ClientEvent::Reset(reset) => self.reset(reset.after_seq),
            ClientEvent::Other => {
                self.native.take(seq, raw);
                self.part(seq, raw);
            }
            ClientEvent::Citations(sources) => {
                let at = self.text().chars().count();
                self.citations.extend(sources.into_iter().map(|source| (seq, at, source)));
            }
        }
    }

    /// Records a part. One that a later attempt sends again counts once.
    fn part(&mut self, seq: u64, raw: &RawObject) {
        let Some(part) = native::event_of(raw).filter(|event| event.part.is_some()) else { return };
        match self.is_repeating {
            true => self.repeated += 1,
            false => self.parts.push((seq, part)),
        }
    }

    /// The present attempt thinks something else than the one before: drops the reasoning of that
    /// attempt which it has not sent again.
    fn drop_abandoned(&mut self) {
        self.parts.truncate(self.repeated);
        let end = self.parts.last().map_or(0, |(seq, _)| *seq);
        self.thoughts.retain(|thought| thought.seq < end);
    }

    /// Finds the call that begins after a packet, if no text comes before it.
    pub(super) fn call_behind(&self, seq: u64) -> Option<&str> {
        let call = self.calls.iter().find(|call| call.seq > seq && !call.is_answered)?;
        let mut marks = self.message.iter().flat_map(|message| &message.marks);
        let has_text = marks.any(|(mark, _)| (seq..call.seq).contains(mark));
        (!has_text).then_some(call.id.as_str())
    }

    /// Adds a question to a person as a call whose output is the answer. It replaces the agent's
    /// own call that it is about.
    fn ask(&mut self, seq: u64, interrupt: &Interrupt) {
        for call in
            self.calls.iter_mut().filter(|call| Some(&call.id) == interrupt.tool_call_id.as_ref())
        {
            call.is_answered = true;
        }
        let arguments = serde_json::to_string(interrupt).unwrap_or_default();
        let (id, name) = (interrupt.id.clone(), INTERRUPT.to_owned());
        let (is_answered, is_ended, is_question) = (false, true, true);
        self.calls.push(Call { seq, id, name, arguments, is_answered, is_ended, is_question });
    }

    fn reset(&mut self, after: u64) {
        self.native.reset(after);
        self.parts.retain(|(seq, _)| *seq <= after);
        self.citations.retain(|(seq, ..)| *seq <= after);
        self.thoughts.retain(|thought| thought.seq <= after);
        self.calls.retain(|call| call.seq <= after);
        self.message = self.message.take().filter(|message| message.seq <= after);
        if let Some(message) = &mut self.message {
            message.marks.retain(|(seq, _)| *seq <= after);
            message.text.truncate(message.marks.last().map_or(0, |(_, end)| *end));
        }
    }
}

impl Fold for Output {
    fn add(&mut self, packet: &StreamPacket) {
        match &packet.payload {
            Payload::Delta(text) => self.say(packet.seq, text),
            Payload::Event(raw) => self.event(packet.seq, raw),
            Payload::Error(error) => {
                self.error = Some(error.clone());
                if native::ends_attempt(error) {
                    self.repeated = 0;
                    self.is_repeating |= !self.parts.is_empty();
                }
            }
            Payload::Close(close) => self.close = Some(close.clone()),
        }
    }

    fn error(&self) -> Option<&StreamError> {
        self.error.as_deref()
    }
}

/// The name of the tool that represents a question to a person.
pub(super) const INTERRUPT: &str = "interrupt";

/// An event, as OpenAI's clients see it.
pub(super) enum ClientEvent {
    /// Markdown as a paragraph of its own.
    Block(String),
    Thought(String),
    Citations(Vec<Source>),
    Call {
        id: String,
        name: String,
    },
    Arguments {
        id: String,
        more: String,
    },
    End {
        id: String,
    },
    Result {
        id: String,
    },
    /// The run asks a person.
    Interrupt(Box<Interrupt>),
    Reset(StreamReset),
    /// OpenAI has no such event, and the SDKs fail on unknown ones.
    Other,
}

#[derive(Debug)]
pub(super) struct Source {
    url: String,
    title: String,
}

impl Source {
    /// The annotation of a response, at an offset in the text.
    pub(super) fn annotation(&self, at: usize) -> Value {
        json!({ "type": "url_citation", "url": self.url, "title": self.title, "start_index": at,
        "end_index": at })
    }

    /// The annotation of a chat, at an offset in the text.
    pub(super) fn chat_annotation(&self, at: usize) -> Value {
        json!({ "type": "url_citation", "url_citation": { "url": self.url, "title": self.title,
        "start_index": at, "end_index": at } })
    }
}

impl ClientEvent {
    pub(super) fn of(raw: &RawObject) -> Self {
        let event = Event::of(raw);
        match event.view() {
            EventView::Markdown(block) => Self::Block(block.content),
            EventView::Thought(trace) => Self::Thought(trace.thought),
            EventView::Citations(block) => {
                let sources = block.citations.into_iter();
                let source = |item: capstan_protocol::CitationItem| Source {
                    url: item.uri.into(),
                    title: item.title,
                };
                Self::Citations(sources.map(source).collect())
            }
            EventView::Reset(reset) => Self::Reset(reset),
            EventView::Interrupt(interrupt) => Self::Interrupt(interrupt),
            EventView::Progress(_) | EventView::Media(_) | EventView::UserError(_) => Self::Other,
            EventView::Other => Self::of_tool(&event),
        }
    }

    fn of_tool(event: &Event) -> Self {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(id) = text("toolCallId") else { return Self::Other };
        match event.kind.as_deref() {
            Some("TOOL_CALL_START") => {
                Self::Call { id, name: text("toolCallName").unwrap_or_default() }
            }
            Some("TOOL_CALL_ARGS") => {
                Self::Arguments { id, more: text("delta").unwrap_or_default() }
            }
            Some("TOOL_CALL_END") => Self::End { id },
            Some("TOOL_CALL_RESULT") => Self::Result { id },
            _ => Self::Other,
        }
    }
}

/// The text of a block, with empty lines around it.
pub(super) fn block(content: &str, follows: bool) -> String {
    format!("{}{content}\n\n", if follows { "\n\n" } else { "" })
}

/// The token counts of a run. Counts that the agent does not report are zero.
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cached: u64,
    pub(super) reasoning: u64,
}

impl Usage {
    pub(super) fn of(usage: Option<&Map<String, Value>>) -> Self {
        let count = |name: &str| usage.and_then(|usage| usage.get(name)?.as_u64()).unwrap_or(0);
        Self {
            input: count("input_tokens"),
            output: count("output_tokens"),
            cached: count("cached_input_tokens"),
            reasoning: count("reasoning_tokens"),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ErrorSeverity, Timestamp, event};
    use uuid::Uuid;

    use super::*;

    fn output(payloads: Vec<Payload>) -> Output {
        let mut output = Output::default();
        for (seq, payload) in (1..).zip(payloads) {
            output.add(&StreamPacket { stream_id: Uuid::nil(), seq, t: Timestamp::now(), payload });
        }
        output
    }

    fn payload(kind: &str, data: Value) -> Payload {
        Payload::Event(event::envelope(kind, &data).unwrap())
    }

    #[test]
    fn a_call_that_the_agent_answers_itself_is_not_the_callers() {
        let call =
            |id: &str| payload("TOOL_CALL_START", json!({ "toolCallId": id, "toolCallName": "f" }));
        let output = output(vec![
            Payload::Delta("Wait. ".into()),
            call("own"),
            payload("TOOL_CALL_RESULT", json!({ "toolCallId": "own", "content": "42" })),
            payload("MARKDOWN_BLOCK", json!({ "content": "**42**" })),
            call("callers"),
            payload("TOOL_CALL_ARGS", json!({ "toolCallId": "callers", "delta": "{\"a\"" })),
            payload("TOOL_CALL_ARGS", json!({ "toolCallId": "callers", "delta": ":1}" })),
        ]);
        assert_eq!(output.text(), "Wait. \n\n**42**\n\n");
        let calls: Vec<_> =
            output.calls().map(|call| (call.id.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, [("callers", "{\"a\":1}")]);
    }

    #[test]
    fn a_call_that_broke_off_is_none() {
        let call =
            |id: &str| payload("TOOL_CALL_START", json!({ "toolCallId": id, "toolCallName": "f" }));
        let arguments =
            |id: &str| payload("TOOL_CALL_ARGS", json!({ "toolCallId": id, "delta": "{\"a\"" }));
        let output = output(vec![call("a"), arguments("a"), call("b")]);
        assert_eq!(output.calls().count(), 0);
        let offered = Offered::new(std::iter::once("f".to_owned()));
        assert_eq!(output.late(&offered).count(), 0);
    }

    #[test]
    fn another_thought_of_a_later_attempt_replaces_the_reasoning_that_it_did_not_repeat() {
        let part = |name: &str| {
            let data = json!({ "dialect": "anthropic-messages", "provider": "p", "model": "m",
                "part": { "signature": name } });
            payload("NATIVE", data)
        };
        let thought = |text: &str| payload("THOUGHT_TRACE", json!({ "thought": text }));
        let error = StreamError::new("cut", "", ErrorSeverity::Transient);
        let output = output(vec![
            thought("a"),
            part("a1"),
            thought("b"),
            part("b1"),
            Payload::Error(Box::new(error)),
            part("a2"),
            thought("c"),
            part("c2"),
        ]);
        let made: Vec<_> = output.parts.iter().map(|(seq, _)| *seq).collect();
        assert_eq!((made, output.reasoning().as_str()), (vec![2, 8], "ac"));
    }

    #[test]
    fn a_reset_removes_output_after_its_packet() {
        let output = output(vec![
            Payload::Delta("a".into()),
            payload("THOUGHT_TRACE", json!({ "thought": "hm" })),
            Payload::Delta("b".into()),
            payload("THOUGHT_TRACE", json!({ "thought": "no" })),
            payload(event::STREAM_RESET, json!({ "attempt": 2, "after_seq": 2 })),
            Payload::Delta("c".into()),
        ]);
        assert_eq!((output.text(), output.thoughts.len()), ("ac", 1));
    }
}

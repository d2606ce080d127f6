//! Decodes the events of a Messages stream.

use capstan_agent::Output;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value, json};

use super::block::{Block, Blocks};
use super::event::{Delta, Event};
use crate::api_key::ApiKey;
use crate::citation;
use crate::decode::{self, Decode, Step, malformed, member, text};
use crate::json_text::{self, Halves, Raw, mend};
use crate::native::{Lane, has_others, without};
use crate::thoughts::Thoughts;
use crate::tools::{self, Tools};
use crate::upstream_failure::UpstreamFailure;
use crate::wrapping::Wrapping;

/// Reads one answer of Messages.
#[derive(Debug, Default)]
pub struct Decoder {
    secret: ApiKey,
    is_finished: bool,
    usage: Map<String, Value>,
    wrapping: Wrapping,
    halves: Halves,
    thoughts: Thoughts,
    tools: Tools,
    blocks: Blocks,
    lane: Lane,
    /// The members beside the last piece of a block. Some servers repeat them with each piece.
    beside: Members,
}

type Members = Map<String, Value>;

impl Decoder {
    /// Creates a decoder. It removes the key from the errors that it reports.
    pub fn new(secret: ApiKey) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Sends through this native lane what CAP does not have.
    pub(crate) fn in_lane(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    fn start(&mut self, message: &Value, beside: Members, out: &mut Vec<Output>) {
        out.extend(text(message, "model").map(|model| Output::Model(model.to_owned())));
        self.count(message.get("usage"), out);
        let message = without(message, &["content"]);
        self.send("message_start", json!({ "message": message }), beside, out);
    }

    /// Sends an event of the provider, or what CAP does not have of it, with the members that stand
    /// beside what the decoder knows.
    fn send(&self, kind: &str, members: Value, beside: Members, out: &mut Vec<Output>) {
        let mut event = Members::from_iter([("type".to_owned(), kind.into())]);
        event.extend(members.as_object().cloned().unwrap_or_default());
        event.extend(beside);
        self.lane.event(&event, out);
    }

    /// Later counts replace earlier ones of the same name.
    fn count(&mut self, usage: Option<&Value>, out: &mut Vec<Output>) {
        let names = [
            ("input_tokens", "input_tokens"),
            ("output_tokens", "output_tokens"),
            ("cache_read_input_tokens", "cached_input_tokens"),
            ("cache_creation_input_tokens", "cache_creation_input_tokens"),
        ];
        for (theirs, ours) in names {
            if let Some(count) =
                usage.and_then(|usage| usage.get(theirs)).filter(|count| count.is_u64())
            {
                self.usage.insert(ours.to_owned(), count.clone());
            }
        }
        if !self.usage.is_empty() {
            out.push(Output::Usage(self.total_usage()));
        }
    }

    /// The counts as all agents report them: the input includes what came from a cache or went into
    /// one. Anthropic counts those apart.
    fn total_usage(&self) -> Map<String, Value> {
        let mut usage = self.usage.clone();
        let count = |name: &str| self.usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        if let Some(input) = usage.get_mut("input_tokens") {
            let cached = count("cached_input_tokens") + count("cache_creation_input_tokens");
            *input = count("input_tokens").saturating_add(cached).into();
        }
        usage
    }

    fn block(&mut self, index: u64, block: &Value, beside: Members, out: &mut Vec<Output>) -> Step {
        let kind = text(block, "type").unwrap_or_default();
        let follows_text = self.blocks.begin(index, kind, block);
        let has_more = |known: &[&str]| !beside.is_empty() || has_others(block, known);
        match kind {
            "text" => {
                if follows_text || has_more(&["type", "text"]) {
                    let mut start = without(block, &["text"]);
                    start.insert("text".into(), "".into());
                    self.template(index, start, beside, out);
                }
                return self.say(text(block, "text").unwrap_or_default(), out);
            }
            "thinking" => {
                self.template(index, without(block, &["thinking", "signature"]), beside, out);
                self.think(text(block, "thinking").unwrap_or_default(), out);
            }
            "redacted_thinking" => {
                if !beside.is_empty() {
                    let start = Members::from_iter([("type".to_owned(), kind.into())]);
                    self.template(index, start, beside, out);
                }
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                if kind != "tool_use" || has_others(block, &["type", "id", "name", "input"]) {
                    self.own_tool(index, block, "input", beside, out);
                } else if !beside.is_empty() {
                    self.template(index, without(block, &[]), beside, out);
                }
                let (id, name) = (text(block, "id"), text(block, "name"));
                self.tools.start(index, id.unwrap_or_default(), name.unwrap_or_default(), out);
            }
            kind if kind.ends_with("tool_result") => {
                self.own_tool(index, block, "content", beside, out);
            }
            kind => {
                let mut start = start_of(index, without(block, &[]));
                start.extend(beside);
                self.lane.unknown(kind, &start, out);
            }
        }
        Step::Heard
    }

    /// Sends the provider's own members of a call, or of its result, but not the one that comes as
    /// CAP events. The next turn has to bring them back, so they are a part. Its event says where
    /// the block begins.
    fn own_tool(
        &self,
        index: u64,
        block: &Value,
        content: &str,
        beside: Members,
        out: &mut Vec<Output>,
    ) {
        let kind = member(block, "type").clone();
        self.template(index, Members::from_iter([("type".to_owned(), kind)]), beside, out);
        self.lane.part(&without(block, &[content]), None, out);
    }

    /// Sends the provider's form of the next CAP event.
    fn template(&self, index: u64, block: Members, beside: Members, out: &mut Vec<Output>) {
        let mut start = start_of(index, block);
        start.extend(beside);
        self.lane.event(&start, out);
    }

    /// Ends a block. Reasoning is sent with its signature. The members of the event stand before
    /// what ends the block.
    fn stop(&mut self, index: u64, beside: Members, out: &mut Vec<Output>) {
        self.thoughts.flush(out);
        let block = self.blocks.end(index);
        // Some servers send the whole input with the beginning, and no pieces of it.
        if let Some(Block::Call(Value::Object(input))) = &block
            && !(input.is_empty() || self.tools.has_arguments(index))
        {
            self.tools.arguments(index, &Value::Object(input.clone()).to_string(), out);
        }
        let has_own = !beside.is_empty();
        let mut stop = Members::from_iter([("type".to_owned(), "content_block_stop".into())]);
        stop.insert("index".into(), index.into());
        stop.extend(beside);
        if let Some(Block::Unknown(kind)) = &block {
            self.lane.unknown(kind, &stop, out);
        } else if has_own {
            self.lane.event(&stop, out);
        }
        self.tools.end(index, out);
        match block {
            Some(Block::Thinking(mut block)) => {
                block.insert("thinking".into(), Value::Null);
                self.lane.part(&block, Some("/thinking"), out);
            }
            Some(Block::Redacted(block)) => self.lane.part(&block, None, out),
            Some(Block::Result(block)) => {
                let id = text(&block, "tool_use_id").unwrap_or_default();
                tools::result(id, block.get("content").unwrap_or(&Value::Null), false, out);
            }
            Some(Block::Unknown(_) | Block::Call(_) | Block::Known) | None => {}
        }
    }

    /// Sends a text. An empty piece does not count as a sign of life.
    fn say(&mut self, text: &str, out: &mut Vec<Output>) -> Step {
        if text.is_empty() {
            return Step::Quiet;
        }
        out.push(Output::Delta(text.to_owned()));
        Step::Heard
    }

    fn think(&mut self, thought: &str, out: &mut Vec<Output>) -> Step {
        self.thoughts.push(thought, out);
        if thought.is_empty() { Step::Quiet } else { Step::Heard }
    }

    /// Sends the members of a piece that CAP does not have. Those beside the piece are sent when
    /// they change.
    fn more(&mut self, delta: &Delta<'_>, mut beside: Members, out: &mut Vec<Output>) {
        if delta.others.is_empty() && beside.is_empty() {
            return;
        }
        if !self.lane.is_followed() {
            let names = delta.others.iter().map(|(name, _)| name);
            return names.for_each(|name| self.lane.unknown(name, &Value::Null, out));
        }
        if beside == self.beside {
            beside.clear();
        } else {
            self.beside.clone_from(&beside);
        }
        let mut own = delta.others.to_map();
        if own.is_empty() && beside.is_empty() {
            return;
        }
        self.thoughts.flush(out);
        own.insert("type".into(), json_text::text(delta.kind).unwrap_or_default().into());
        self.send("content_block_delta", json!({ "delta": own }), beside, out);
    }

    fn delta(&mut self, event: &Event<'_>, data: &str, out: &mut Vec<Output>) -> Step {
        let (index, Some(delta)) = (event.index(), &event.delta) else { return Step::Quiet };
        let piece = |raw| json_text::text(raw).unwrap_or_default();
        let kind = json_text::text(delta.kind);
        let is_estimate = delta.estimated_tokens.is_some();
        match kind.as_deref() {
            Some("text_delta" | "input_json_delta" | "signature_delta") => {
                self.more(delta, event.beside("delta"), out);
            }
            Some("thinking_delta") if !is_estimate => {
                self.more(delta, event.beside("delta"), out);
            }
            Some(_) | None => {}
        }
        match kind.as_deref() {
            Some("text_delta") => {
                let Some(text) = delta.text else { return Step::Quiet };
                if delta.others.is_empty() {
                    self.wrapping.learn(data, text);
                }
                let text = self.halves.join(text.get()).unwrap_or_default();
                self.say(&text, out)
            }
            Some("thinking_delta") => {
                if is_estimate {
                    self.lane.event(&progress_of(data), out);
                }
                self.think(&piece(delta.thinking), out)
            }
            Some("input_json_delta") => {
                let piece = piece(delta.partial_json);
                self.tools.arguments(index, &piece, out);
                if piece.is_empty() { Step::Quiet } else { Step::Heard }
            }
            Some("citations_delta") => {
                out.extend(delta.citation.and_then(|raw| cited(&value(Some(raw)))));
                self.lane.event(&event_of(data), out);
                Step::Heard
            }
            Some("signature_delta") => {
                self.blocks.sign(index, &piece(delta.signature));
                Step::Quiet
            }
            Some(kind) => {
                let kind = self.blocks.unknown(index).unwrap_or(kind).to_owned();
                self.lane.unknown(&kind, &event_of(data), out);
                Step::Heard
            }
            None => Step::Quiet,
        }
    }

    /// Ends the answer. `event` is the provider's event that ends it.
    fn finish(
        &mut self,
        reason: &str,
        event: Option<&Value>,
        out: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        self.thoughts.flush(out);
        out.extend(self.halves.rest().map(|text| Output::Delta(text.to_owned())));
        // Some servers send no end of a block.
        for index in self.blocks.complete() {
            self.stop(index, Members::new(), out);
        }
        match reason {
            "max_tokens" | "model_context_window_exceeded" => self.tools.end_whole(out),
            _ => self.tools.end_all(out),
        }
        if let Some(event) = event {
            self.lane.event(event, out);
        }
        self.is_finished = true;
        match reason {
            "refusal" => return Err(Fault::new(FaultKind::ContentRefused)),
            "end_turn" | "stop_sequence" => {}
            "max_tokens" | "model_context_window_exceeded" => {
                out.push(Output::Reason("length".into()))
            }
            "tool_use" => out.push(Output::Reason("tool_calls".into())),
            other => out.push(Output::Reason(other.to_owned())),
        }
        Ok(())
    }
}

impl Decoder {
    fn event(
        &mut self,
        event: &Event<'_>,
        data: &str,
        out: &mut Vec<Output>,
    ) -> Result<Step, Fault> {
        let index = event.index();
        match json_text::text(event.kind).as_deref() {
            Some("content_block_delta") => return Ok(self.delta(event, data, out)),
            Some("message_start") => {
                self.start(&value(event.message), event.beside("message"), out);
            }
            Some("content_block_start") => {
                let block = value(event.content_block);
                return Ok(self.block(index, &block, event.beside("content_block"), out));
            }
            Some("content_block_stop") => self.stop(index, event.beside(""), out),
            Some("message_delta") => {
                self.count(Some(&value(event.usage)), out);
                let reason =
                    event.delta.as_ref().and_then(|delta| json_text::text(delta.stop_reason));
                match reason {
                    // Nothing but the end of the message follows.
                    Some(reason) => {
                        self.finish(&reason, Some(&event_of(data)), out)?;
                        return Ok(Step::Ending);
                    }
                    None => self.lane.event(&event_of(data), out),
                }
            }
            Some("message_stop") => {
                if !self.is_finished {
                    self.finish("end_turn", None, out)?;
                }
                if !event.beside("").is_empty() {
                    self.lane.event(&event_of(data), out);
                }
                return Ok(Step::Done);
            }
            Some("error") | None => {
                let told =
                    UpstreamFailure::found_in(&serde_json::from_str(data).unwrap_or_default());
                if let Some(told) = told {
                    return Err(told.to_fault(&self.secret));
                }
            }
            Some("ping") if event.beside("").is_empty() => {}
            Some("ping") => self.lane.event(&event_of(data), out),
            Some(kind) => self.lane.unknown(kind, &event_of(data), out),
        }
        Ok(Step::Quiet)
    }
}

impl Decode for Decoder {
    fn frame(&mut self, event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        if event == "error" {
            return Err(decode::told(data, &self.secret));
        }
        if let Some(text) = self.wrapping.text(data).filter(|_| self.halves.is_empty()) {
            return Ok(self.say(text, out));
        }
        match serde_json::from_str::<Event<'_>>(data) {
            Ok(event) => self.event(&event, data, out),
            Err(error) => {
                match UpstreamFailure::found_in(&serde_json::from_str(data).unwrap_or_default()) {
                    Some(told) => Err(told.to_fault(&self.secret)),
                    None => Err(malformed(format!("an event cannot be read: {error}"))),
                }
            }
        }
    }

    fn whole(&mut self, document: &str, out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        let message: Value = serde_json::from_str(document)
            .or_else(|_| serde_json::from_str(&mend(document)))
            .ok()?;
        let blocks = message.get("content").and_then(Value::as_array)?;
        self.start(&message, Members::new(), out);
        for (index, block) in (0..).zip(blocks) {
            self.block(index, block, Members::new(), out);
            if let Some(input) = block.get("input") {
                self.tools.arguments(index, &input.to_string(), out);
            }
            self.stop(index, Members::new(), out);
        }
        Some(match text(&message, "stop_reason") {
            Some(reason) => self.finish(reason, Some(&end_of(&message)), out),
            None => Err(decode::truncated()),
        })
    }

    fn is_thinking(&self) -> bool {
        self.blocks.has_thinking()
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
}

/// Returns the estimate of a thought's tokens, without the text of the thought.
fn progress_of(data: &str) -> Value {
    let mut event = event_of(data);
    if let Some(thought) = event.pointer_mut("/delta/thinking") {
        *thought = "".into();
    }
    event
}

/// Returns the event that would have ended a streamed answer.
fn end_of(message: &Value) -> Value {
    let delta = json!({ "stop_reason": member(message, "stop_reason"),
        "stop_sequence": member(message, "stop_sequence") });
    json!({ "type": "message_delta", "delta": delta, "usage": member(message, "usage") })
}

/// Returns the event that begins a block.
fn start_of(index: u64, block: Members) -> Members {
    let start = json!({ "type": "content_block_start", "index": index, "content_block": block });
    without(&start, &[])
}

fn event_of(data: &str) -> Value {
    serde_json::from_str(data).or_else(|_| serde_json::from_str(&mend(data))).unwrap_or_default()
}

fn value(raw: Raw<'_>) -> Value {
    let read = |json: &str| serde_json::from_str(json).ok();
    raw.and_then(|raw| read(raw.get()).or_else(|| read(&mend(raw.get())))).unwrap_or_default()
}

fn cited(citation: &Value) -> Option<Output> {
    let title =
        text(citation, "title").or_else(|| text(citation, "document_title")).unwrap_or_default();
    let document = citation.get("document_index").and_then(Value::as_u64).unwrap_or(0);
    citation::block(
        text(citation, "url"),
        &format!("document:{document}"),
        title,
        text(citation, "cited_text"),
    )
}

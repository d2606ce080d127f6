//! Events of a Messages stream.

use capstan_agent::Output;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value};

use super::event::{Delta, Event};
use crate::api_key::ApiKey;
use crate::citation;
use crate::decode::{self, Decode, Step, malformed, text};
use crate::json_text::{self, Halves, Raw, mend};
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
}

impl Decoder {
    /// A decoder at the beginning of an answer; the key is taken out of what it reports.
    pub fn new(secret: ApiKey) -> Self {
        Self { secret, ..Self::default() }
    }

    fn start(&mut self, message: &Value, out: &mut Vec<Output>) {
        out.extend(text(message, "model").map(|model| Output::Model(model.to_owned())));
        self.count(message.get("usage"), out);
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
            out.push(Output::Usage(self.usage.clone()));
        }
    }

    fn block(&mut self, index: u64, block: &Value, out: &mut Vec<Output>) -> Step {
        match text(block, "type") {
            Some("text") => return self.say(text(block, "text").unwrap_or_default(), out),
            Some("thinking") => {
                return self.think(text(block, "thinking").unwrap_or_default(), out);
            }
            Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
                let (id, name) = (text(block, "id"), text(block, "name"));
                self.tools.start(index, id.unwrap_or_default(), name.unwrap_or_default(), out);
            }
            Some(kind) if kind.ends_with("tool_result") => {
                let id = text(block, "tool_use_id").unwrap_or_default();
                tools::result(id, block.get("content").unwrap_or(&Value::Null), false, out);
            }
            _ => return Step::Quiet,
        }
        Step::Heard
    }

    /// An empty piece is none: whoever sends nothing else is silent.
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

    fn delta(&mut self, index: u64, delta: &Delta<'_>, data: &str, out: &mut Vec<Output>) -> Step {
        let piece = |raw| json_text::text(raw).unwrap_or_default();
        match json_text::text(delta.kind).as_deref() {
            Some("text_delta") => {
                let Some(text) = delta.text else { return Step::Quiet };
                self.wrapping.learn(data, text);
                let text = self.halves.join(text.get()).unwrap_or_default();
                self.say(&text, out)
            }
            Some("thinking_delta") => self.think(&piece(delta.thinking), out),
            Some("input_json_delta") => {
                let piece = piece(delta.partial_json);
                self.tools.arguments(index, &piece, out);
                if piece.is_empty() { Step::Quiet } else { Step::Heard }
            }
            Some("citations_delta") => {
                out.extend(delta.citation.and_then(|raw| cited(&value(Some(raw)))));
                Step::Heard
            }
            _ => Step::Quiet,
        }
    }

    fn finish(&mut self, reason: &str, out: &mut Vec<Output>) -> Result<(), Fault> {
        self.thoughts.flush(out);
        out.extend(self.halves.rest().map(|text| Output::Delta(text.to_owned())));
        match reason {
            "max_tokens" | "model_context_window_exceeded" => self.tools.end_whole(out),
            _ => self.tools.end_all(out),
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
            Some("content_block_delta") => {
                let delta = event.delta.as_ref();
                return Ok(delta.map_or(Step::Quiet, |delta| self.delta(index, delta, data, out)));
            }
            Some("message_start") => self.start(&value(event.message), out),
            Some("content_block_start") => {
                return Ok(self.block(index, &value(event.content_block), out));
            }
            Some("content_block_stop") => {
                self.thoughts.flush(out);
                self.tools.end(index, out);
            }
            Some("message_delta") => {
                self.count(Some(&value(event.usage)), out);
                let reason =
                    event.delta.as_ref().and_then(|delta| json_text::text(delta.stop_reason));
                // The reason comes with the last usage: nothing is left to wait for.
                if let Some(reason) = reason {
                    self.finish(&reason, out)?;
                    return Ok(Step::Done);
                }
            }
            Some("message_stop") => {
                if !self.is_finished {
                    self.finish("end_turn", out)?;
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
            // Pings, and what may be added one day.
            Some(_) => {}
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
        self.start(&message, out);
        for (index, block) in (0..).zip(blocks) {
            self.block(index, block, out);
            if let Some(input) = block.get("input") {
                self.tools.arguments(index, &input.to_string(), out);
            }
            self.thoughts.flush(out);
            self.tools.end(index, out);
        }
        Some(match text(&message, "stop_reason") {
            Some(reason) => self.finish(reason, out),
            None => Err(decode::truncated()),
        })
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
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

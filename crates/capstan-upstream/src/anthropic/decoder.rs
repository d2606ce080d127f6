//! Events of a Messages stream.

use capstan_agent::Output;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value};

use crate::api_key::ApiKey;
use crate::citation;
use crate::decode::{Decode, Step, member, object, text};
use crate::thoughts::Thoughts;
use crate::tools::{self, Tools};
use crate::upstream_failure::UpstreamFailure;

/// Reads one answer of Messages.
#[derive(Debug, Default)]
pub struct Decoder {
    secret: ApiKey,
    is_finished: bool,
    usage: Map<String, Value>,
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
            if let Some(count) = usage.and_then(|usage| usage.get(theirs)).filter(|count| count.is_u64()) {
                self.usage.insert(ours.to_owned(), count.clone());
            }
        }
        if !self.usage.is_empty() {
            out.push(Output::Usage(self.usage.clone()));
        }
    }

    fn block(&mut self, index: u64, block: &Value, out: &mut Vec<Output>) -> Step {
        match text(block, "type") {
            Some("text") => out.extend(text(block, "text").map(|t| Output::Delta(t.to_owned()))),
            Some("thinking") => self.thoughts.push(text(block, "thinking").unwrap_or_default(), out),
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

    fn delta(&mut self, index: u64, delta: &Value, out: &mut Vec<Output>) -> Step {
        match text(delta, "type") {
            Some("text_delta") => out.extend(text(delta, "text").map(|t| Output::Delta(t.to_owned()))),
            Some("thinking_delta") => self.thoughts.push(text(delta, "thinking").unwrap_or_default(), out),
            Some("input_json_delta") => {
                self.tools.arguments(index, text(delta, "partial_json").unwrap_or_default());
            }
            Some("citations_delta") => out.extend(cited(member(delta, "citation"))),
            _ => return Step::Quiet,
        }
        Step::Heard
    }

    fn finish(&mut self, reason: &str, out: &mut Vec<Output>) -> Result<(), Fault> {
        self.thoughts.flush(out);
        self.tools.end_all(out);
        self.is_finished = true;
        match reason {
            "refusal" => return Err(Fault::new(FaultKind::ContentRefused)),
            "end_turn" | "stop_sequence" => {}
            "max_tokens" | "model_context_window_exceeded" => out.push(Output::Reason("length".into())),
            "tool_use" => out.push(Output::Reason("tool_calls".into())),
            other => out.push(Output::Reason(other.to_owned())),
        }
        Ok(())
    }
}

impl Decode for Decoder {
    fn frame(&mut self, _event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let event = Value::Object(object(data)?);
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match text(&event, "type") {
            Some("message_start") => self.start(member(&event, "message"), out),
            Some("content_block_start") => {
                return Ok(self.block(index, member(&event, "content_block"), out));
            }
            Some("content_block_delta") => return Ok(self.delta(index, member(&event, "delta"), out)),
            Some("content_block_stop") => {
                self.thoughts.flush(out);
                self.tools.end(index, out);
            }
            Some("message_delta") => {
                self.count(event.get("usage"), out);
                // The reason comes with the last usage: nothing is left to wait for.
                if let Some(reason) = text(member(&event, "delta"), "stop_reason") {
                    self.finish(reason, out)?;
                    return Ok(Step::Done);
                }
            }
            Some("message_stop") => {
                self.finish("end_turn", out)?;
                return Ok(Step::Done);
            }
            Some("error") => {
                return Err(UpstreamFailure::from_error(member(&event, "error")).to_fault(&self.secret));
            }
            // Pings, and what may be added one day.
            _ => {}
        }
        Ok(Step::Quiet)
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
}

fn cited(citation: &Value) -> Option<Output> {
    let title = text(citation, "title").or_else(|| text(citation, "document_title")).unwrap_or_default();
    let document = citation.get("document_index").and_then(Value::as_u64).unwrap_or(0);
    citation::block(
        text(citation, "url"),
        &format!("document:{document}"),
        title,
        text(citation, "cited_text"),
    )
}

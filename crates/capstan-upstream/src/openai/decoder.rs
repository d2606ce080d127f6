//! Chunks of a Chat Completions stream.

use capstan_agent::Output;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value};

use crate::api_key::ApiKey;
use crate::citation;
use crate::decode::{Decode, Step, member, object, text};
use crate::thoughts::Thoughts;
use crate::tools::Tools;
use crate::upstream_failure::UpstreamFailure;

/// The sentinel after the last chunk.
const SENTINEL: &str = "[DONE]";

/// Reads one answer of Chat Completions.
#[derive(Debug, Default)]
pub struct Decoder {
    secret: ApiKey,
    has_model: bool,
    has_usage: bool,
    is_finished: bool,
    refusal: String,
    thoughts: Thoughts,
    tools: Tools,
}

impl Decoder {
    /// A decoder at the beginning of an answer; the key is taken out of what it reports.
    pub fn new(secret: ApiKey) -> Self {
        Self { secret, ..Self::default() }
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<Output>) -> Result<Step, Fault> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(UpstreamFailure::from_error(error).to_fault(&self.secret));
        }
        if let Some(model) = text(chunk, "model").filter(|_| !self.has_model) {
            self.has_model = true;
            out.push(Output::Model(model.to_owned()));
        }
        if let Some(usage) = chunk.get("usage").and_then(Value::as_object) {
            self.has_usage = true;
            out.push(Output::Usage(usage_of(usage)));
        }
        let choices = chunk.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        // Only one answer was asked for.
        let choice =
            choices.iter().find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
        let heard = choice.is_some_and(|choice| self.delta(member(choice, "delta"), out));
        if let Some(reason) = choice.and_then(|choice| text(choice, "finish_reason")) {
            self.finish(reason, choice.and_then(|choice| choice.get("error")), out)?;
        }
        Ok(match (self.is_finished, self.has_usage, heard) {
            (true, true, _) => Step::Done,
            (true, false, _) => Step::Ending,
            (false, _, true) => Step::Heard,
            (false, _, false) => Step::Quiet,
        })
    }

    /// True if there is something of the answer in it.
    fn delta(&mut self, delta: &Value, out: &mut Vec<Output>) -> bool {
        let before = out.len();
        let thought = text(delta, "reasoning_content").or_else(|| text(delta, "reasoning"));
        if let Some(thought) = thought {
            self.thoughts.push(thought, out);
        }
        if let Some(piece) = text(delta, "content") {
            self.thoughts.flush(out);
            out.push(Output::Delta(piece.to_owned()));
        }
        let refusal = text(delta, "refusal");
        self.refusal.push_str(refusal.unwrap_or_default());
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.tool(call, out);
        }
        for note in delta.get("annotations").and_then(Value::as_array).into_iter().flatten() {
            let cited = member(note, "url_citation");
            let url = text(cited, "url");
            out.extend(citation::block(url, "citation", text(cited, "title").unwrap_or_default(), None));
        }
        out.len() > before || thought.is_some() || refusal.is_some()
    }

    fn tool(&mut self, call: &Value, out: &mut Vec<Output>) {
        self.thoughts.flush(out);
        let index = call.get("index").and_then(Value::as_u64).unwrap_or(0);
        let function = member(call, "function");
        if let Some(name) = text(function, "name").filter(|_| !self.tools.is_open(index)) {
            let made_up = format!("call_{index}");
            self.tools.start(index, text(call, "id").unwrap_or(&made_up), name, out);
        }
        self.tools.arguments(index, text(function, "arguments").unwrap_or_default());
    }

    fn finish(&mut self, reason: &str, error: Option<&Value>, out: &mut Vec<Output>) -> Result<(), Fault> {
        self.thoughts.flush(out);
        self.tools.end_all(out);
        if reason == "error" {
            return Err(UpstreamFailure::from_error(error.unwrap_or(&Value::Null)).to_fault(&self.secret));
        }
        if !self.refusal.is_empty() {
            let fault = Fault::new(FaultKind::ContentRefused);
            return Err(fault.with_detail("refusal", self.secret.scrub(&self.refusal)));
        }
        match reason {
            "content_filter" => return Err(Fault::new(FaultKind::ContentRefused)),
            "stop" => {}
            "tool_calls" | "function_call" => out.push(Output::Reason("tool_calls".into())),
            other => out.push(Output::Reason(other.to_owned())),
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Decode for Decoder {
    fn frame(&mut self, _event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        if data.trim() == SENTINEL {
            // Some servers end with nothing else.
            if !self.is_finished {
                self.finish("stop", None, out)?;
            }
            return Ok(Step::Done);
        }
        self.chunk(&Value::Object(object(data)?), out)
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
}

/// The provider's counts under the names that all agents use.
fn usage_of(usage: &Map<String, Value>) -> Map<String, Value> {
    let whole = Value::Object(usage.clone());
    let counts = [
        ("input_tokens", "/prompt_tokens"),
        ("output_tokens", "/completion_tokens"),
        ("total_tokens", "/total_tokens"),
        ("cached_input_tokens", "/prompt_tokens_details/cached_tokens"),
        ("reasoning_tokens", "/completion_tokens_details/reasoning_tokens"),
    ];
    let count =
        |(name, at): (&str, &str)| Some((name.to_owned(), whole.pointer(at).filter(|v| v.is_u64())?.clone()));
    counts.into_iter().filter_map(count).collect()
}

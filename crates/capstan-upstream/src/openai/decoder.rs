//! Decodes the chunks of a Chat Completions stream into outputs.

use capstan_agent::Output;
use capstan_protocol::{Fault, FaultKind};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::chunk::{Choice, Chunk, Custom, Delta, Function, ToolCall, parts};
use super::extras::Extras;
use super::finish::Finish;
use super::kept::Kept;
use crate::api_key::ApiKey;
use crate::citation;
use crate::decode::{self, Decode, Step, malformed, truncated};
use crate::json_object::Others;
use crate::json_text::{self, Halves, Raw, mend, value};
use crate::native::Lane;
use crate::thoughts::Thoughts;
use crate::tools::{CallPiece, Tools};
use crate::upstream_failure::UpstreamFailure;
use crate::usage;
use crate::wrapping::Wrapping;

/// The sentinel after the last chunk.
const SENTINEL: &str = "[DONE]";

/// Decodes one answer of Chat Completions.
#[derive(Debug, Default)]
pub struct Decoder {
    secret: ApiKey,
    needs_no_finish: bool,
    has_model: bool,
    has_delta: bool,
    has_content: bool,
    is_finished: bool,
    refusal: String,
    wrapping: Wrapping,
    halves: Halves,
    thoughts: Thoughts,
    tools: Tools,
    extras: Extras,
    kept: Kept,
    lane: Lane,
}

impl Decoder {
    /// Creates a decoder for one answer. It removes the key from the errors that it reports.
    pub fn new(secret: ApiKey) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Sends what CAP has no word for through the native lane.
    pub(crate) fn in_lane(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// Accepts answers without a finish reason: the sentinel completes an answer that has content.
    #[must_use]
    pub fn without_finish(self) -> Self {
        Self { needs_no_finish: true, ..self }
    }

    fn chunk(&mut self, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let chunk = match serde_json::from_str::<Chunk<'_>>(data) {
            Ok(chunk) => chunk,
            Err(error) => return self.odd(data, &error),
        };
        if let Some(error) = chunk.error.filter(|error| has_text_in(error)) {
            return Err(self.failure(&value(error)));
        }
        if chunk.choices.is_none()
            && let Some(told) =
                UpstreamFailure::found_in(&serde_json::from_str(data).unwrap_or_default())
        {
            return Err(told.to_fault(&self.secret));
        }
        if let Some(model) = json_text::text(chunk.model).filter(|_| !self.has_model) {
            self.has_model = true;
            out.push(Output::Model(model.into_owned()));
        }
        let usage = chunk.usage.map(value);
        self.extras.send(&chunk, usage.as_ref(), self.has_delta, &mut self.lane, out);
        let usage = usage.and_then(|usage| usage::counts(&usage));
        let has_usage = usage.is_some();
        out.extend(usage.or_else(|| odd_usage(&chunk)).map(Output::Usage));
        if let Some(content) = chunk.only_content() {
            self.wrapping.learn(data, content);
        }
        let choice = chunk.choice();
        let heard = choice.is_some_and(|choice| self.choice(choice, out));
        if let Some(choice) = choice
            && let Some(reason) = choice.finish()
        {
            self.finish(&reason, choice.error, out)?;
        }
        Ok(match (self.is_finished, heard) {
            (true, _) if has_usage => Step::Done,
            (true, _) => Step::Ending,
            (false, true) => Step::Heard,
            (false, false) => Step::Quiet,
        })
    }

    /// The text of a chunk that differs from the last one in its text alone.
    fn repeated<'a>(&self, event: &str, data: &'a str) -> Option<&'a str> {
        let is_plain = !self.is_finished && self.halves.is_empty() && event != "error";
        self.wrapping.text(data).filter(|_| is_plain)
    }

    /// The fault for a frame that is no chunk: an error of another form, or malformed.
    fn odd(&self, data: &str, error: &serde_json::Error) -> Result<Step, Fault> {
        let read = |data: &str| serde_json::from_str::<Value>(data).ok();
        let told = read(data)
            .or_else(|| read(&mend(data)))
            .and_then(|value| UpstreamFailure::found_in(&value));
        Err(match told {
            Some(told) => told.to_fault(&self.secret),
            None => malformed(format!("a chunk cannot be read: {error}")),
        })
    }

    fn failure(&self, error: &Value) -> Fault {
        UpstreamFailure::from_error(error).to_fault(&self.secret)
    }

    /// Decodes a choice. Returns true if it has a piece of the answer.
    fn choice(&mut self, choice: &Choice<'_>, out: &mut Vec<Output>) -> bool {
        let before = out.len();
        let heard = match (&choice.delta, &choice.message) {
            (Some(delta), _) => {
                self.has_delta = true;
                self.delta(delta, out)
            }
            // After pieces of the answer, the message repeats them.
            (None, Some(message)) if !self.has_delta => self.delta(message, out),
            (None, _) => choice.text.is_some_and(|text| self.content(text, out)),
        };
        self.has_content |= heard || out.len() > before;
        heard
    }

    fn delta(&mut self, delta: &Delta<'_>, out: &mut Vec<Output>) -> bool {
        let thought = delta.thought();
        if let Some((name, thought)) = &thought {
            self.kept.thinks(name);
            self.thoughts.push(thought, out);
        }
        for (name, raw) in
            [("reasoning_details", delta.reasoning_details), ("extra_content", delta.extra_content)]
        {
            if let Some(raw) = raw {
                self.kept.member(name, value(raw));
            }
        }
        let mut heard = thought.is_some() || !delta.others.is_empty();
        heard |= delta.content.is_some_and(|content| self.content(content, out));
        if let Some(refusal) = json_text::text(delta.refusal) {
            self.refusal.push_str(&refusal);
            heard = true;
        }
        heard |= delta.tool_calls.is_some_and(|calls| self.calls(calls, out));
        heard |= delta.function_call.is_some_and(|call| self.function_call(call, out));
        if let Some(notes) = delta.annotations {
            heard |= cite(notes, out);
        }
        heard
    }

    /// Decodes text, or a list of parts. Empty text is no sign of life.
    fn content(&mut self, content: &RawValue, out: &mut Vec<Output>) -> bool {
        if let Some(text) = self.halves.join(content.get()) {
            return self.say(&text, out);
        }
        let said = parts(content);
        if !said.thoughts.is_empty() {
            self.thoughts.push(&said.thoughts, out);
        }
        self.say(&said.text, out) || !said.thoughts.is_empty()
    }

    fn say(&mut self, text: &str, out: &mut Vec<Output>) -> bool {
        if text.is_empty() {
            return false;
        }
        self.thoughts.flush(out);
        // Text after calls shows that they are complete.
        self.tools.end_all(out);
        out.push(Output::Delta(text.to_owned()));
        true
    }

    fn calls(&mut self, calls: &RawValue, out: &mut Vec<Output>) -> bool {
        let Ok(calls) = serde_json::from_str::<Vec<ToolCall<'_>>>(calls.get()) else {
            return false;
        };
        self.thoughts.flush(out);
        calls.iter().fold(false, |heard, call| self.call(call, out) | heard)
    }

    /// A piece of a call. Members that the decoder does not know go to the call by the id under
    /// which the call was sent: a server may name the call in another piece, or not at all.
    fn call(&mut self, call: &ToolCall<'_>, out: &mut Vec<Output>) -> bool {
        let (index, id) = (call.index(), json_text::text(call.id));
        let place = CallPiece { index, id: id.as_deref(), ..CallPiece::default() };
        let (name, arguments, others, is_custom) = match (&call.function, &call.custom) {
            (Some(call @ Function { name, others, .. }), _) => {
                (name, call.arguments(), others, false)
            }
            (None, Some(call @ Custom { name, others, .. })) => (name, call.input(), others, true),
            (None, None) => {
                let id = self.tools.id_of(&place).map(str::to_owned);
                self.record_others(id, call, None);
                return false;
            }
        };
        let (name, before) = (json_text::text(*name), out.len());
        let piece =
            CallPiece { name: name.as_deref(), arguments: &arguments, is_text: is_custom, ..place };
        let sent_id = self.tools.piece(&piece, out).map(str::to_owned);
        if let Some(id) = sent_id.as_deref().filter(|_| is_custom) {
            self.mark(&json!({ "tool_calls": [{ "id": id, "type": "custom" }] }), before, out);
        }
        self.record_others(sent_id, call, Some(others));
        name.is_some() || !arguments.is_empty()
    }

    fn record_others(
        &mut self,
        id: Option<String>,
        call: &ToolCall<'_>,
        function: Option<&Others<'_>>,
    ) {
        let Some(id) = id else { return };
        for (name, raw) in call.others.iter() {
            self.kept.call(&id, name, value(raw));
        }
        let members = function.map(Others::to_map).unwrap_or_default();
        if !members.is_empty() {
            let name = if call.function.is_some() { "function" } else { "custom" };
            self.kept.call(&id, name, members.into());
        }
    }

    /// Inserts the kind of a call before its beginning, if the call began in the last outputs.
    fn mark(&self, delta: &Value, before: usize, out: &mut Vec<Output>) {
        let begins = |output: &Output| {
            matches!(output, Output::Event { kind, .. } if kind ==
        "TOOL_CALL_START")
        };
        if out.get(before..).is_some_and(|sent| sent.iter().any(begins)) {
            let mut mark = Vec::new();
            self.lane.event(&json!({ "choices": [{ "delta": delta }] }), &mut mark);
            out.splice(before..before, mark);
        }
    }

    /// Decodes `function_call`, the form of calls before `tool_calls`.
    fn function_call(&mut self, call: &RawValue, out: &mut Vec<Output>) -> bool {
        let Ok(function) = serde_json::from_str::<Function<'_>>(call.get()) else { return false };
        self.thoughts.flush(out);
        let (name, arguments, before) =
            (json_text::text(function.name), function.arguments(), out.len());
        let (name, arguments) = (name.as_deref(), arguments.as_ref());
        self.tools
            .piece(&CallPiece { index: Some(0), id: None, name, arguments, is_text: false }, out);
        self.mark(&json!({ "function_call": {} }), before, out);
        name.is_some() || !arguments.is_empty()
    }

    fn finish(&mut self, reason: &str, error: Raw<'_>, out: &mut Vec<Output>) -> Result<(), Fault> {
        self.thoughts.flush(out);
        out.extend(self.halves.rest().map(|text| Output::Delta(text.to_owned())));
        let finish = Finish::of(reason);
        match finish {
            Finish::Failed => return Err(self.failure(&error.map(value).unwrap_or_default())),
            Finish::Aborted => return Err(truncated()),
            Finish::Length => self.tools.end_whole(out),
            Finish::Refused => {}
            Finish::Complete | Finish::ToolCalls | Finish::Other(_) => self.tools.end_all(out),
        }
        self.kept.send(&self.lane, out);
        if !self.refusal.is_empty() {
            let fault = Fault::new(FaultKind::ContentRefused);
            return Err(fault.with_detail("refusal", self.secret.scrub(&self.refusal)));
        }
        match finish {
            Finish::Refused => return Err(Fault::new(FaultKind::ContentRefused)),
            Finish::ToolCalls => out.push(Output::Reason("tool_calls".into())),
            Finish::Length => out.push(Output::Reason("length".into())),
            Finish::Other(word) => out.push(Output::Reason(word.to_owned())),
            Finish::Complete | Finish::Failed | Finish::Aborted => {}
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Decode for Decoder {
    fn frame(&mut self, event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        if let Some(text) = self.repeated(event, data) {
            let heard = self.say(text, out);
            self.has_content |= heard;
            return Ok(if heard { Step::Heard } else { Step::Quiet });
        }
        if data.trim() == SENTINEL {
            if !self.is_finished {
                if !(self.needs_no_finish && self.has_content) {
                    return Err(truncated());
                }
                self.finish("stop", None, out)?;
            }
            return Ok(Step::Done);
        }
        if event == "error" {
            return Err(decode::told(data, &self.secret));
        }
        self.chunk(data, out)
    }

    fn whole(&mut self, document: &str, out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        let is_answer =
            serde_json::from_str::<Chunk<'_>>(document).is_ok_and(|chunk| chunk.choice().is_some());
        is_answer.then(|| match self.chunk(document, out) {
            Ok(_) if self.is_finished => Ok(()),
            Ok(_) => self.frame("", SENTINEL, out).map(|_| ()),
            Err(fault) => Err(fault),
        })
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
}

/// The counts that some servers put elsewhere: into the choice, or into a member of their own.
fn odd_usage(chunk: &Chunk<'_>) -> Option<Map<String, Value>> {
    let of_choice = chunk.choice().into_iter().flat_map(|choice| choice.others.iter());
    of_choice.chain(chunk.others.iter()).find_map(|(_, raw)| usage::counts_in(raw))
}

/// Whether an error has content. Some servers send an empty one with each chunk.
fn has_text_in(error: &RawValue) -> bool {
    !matches!(error.get(), "false" | "\"\"" | "{}" | "[]" | "0")
}

/// Sends sources with an address as citations, which every client understands.
fn cite(notes: &RawValue, out: &mut Vec<Output>) -> bool {
    let before = out.len();
    let notes = value(notes);
    let notes = notes.as_array().into_iter().flatten();
    for cited in notes.filter_map(|note| note.get("url_citation")) {
        let (url, title) = (decode::text(cited, "url"), decode::text(cited, "title"));
        out.extend(citation::block(url, "citation", title.unwrap_or_default(), None));
    }
    out.len() > before
}

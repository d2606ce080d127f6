//! Decodes the events of a task. Its artifacts are the answer, and its status shows its progress.

use capstan_agent::{Interrupt, Output};
use capstan_protocol::{Close, Fault};
use serde_json::{Map, Value};

use super::artifacts::Artifacts;
use super::status::{self, State};
use crate::api_key::ApiKey;
use crate::decode::{Decode, Step, malformed, member, object, text, truncated};

/// The most resume requests in a row that may bring nothing new.
const STALLS: u32 = 6;
/// The longest id of a task, in bytes. Longer ids are ignored.
const LONGEST_ID: usize = 256;

/// The request that resumes after a broken stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Gets the task.
    Get,
    /// Gets the task of an agent without streams.
    Poll,
    /// Subscribes to later events.
    Subscribe,
}

/// The kind of response that is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The response to a message.
    Message,
    Task,
    Subscription,
    /// A subscription that did not begin with the task. The output in between is missing, so pieces
    /// are ignored, and the adapter gets the task at the end.
    BlindSubscription,
}

/// Decodes one task, over one or more streams.
#[derive(Debug)]
pub struct Decoder {
    secret: ApiKey,
    streams: bool,
    /// The message answers a question of the task. Its earlier output belongs to earlier runs.
    is_answer: bool,
    reading: Reading,
    task: Option<String>,
    artifacts: Artifacts,
    /// The last progress note that was sent.
    note: String,
    stalls: u32,
    is_finished: bool,
}

impl Decoder {
    /// Creates a decoder. It removes the key from the errors that it reports.
    pub fn new(secret: ApiKey, streams: bool, is_answer: bool) -> Self {
        Self {
            secret,
            streams,
            is_answer,
            reading: Reading::Message,
            task: None,
            artifacts: Artifacts::default(),
            note: String::new(),
            stalls: 0,
            is_finished: false,
        }
    }

    /// After a broken stream: returns the next request, the task's id, and the number of requests
    /// in a row without anything new. `None` if there is no task, or if the limit is reached.
    pub(super) fn resume(&mut self) -> Option<(Next, String, u32)> {
        let task = self.task.clone()?;
        let stalls = self.stalls;
        if !self.streams {
            self.reading = Reading::Task;
            return Some((Next::Poll, task, stalls));
        }
        self.stalls += 1;
        let next = if self.reading == Reading::Task { Next::Subscribe } else { Next::Get };
        self.reading = if next == Next::Get { Reading::Task } else { Reading::Subscription };
        (stalls < STALLS).then_some((next, task, stalls))
    }

    /// Whether the present or last request is a subscription.
    pub(super) fn is_subscribing(&self) -> bool {
        matches!(self.reading, Reading::Subscription | Reading::BlindSubscription)
    }

    fn event(&mut self, event: &Value, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let named = |name: &str| event.get(name).filter(|value| value.is_object());
        let kind = text(event, "kind").unwrap_or_default();
        if let Some(task) = named("task").or((kind == "task").then_some(event)) {
            return self.task(task, out);
        }
        if let Some(update) =
            named("artifactUpdate").or((kind == "artifact-update").then_some(event))
        {
            return Ok(self.artifact(update, out));
        }
        if let Some(update) = named("statusUpdate").or((kind == "status-update").then_some(event)) {
            self.learn(text(update, "taskId"), out);
            return self.status(member(update, "status"), member(update, "metadata"), out);
        }
        if let Some(message) = named("message").or((kind == "message").then_some(event)) {
            return Ok(self.message(message, out));
        }
        // The response to a get is the bare task.
        if event.get("id").is_some() && named("status").is_some() {
            return self.task(event, out);
        }
        if event.get("parts").is_some_and(Value::is_array) {
            return Ok(self.message(event, out));
        }
        Ok(Step::Quiet)
    }

    fn task(&mut self, task: &Value, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let is_first = self.task.is_none();
        self.learn(text(task, "id"), out);
        let artifacts =
            task.get("artifacts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let (status, metadata) = (member(task, "status"), member(task, "metadata"));
        if self.is_answer && is_first && self.reading == Reading::Message {
            self.artifacts.pass_over(artifacts);
            // The agent may repeat the state from before the answer.
            if State::of(status).is_some_and(State::is_question) {
                return Ok(Step::Quiet);
            }
        } else if self.artifacts.replace_all(artifacts, out) {
            self.stalls = 0;
        }
        let step = self.status(status, metadata, out)?;
        // The task still runs. Later events come by another request.
        if self.reading == Reading::Task && step < Step::Done {
            return Err(truncated());
        }
        Ok(step)
    }

    fn artifact(&mut self, update: &Value, out: &mut Vec<Output>) -> Step {
        self.learn(text(update, "taskId"), out);
        if self.reading == Reading::Subscription {
            self.reading = Reading::BlindSubscription;
        }
        self.stalls = 0;
        if self.reading != Reading::BlindSubscription {
            let is_added = update.get("append").and_then(Value::as_bool).unwrap_or(false);
            self.artifacts.update(member(update, "artifact"), is_added, out);
        }
        Step::Heard
    }

    /// Takes a complete answer without a task.
    fn message(&mut self, message: &Value, out: &mut Vec<Output>) -> Step {
        self.artifacts.message(message, out);
        self.is_finished = true;
        Step::Done
    }

    fn status(
        &mut self,
        status: &Value,
        metadata: &Value,
        out: &mut Vec<Output>,
    ) -> Result<Step, Fault> {
        let Some(state) = State::of(status) else { return Ok(Step::Quiet) };
        let message = member(status, "message");
        if self.reading == Reading::BlindSubscription && state != State::Working {
            return Err(truncated());
        }
        match state {
            State::Working => return Ok(self.work(message, out)),
            State::Completed => self.artifacts.last_message(message, out),
            State::Canceled => out.push(Output::Reason(Close::CANCELLED.into())),
            State::InputRequired | State::AuthRequired => {
                out.push(Output::Interrupt(Box::new(self.question(state, message))))
            }
            State::Failed | State::Rejected => {
                return Err(status::failure(state, message, &self.secret));
            }
        }
        report(metadata, out);
        self.is_finished = true;
        Ok(Step::Done)
    }

    /// Sends a progress note, unless it repeats the last one.
    fn work(&mut self, message: &Value, out: &mut Vec<Output>) -> Step {
        let text = status::text_of(message);
        if text.is_empty() || text == self.note {
            return Step::Quiet;
        }
        self.stalls = 0;
        out.extend(status::note(&text, message));
        self.note = text;
        Step::Heard
    }

    /// Makes an interrupt. The answer names it by the task's id.
    fn question(&self, state: State, message: &Value) -> Interrupt {
        status::question(self.task.clone().unwrap_or_default(), state, message)
    }

    fn learn(&mut self, id: Option<&str>, out: &mut Vec<Output>) {
        let is_plain =
            |id: &&str| id.len() <= LONGEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(id) = id.filter(is_plain).filter(|_| self.task.is_none()) {
            self.task = Some(id.to_owned());
            out.push(Output::FarId(id.to_owned()));
        }
    }

    /// Takes an event, with or without its JSON-RPC envelope.
    fn take(&mut self, value: &Value, out: &mut Vec<Output>) -> Result<Step, Fault> {
        if let Some(fault) = self.refusal(value) {
            return Err(fault);
        }
        let is_call = value.get("jsonrpc").is_some();
        match value.get("result").filter(|_| is_call) {
            Some(result) => self.event(result, out),
            None if is_call => Err(malformed("an answer without a result")),
            None => self.event(value, out),
        }
    }
}

impl Decode for Decoder {
    fn frame(&mut self, _event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let value = Value::Object(object(data)?);
        self.take(&value, out)
    }

    fn whole(&mut self, document: &str, out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        let value: Value = serde_json::from_str(document).ok()?;
        Some(match self.take(&value, out) {
            Ok(Step::Done) => Ok(()),
            Ok(Step::Quiet | Step::Heard | Step::Ending) => Err(truncated()),
            Err(fault) => Err(fault),
        })
    }

    fn refusal(&self, document: &Value) -> Option<Fault> {
        let error = document.get("error").filter(|error| error.is_object())?;
        // The task ended just before the subscription, so the adapter gets it instead.
        let is_over = error.get("code").and_then(Value::as_i64) == Some(status::UNSUPPORTED);
        if is_over && self.is_subscribing() {
            return Some(truncated());
        }
        Some(status::refusal(error, &self.secret))
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
}

/// Reads the report of a Capstan gateway: model, usage, and the reason of the end.
fn report(metadata: &Value, out: &mut Vec<Output>) {
    let Some(metadata) = metadata.as_object() else { return };
    let counts =
        |usage: &Map<String, Value>| usage.values().all(Value::is_u64).then(|| usage.clone());
    out.extend(
        metadata.get("model").and_then(Value::as_str).map(|model| Output::Model(model.to_owned())),
    );
    out.extend(
        metadata.get("usage").and_then(Value::as_object).and_then(counts).map(Output::Usage),
    );
    if metadata.get("reason").and_then(Value::as_str) == Some("length") {
        out.push(Output::Reason("length".into()));
    }
}

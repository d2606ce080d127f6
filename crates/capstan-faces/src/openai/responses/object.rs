//! A response: the object that its events and every answer about it hold.

use capstan_journal::{Run, RunState};
use capstan_protocol::{Close, Exposure, Fault, FaultKind, RawJson, Timestamp, decode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::super::errors::ApiError;
use super::super::output::{Call, Offered, Output, Usage};
use super::id_of;
use crate::face::reader::Whole;

/// What a request said that its answer repeats, as it was said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Echo {
    instructions: Option<RawJson>,
    metadata: Option<RawJson>,
    tools: Option<RawJson>,
    tool_choice: Option<RawJson>,
    temperature: Option<RawJson>,
    top_p: Option<RawJson>,
    max_output_tokens: Option<RawJson>,
    text: Option<RawJson>,
    reasoning: Option<RawJson>,
    truncation: Option<RawJson>,
    user: Option<RawJson>,
    parallel_tool_calls: Option<RawJson>,
    conversation: Option<RawJson>,
    store: Option<bool>,
    background: Option<bool>,
}

impl Echo {
    /// Of a body; of another face's, nothing.
    pub(super) fn of(body: &str) -> Self {
        decode::from_str(body).unwrap_or_default()
    }

    /// The tools that the request offers.
    pub(super) fn offered(&self) -> Offered {
        #[derive(Deserialize)]
        struct Tool {
            #[serde(default)]
            name: Option<String>,
        }
        let tools: Option<Vec<Tool>> = self.tools.as_ref().and_then(|tools| tools.decode().ok());
        Offered::new(tools.into_iter().flatten().filter_map(|tool| tool.name))
    }
}

/// A response as it stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ResponseObject<'a> {
    id: String,
    object: &'static str,
    created_at: i64,
    completed_at: Option<i64>,
    status: Status,
    background: bool,
    error: Option<ApiError>,
    incomplete_details: Option<Incomplete>,
    instructions: Option<&'a RawJson>,
    max_output_tokens: Option<&'a RawJson>,
    metadata: RawOr<'a>,
    /// The agent.
    model: &'a str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: RawOr<'a>,
    previous_response_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<Conversation<'a>>,
    reasoning: RawOr<'a>,
    store: bool,
    temperature: Option<&'a RawJson>,
    text: RawOr<'a>,
    tool_choice: RawOr<'a>,
    tools: RawOr<'a>,
    top_p: Option<&'a RawJson>,
    truncation: RawOr<'a>,
    usage: Option<TokenUsage>,
    user: Option<&'a RawJson>,
}

/// What was said, or what goes without saying.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum RawOr<'a> {
    Said(&'a RawJson),
    Usual(Value),
}

fn raw_or<'a>(said: Option<&'a RawJson>, usual: Value) -> RawOr<'a> {
    said.filter(|said| said.get() != "null").map_or(RawOr::Usual(usual), RawOr::Said)
}

#[derive(Debug, Serialize, JsonSchema)]
struct Conversation<'a> {
    id: &'a str,
}

/// How a response stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    InProgress,
    Completed,
    Incomplete,
    Cancelled,
    Failed,
}

/// Why an answer is not complete.
#[derive(Debug, Serialize, JsonSchema)]
struct Incomplete {
    reason: &'static str,
}

/// One thing in an answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item<'a> {
    Message {
        id: String,
        status: &'static str,
        role: &'static str,
        content: Vec<TextPart<'a>>,
    },
    Reasoning {
        id: String,
        summary: Vec<Summary<'a>>,
    },
    FunctionCall {
        id: String,
        status: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

impl<'a> Item<'a> {
    /// A call in an answer of this status.
    fn call(stream: Uuid, call: &'a Call, status: &'static str) -> Self {
        let is_over = call.is_ended() || status == "completed";
        let is_complete = is_over && call.is_complete();
        let status = match status {
            _ if is_complete => "completed",
            "completed" => "incomplete",
            status => status,
        };
        Self::FunctionCall {
            id: item_id("fc", stream, call.seq),
            status,
            call_id: &call.id,
            name: &call.name,
            arguments: &call.arguments,
        }
    }
}

impl Item<'_> {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Message { id, .. }
            | Self::Reasoning { id, .. }
            | Self::FunctionCall { id, .. } => id,
        }
    }
}

/// A text with its sources.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TextPart<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) text: &'a str,
    pub(super) annotations: Vec<&'a Value>,
    pub(super) logprobs: [(); 0],
}

impl<'a> TextPart<'a> {
    pub(super) fn new(text: &'a str, annotations: Vec<&'a Value>) -> Self {
        Self { kind: "output_text", text, annotations, logprobs: [] }
    }
}

/// A thought, in short.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Summary<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) text: &'a str,
}

impl<'a> Summary<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { kind: "summary_text", text }
    }
}

/// Tokens; all zero where the agent counts none.
#[derive(Debug, Serialize, JsonSchema)]
struct TokenUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct InputDetails {
    cached_tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input,
            input_tokens_details: InputDetails { cached_tokens: usage.cached },
            output_tokens: usage.output,
            output_tokens_details: OutputDetails { reasoning_tokens: usage.reasoning },
            total_tokens: usage.total(),
        }
    }
}

impl<'a> ResponseObject<'a> {
    /// A run as it stands.
    pub(super) fn of(whole: &'a Whole<Output>, echo: &'a Echo, exposure: Exposure) -> Self {
        let (run, output) = (&whole.run, &whole.transcript);
        let status = Status::of(run, whole.state, output.close.as_ref());
        let mut told = Self::begun(run, echo);
        told.status = status;
        told.output = items(run.stream_id, output, &echo.offered(), status.of_items());
        if status == Status::Failed {
            let fault = whole.fault().unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError));
            told.error = Some(ApiError::of(&fault, exposure));
        }
        told.incomplete_details = (status == Status::Incomplete)
            .then(|| Incomplete { reason: incomplete(output.close.as_ref()) });
        if status != Status::InProgress {
            told.completed_at = run.closed_at.filter(|_| status == Status::Completed).map(seconds);
            told.usage = Some(Usage::of(run.usage.as_ref()).into());
        }
        told
    }

    /// A run of which nothing was said yet.
    pub(super) fn begun(run: &'a Run, echo: &'a Echo) -> Self {
        let previous =
            run.previous_response.as_deref().and_then(|stream| stream.parse::<Uuid>().ok());
        let conversation = echo.conversation.as_ref().filter(|said| said.get() != "null");
        Self {
            id: id_of(run.stream_id),
            object: "response",
            created_at: seconds(run.created_at),
            completed_at: None,
            status: Status::InProgress,
            background: echo.background.unwrap_or_default(),
            error: None,
            incomplete_details: None,
            instructions: echo.instructions.as_ref(),
            max_output_tokens: echo.max_output_tokens.as_ref(),
            metadata: raw_or(echo.metadata.as_ref(), Value::Object(serde_json::Map::new())),
            model: &run.agent,
            output: Vec::new(),
            parallel_tool_calls: raw_or(echo.parallel_tool_calls.as_ref(), true.into()),
            previous_response_id: previous.map(id_of),
            conversation: conversation.map(|_| Conversation { id: &run.session }),
            reasoning: raw_or(
                echo.reasoning.as_ref(),
                serde_json::json!({ "effort": null, "summary": null }),
            ),
            store: echo.store.unwrap_or(true),
            temperature: echo.temperature.as_ref(),
            text: raw_or(echo.text.as_ref(), serde_json::json!({ "format": { "type": "text" } })),
            tool_choice: raw_or(echo.tool_choice.as_ref(), "auto".into()),
            tools: raw_or(echo.tools.as_ref(), Value::Array(Vec::new())),
            top_p: echo.top_p.as_ref(),
            truncation: raw_or(echo.truncation.as_ref(), "disabled".into()),
            usage: None,
            user: echo.user.as_ref(),
        }
    }

    /// The same, failed in this way.
    pub(super) fn failed(mut self, error: ApiError) -> Self {
        (self.status, self.error) = (Status::Failed, Some(error));
        self
    }
}

impl Status {
    fn of(run: &Run, state: RunState, close: Option<&Close>) -> Self {
        if state != RunState::Closed {
            return Self::InProgress;
        }
        if run.fault.is_some() {
            return Self::Failed;
        }
        match close.map(Close::reason).as_deref() {
            Some(Close::CANCELLED) => Self::Cancelled,
            Some("length" | "content_filter") => Self::Incomplete,
            _ => Self::Completed,
        }
    }

    fn of_items(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete | Self::Cancelled | Self::Failed => "incomplete",
        }
    }
}

fn incomplete(close: Option<&Close>) -> &'static str {
    match close.map(Close::reason).as_deref() {
        Some("content_filter") => "content_filter",
        _ => "max_output_tokens",
    }
}

/// All items in the order of their indices: as they began, then the calls that are told at the end.
pub(super) fn items<'a>(
    stream: Uuid,
    output: &'a Output,
    offered: &Offered,
    status: &'static str,
) -> Vec<Item<'a>> {
    let thoughts = output.thoughts.iter().map(|thought| {
        let summary = vec![Summary::new(&thought.text)];
        (thought.seq, Item::Reasoning { id: item_id("rs", stream, thought.seq), summary })
    });
    let message = output.message.iter().map(|message| {
        let content = vec![TextPart::new(&message.text, message.annotations())];
        let id = item_id("msg", stream, message.seq);
        (message.seq, Item::Message { id, status, role: "assistant", content })
    });
    let calls = output.streamed(offered).map(|call| (call.seq, Item::call(stream, call, status)));
    let mut items: Vec<_> = thoughts.chain(message).chain(calls).collect();
    items.sort_by_key(|(seq, _)| *seq);
    let late = output.late(offered).map(|call| Item::call(stream, call, status));
    items.into_iter().map(|(_, item)| item).chain(late).collect()
}

/// The same whenever it is told: the packet that began the item.
pub(super) fn item_id(kind: &str, stream: Uuid, seq: u64) -> String {
    format!("{kind}_{}_{seq}", stream.simple())
}

fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}

impl ResponseObject<'_> {
    /// The type of the event that tells of its end. A cancelled one has none of its own in any SDK.
    pub(super) fn last_event(&self) -> &'static str {
        match self.status {
            Status::InProgress | Status::Completed => "response.completed",
            Status::Incomplete | Status::Cancelled => "response.incomplete",
            Status::Failed => "response.failed",
        }
    }

    pub(super) fn status_of_items(&self) -> &'static str {
        self.status.of_items()
    }
}

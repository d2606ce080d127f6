//! A response: the object that its events and every answer about it hold.

use std::collections::BTreeMap;

use capstan_agent::sealed::Sealer;
use capstan_journal::{Run, RunState};
use capstan_protocol::{Close, Dialect, Exposure, Fault, FaultKind, RawJson, Timestamp, decode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::super::errors::ApiError;
use super::super::output::{Offered, Usage};
use super::super::parameters::ToolSpec;
use super::answer::Answer;
use super::id_of;
use super::item::{Item, items};
use super::seen::Seen;
use crate::face::FaceContext;
use crate::face::reader::Collected;

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
    max_tool_calls: Option<RawJson>,
    prompt_cache_key: Option<RawJson>,
    prompt_cache_retention: Option<RawJson>,
    safety_identifier: Option<RawJson>,
    service_tier: Option<RawJson>,
    store: Option<bool>,
    background: Option<bool>,
    /// Looked through for tools, and not kept.
    input: Option<RawJson>,
    #[serde(skip)]
    pub(super) offered: Offered,
    #[serde(skip)]
    pub(super) sealer: Option<Sealer>,
}

impl Echo {
    /// Of a body; of another face's, nothing.
    pub(super) fn of(cx: &FaceContext, body: &str) -> Self {
        let mut echo: Self = decode::from_str(body).unwrap_or_default();
        echo.sealer = Some(cx.sealer(Dialect::OpenaiResponses));
        echo.find_offered();
        echo
    }

    /// The tools that the request offers, those among its items too.
    fn find_offered(&mut self) {
        #[derive(Deserialize)]
        struct Item {
            #[serde(default)]
            tools: Vec<ToolSpec>,
        }
        let items: Option<Vec<Item>> = self.input.take().and_then(|input| input.decode().ok());
        let specs: Option<Vec<ToolSpec>> =
            self.tools.as_ref().and_then(|tools| tools.decode().ok());
        let more = items.into_iter().flatten().flat_map(|item| item.tools);
        self.offered = Offered::of(specs.into_iter().flatten().chain(more));
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
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tool_calls: Option<&'a RawJson>,
    metadata: RawOr<'a>,
    /// The agent.
    model: &'a str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: RawOr<'a>,
    previous_response_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_retention: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'a RawJson>,
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
    /// What only the provider knows of it.
    #[serde(flatten)]
    more: BTreeMap<&'a str, &'a Value>,
}

/// Members of a provider's response that are not told in our own words.
fn unknown(members: &Map<String, Value>) -> BTreeMap<&str, &Value> {
    let known = |name: &str| KNOWN.contains(&name);
    let unknown = members.iter().filter(|(name, value)| !known(name) && !value.is_null());
    unknown.map(|(name, value)| (name.as_str(), value)).collect()
}

/// The members of [`ResponseObject`].
const KNOWN: &[&str] = &[
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "background",
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "conversation",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "usage",
    "user",
];

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
    pub(super) fn of(whole: &'a Collected<Answer>, echo: &'a Echo, exposure: Exposure) -> Self {
        let (run, answer) = (&whole.run, &whole.transcript);
        let status = Status::of(whole);
        let mut told = Self::begun(run, echo);
        told.status = status;
        told.output = items(run.stream_id, answer, echo, status.of_items());
        told.more = unknown(&answer.more);
        if status == Status::Failed {
            let fault = whole.fault().unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError));
            told.error = Some(ApiError::of(&fault, exposure));
        }
        told.incomplete_details = (status == Status::Incomplete)
            .then(|| Incomplete { reason: incomplete(answer.close.as_ref()) });
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
            max_tool_calls: echo.max_tool_calls.as_ref(),
            metadata: raw_or(echo.metadata.as_ref(), Value::Object(serde_json::Map::new())),
            model: &run.agent,
            output: Vec::new(),
            parallel_tool_calls: raw_or(echo.parallel_tool_calls.as_ref(), true.into()),
            previous_response_id: previous.map(id_of),
            prompt_cache_key: echo.prompt_cache_key.as_ref(),
            prompt_cache_retention: echo.prompt_cache_retention.as_ref(),
            safety_identifier: echo.safety_identifier.as_ref(),
            service_tier: echo.service_tier.as_ref(),
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
            more: BTreeMap::new(),
        }
    }

    /// The events of an answer that is complete with nothing in it.
    pub(super) fn warm_up(mut self) -> [String; 2] {
        let event = |number: u64, kind: &str, response: &Self| {
            serde_json::json!({ "type": kind, "sequence_number": number, "response": response })
                .to_string()
        };
        let created = event(0, "response.created", &self);
        (self.status, self.completed_at) = (Status::Completed, Some(self.created_at));
        self.usage = Some(Usage::of(None).into());
        [created, event(1, "response.completed", &self)]
    }

    /// Leaves out items that the reader has.
    pub(super) fn leave_out(&mut self, seen: &Seen) {
        self.output.retain(|item| !seen.has(item.id()));
    }

    /// The same, failed in this way.
    pub(super) fn failed(mut self, error: ApiError) -> Self {
        (self.status, self.error) = (Status::Failed, Some(error));
        self
    }
}

impl Status {
    /// The type of the event that tells of the end. A cancelled one has none of its own in any SDK.
    pub(super) fn last_event(self) -> &'static str {
        match self {
            Self::InProgress | Self::Completed => "response.completed",
            Self::Incomplete | Self::Cancelled => "response.incomplete",
            Self::Failed => "response.failed",
        }
    }

    pub(super) fn of(whole: &Collected<Answer>) -> Self {
        let (run, close) = (&whole.run, whole.transcript.close.as_ref());
        if whole.state != RunState::Closed {
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

    pub(super) fn of_items(self) -> &'static str {
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

fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}

//! The response object, of events and of JSON answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_agent::sealed::Sealer;
use capstan_journal::{Run, RunState};
use capstan_protocol::{
    Close, Dialect, Exposure, Fault, FaultKind, GATEWAY_RESPONSE_MEMBERS, RawJson, Timestamp,
    decode,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::errors::ApiError;
use super::super::output::{Offered, Usage};
use super::super::parameters::ToolSpec;
use super::answer::Answer;
use super::id_of;
use super::item::{Item, ItemForm, items};
use super::seen::Seen;
use crate::face::FaceContext;
use crate::face::reader::Collected;

/// Members of a request that its response repeats.
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
    frequency_penalty: Option<RawJson>,
    max_tool_calls: Option<RawJson>,
    presence_penalty: Option<RawJson>,
    prompt_cache_key: Option<RawJson>,
    prompt_cache_retention: Option<RawJson>,
    safety_identifier: Option<RawJson>,
    service_tier: Option<RawJson>,
    top_logprobs: Option<RawJson>,
    store: Option<bool>,
    pub(super) background: Option<bool>,
    /// Searched for tools among the items, then dropped.
    input: Option<RawJson>,
    #[serde(skip)]
    pub(super) offered: Arc<Offered>,
    #[serde(skip)]
    pub(super) sealer: Option<Sealer>,
}

impl Echo {
    /// Reads a body. The body of another face has none of these members.
    pub(super) fn of(cx: &FaceContext, body: &str) -> Self {
        let mut echo: Self = decode::from_str(body).unwrap_or_default();
        echo.sealer = Some(cx.sealer(Dialect::OpenaiResponses));
        echo.find_offered();
        echo.tools = echo.tools.map(complete);
        echo
    }

    /// The data on which the form of the response's items depends.
    pub(super) fn form(&self) -> ItemForm<'_> {
        ItemForm { offered: &self.offered, sealer: self.sealer.as_ref() }
    }

    /// Finds the tools that the request offers, also among its items.
    fn find_offered(&mut self) {
        #[derive(Deserialize)]
        struct Item {
            #[serde(default)]
            tools: Vec<ToolSpec>,
        }
        let input = self.input.take().filter(|input| input.get().contains("\"tools\""));
        let items: Option<Vec<Item>> = input.and_then(|input| input.decode().ok());
        let specs: Option<Vec<ToolSpec>> =
            self.tools.as_ref().and_then(|tools| tools.decode().ok());
        let more = items.into_iter().flatten().flat_map(|item| item.tools);
        self.offered = Offered::of(specs.into_iter().flatten().chain(more)).into();
    }
}

/// Members that a function of a response always has.
const OF_FUNCTION: [&str; 3] = ["description", "parameters", "strict"];

/// Adds the members that tools of a response always have.
fn complete(tools: RawJson) -> RawJson {
    let Ok(mut list) = tools.decode::<Vec<BTreeMap<String, RawJson>>>() else { return tools };
    for tool in &mut list {
        if tool.get("type").is_some_and(|kind| kind.get() == "\"function\"") {
            for name in OF_FUNCTION {
                tool.entry(name.to_owned()).or_insert_with(|| Value::Null.into());
            }
        }
    }
    RawJson::from_serialize(&list).unwrap_or(tools)
}

/// A response in its present state.
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
    max_tool_calls: Option<&'a RawJson>,
    metadata: RawOr<'a>,
    /// The agent.
    model: &'a str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: RawOr<'a>,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_retention: Option<&'a RawJson>,
    safety_identifier: Option<&'a RawJson>,
    service_tier: RawOr<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<Conversation<'a>>,
    frequency_penalty: RawOr<'a>,
    presence_penalty: RawOr<'a>,
    reasoning: RawOr<'a>,
    store: bool,
    temperature: RawOr<'a>,
    text: RawOr<'a>,
    tool_choice: RawOr<'a>,
    tools: RawOr<'a>,
    top_logprobs: RawOr<'a>,
    top_p: RawOr<'a>,
    truncation: RawOr<'a>,
    usage: Option<TokenUsage<'a>>,
    user: Option<&'a RawJson>,
    /// Members that only the provider knows.
    #[serde(flatten)]
    more: BTreeMap<&'a str, &'a Value>,
}

/// The members of a provider's response that [`ResponseObject`] does not have.
fn others<'a>(
    members: Option<&'a Map<String, Value>>,
    known: &[&str],
) -> BTreeMap<&'a str, &'a Value> {
    let is_other = |name: &str| !known.contains(&name);
    let all = members.into_iter().flatten();
    all.filter(|(name, value)| is_other(name) && !value.is_null())
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

/// The members of [`ResponseObject`] that the provider decides.
const PROVIDERS: [&str; 5] =
    ["service_tier", "frequency_penalty", "presence_penalty", "top_logprobs", "usage"];

/// The request's value, or the provider's or the default one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum RawOr<'a> {
    Request(&'a RawJson),
    Other(Value),
}

fn raw_or<'a>(request: Option<&'a RawJson>, default: Value) -> RawOr<'a> {
    request.filter(|value| value.get() != "null").map_or(RawOr::Other(default), RawOr::Request)
}

/// The request's object, with default members added.
fn with_members<'a>(request: Option<&'a RawJson>, default: Value) -> RawOr<'a> {
    let given = request.map(RawJson::to_value);
    match (given, default) {
        (Some(Value::Object(given)), Value::Object(mut members)) => {
            members.extend(given);
            RawOr::Other(members.into())
        }
        (_, default) => raw_or(request, default),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Conversation<'a> {
    id: &'a str,
}

/// The state of a response.
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
struct TokenUsage<'a> {
    input_tokens: u64,
    input_tokens_details: InputDetails<'a>,
    output_tokens: u64,
    output_tokens_details: OutputDetails<'a>,
    total_tokens: u64,
    /// Members that only the provider knows, of its last call.
    #[serde(flatten)]
    more: BTreeMap<&'a str, &'a Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct InputDetails<'a> {
    cached_tokens: u64,
    #[serde(flatten)]
    more: BTreeMap<&'a str, &'a Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OutputDetails<'a> {
    reasoning_tokens: u64,
    #[serde(flatten)]
    more: BTreeMap<&'a str, &'a Value>,
}

impl<'a> TokenUsage<'a> {
    /// The run's counts, and all counts of the provider's object.
    fn new(usage: Usage, provider: Option<&'a Value>) -> Self {
        let object = |value: Option<&'a Value>| value.and_then(Value::as_object);
        let more = |name: &str, known: &[&str]| {
            let details = provider.and_then(|usage| usage.get(name));
            others(object(if name.is_empty() { provider } else { details }), known)
        };
        let (input, output) = ("input_tokens_details", "output_tokens_details");
        Self {
            input_tokens: usage.input,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached,
                more: more(input, &["cached_tokens"]),
            },
            output_tokens: usage.output,
            output_tokens_details: OutputDetails {
                reasoning_tokens: usage.reasoning,
                more: more(output, &["reasoning_tokens"]),
            },
            total_tokens: usage.total(),
            more: more("", &["input_tokens", input, "output_tokens", output, "total_tokens"]),
        }
    }
}

impl<'a> ResponseObject<'a> {
    /// The response of a run in its present state.
    pub(super) fn of(whole: &'a Collected<Answer>, echo: &'a Echo, exposure: Exposure) -> Self {
        let (run, answer) = (&whole.run, &whole.transcript);
        let status = Status::of(whole);
        let mut response = Self::begun(run, echo);
        response.status = status;
        response.output = items(run.stream_id, answer, echo.form(), status.of_items());
        response.take_from_provider(&answer.more);
        if status == Status::Failed {
            let fault = whole.fault().unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError));
            response.error = Some(ApiError::of(&fault, exposure));
        }
        response.incomplete_details = (status == Status::Incomplete)
            .then(|| Incomplete { reason: incomplete(answer.close.as_ref()) });
        if status != Status::InProgress {
            response.completed_at =
                run.closed_at.filter(|_| status == Status::Completed).map(seconds);
            let usage = Usage::of(run.usage.as_ref());
            response.usage = Some(TokenUsage::new(usage, answer.more.get("usage")));
        }
        response
    }

    /// Takes values that the provider decides, whatever the request says.
    pub(super) fn take_from_provider(&mut self, response: &'a Map<String, Value>) {
        self.more = others(Some(response), &[GATEWAY_RESPONSE_MEMBERS, &PROVIDERS[..]].concat());
        for (name, place) in [
            ("service_tier", &mut self.service_tier),
            ("frequency_penalty", &mut self.frequency_penalty),
            ("presence_penalty", &mut self.presence_penalty),
            ("top_logprobs", &mut self.top_logprobs),
        ] {
            if let Some(value) = response.get(name).filter(|value| !value.is_null()) {
                *place = RawOr::Other(value.clone());
            }
        }
    }

    /// The response of a run without output yet.
    pub(super) fn begun(run: &'a Run, echo: &'a Echo) -> Self {
        let previous =
            run.previous_response.as_deref().and_then(|stream| stream.parse::<Uuid>().ok());
        let conversation = echo.conversation.as_ref().filter(|id| id.get() != "null");
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
            metadata: raw_or(echo.metadata.as_ref(), json!({})),
            model: &run.agent,
            output: Vec::new(),
            parallel_tool_calls: raw_or(echo.parallel_tool_calls.as_ref(), true.into()),
            previous_response_id: previous.map(id_of),
            prompt_cache_key: echo.prompt_cache_key.as_ref(),
            prompt_cache_retention: echo.prompt_cache_retention.as_ref(),
            safety_identifier: echo.safety_identifier.as_ref(),
            service_tier: raw_or(echo.service_tier.as_ref(), "default".into()),
            conversation: conversation.map(|_| Conversation { id: &run.session }),
            frequency_penalty: raw_or(echo.frequency_penalty.as_ref(), 0.0.into()),
            presence_penalty: raw_or(echo.presence_penalty.as_ref(), 0.0.into()),
            reasoning: with_members(
                echo.reasoning.as_ref(),
                json!({ "effort": null, "summary": null }),
            ),
            store: echo.store.unwrap_or(true),
            temperature: raw_or(echo.temperature.as_ref(), 1.0.into()),
            text: with_members(echo.text.as_ref(), json!({ "format": { "type": "text" } })),
            tool_choice: raw_or(echo.tool_choice.as_ref(), "auto".into()),
            tools: raw_or(echo.tools.as_ref(), Value::Array(Vec::new())),
            top_logprobs: raw_or(echo.top_logprobs.as_ref(), 0.into()),
            top_p: raw_or(echo.top_p.as_ref(), 1.0.into()),
            truncation: raw_or(echo.truncation.as_ref(), "disabled".into()),
            usage: None,
            user: echo.user.as_ref(),
            more: BTreeMap::new(),
        }
    }

    /// The events of a response that is complete without output.
    pub(super) fn warm_up(mut self) -> [String; 2] {
        let event = |number: u64, kind: &str, response: &Self| {
            json!({ "type": kind, "sequence_number": number, "response": response }).to_string()
        };
        let created = event(0, "response.created", &self);
        (self.status, self.completed_at) = (Status::Completed, Some(self.created_at));
        self.usage = Some(TokenUsage::new(Usage::of(None), None));
        [created, event(1, "response.completed", &self)]
    }

    /// Removes items that the reader has.
    pub(super) fn leave_out(&mut self, seen: &Seen) {
        self.output.retain(|item| !seen.has(item.id()));
    }

    /// Marks the response as failed with this error.
    pub(super) fn failed(mut self, error: ApiError) -> Self {
        (self.status, self.error) = (Status::Failed, Some(error));
        self
    }
}

impl Status {
    /// The type of the last event. No SDK has an event for a cancelled response.
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

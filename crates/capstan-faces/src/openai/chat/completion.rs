//! The objects of Chat Completions: a whole answer, and the chunks of a streamed one.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_journal::Run;
use capstan_protocol::{Close, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::native::Native;
use super::super::output::{Call, Output, Usage};
use crate::face::reader::Collected;

/// A whole answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Completion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    usage: TokenUsage,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    /// What the model thought, if it says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
    /// What only the provider understands of it.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// A call that the caller is to answer, in its next request.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ToolCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
    /// What only the provider understands of it.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> ToolCall<'a> {
    fn of(call: &'a Call, native: &Native) -> Self {
        let function = Function { name: &call.name, arguments: &call.arguments };
        Self { id: &call.id, kind: "function", function, more: native.of_call(&call.id) }
    }
}

/// A piece of a call: the first one names it, those that follow have its arguments.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallPiece<'a> {
    /// Its place among the calls.
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<FunctionPiece<'a>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FunctionPiece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> CallPiece<'a> {
    pub(super) fn first(index: usize, id: &'a str, name: &'a str, arguments: &'a str) -> Self {
        let function = FunctionPiece { name: Some(name), arguments };
        let (id, kind, function) = (Some(id), Some("function"), Some(function));
        Self { index, id, kind, function, more: Map::new() }
    }

    pub(super) fn more(index: usize, arguments: &'a str) -> Self {
        let function = Some(FunctionPiece { name: None, arguments });
        Self { index, id: None, kind: None, function, more: Map::new() }
    }

    /// What only the provider understands of it.
    pub(super) fn native(index: usize, more: Map<String, Value>) -> Self {
        Self { index, id: None, kind: None, function: None, more }
    }
}

/// Tokens; all zero where the agent counts none.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TokenUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PromptDetails {
    cached_tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CompletionDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
            prompt_tokens_details: PromptDetails { cached_tokens: usage.cached },
            completion_tokens_details: CompletionDetails { reasoning_tokens: usage.reasoning },
        }
    }
}

impl<'a> Completion<'a> {
    pub(super) fn of(whole: &'a Collected<Output>) -> Self {
        let (run, output) = (&whole.run, &whole.transcript);
        let tool_calls: Vec<_> =
            output.calls().map(|call| ToolCall::of(call, &output.native)).collect();
        let finish_reason = finish_reason(output.close.as_ref(), !tool_calls.is_empty());
        // Calls alone have no text; an answer always does.
        let content = Some(output.text()).filter(|text| !text.is_empty() || tool_calls.is_empty());
        let reasoning_content = output.reasoning();
        let role = "assistant";
        let (refusal, more) = (None, output.native.of_message());
        let message = Message { role, content, reasoning_content, refusal, tool_calls, more };
        Self {
            id: id_of(run),
            object: "chat.completion",
            created: seconds(run.created_at),
            model: &run.agent,
            choices: [Choice { index: 0, message, logprobs: None, finish_reason }],
            usage: Usage::of(run.usage.as_ref()).into(),
        }
    }

    pub(super) fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

/// One piece of a streamed answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Chunk<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: i64,
    pub(super) model: &'a str,
    pub(super) choices: Vec<ChunkChoice<'a>>,
    /// Null in all chunks but the last, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Option<TokenUsage>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ChunkChoice<'a> {
    pub(super) index: u32,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<()>,
    pub(super) finish_reason: Option<&'static str>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a str>,
    /// What the model thinks, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<CallPiece<'a>>,
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

/// The id of an answer: the same whenever it is told.
pub(super) fn id_of(run: &Run) -> String {
    format!("chatcmpl-{}", run.stream_id.simple())
}

pub(super) fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}

/// Why the answer ends here. A run that was stopped, or that asks, has no better word.
pub(super) fn finish_reason(close: Option<&Close>, has_calls: bool) -> &'static str {
    match close.map(Close::reason).as_deref() {
        Some("length") => "length",
        Some("content_filter") => "content_filter",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

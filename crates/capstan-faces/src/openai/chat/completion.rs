//! The objects of Chat Completions: a collected answer, and the chunks of a streamed one.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_agent::sealed::Sealer;
use capstan_journal::Run;
use capstan_protocol::{Close, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::output::{Call, Output, Usage};
use super::carried::Carried;
use crate::face::reader::Collected;

/// A collected answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Completion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    usage: TokenUsage,
    /// Members that only the provider knows.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<Value>,
    finish_reason: String,
    /// Members that only the provider knows.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    /// The model's thoughts, if it sends them.
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
    /// The call, if the request offers `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<Function<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<Value>,
    /// Members of the call that only the provider knows.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// A call that the client answers in its next request.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ToolCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<Function<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<Custom<'a>>,
    /// Members of the call that only the provider knows.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// A call of a tool that takes a free text.
#[derive(Debug, Serialize, JsonSchema)]
struct Custom<'a> {
    name: &'a str,
    input: &'a str,
}

impl<'a> ToolCall<'a> {
    fn of(call: &'a Call, carried: &Carried<'_>, is_custom: bool) -> Self {
        let (name, text) = (call.name.as_str(), call.arguments.as_str());
        let more = carried.of_call(&call.id);
        let function = (!is_custom).then_some(Function { name, arguments: text });
        let custom = is_custom.then_some(Custom { name, input: text });
        Self { id: &call.id, kind: kind_of(is_custom), function, custom, more }
    }
}

fn kind_of(is_custom: bool) -> &'static str {
    if is_custom { "custom" } else { "function" }
}

/// A piece of a call. The first one has its name, the others have its arguments.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct CallPiece<'a> {
    /// The place of the call among the calls.
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<FunctionPiece<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<CustomPiece<'a>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FunctionPiece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    pub(super) arguments: &'a str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CustomPiece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    input: &'a str,
}

impl<'a> CallPiece<'a> {
    pub(super) fn first(
        index: usize,
        id: &'a str,
        name: &'a str,
        text: &'a str,
        is_custom: bool,
    ) -> Self {
        let (id, kind) = (Some(id), Some(kind_of(is_custom)));
        Self { id, kind, ..Self::piece(index, Some(name), text, is_custom) }
    }

    pub(super) fn more(index: usize, text: &'a str, is_custom: bool) -> Self {
        Self::piece(index, None, text, is_custom)
    }

    fn piece(index: usize, name: Option<&'a str>, text: &'a str, is_custom: bool) -> Self {
        let function = (!is_custom).then_some(FunctionPiece { name, arguments: text });
        let custom = is_custom.then_some(CustomPiece { name, input: text });
        Self { index, function, custom, ..Self::default() }
    }

    /// Adds members of the call that only the provider knows.
    pub(super) fn with(self, more: Map<String, Value>) -> Self {
        Self { more, ..self }
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
    /// Counts that only the provider has.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PromptDetails {
    cached_tokens: u64,
    /// Counts that only the provider has.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CompletionDetails {
    reasoning_tokens: u64,
    /// Counts that only the provider has.
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl TokenUsage {
    /// The counts of a run, with those that only its provider has.
    pub(super) fn new(counts: Option<&Map<String, Value>>, mut more: Map<String, Value>) -> Self {
        let usage = Usage::of(counts);
        let mut details = |name: &str| match more.remove(name) {
            Some(Value::Object(details)) => details,
            Some(_) | None => Map::new(),
        };
        let (prompt, completion) =
            (details("prompt_tokens_details"), details("completion_tokens_details"));
        Self {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.total(),
            prompt_tokens_details: PromptDetails { cached_tokens: usage.cached, more: prompt },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: usage.reasoning,
                more: completion,
            },
            more,
        }
    }
}

impl<'a> Completion<'a> {
    pub(super) fn of(whole: &'a Collected<Output>, sealer: Sealer) -> Self {
        let (run, output) = (&whole.run, &whole.transcript);
        let carried = Carried::of(output, sealer);
        let mut native = output.native.joined();
        let (custom, is_legacy) = (native.take_custom_calls(), native.take_legacy_call());
        let own_finish = native.take_finish();
        let has_calls = output.calls().next().is_some();
        let finish = finish_reason(output.close.as_ref(), has_calls);
        let call = |call: &'a Call| ToolCall::of(call, &carried, custom.contains(&call.id));
        let mut tool_calls: Vec<_> = output.calls().map(call).collect();
        let function_call = is_legacy.then(|| tool_calls.pop()).flatten();
        let annotations = match native.delta.remove("annotations") {
            Some(Value::Array(own)) => own,
            Some(_) | None => output.annotations(),
        };
        let mut more = carried.of_message();
        more.extend(native.delta);
        let message = Message {
            role: "assistant",
            // An answer that is only calls has null in place of a text.
            content: Some(output.text()).filter(|text| !text.is_empty() || !has_calls),
            reasoning_content: output.reasoning(),
            refusal: None,
            tool_calls,
            function_call: function_call.and_then(|call| call.function),
            annotations,
            more,
        };
        let choice = Choice {
            index: 0,
            message,
            logprobs: native.choice.remove("logprobs"),
            finish_reason: own_finish.unwrap_or_else(|| finish.to_owned()),
            more: native.choice,
        };
        Self {
            id: id_of(run),
            object: "chat.completion",
            created: seconds(run.created_at),
            model: &run.agent,
            choices: [choice],
            usage: TokenUsage::new(run.usage.as_ref(), native.usage),
            more: native.chunk,
        }
    }

    pub(super) fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

/// A chunk of a streamed answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Chunk<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: i64,
    pub(super) model: &'a str,
    pub(super) choices: Vec<ChunkChoice<'a>>,
    /// Null in all chunks except the last, if the request asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Option<TokenUsage>>,
    /// Members of the answer that only the provider knows.
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ChunkChoice<'a> {
    pub(super) index: u32,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<Value>,
    pub(super) finish_reason: Option<&'a str>,
    /// Members of the piece that only the provider knows.
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a str>,
    /// The model's thoughts, if it sends them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<CallPiece<'a>>,
    /// A piece of the call, if the request offers `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function_call: Option<FunctionPiece<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) annotations: Vec<Value>,
    /// Members of the piece that only the provider knows.
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

/// The id of an answer. It is the same in every response.
pub(super) fn id_of(run: &Run) -> String {
    format!("chatcmpl-{}", run.stream_id.simple())
}

pub(super) fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}

/// The finish reason. OpenAI has none for a run that was stopped or that asks a question.
pub(super) fn finish_reason(close: Option<&Close>, has_calls: bool) -> &'static str {
    match close.map(Close::reason).as_deref() {
        Some("length") => "length",
        Some("content_filter") => "content_filter",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

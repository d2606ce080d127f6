//! Decodes a chat request, in one pass.

use std::sync::Arc;

use capstan_protocol::{
    Arguments, ChatMessage, DecodeError, Dialect, Fault, Parameters, Part, RawJson, RawObject, Role,
};
use serde::Deserialize;
use serde_json::Number;

use super::super::content::{Contents, pictures_behind_results};
use super::super::foreign::Foreign;
use super::super::members::{self, Metadata, Object, Text};
use super::super::parameters::{self, Format, Function, ToolSpec, refuse};
use super::carried;
use crate::text_or::TextOr;
use capstan_engine::ask::{Ask, Extras, RequestBody, Wants, invalid};
use capstan_engine::interrupts;

#[derive(Deserialize)]
#[expect(dead_code, reason = "some members are only checked")]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<Message>,
    tools: Option<Vec<ToolSpec>>,
    tool_choice: Option<RawJson>,
    parallel_tool_calls: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    seed: Option<Number>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stop: TextOr<String>,
    response_format: Option<Format>,
    reasoning_effort: Option<String>,
    verbosity: Option<String>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    store: Option<bool>,
    logit_bias: Option<Object>,
    prediction: Option<Object>,
    metadata: Option<Metadata>,
    prompt_cache_key: Option<Text>,
    safety_identifier: Option<Text>,
    service_tier: Option<Text>,
    user: Option<Text>,
    // What changes the shape of the answer.
    n: Option<u64>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    modalities: Option<Vec<String>>,
    functions: Option<Vec<Function>>,
    function_call: Option<RawJson>,
    audio: Option<RawJson>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Contents,
    name: Option<String>,
    tool_calls: Option<Vec<Call>>,
    tool_call_id: Option<String>,
    function_call: Option<RawJson>,
    reasoning_details: Option<RawJson>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<FunctionCall>,
    custom: Option<FreeText>,
    extra_content: Option<RawJson>,
}

/// A call of a tool that takes a free text.
#[derive(Deserialize)]
struct FreeText {
    name: String,
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
struct FunctionCall {
    name: String,
    #[serde(default)]
    arguments: String,
}

/// The options of a stream.
#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Reads a chat request.
pub(super) fn from_chat(body: &RequestBody) -> Result<Ask, Fault> {
    let request: ChatRequest = body.decode()?;
    request.into_ask(body.object()?).map_err(|e| invalid(&e))
}

impl ChatRequest {
    fn into_ask(self, payload: RawObject) -> Result<Ask, DecodeError> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(refuse("n", "more than one answer"));
        }
        if self.messages.is_empty() {
            return Err(DecodeError::value("messages", "is empty"));
        }
        let mut foreign = Foreign::default();
        self.check_shape(&mut foreign);
        self.check_bounds(&mut foreign);
        let wants = self.wants();
        let parameters = Parameters {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: seed(self.seed.as_ref(), &mut foreign)?,
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            stop: parameters::stops(self.stop),
            tool_choice: parameters::tool_choice(self.tool_choice, &mut foreign)?,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: parameters::response_format(
                self.response_format,
                "response_format",
                &mut foreign,
            )?,
            effort: parameters::effort(self.reasoning_effort, "reasoning_effort", &mut foreign),
        };
        let mut messages = Vec::with_capacity(self.messages.len());
        for (n, message) in self.messages.into_iter().enumerate() {
            messages.push(message.into_message(n, &mut foreign)?);
        }
        let (messages, answers) = interrupts::take_answers(messages);
        let functions = self.functions.into_iter().flatten().map(ToolSpec::of_function);
        let specs = self.tools.into_iter().flatten().chain(functions).collect();
        let extras = Extras {
            tools: parameters::tools(specs)?.into(),
            parameters: Arc::new(parameters),
            answers,
            payload: Arc::new(payload),
            dialect: Some(Dialect::OpenaiChat),
            untranslatable: foreign.into_first(),
            ..Extras::default()
        };
        let agent = self.model.filter(|model| !model.is_empty());
        Ok(Ask {
            is_whole: true,
            agent,
            wants,
            extras,
            ..Ask::new(String::new(), String::new(), pictures_behind_results(messages))
        })
    }

    fn wants(&self) -> Wants {
        let usage = self.stream_options.as_ref().and_then(|options| options.include_usage);
        Wants {
            stream: self.stream.unwrap_or_default(),
            background: false,
            usage: usage.unwrap_or_default(),
        }
    }

    /// Finds what makes another answer than a text with tool calls.
    fn check_shape(&self, foreign: &mut Foreign) {
        let is_said =
            |member: &Option<RawJson>| member.as_ref().is_some_and(|raw| raw.get() != "null");
        let has_sound = self.modalities.iter().flatten().any(|one| one != "text");
        let custom = self.tools.iter().flatten().position(ToolSpec::is_custom);
        let custom = custom.map(|n| format!("tools[{n}].type"));
        for (is_there, place, what) in [
            (self.logprobs == Some(true), "logprobs", "the likelihood of words"),
            (self.top_logprobs.is_some_and(|n| n > 0), "top_logprobs", "the likelihood of words"),
            (has_sound, "modalities", "an answer that is not text"),
            (is_said(&self.audio), "audio", "an answer that is not text"),
            (self.functions.is_some(), "functions", "what `tools` has replaced"),
            (is_said(&self.function_call), "function_call", "what `tool_choice` has replaced"),
            (custom.is_some(), custom.as_deref().unwrap_or_default(), "a tool of free text"),
        ] {
            if is_there {
                foreign.add(refuse(place, what));
            }
        }
    }

    fn check_bounds(&self, foreign: &mut Foreign) {
        for (name, number, range) in [
            ("temperature", self.temperature, members::TEMPERATURE),
            ("top_p", self.top_p, members::TOP_P),
            ("frequency_penalty", self.frequency_penalty, members::PENALTY),
            ("presence_penalty", self.presence_penalty, members::PENALTY),
        ] {
            foreign.add_from(members::check_range(name, number, range));
        }
        foreign.add_from(members::check_limit("max_tokens", self.max_tokens));
        let limit = self.max_completion_tokens;
        foreign.add_from(members::check_limit("max_completion_tokens", limit));
        let verbosity = self.verbosity.as_deref();
        foreign.add_from(members::check_word("verbosity", verbosity, members::VERBOSITY));
    }
}

/// A seed is an integer. Some servers take larger ones than every agent can be told.
fn seed(number: Option<&Number>, foreign: &mut Foreign) -> Result<Option<i64>, DecodeError> {
    let Some(number) = number else { return Ok(None) };
    if number.is_f64() {
        return Err(DecodeError::value("seed", "must be an integer"));
    }
    if number.as_i64().is_none() {
        foreign.add(DecodeError::value("seed", format!("must be at most {}", i64::MAX)));
    }
    Ok(number.as_i64())
}

impl Message {
    fn into_message(self, n: usize, foreign: &mut Foreign) -> Result<ChatMessage, DecodeError> {
        let place = format!("messages[{n}]");
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => {
                let missing = || DecodeError::value(format!("{place}.tool_call_id"), "is missing");
                let id = self.tool_call_id.ok_or_else(missing)?;
                return self.content.into_result(id, &format!("{place}.content"), foreign);
            }
            other => {
                let what = format!("{other:?} is none: system, developer, user, assistant, tool");
                foreign.add(DecodeError::value(format!("{place}.role"), what));
                Role::User
            }
        };
        if self.role == "user" && self.content.is_empty() {
            return Err(DecodeError::value(format!("{place}.content"), "is empty"));
        }
        if self.function_call.is_some_and(|call| call.get() != "null") {
            foreign
                .add(refuse(&format!("{place}.function_call"), "what `tool_calls` has replaced"));
        }
        let mut parts = carried::of_message(self.reasoning_details.as_ref());
        parts.extend(self.content.into_parts(&format!("{place}.content"), foreign)?);
        let refusal = self.refusal.filter(|text| !text.is_empty());
        parts.extend(refusal.map(|content| Part::Text { content }));
        for (nth, call) in self.tool_calls.into_iter().flatten().enumerate() {
            let place = format!("{place}.tool_calls[{nth}]");
            parts.extend(carried::of_call(call.extra_content.as_ref()));
            parts.extend(call.into_part(&place, foreign));
        }
        Ok(ChatMessage { role, parts, name: self.name })
    }
}

impl Call {
    fn into_part(self, place: &str, foreign: &mut Foreign) -> Option<Part> {
        let (name, arguments) = match (self.function, self.custom) {
            (Some(FunctionCall { name, arguments }), _) => (name, arguments),
            (None, Some(FreeText { name, input })) => (name, parameters::free_text_call(&input)),
            (None, None) => {
                let kind = self.kind.unwrap_or_default();
                let what = format!("{kind:?} is not understood");
                foreign.add(DecodeError::value(format!("{place}.type"), what));
                return None;
            }
        };
        Some(Part::ToolCall { name, arguments: Arguments::Text(arguments), id: Some(self.id) })
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ResponseFormat, ToolChoice};
    use serde_json::{Value, json};

    use super::*;

    fn ask(body: &Value) -> Result<Ask, Fault> {
        from_chat(&body.clone().into())
    }

    #[test]
    fn a_chat_is_the_whole_conversation_with_its_tools_and_parameters() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "f",
        "arguments": "{}" } });
        let tool = json!({ "type": "function", "function": { "name": "f",
        "parameters": { "type": "object" } } });
        let asked = ask(&json!({ "model": "demo", "stream": true, "temperature": 0.5,
        "max_tokens": 5,
            "max_completion_tokens": 7, "stop": "END", "seed": 1, "top_p": 0.9,
            "parallel_tool_calls": false, "tools": [tool],
            "tool_choice": { "type": "function", "function": { "name": "f" } },
            "response_format": { "type": "json_object" }, "messages": [
                { "role": "developer", "content": "Be brief." },
                { "role": "assistant", "content": null, "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "c", "content": [{ "type": "text",
                "text": "42" }] },
                { "role": "user", "content": "Hi", "name": "ann" },
            ] }))
        .unwrap();
        let roles: Vec<Role> = asked.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::Assistant, Role::Tool, Role::User]);
        assert!(asked.is_whole && asked.session.is_empty());
        assert_eq!(
            (asked.agent.as_deref(), asked.extras.tools[0].name.as_str()),
            (Some("demo"), "f")
        );
        let parameters = &asked.extras.parameters;
        assert_eq!((parameters.temperature, parameters.max_tokens), (Some(0.5), Some(7)));
        assert_eq!(
            (parameters.top_p, parameters.seed, parameters.parallel_tool_calls),
            (Some(0.9), Some(1), Some(false))
        );
        assert_eq!(
            (parameters.stop.len(), &parameters.tool_choice),
            (1, &Some(ToolChoice::Tool("f".into())))
        );
        assert_eq!(parameters.response_format, Some(ResponseFormat::Json));
        assert_eq!(asked.wants, Wants { stream: true, background: false, usage: false });
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        let with = |name: &str, value: Value| {
            let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
            body[name] = value;
            body
        };
        for (body, place) in [
            (json!({}), "messages"),
            (json!({ "messages": [] }), "messages"),
            (with("n", json!(2)), "n"),
            (with("messages", json!([{ "role": "user" }])), "messages[0].content"),
            (
                with("messages", json!([{ "role": "tool", "content": "x" }])),
                "messages[0].tool_call_id",
            ),
            (with("messages", json!([{ "role": "user", "content": 5 }])), "messages[0].content"),
            (with("temperature", json!("hot")), "temperature"),
            (with("seed", json!(1.5)), "seed"),
            (with("store", json!("no")), "store"),
            (with("metadata", json!({ "k": 1 })), "metadata.k"),
        ] {
            let fault = ask(&body).unwrap_err();
            assert_eq!(fault.details()["path"], place, "{fault}");
        }
        let video = json!([{ "type": "video_url", "video_url": { "url": "https://a.example/v" } }]);
        for (body, place) in [
            (with("logprobs", json!(true)), "logprobs"),
            (with("top_logprobs", json!(3)), "top_logprobs"),
            (with("modalities", json!(["text", "audio"])), "modalities"),
            (with("functions", json!([{ "name": "f" }])), "functions"),
            (with("tool_choice", json!("sometimes")), "tool_choice"),
            (
                with("tools", json!([{ "type": "custom", "custom": { "name": "f" } }])),
                "tools[0].type",
            ),
            (with("response_format", json!({ "type": "xml" })), "response_format.type"),
            (with("reasoning_effort", json!("gigantic")), "reasoning_effort"),
            (with("verbosity", json!("huge")), "verbosity"),
            (with("temperature", json!(3)), "temperature"),
            (with("seed", json!(u64::MAX)), "seed"),
            (with("messages", json!([{ "role": "bard", "content": "Hi" }])), "messages[0].role"),
            (
                with("messages", json!([{ "role": "user", "content": video }])),
                "messages[0].content[0].type",
            ),
        ] {
            let asked = ask(&body).unwrap();
            let error = asked.extras.untranslatable.unwrap();
            assert_eq!(error.path(), place, "{error}");
        }
        for harmless in
            [with("n", json!(1)), with("logprobs", json!(false)), with("tools", json!(null))]
        {
            assert!(ask(&harmless).unwrap().extras.untranslatable.is_none());
        }
    }
}

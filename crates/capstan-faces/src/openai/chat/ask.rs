//! A chat request as a question.

use std::sync::Arc;

use capstan_protocol::{
    Arguments, ChatMessage, DecodeError, Dialect, Effort, Fault, Parameters, Part, RawJson,
    RawObject, Role, decode,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::content::Contents;
use super::super::parameters::{self, Format, ToolSpec, refuse};
use crate::text_or::TextOr;
use capstan_engine::ask::{Ask, Extras, invalid};

#[derive(Deserialize)]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<Message>,
    tools: Option<Vec<ToolSpec>>,
    tool_choice: Option<RawJson>,
    parallel_tool_calls: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    seed: Option<i64>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stop: TextOr<String>,
    response_format: Option<Format>,
    reasoning_effort: Option<Effort>,
    // What would change the answer's shape.
    n: Option<u64>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    modalities: Option<Vec<String>>,
    functions: Option<RawJson>,
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
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: Option<Function>,
    custom: Option<FreeText>,
}

/// A call of a tool that takes a free text.
#[derive(Deserialize)]
struct FreeText {
    name: String,
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

/// What the last chunks hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Whether a body asks for one more chunk, with the usage.
pub(super) fn wants_usage(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Options {
        stream_options: Option<StreamOptions>,
    }
    let options: Option<Options> = decode::from_str(body).ok();
    options.and_then(|options| options.stream_options?.include_usage).unwrap_or_default()
}

/// Reads a chat request.
pub(super) fn from_chat(body: &[u8]) -> Result<Ask, Fault> {
    let request: ChatRequest = decode::from_slice(body).map_err(|e| invalid(&e))?;
    let payload: RawObject = decode::from_slice(body).map_err(|e| invalid(&e))?;
    request.into_ask(payload).map_err(|e| invalid(&e))
}

impl ChatRequest {
    fn into_ask(self, payload: RawObject) -> Result<Ask, DecodeError> {
        self.check_shape()?;
        if self.messages.is_empty() {
            return Err(DecodeError::value("messages", "is empty"));
        }
        parameters::only_functions(self.tools.as_deref().unwrap_or_default())?;
        let numbered = self.messages.into_iter().enumerate();
        let messages: Result<Vec<_>, _> =
            numbered.map(|(n, message)| message.into_message(n)).collect();
        let parameters = Parameters {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: self.seed,
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            stop: parameters::stops(self.stop),
            tool_choice: parameters::tool_choice(self.tool_choice)?,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: parameters::response_format(self.response_format, "response_format")?,
            effort: self.reasoning_effort,
        };
        let extras = Extras {
            tools: parameters::tools(self.tools.unwrap_or_default())?.into(),
            parameters: Arc::new(parameters),
            payload: Arc::new(payload),
            dialect: Some(Dialect::OpenaiChat),
            ..Extras::default()
        };
        let agent = self.model.filter(|model| !model.is_empty());
        Ok(Ask {
            is_whole: true,
            agent,
            extras,
            ..Ask::new(String::new(), String::new(), messages?)
        })
    }

    fn check_shape(&self) -> Result<(), DecodeError> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(refuse("n", "more than one answer"));
        }
        if self.logprobs == Some(true) {
            return Err(refuse("logprobs", "the likelihood of words"));
        }
        if self.top_logprobs.is_some_and(|n| n > 0) {
            return Err(refuse("top_logprobs", "the likelihood of words"));
        }
        if self.modalities.as_ref().is_some_and(|all| all.iter().any(|one| one != "text")) {
            return Err(refuse("modalities", "an answer that is not text"));
        }
        for (member, name, what) in [
            (&self.functions, "functions", "what `tools` has replaced"),
            (&self.function_call, "function_call", "what `tool_choice` has replaced"),
            (&self.audio, "audio", "an answer that is not text"),
        ] {
            if member.as_ref().is_some_and(|said| said.get() != "null") {
                return Err(refuse(name, what));
            }
        }
        Ok(())
    }
}

impl Message {
    fn into_message(self, n: usize) -> Result<ChatMessage, DecodeError> {
        let place = format!("messages[{n}]");
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => {
                let missing = || DecodeError::value(format!("{place}.tool_call_id"), "is missing");
                let id = self.tool_call_id.ok_or_else(missing)?;
                return Ok(ChatMessage::tool(id, self.content.into_text()));
            }
            other => {
                let what = format!("{other:?} is none: system, developer, user, assistant, tool");
                return Err(DecodeError::value(format!("{place}.role"), what));
            }
        };
        let mut parts = self.content.into_parts(&format!("{place}.content"))?;
        parts.extend(self.tool_calls.into_iter().flatten().filter_map(Call::into_part));
        if parts.is_empty() && role == Role::User {
            return Err(DecodeError::value(format!("{place}.content"), "is empty"));
        }
        Ok(ChatMessage { role, parts, name: self.name })
    }
}

impl Call {
    fn into_part(self) -> Option<Part> {
        let (name, arguments) = match (self.function, self.custom) {
            (Some(Function { name, arguments }), _) => (name, arguments),
            (None, Some(FreeText { name, input })) => (name, parameters::free_text_call(&input)),
            (None, None) => return None,
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
        from_chat(body.to_string().as_bytes())
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
            (with("logprobs", json!(true)), "logprobs"),
            (with("top_logprobs", json!(3)), "top_logprobs"),
            (with("modalities", json!(["text", "audio"])), "modalities"),
            (with("functions", json!([])), "functions"),
            (with("tool_choice", json!("sometimes")), "tool_choice"),
            (with("tools", json!([{ "type": "custom" }])), "tools[0].type"),
            (with("response_format", json!({ "type": "xml" })), "response_format.type"),
            (with("messages", json!([{ "role": "bard", "content": "Hi" }])), "messages[0].role"),
            (with("messages", json!([{ "role": "user" }])), "messages[0].content"),
            (
                with("messages", json!([{ "role": "tool", "content": "x" }])),
                "messages[0].tool_call_id",
            ),
            (with("messages", json!([{ "role": "user", "content": 5 }])), "messages[0].content"),
            (with("temperature", json!("hot")), "temperature"),
        ] {
            let fault = ask(&body).unwrap_err();
            assert_eq!(fault.details()["path"], place, "{fault}");
        }
        for harmless in
            [with("n", json!(1)), with("logprobs", json!(false)), with("tools", json!(null))]
        {
            ask(&harmless).unwrap();
        }
    }
}

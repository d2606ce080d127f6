//! A request for a response as a question.

use std::sync::Arc;

use capstan_protocol::{
    Arguments, ChatMessage, DecodeError, Dialect, Fault, Parameters, Part, RawJson, RawObject, Role,
};
use serde::Deserialize;
use uuid::Uuid;

use super::super::content::{Contents, opened, pictures_behind_results};
use super::super::foreign::Foreign;
use super::super::members::{self, Metadata, Object, Text as AnyText};
use super::super::parameters::{self, Format, ToolSpec, refuse};
use super::{plain_items, stream_of, unknown_previous, unstored};
use crate::text_or::TextOr;
use capstan_engine::ask::{Ask, Extras, RequestBody, Wants, invalid};
use capstan_engine::interrupts;

#[derive(Deserialize)]
#[expect(dead_code, reason = "some members are only checked")]
struct ResponseRequest {
    model: Option<String>,
    input: Option<TextOr<Item>>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    conversation: Option<RawJson>,
    tools: Option<Vec<ToolSpec>>,
    tool_choice: Option<RawJson>,
    parallel_tool_calls: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    max_output_tokens: Option<u64>,
    text: Option<Text>,
    reasoning: Option<Reasoning>,
    stream: Option<bool>,
    background: Option<bool>,
    store: Option<bool>,
    max_tool_calls: Option<u64>,
    truncation: Option<String>,
    metadata: Option<Metadata>,
    prompt_cache_key: Option<AnyText>,
    safety_identifier: Option<AnyText>,
    service_tier: Option<AnyText>,
    stream_options: Option<Object>,
    user: Option<AnyText>,
    // What would change the answer's shape.
    n: Option<u64>,
    include: Option<Vec<String>>,
    top_logprobs: Option<u64>,
    prompt: Option<RawJson>,
}

#[derive(Deserialize)]
struct Text {
    format: Option<Format>,
    verbosity: Option<String>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
    summary: Option<String>,
}

/// How a model may sum up what it thought.
const SUMMARY: &[&str] = &["auto", "concise", "detailed"];
/// What a server may do with an input that is too long.
const TRUNCATION: &[&str] = &["auto", "disabled"];

/// What is said, called or brought, of whatever type: its members are the types' own.
#[derive(Deserialize)]
pub(super) struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    #[serde(default)]
    content: Contents,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    /// Whose tool is called.
    namespace: Option<String>,
    encrypted_content: Option<String>,
    #[serde(default)]
    output: Contents,
    tools: Option<Vec<ToolSpec>>,
}

/// Reads a request for a response.
pub(super) fn from_response(body: &RequestBody) -> Result<Ask, Fault> {
    let request: ResponseRequest = body.decode()?;
    let payload = body.object()?;
    let previous = request.previous()?;
    let ask = request.into_ask(payload).map_err(|e| invalid(&e))?;
    Ok(Ask { previous, ..ask })
}

impl ResponseRequest {
    /// The answer that it goes on from.
    fn previous(&self) -> Result<Option<Uuid>, Fault> {
        let Some(id) = self.previous_response_id.as_deref() else { return Ok(None) };
        stream_of(id).map(Some).ok_or_else(|| unknown_previous(id))
    }

    fn into_ask(self, payload: RawObject) -> Result<Ask, DecodeError> {
        let mut foreign = Foreign::default();
        self.check_shape()?;
        self.check_foreign(&mut foreign);
        let wants = self.wants();
        let session = conversation(self.conversation)?;
        let mut input = self.input;
        let more_tools = tools_among(&mut input);
        let (messages, answers) = interrupts::take_answers(messages(input, &mut foreign)?);
        let format = self.text.and_then(|text| text.format);
        let parameters = Parameters {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: None,
            max_tokens: self.max_output_tokens,
            stop: Vec::new(),
            tool_choice: parameters::tool_choice(self.tool_choice, &mut foreign)?,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: parameters::response_format(format, "text.format", &mut foreign)?,
            effort: parameters::effort(
                self.reasoning.and_then(|reasoning| reasoning.effort),
                "reasoning.effort",
                &mut foreign,
            ),
        };
        let specs = self.tools.into_iter().chain(more_tools).flatten().collect();
        let is_abridged = plain_items::says_more(&payload);
        let extras = Extras {
            tools: parameters::tools(specs)?.into(),
            parameters: Arc::new(parameters),
            instructions: self.instructions.map(ChatMessage::system).map(Arc::new),
            answers,
            payload: Arc::new(payload),
            dialect: Some(Dialect::OpenaiResponses),
            untranslatable: foreign.into_first(),
            is_abridged,
            ..Extras::default()
        };
        let agent = self.model.filter(|model| !model.is_empty());
        let chat = (self.store == Some(false)).then(|| unstored::NAME.to_owned());
        Ok(Ask {
            agent,
            chat,
            wants,
            extras,
            ..Ask::new(String::new(), session.unwrap_or_default(), messages)
        })
    }

    fn check_shape(&self) -> Result<(), DecodeError> {
        if self.n.is_some_and(|n| n > 1) {
            return Err(refuse("n", "more than one answer"));
        }
        if self.background == Some(true) && self.store == Some(false) {
            return Err(DecodeError::value(
                "background",
                "needs `store`: nobody could fetch the answer",
            ));
        }
        if self.conversation.as_ref().is_some_and(|one| one.get() != "null")
            && self.previous_response_id.is_some()
        {
            return Err(DecodeError::value(
                "conversation",
                "cannot go with `previous_response_id`",
            ));
        }
        Ok(())
    }
}

impl ResponseRequest {
    /// Adds what only an agent of Responses can judge: the bounds and words of members, and what
    /// other agents cannot honour.
    fn check_foreign(&self, foreign: &mut Foreign) {
        if self.top_logprobs.is_some_and(|n| n > 0) {
            foreign.add(refuse("top_logprobs", "the likelihood of words"));
        }
        if self.include.iter().flatten().any(|name| name.ends_with(".logprobs")) {
            foreign.add(refuse("include", "the likelihood of words"));
        }
        if self.prompt.as_ref().is_some_and(|prompt| prompt.get() != "null") {
            foreign.add(refuse("prompt", "a prompt that is stored elsewhere"));
        }
        let verbosity = self.text.as_ref().and_then(|text| text.verbosity.as_deref());
        let summary = self.reasoning.as_ref().and_then(|reasoning| reasoning.summary.as_deref());
        for (place, word, known) in [
            ("text.verbosity", verbosity, members::VERBOSITY),
            ("reasoning.summary", summary, SUMMARY),
            ("truncation", self.truncation.as_deref(), TRUNCATION),
        ] {
            foreign.add_from(members::check_word(place, word, known));
        }
        for (place, number, range) in [
            ("temperature", self.temperature, members::TEMPERATURE),
            ("top_p", self.top_p, members::TOP_P),
        ] {
            foreign.add_from(members::check_range(place, number, range));
        }
        foreign.add_from(members::check_limit("max_output_tokens", self.max_output_tokens));
        foreign.add_from(members::check_limit("max_tool_calls", self.max_tool_calls));
    }

    fn wants(&self) -> Wants {
        Wants {
            stream: self.stream.unwrap_or_default(),
            background: self.background.unwrap_or_default(),
            usage: true,
        }
    }
}

/// The session: an id, or an object that has one.
fn conversation(raw: Option<RawJson>) -> Result<Option<String>, DecodeError> {
    #[derive(Deserialize)]
    struct Object {
        id: String,
    }
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let id = raw.decode::<String>().or_else(|_| raw.decode::<Object>().map(|object| object.id));
    let id = id.ok().filter(|id| !id.is_empty());
    id.map(Some)
        .ok_or_else(|| DecodeError::value("conversation", "must be an id, or an object with one"))
}

/// Tools that stand among the items.
fn tools_among(input: &mut Option<TextOr<Item>>) -> Vec<Vec<ToolSpec>> {
    match input {
        Some(TextOr::Many(items)) => {
            items.iter_mut().filter_map(|item| item.tools.take()).collect()
        }
        Some(TextOr::Text(_)) | None => Vec::new(),
    }
}

/// What is said.
fn messages(
    input: Option<TextOr<Item>>,
    foreign: &mut Foreign,
) -> Result<Vec<ChatMessage>, DecodeError> {
    let items = match input {
        Some(TextOr::Text(text)) => return Ok(vec![ChatMessage::user(text)]),
        Some(TextOr::Many(items)) if !items.is_empty() => items,
        _ => return Err(DecodeError::value("input", "is missing or empty")),
    };
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(items.len());
    for (n, item) in items.into_iter().enumerate() {
        if let Some(message) = item.into_message(n, foreign)? {
            append(&mut messages, message);
        }
    }
    Ok(pictures_behind_results(messages))
}

/// Appends a message. A text and the calls after it are one message to an agent.
pub(super) fn append(messages: &mut Vec<ChatMessage>, message: ChatMessage) {
    match messages.last_mut() {
        Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
            last.parts.extend(message.parts);
        }
        _ => messages.push(message),
    }
}

impl Item {
    /// Whether it is a question of a run's own, told as a call, or the output of one.
    pub(super) fn is_about_question(&self) -> bool {
        let is_call =
            matches!(self.kind.as_deref(), Some("function_call" | "function_call_output"));
        is_call && self.call_id.as_deref().is_some_and(|id| interrupts::stream_of(id).is_some())
    }

    /// As every agent can be told it; nothing if only an agent of the same protocol can.
    pub(super) fn into_message(
        self,
        n: usize,
        foreign: &mut Foreign,
    ) -> Result<Option<ChatMessage>, DecodeError> {
        let place = |member: &str| format!("input[{n}].{member}");
        let missing = |member: &str| DecodeError::value(place(member), "is missing");
        let message = match self.kind.as_deref().unwrap_or("message") {
            "message" => {
                let role = match self.role.as_deref() {
                    Some("system" | "developer") => Role::System,
                    Some("user") => Role::User,
                    Some("assistant") => Role::Assistant,
                    role => {
                        let what = "must be system, developer, user or assistant";
                        let wrong = DecodeError::value(place("role"), what);
                        if role.is_none() {
                            return Err(wrong);
                        }
                        foreign.add(wrong);
                        Role::User
                    }
                };
                let is_empty = self.content.is_empty();
                let parts = self.content.into_parts(&place("content"), foreign)?;
                if is_empty && self.role.as_deref() == Some("user") {
                    return Err(DecodeError::value(place("content"), "is empty"));
                }
                ChatMessage { role, parts, name: None }
            }
            kind @ ("function_call" | "custom_tool_call") => {
                let arguments = match kind {
                    "function_call" => self.arguments.unwrap_or_default(),
                    _ => parameters::free_text_call(&self.input.unwrap_or_default()),
                };
                let name = self.name.ok_or_else(|| missing("name"))?;
                let call = Part::ToolCall {
                    name: parameters::name_within(self.namespace.as_deref(), &name),
                    arguments: Arguments::Text(arguments),
                    id: Some(self.call_id.ok_or_else(|| missing("call_id"))?),
                };
                ChatMessage { role: Role::Assistant, parts: vec![call], name: None }
            }
            "function_call_output" | "custom_tool_call_output" => {
                let id = self.call_id.ok_or_else(|| missing("call_id"))?;
                self.output.into_result(id, &place("output"), foreign)?
            }
            "item_reference" => {
                // Those that were found stand in the request by now.
                return Err(DecodeError::value(place("id"), "names no item that is kept"));
            }
            // What only a model of OpenAI understands: it reaches one as it came.
            _ => {
                let parts = opened(self.encrypted_content.as_deref());
                if parts.is_empty() {
                    return Ok(None);
                }
                ChatMessage { role: Role::Assistant, parts, name: None }
            }
        };
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(body: &Value) -> Result<Ask, Fault> {
        from_response(&body.clone().into())
    }

    #[test]
    fn items_become_messages_and_instructions_stand_beside_them() {
        let asked = ask(&json!({ "model": "demo", "instructions": "Be brief.",
        "conversation": { "id": "s" },
            "max_output_tokens": 9, "reasoning": { "effort": "low" }, "input": [
                { "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] },
                { "type": "reasoning", "id": "rs_1", "summary": [] },
                { "type": "message", "role": "assistant", "content": [{ "type": "output_text",
                "text": "Wait." }] },
                { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
                { "type": "function_call_output", "call_id": "c", "output": "42" },
            ] }))
        .unwrap();
        let roles: Vec<(Role, usize)> =
            asked.messages.iter().map(|m| (m.role, m.parts.len())).collect();
        assert_eq!(roles, [(Role::User, 1), (Role::Assistant, 2), (Role::Tool, 1)]);
        assert_eq!((asked.session.as_str(), asked.is_whole), ("s", false));
        assert_eq!(asked.extras.instructions.unwrap().text(), "Be brief.");
        assert_eq!(asked.extras.parameters.max_tokens, Some(9));
        assert_eq!(ask(&json!({ "input": "Hi" })).unwrap().messages.turn[0].text(), "Hi");
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        let with = |name: &str, value: Value| {
            let mut body = json!({ "input": "Hi" });
            body[name] = value;
            body
        };
        for (body, place) in [
            (json!({}), "input"),
            (with("input", json!([])), "input"),
            (with("input", json!([{ "role": "user", "content": [] }])), "input[0].content"),
            (with("input", json!([{ "type": "item_reference", "id": "msg_1" }])), "input[0].id"),
            (
                with("input", json!([{ "type": "function_call_output", "output": "x" }])),
                "input[0].call_id",
            ),
            (with("n", json!(2)), "n"),
            (with("conversation", json!(5)), "conversation"),
            (with("previous_response_id", json!("resp_x")), "previous_response_id"),
        ] {
            let fault = ask(&body).unwrap_err();
            assert_eq!(fault.details()["path"], place, "{fault}");
        }
        for (body, place) in [
            (with("input", json!([{ "role": "bard", "content": "x" }])), "input[0].role"),
            (
                with("input", json!([{ "role": "user", "content": [{ "type": "song" }] }])),
                "input[0].content[0].type",
            ),
            (with("include", json!(["message.output_text.logprobs"])), "include"),
            (with("top_logprobs", json!(3)), "top_logprobs"),
            (with("prompt", json!({ "id": "p" })), "prompt"),
            (with("text", json!({ "format": { "type": "xml" } })), "text.format.type"),
            (with("text", json!({ "verbosity": "huge" })), "text.verbosity"),
            (with("reasoning", json!({ "effort": "gigantic" })), "reasoning.effort"),
            (with("tool_choice", json!("sometimes")), "tool_choice"),
            (with("truncation", json!("some")), "truncation"),
            (with("temperature", json!(3)), "temperature"),
        ] {
            let error = ask(&body).unwrap().extras.untranslatable.unwrap();
            assert_eq!(error.path(), place, "{error}");
        }
        assert!(ask(&json!({ "input": "Hi" })).unwrap().extras.untranslatable.is_none());
        let both = json!({ "input": "Hi", "background": true, "store": false });
        assert_eq!(ask(&both).unwrap_err().details()["path"], "background");
    }
}

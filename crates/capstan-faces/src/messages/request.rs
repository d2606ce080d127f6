//! Decodes a request. An agent of this protocol gets its body unchanged; for other agents it is
//! translated.

use std::sync::Arc;

use bytes::Bytes;
use capstan_protocol::{
    ChatMessage, DecodeError, Dialect, Fault, Parameters, RawJson, RawObject, decode,
};
use http::HeaderMap;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::content::{Contents, Message, Reader, text_of};
use super::parameters::{Format, OutputConfig};
use super::tools::{Choice, ToolSpec, tools};
use capstan_engine::ask::{Ask, Extras, invalid};
use capstan_engine::interrupts;

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    messages: Vec<Message>,
    system: Option<Contents>,
    tools: Option<Vec<ToolSpec>>,
    tool_choice: Option<Choice>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    stop_sequences: Option<Vec<String>>,
    output_config: Option<OutputConfig>,
    output_format: Option<Format>,
    mcp_servers: Option<RawJson>,
    container: Option<RawJson>,
}

/// Whether the answer is a stream. It is stored in the extensions of the request's head.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Wants {
    stream: Option<bool>,
}

impl Wants {
    pub(super) fn of(parts: &Parts) -> Self {
        parts.extensions.get().copied().unwrap_or_default()
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, Fault> {
        decode::from_slice(body).map_err(|error| invalid(&error))
    }

    pub(super) fn is_stream(self) -> bool {
        self.stream == Some(true)
    }
}

/// Decodes a request.
pub(super) fn from_body(body: &[u8]) -> Result<Ask, Fault> {
    let payload: RawObject = decode::from_slice(body).map_err(|error| invalid(&error))?;
    let request: Body = decode::from_slice(body).map_err(|error| invalid(&error))?;
    request.into_ask(payload, Reader::Any).map_err(|error| invalid(&error))
}

/// Refuses a request that cannot be translated for an agent of another protocol.
pub(super) fn check_translation(payload: &RawObject) -> Result<(), Fault> {
    let request: Result<Body, _> = payload.decode();
    let read = request.and_then(|request| request.into_ask(payload.clone(), Reader::Other));
    read.map(drop).map_err(|error| invalid(&error))
}

impl Body {
    fn into_ask(self, payload: RawObject, reader: Reader) -> Result<Ask, DecodeError> {
        if self.messages.is_empty() {
            return Err(DecodeError::value("messages", "is empty"));
        }
        if reader == Reader::Other {
            only_anthropic("mcp_servers", self.mcp_servers.as_ref())?;
            only_anthropic("container", self.container.as_ref())?;
        }
        let mut messages = Vec::new();
        if let Some(system) = self.system {
            let text = text_of(system, "system")?;
            messages.extend((!text.is_empty()).then(|| ChatMessage::system(text)));
        }
        for (n, message) in self.messages.into_iter().enumerate() {
            messages.extend(message.into_messages(n, reader)?);
        }
        let (messages, answers) = interrupts::take_answers(messages);
        let parallel_tool_calls = self.tool_choice.as_ref().and_then(Choice::parallel);
        let tool_choice = self.tool_choice.map(|choice| choice.into_choice(reader)).transpose()?;
        let output = self.output_config.unwrap_or_default();
        let effort = output.effort(reader)?;
        let response_format = match self.output_format {
            Some(format) => format.into_format(reader)?,
            None => output.into_format(reader)?,
        };
        let parameters = Parameters {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: None,
            max_tokens: self.max_tokens,
            stop: self.stop_sequences.unwrap_or_default(),
            tool_choice: tool_choice.flatten(),
            parallel_tool_calls,
            response_format,
            effort,
        };
        let extras = Extras {
            tools: tools(self.tools.unwrap_or_default(), reader)?.into(),
            parameters: Arc::new(parameters),
            answers,
            payload: Arc::new(payload),
            dialect: Some(Dialect::AnthropicMessages),
            ..Extras::default()
        };
        let agent = self.model.filter(|model| !model.is_empty());
        Ok(Ask {
            is_whole: true,
            agent,
            extras,
            ..Ask::new(String::new(), String::new(), messages)
        })
    }
}

fn only_anthropic(place: &str, value: Option<&RawJson>) -> Result<(), DecodeError> {
    match value.map(RawJson::get) {
        None | Some("null" | "[]" | "{}") => Ok(()),
        Some(_) => {
            let what = "is understood by agents of kind `anthropic` alone";
            Err(DecodeError::value(place, what))
        }
    }
}

/// Copies headers that the provider needs into the body, under the names that other hosts of the
/// protocol use. The headers of a request are not stored with its run, and an attempt after a crash
/// must send the same.
pub(super) fn with_head(body: &Bytes, headers: &HeaderMap) -> Bytes {
    let mut members = Map::new();
    let lines = |name: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        let items = values.flat_map(|value| value.split(',')).map(str::trim);
        items.filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    if let Some(version) = lines("anthropic-version").into_iter().next() {
        members.insert(VERSION.into(), version.into());
    }
    let betas = lines("anthropic-beta");
    if !betas.is_empty() {
        members.insert(BETA.into(), json!(betas));
    }
    spliced(body, members).unwrap_or_else(|| body.clone())
}

/// The member for `anthropic-version`.
const VERSION: &str = "anthropic_version";
/// The member for `anthropic-beta`, a list.
const BETA: &str = "anthropic_beta";

/// Puts members before an object's own. Of equal names the object's own count.
fn spliced(body: &Bytes, members: Map<String, Value>) -> Option<Bytes> {
    let rest = body.trim_ascii_start().strip_prefix(b"{")?;
    if members.is_empty() || !rest.trim_ascii_start().starts_with(b"\"") {
        return None;
    }
    let head = Value::Object(members).to_string();
    let head = head.strip_suffix('}')?.as_bytes();
    Some([head, b",", rest].concat().into())
}

/// The meaning of a body: without the members that a client changes when it repeats a request.
/// These are marks of caches, `stream`, `max_tokens`, texts as lists, and blanks at the end of
/// texts.
pub(super) fn meaning(body: &Value) -> Option<Map<String, Value>> {
    let mut members = body.as_object()?.clone();
    for name in ["stream", "max_tokens", "cache_control"] {
        members.remove(name);
    }
    for name in ["system", "tools"] {
        members.get_mut(name).into_iter().for_each(plain);
    }
    let messages = members.get_mut("messages").and_then(Value::as_array_mut);
    for content in messages.into_iter().flatten().filter_map(|message| message.get_mut("content")) {
        plain(content);
    }
    Some(members)
}

/// Removes marks of caches, and blanks at the end of texts, from a list of blocks or tools.
fn plain(list: &mut Value) {
    if let Value::String(text) = list {
        *list = json!([{ "type": "text", "text": text }]);
    }
    for block in list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        block.remove("cache_control");
        if let Some(Value::String(text)) = block.get_mut("text") {
            text.truncate(text.trim_end().len());
        }
        if block.get("type").is_some_and(|kind| kind == "tool_result") {
            block.get_mut("content").into_iter().for_each(plain);
        }
    }
}

//! Decodes a request. An agent of this protocol gets its body unchanged; for other agents it is
//! translated.

use std::sync::Arc;

use capstan_protocol::{ChatMessage, DecodeError, Dialect, Fault, Parameters, RawJson, RawObject};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, json};

use super::content::{Contents, Message, Reader, text_of};
use super::parameters::{Format, OutputConfig};
use super::tools::{Choice, ToolSpec, tools};
use crate::head_members::items;
use capstan_engine::ask::{Ask, Extras, RequestBody, Wants, invalid};
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
    stream: Option<bool>,
}

/// Decodes a request.
pub(super) fn from_body(body: &RequestBody) -> Result<Ask, Fault> {
    let request: Body = body.decode()?;
    request.into_ask(body.object()?, Reader::Any).map_err(|error| invalid(&error))
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
        let wants = Wants { stream: self.stream == Some(true), ..Wants::default() };
        Ok(Ask {
            is_whole: true,
            agent,
            wants,
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
pub(super) fn with_head(body: &RequestBody, headers: &HeaderMap) -> RequestBody {
    let mut members = Map::new();
    if let Some(version) = items(headers, "anthropic-version").into_iter().next() {
        members.insert(VERSION.into(), version.into());
    }
    let betas = items(headers, "anthropic-beta");
    if !betas.is_empty() {
        members.insert(BETA.into(), json!(betas));
    }
    body.with_members(members)
}

/// The member for `anthropic-version`.
const VERSION: &str = "anthropic_version";
/// The member for `anthropic-beta`, a list.
const BETA: &str = "anthropic_beta";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_body_says_how_its_client_wants_the_answer() {
        let ask = |stream: Value| {
            let messages = json!([{ "role": "user", "content": "Hi" }]);
            from_body(&json!({ "messages": messages, "stream": stream }).into())
        };
        assert!(ask(json!(true)).unwrap().wants.stream);
        assert!(ask(json!(null)).unwrap().wants.is_collected());
        assert_eq!(ask(json!("yes")).unwrap_err().details()["path"], "stream");
    }
}

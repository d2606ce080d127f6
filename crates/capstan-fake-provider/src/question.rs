//! The content of a request, in any of the protocols.

use serde_json::Value;

/// A request's body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Question {
    pub(crate) model: String,
    pub(crate) is_stream: bool,
    /// The text that the assistant must continue: the last message, if it is the assistant's.
    pub(crate) prefill: Option<String>,
    pub(crate) prompt_tokens: usize,
    /// The text of the user's last message.
    pub(crate) user: String,
    /// Results of tools that came after it.
    pub(crate) tool_results: usize,
    /// Tool calls of the conversation so far.
    pub(crate) tool_calls: usize,
    /// The names of the tools that it offers.
    pub(crate) tools: Vec<String>,
    /// Whether reasoning must come back encrypted.
    pub(crate) wants_encrypted: bool,
    /// Whether a part of the prompt is marked for the cache.
    pub(crate) marks_cache: bool,
}

impl Question {
    pub(crate) fn parse(body: &Value) -> Self {
        let messages = [body.get("messages"), body.get("input")]
            .into_iter()
            .flatten()
            .find_map(Value::as_array);
        let messages = messages.map(Vec::as_slice).unwrap_or_default();
        let last = messages.last().filter(|last| role(last) == "assistant");
        let words = |message: &Value| text_of(message.get("content")).split_whitespace().count();
        let mut question = Self {
            model: body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned(),
            is_stream: body.get("stream").is_some_and(|stream| stream == true),
            prefill: last.map(|last| text_of(last.get("content"))),
            prompt_tokens: messages.iter().map(words).sum::<usize>().max(1),
            user: body.get("input").and_then(Value::as_str).unwrap_or_default().to_owned(),
            tools: tools(body.get("tools")),
            wants_encrypted: list(body.get("include"))
                .iter()
                .any(|member| member == "reasoning.encrypted_content"),
            marks_cache: marks_cache(body),
            ..Self::default()
        };
        for message in messages {
            question.read(message);
        }
        question
    }

    fn read(&mut self, message: &Value) {
        let blocks = list(message.get("content"));
        let of_type = |kinds: &[&str]| blocks.iter().filter(|block| is(block, kinds)).count();
        let is_result = role(message) == "tool" || is(message, &RESULTS);
        let results = of_type(&["tool_result"]) + usize::from(is_result);
        self.tool_calls += of_type(&["tool_use"])
            + list(message.get("tool_calls")).len()
            + usize::from(is(message, &CALLS));
        self.tool_results += results;
        let text = text_of(message.get("content"));
        if role(message) == "user" && results == 0 && !text.is_empty() {
            (self.user, self.tool_results) = (text, 0);
        }
    }
}

/// Items of Responses that call a tool, and those that bring its result.
const CALLS: [&str; 2] = ["function_call", "custom_tool_call"];
const RESULTS: [&str; 2] = ["function_call_output", "custom_tool_call_output"];

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn is(value: &Value, kinds: &[&str]) -> bool {
    value.get("type").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind))
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The names of tools, those of a namespace included.
fn tools(tools: Option<&Value>) -> Vec<String> {
    let name = |tool: &Value| {
        let name = tool.get("name").or_else(|| tool.pointer("/function/name"));
        name.or_else(|| tool.pointer("/custom/name")).and_then(Value::as_str).map(str::to_owned)
    };
    let own = |tool: &Value| [name(tool).into_iter().collect(), self::tools(tool.get("tools"))];
    list(tools).iter().flat_map(own).flatten().collect()
}

/// Whether there is a marker of Anthropic's prompt cache anywhere.
fn marks_cache(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(marks_cache),
        Value::Object(members) => {
            members.get("cache_control").is_some_and(|marker| !marker.is_null())
                || members.values().any(marks_cache)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A content's text: a string, or blocks.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_with_tools_reads_the_same_in_every_shape() {
        let chat = json!({
            "tools": [{ "type": "function", "function": { "name": "Write" } }],
            "messages": [
                { "role": "system", "content": "Be kind." },
                { "role": "user", "content": "Go" },
                { "role": "assistant", "tool_calls": [{ "id": "call_1" }] },
                { "role": "tool", "tool_call_id": "call_1", "content": "done" },
            ],
        });
        let responses = json!({
            "tools": [{ "type": "namespace", "tools": [{ "type": "custom", "name": "Write" }] }],
            "input": [
                { "role": "user", "content": [{ "type": "input_text", "text": "Go" }] },
                { "type": "custom_tool_call", "call_id": "call_1" },
                { "type": "custom_tool_call_output", "call_id": "call_1", "output": "done" },
            ],
        });
        let messages = json!({
            "tools": [{ "name": "Write" }],
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "Go" }] },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "call_1" }] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "call_1", "content": "done" },
                    { "type": "text", "text": "<reminder>" },
                ] },
            ],
        });
        for body in [chat, responses, messages] {
            let question = Question::parse(&body);
            assert_eq!((question.user.as_str(), question.tool_results), ("Go", 1), "{body}");
            assert_eq!(question.tool_calls, 1, "{body}");
            assert!(question.tools.contains(&"Write".to_owned()), "{body}");
        }
        assert_eq!(Question::parse(&json!({ "input": "Go" })).user, "Go");
    }
}

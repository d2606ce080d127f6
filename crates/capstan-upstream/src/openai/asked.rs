//! The request's tools and parameters as members of a chat request.

use capstan_agent::{Tool, Turn};
use capstan_protocol::{Effort, RawJson, ResponseFormat, ToolChoice};
use serde_json::{Map, Value, json};

use crate::provider::{Asked, TokenLimit};
use crate::request_body::raw;

pub(super) fn of(turn: &Turn) -> Asked {
    let asked = &turn.parameters;
    let mut members = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        members.extend(value.map(|value| (name.to_owned(), value)))
    };
    set("temperature", asked.temperature.map(Value::from));
    set("top_p", asked.top_p.map(Value::from));
    set("seed", asked.seed.map(Value::from));
    set("stop", (!asked.stop.is_empty()).then(|| asked.stop.clone().into()));
    set("tool_choice", asked.tool_choice.as_ref().map(choice));
    // OpenAI refuses it where there are no tools.
    set(
        "parallel_tool_calls",
        asked.parallel_tool_calls.filter(|_| !turn.tools.is_empty()).map(Value::from),
    );
    set("response_format", asked.response_format.as_ref().map(format));
    set("reasoning_effort", asked.effort.map(|effort| effort_word(effort).into()));
    Asked {
        tools: turn.tools.iter().map(tool).map(|tool| raw(&tool)).collect(),
        // Every server of this protocol reads the older name, but for OpenAI's newer models. Ollama
        // and others ignore the newer one, so that nothing limits the answer. Presets rename it.
        max_tokens: asked.max_tokens.map(|value| TokenLimit { name: "max_tokens", value }),
        members: Value::Object(members).into(),
    }
}

fn tool(tool: &Tool) -> Value {
    let schema =
        tool.parameters.as_ref().map_or_else(|| json!({ "type": "object" }), RawJson::to_value);
    let mut function = Map::new();
    function.insert("name".into(), tool.name.as_str().into());
    function.insert("description".into(), tool.description.as_str().into());
    function.insert("parameters".into(), schema);
    function.extend(tool.strict.map(|strict| ("strict".to_owned(), strict.into())));
    json!({ "type": "function", "function": function })
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => json!({ "type": "function", "function": { "name": name } }),
    }
}

fn format(format: &ResponseFormat) -> Value {
    match format {
        ResponseFormat::Text => json!({ "type": "text" }),
        ResponseFormat::Json => json!({ "type": "json_object" }),
        ResponseFormat::JsonSchema(form) => json!({ "type": "json_schema",
            "json_schema": { "name": form.name, "schema": form.schema, "strict": form.strict } }),
    }
}

pub(super) fn effort_word(effort: Effort) -> &'static str {
    match effort {
        Effort::None => "none",
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::XHigh | Effort::Max => "xhigh",
    }
}

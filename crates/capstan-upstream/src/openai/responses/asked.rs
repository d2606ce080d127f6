//! The request's tools and parameters as members of Responses.

use capstan_agent::{Tool, Turn};
use capstan_protocol::{RawJson, ResponseFormat, ToolChoice};
use serde_json::{Map, Value, json};

use crate::fates;
use crate::openai::asked::effort_word;
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
    set("parallel_tool_calls", asked.parallel_tool_calls.map(Value::from));
    set("tool_choice", asked.tool_choice.as_ref().map(choice));
    set("text", text(asked.response_format.as_ref(), fates::verbosity_of(turn)));
    set("reasoning", asked.effort.map(|effort| json!({ "effort": effort_word(effort) })));
    Asked {
        tools: turn.tools.iter().map(tool).map(|tool| raw(&tool)).collect(),
        max_tokens: asked.max_tokens.map(|value| TokenLimit { name: "max_output_tokens", value }),
        members: Value::Object(members).into(),
    }
}

fn tool(tool: &Tool) -> Value {
    let schema =
        tool.parameters.as_ref().map_or_else(|| json!({ "type": "object" }), RawJson::to_value);
    // Strict is the default of Responses, and refuses most schemas that others take.
    json!({ "type": "function", "name": tool.name, "description": tool.description,
    "parameters": schema, "strict": tool.strict.unwrap_or(false) })
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Tool(name) => json!({ "type": "function", "name": name }),
    }
}

/// What the answer looks like, and how long it is.
fn text(form: Option<&ResponseFormat>, verbosity: Option<String>) -> Option<Value> {
    let mut text = Map::new();
    text.extend(form.map(|form| ("format".to_owned(), format(form))));
    text.extend(verbosity.map(|word| ("verbosity".to_owned(), word.into())));
    (!text.is_empty()).then(|| text.into())
}

fn format(format: &ResponseFormat) -> Value {
    match format {
        ResponseFormat::Text => json!({ "type": "text" }),
        ResponseFormat::Json => json!({ "type": "json_object" }),
        ResponseFormat::JsonSchema(form) => {
            json!({ "type": "json_schema", "name": form.name, "schema": form.schema,
            "strict": form.strict })
        }
    }
}

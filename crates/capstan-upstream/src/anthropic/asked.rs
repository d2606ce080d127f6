//! Translates the request's tools and parameters to Messages.

use capstan_agent::{Tool, Turn};
use capstan_protocol::{Effort, Fault, RawJson, ResponseFormat, ToolChoice};
use serde_json::{Map, Value, json};

use crate::parts::refused_parameter;
use crate::provider::{Asked, TokenLimit};
use crate::request_body::raw;

pub(super) fn of(turn: &Turn) -> Result<Asked, Fault> {
    let asked = &turn.parameters;
    let mut members = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        members.extend(value.map(|value| (name.to_owned(), value)))
    };
    set("temperature", asked.temperature.map(Value::from));
    set("top_p", asked.top_p.map(Value::from));
    set("stop_sequences", (!asked.stop.is_empty()).then(|| asked.stop.clone().into()));
    set("tool_choice", tool_choice(turn));
    set("output_config", output(asked.effort, asked.response_format.as_ref())?);
    Ok(Asked {
        tools: turn.tools.iter().map(tool).map(|tool| raw(&tool)).collect(),
        max_tokens: asked.max_tokens.map(|value| TokenLimit { name: "max_tokens", value }),
        members: Value::Object(members).into(),
    })
}

fn tool(tool: &Tool) -> Value {
    let schema =
        tool.parameters.as_ref().map_or_else(|| json!({ "type": "object" }), RawJson::to_value);
    let mut members = Map::new();
    members.insert("name".into(), tool.name.as_str().into());
    members.insert("description".into(), tool.description.as_str().into());
    members.insert("input_schema".into(), schema);
    members.extend(tool.strict.map(|strict| ("strict".to_owned(), strict.into())));
    members.into()
}

/// Returns the tool choice. It includes whether the model may make several calls at once.
fn tool_choice(turn: &Turn) -> Option<Value> {
    let asked = &turn.parameters;
    let is_one = asked.parallel_tool_calls == Some(false) && !turn.tools.is_empty();
    let mut chosen =
        asked.tool_choice.as_ref().or(is_one.then_some(&ToolChoice::Auto)).map(choice)?;
    if let (true, Some(chosen)) =
        (is_one && asked.tool_choice != Some(ToolChoice::None), chosen.as_object_mut())
    {
        chosen.insert("disable_parallel_tool_use".into(), true.into());
    }
    Some(chosen)
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({ "type": "auto" }),
        ToolChoice::None => json!({ "type": "none" }),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::Tool(name) => json!({ "type": "tool", "name": name }),
    }
}

fn output(effort: Option<Effort>, format: Option<&ResponseFormat>) -> Result<Option<Value>, Fault> {
    let mut config = Map::new();
    if let Some(effort) = effort {
        config.insert("effort".into(), effort_word(effort).into());
    }
    match format {
        Some(ResponseFormat::JsonSchema(form)) => {
            config.insert("format".into(), json!({ "type": "json_schema", "schema": form.schema }));
        }
        Some(ResponseFormat::Json) => {
            return Err(refused_parameter(
                "response_format",
                "this agent writes JSON by a json_schema only",
            ));
        }
        Some(ResponseFormat::Text) | None => {}
    }
    Ok((!config.is_empty()).then(|| config.into()))
}

pub(super) fn effort_word(effort: Effort) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::XHigh => "xhigh",
        Effort::Max => "max",
    }
}

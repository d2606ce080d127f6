//! Tools and parameters of both APIs, for agents of any protocol.

use capstan_agent::Work;
use capstan_protocol::agui::Tool;
use capstan_protocol::{
    AnswerSchema, DecodeError, Effort, Fault, Parameters, RawJson, RawObject, ResponseFormat,
    ToolChoice,
};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde_json::json;

use super::foreign::Foreign;
use crate::face::FaceContext;
use crate::text_or::TextOr;
use capstan_engine::ask::{Ask, invalid};

/// A tool. Its members are in an object named like its type in Chat, and beside `type` in
/// Responses.
#[derive(Debug, Deserialize)]
pub(super) struct ToolSpec {
    #[serde(rename = "type")]
    kind: String,
    function: Option<Function>,
    custom: Option<Custom>,
    name: Option<String>,
    description: Option<String>,
    parameters: Option<RawObject>,
    strict: Option<bool>,
    format: Option<RawJson>,
    /// The tools of a namespace.
    tools: Option<Vec<ToolSpec>>,
}

/// A tool as the request has it.
#[derive(Debug, Clone, Default)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// The input is a text and not an object.
    pub(super) is_free_text: bool,
}

impl ToolSpec {
    /// Whether the tool takes a free text.
    pub(super) fn is_custom(&self) -> bool {
        self.kind == "custom"
    }

    /// Converts a function of the older member `functions`.
    pub(super) fn of_function(function: Function) -> Self {
        Self {
            kind: "function".into(),
            function: Some(function),
            custom: None,
            name: None,
            description: None,
            parameters: None,
            strict: None,
            format: None,
            tools: None,
        }
    }

    /// The names under which an agent knows the tool, and the tool as the request has it.
    pub(super) fn offered(self) -> Vec<(String, OfferedTool)> {
        let is_free_text = self.kind == "custom";
        let inside = self.function.map(|function| function.name);
        let name = inside.or(self.custom.map(|custom| custom.name)).or(self.name);
        let name = name.unwrap_or_default();
        match self.kind.as_str() {
            "function" | "custom" => {
                vec![(name.clone(), OfferedTool { name, namespace: None, is_free_text })]
            }
            "namespace" => {
                let inner = self.tools.into_iter().flatten().flat_map(Self::offered);
                let within = |(own, tool): (String, OfferedTool)| {
                    let tool = OfferedTool { namespace: Some(name.clone()), ..tool };
                    (name_within(Some(&name), &own), tool)
                };
                inner.map(within).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A tool that takes a free text.
#[derive(Debug, Deserialize)]
struct Custom {
    name: String,
    description: Option<String>,
    format: Option<RawJson>,
}

/// The parameter of the function that replaces a tool of free text.
pub(super) const INPUT: &str = "input";
/// The separator between a namespace and the name of a tool in it.
const IN: &str = "__";

/// A function that the caller offers.
#[derive(Debug, Deserialize)]
pub(super) struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<RawObject>,
    strict: Option<bool>,
}

/// The client's tools for any agent. A provider's own tools are left out: agents of the request's
/// protocol get them with the request.
pub(super) fn tools(specs: Vec<ToolSpec>) -> Result<Vec<Tool>, DecodeError> {
    let mut tools = Vec::with_capacity(specs.len());
    for (n, spec) in specs.into_iter().enumerate() {
        add_tool(&format!("tools[{n}]"), spec, &mut tools)?;
    }
    Ok(tools)
}

fn add_tool(place: &str, spec: ToolSpec, tools: &mut Vec<Tool>) -> Result<(), DecodeError> {
    match spec.kind.as_str() {
        "function" => tools.push(function(place, spec)?),
        "custom" => tools.push(free_text(place, spec)?),
        "namespace" => {
            let namespace = spec
                .name
                .ok_or_else(|| DecodeError::value(format!("{place}.name"), "is missing"))?;
            let before = tools.len();
            for (n, spec) in spec.tools.unwrap_or_default().into_iter().enumerate() {
                add_tool(&format!("{place}.tools[{n}]"), spec, tools)?;
            }
            for tool in tools.iter_mut().skip(before) {
                tool.name = name_within(Some(&namespace), &tool.name);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Translates a tool of free text into a function with one parameter.
fn free_text(place: &str, spec: ToolSpec) -> Result<Tool, DecodeError> {
    let missing = || DecodeError::value(format!("{place}.name"), "is missing");
    let custom = match spec.custom {
        Some(custom) => custom,
        None => Custom {
            name: spec.name.ok_or_else(missing)?,
            description: spec.description,
            format: spec.format,
        },
    };
    let grammar = custom.format.map(|format| format.to_value());
    let grammar = grammar.as_ref().and_then(|format| {
        let inside = format.get("grammar").unwrap_or(format);
        inside.get("definition")?.as_str()
    });
    let grammar = grammar.map(|text| format!("\n\nThe input follows this grammar:\n{text}"));
    let schema = json!({ "type": "object", "properties": { INPUT: { "type": "string" } },
        "required": [INPUT], "additionalProperties": false });
    Ok(Tool {
        name: custom.name,
        description: custom.description.unwrap_or_default() + &grammar.unwrap_or_default(),
        parameters: Some(schema.into()),
        strict: None,
        metadata: None,
    })
}

/// The name of a tool with its namespace.
pub(super) fn name_within(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}{IN}{name}"))
}

/// The arguments of the function that replaces a tool of free text.
pub(super) fn free_text_call(input: &str) -> String {
    json!({ INPUT: input }).to_string()
}

fn function(place: &str, spec: ToolSpec) -> Result<Tool, DecodeError> {
    let missing = || DecodeError::value(format!("{place}.name"), "is missing");
    let function = match spec.function {
        Some(function) => function,
        None => Function {
            name: spec.name.ok_or_else(missing)?,
            description: spec.description,
            parameters: spec.parameters,
            strict: spec.strict,
        },
    };
    if function.name.is_empty() {
        return Err(missing());
    }
    Ok(Tool {
        name: function.name,
        description: function.description.unwrap_or_default(),
        parameters: function.parameters.map(RawJson::from),
        strict: function.strict,
        metadata: None,
    })
}

/// Which tools are called: a word, or an object that names one.
pub(super) fn tool_choice(
    raw: Option<RawJson>,
    foreign: &mut Foreign,
) -> Result<Option<ToolChoice>, DecodeError> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "type")]
        kind: String,
        name: Option<String>,
        namespace: Option<String>,
        function: Option<Inside>,
        custom: Option<Inside>,
        mode: Option<String>,
        allowed_tools: Option<Allowed>,
    }
    #[derive(Deserialize)]
    struct Inside {
        name: String,
    }
    #[derive(Deserialize)]
    struct Allowed {
        mode: Option<String>,
    }
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let wrong = || {
        DecodeError::value("tool_choice", "must be none, auto, required, or an object with a type")
    };
    if let Ok(word) = raw.decode::<String>() {
        return match word.as_str() {
            "auto" => Ok(Some(ToolChoice::Auto)),
            "none" => Ok(Some(ToolChoice::None)),
            "required" => Ok(Some(ToolChoice::Required)),
            _ => {
                foreign.add(wrong());
                Ok(None)
            }
        };
    }
    let named: Named = raw.decode().map_err(|_| wrong())?;
    let name = named.function.or(named.custom).map(|inside| inside.name).or(named.name);
    match named.kind.as_str() {
        "function" | "custom" => {
            let name = name.filter(|name| !name.is_empty());
            let name = name.map(|name| name_within(named.namespace.as_deref(), &name));
            name.map(ToolChoice::Tool).map(Some).ok_or_else(wrong)
        }
        "allowed_tools" => {
            let mode = named.allowed_tools.and_then(|allowed| allowed.mode).or(named.mode);
            Ok((mode.as_deref() == Some("required")).then_some(ToolChoice::Required))
        }
        // A provider's own tool, for agents of the same protocol only.
        _ => Ok(None),
    }
}

/// The form of the answer.
#[derive(Debug, Deserialize)]
pub(super) struct Format {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Schema>,
    name: Option<String>,
    schema: Option<RawJson>,
    strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Schema {
    name: Option<String>,
    schema: Option<RawJson>,
    strict: Option<bool>,
}

pub(super) fn response_format(
    format: Option<Format>,
    place: &str,
    foreign: &mut Foreign,
) -> Result<Option<ResponseFormat>, DecodeError> {
    let Some(format) = format else { return Ok(None) };
    match format.kind.as_str() {
        "text" => Ok(Some(ResponseFormat::Text)),
        "json_object" => Ok(Some(ResponseFormat::Json)),
        "json_schema" => {
            let beside = Schema { name: format.name, schema: format.schema, strict: format.strict };
            let given = format.json_schema.unwrap_or(beside);
            let missing = || DecodeError::value(format!("{place}.schema"), "is missing");
            Ok(Some(ResponseFormat::JsonSchema(AnswerSchema {
                name: given.name.unwrap_or_else(|| "answer".into()),
                schema: given.schema.ok_or_else(missing)?,
                strict: given.strict.unwrap_or_default(),
            })))
        }
        other => {
            let what = format!("{other:?} is not understood");
            foreign.add(DecodeError::value(format!("{place}.type"), what));
            Ok(None)
        }
    }
}

/// The reasoning effort.
pub(super) fn effort(word: Option<String>, place: &str, foreign: &mut Foreign) -> Option<Effort> {
    let read = |word: &str| Effort::deserialize(StrDeserializer::<ValueError>::new(word));
    let effort = word.map(|word| read(&word));
    effort?.map_err(|error| foreign.add(DecodeError::value(place, error.to_string()))).ok()
}

/// The stop sequences.
pub(super) fn stops(stop: TextOr<String>) -> Vec<String> {
    match stop {
        TextOr::Text(word) => vec![word],
        TextOr::Many(words) => words,
    }
}

/// The error for a member that would change the form of the answer.
pub(super) fn refuse(place: &str, what: &str) -> DecodeError {
    DecodeError::value(place, format!("{what} is not supported here"))
}

/// Checks that the agent can answer in the requested format and knows all values of the request.
/// Agents that are no models choose their own format. The members of a route are checked
/// separately.
pub(super) fn check_agent(cx: &FaceContext, ask: &mut Ask, place: &str) -> Result<(), Fault> {
    // `default` means the default agent.
    if ask.agent.as_deref() == Some("default") && cx.engine.agent("default").is_none() {
        ask.agent = None;
    }
    if let Some(error) = &ask.extras.untranslatable {
        let about = cx.engine.agent_for(None, ask)?.agent.about();
        if !matches!(about.provider, "openai" | "route") {
            return Err(invalid(error));
        }
    }
    let is_form = |format: &&ResponseFormat| **format != ResponseFormat::Text;
    let Parameters { response_format, .. } = &*ask.extras.parameters;
    if response_format.as_ref().filter(is_form).is_none() {
        return Ok(());
    }
    let about = cx.engine.agent_for(None, ask)?.agent.about();
    if about.work == Work::Chat || about.provider == "route" {
        return Ok(());
    }
    Err(invalid(&refuse(place, "an answer of a given form, since this agent is no model; it")))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn choices_keep_their_mode_and_their_namespace() {
        let tool = |name: &str| Some(ToolChoice::Tool(name.into()));
        let allowed = json!([{ "type": "function", "name": "f" }]);
        for (choice, expected) in [
            (json!("required"), Some(ToolChoice::Required)),
            (json!({ "type": "function", "name": "f" }), tool("f")),
            (json!({ "type": "function", "function": { "name": "f" } }), tool("f")),
            (json!({ "type": "function", "namespace": "ns", "name": "g" }), tool("ns__g")),
            (
                json!({ "type": "allowed_tools", "mode": "required", "tools": allowed }),
                Some(ToolChoice::Required),
            ),
            (
                json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required" } }),
                Some(ToolChoice::Required),
            ),
            (json!({ "type": "allowed_tools", "mode": "auto", "tools": allowed }), None),
            (json!({ "type": "web_search" }), None),
            (Value::Null, None),
        ] {
            let read = tool_choice(Some(choice.clone().into()), &mut Foreign::default());
            assert_eq!(read.unwrap(), expected, "{choice}");
        }
    }
}

//! Translates the tools of a request, and its choice of tools.

use capstan_protocol::agui::Tool;
use capstan_protocol::{DecodeError, RawJson, ToolChoice};
use serde::Deserialize;

use super::content::Reader;

/// A tool. A tool with a type is Anthropic's own, known to its servers or models.
#[derive(Debug, Deserialize)]
pub(super) struct ToolSpec {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    name: String,
    description: Option<String>,
    input_schema: Option<RawJson>,
    strict: Option<bool>,
}

/// The caller's own tools.
pub(super) fn tools(specs: Vec<ToolSpec>, reader: Reader) -> Result<Vec<Tool>, DecodeError> {
    let mut tools = Vec::with_capacity(specs.len());
    for (n, spec) in specs.into_iter().enumerate() {
        match spec.kind.as_deref() {
            None | Some("custom") => tools.push(spec.into_tool(n)?),
            Some(kind) if reader == Reader::Other => {
                let what = format!("{kind:?} is understood by agents of kind `anthropic` alone");
                return Err(DecodeError::value(format!("tools[{n}].type"), what));
            }
            Some(_) => {}
        }
    }
    Ok(tools)
}

impl ToolSpec {
    fn into_tool(self, n: usize) -> Result<Tool, DecodeError> {
        if self.name.is_empty() {
            return Err(DecodeError::value(format!("tools[{n}].name"), "is missing"));
        }
        Ok(Tool {
            name: self.name,
            description: self.description.unwrap_or_default(),
            parameters: self.input_schema,
            strict: self.strict,
            metadata: None,
        })
    }
}

/// The choice of tools.
#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

impl Choice {
    pub(super) fn parallel(&self) -> Option<bool> {
        self.disable_parallel_tool_use.map(|is_disabled| !is_disabled)
    }

    pub(super) fn into_choice(self, reader: Reader) -> Result<Option<ToolChoice>, DecodeError> {
        let missing = || DecodeError::value("tool_choice.name", "is missing");
        Ok(Some(match self.kind.as_str() {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::None,
            "tool" => ToolChoice::Tool(self.name.ok_or_else(missing)?),
            _ if reader == Reader::Any => return Ok(None),
            other => {
                let what = format!("{other:?} is none: auto, any, tool, none");
                return Err(DecodeError::value("tool_choice.type", what));
            }
        }))
    }
}

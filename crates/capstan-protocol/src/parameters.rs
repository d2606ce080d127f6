//! Parameters of the answer beside a request's messages. All are optional.

use serde::{Deserialize, Serialize};

use crate::json::RawJson;

/// The parameters of a request. What is absent is the agent's own to decide.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Parameters {
    /// The randomness of the choice of words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of probable words from which the model chooses.
    #[serde(alias = "topP", skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// A seed for similar answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The longest answer, in tokens.
    #[serde(alias = "maxTokens", skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Texts at which the answer ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Whether the model calls tools.
    #[serde(alias = "toolChoice", skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether the model may call several tools at once.
    #[serde(alias = "parallelToolCalls", skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The form of the answer.
    #[serde(alias = "responseFormat", skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// The amount of reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// At least one tool.
    Required,
    /// This one.
    Tool(String),
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Text.
    Text,
    /// Some JSON object.
    Json,
    /// JSON of a given form.
    JsonSchema(AnswerSchema),
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AnswerSchema {
    /// The name of the form.
    #[serde(default = "answer")]
    pub name: String,
    /// A JSON Schema.
    pub schema: RawJson,
    /// Whether the answer must have exactly this form.
    #[serde(default)]
    pub strict: bool,
}

fn answer() -> String {
    "answer".into()
}

/// The amount of reasoning. If a provider has fewer levels, the gateway sends the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// No reasoning.
    None,
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// More.
    XHigh,
    /// As much as necessary.
    Max,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode;

    fn read(value: &Value) -> Result<Parameters, decode::DecodeError> {
        decode::from_str(&value.to_string())
    }

    #[test]
    fn parameters_are_read_beside_whatever_else_there_is() {
        let schema = json!({ "type": "object" });
        let read =
            read(&json!({ "query": "Hi", "temperature": 1, "max_tokens": 7, "stop": ["END"],
            "effort": "xhigh",
            "tool_choice": { "tool": "f" },
            "response_format": { "json_schema": { "schema": schema } } }))
            .unwrap();
        assert_eq!((read.temperature, read.max_tokens, read.stop.len()), (Some(1.0), Some(7), 1));
        assert_eq!(
            (read.tool_choice, read.effort),
            (Some(ToolChoice::Tool("f".into())), Some(Effort::XHigh))
        );
        let Some(ResponseFormat::JsonSchema(form)) = read.response_format else {
            panic!("no form")
        };
        assert_eq!(
            (form.name.as_str(), form.schema.to_value(), form.strict),
            ("answer", schema, false)
        );
        assert_eq!(super::tests::read(&json!({})).unwrap(), Parameters::default());
    }

    #[test]
    fn a_wrong_one_is_named() {
        for (wrong, place) in [
            (json!({ "temperature": "hot" }), "temperature"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "tool_choice": "sometimes" }), "tool_choice"),
            (json!({ "effort": "heroic" }), "effort"),
        ] {
            assert_eq!(read(&wrong).unwrap_err().path(), place);
        }
    }
}

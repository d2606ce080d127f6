//! Interrupts: what a run asks a person for before the conversation can go on.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::time::Timestamp;

/// Something that a run needs from outside. The next run's `ResumeEntry`
/// answers it by its id.
///
/// In CAP it is the data of an INTERRUPT event, in AG-UI an item of RUN_FINISHED's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// By which it is answered.
    pub id: String,
    /// Why the run stopped, in a word such as `approval`.
    pub reason: String,
    /// The question, for whoever answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tool call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// A JSON Schema of the answer, so that a form can be made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// Until when it can be answered, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The subagent that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<String>,
}

impl Interrupt {
    /// A question without anything optional.
    pub fn new(id: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            reason: reason.into(),
            message: None,
            tool_call_id: None,
            response_schema: None,
            expires_at: None,
            metadata: None,
            subagent_run_id: None,
        }
    }

    /// The question in words.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// What an answer looks like: a JSON Schema, which must be an object.
    #[must_use]
    pub fn response_schema(mut self, schema: Value) -> Self {
        if let Value::Object(schema) = schema {
            self.response_schema = Some(schema);
        }
        self
    }

    /// Until when it can be answered.
    #[must_use]
    pub fn expires_at(mut self, moment: Timestamp) -> Self {
        self.expires_at = Some(moment.to_string());
        self
    }

    /// The end of its time, if it has one that can be read.
    pub fn deadline(&self) -> Option<Timestamp> {
        Timestamp::parse(self.expires_at.as_deref()?)
    }
}

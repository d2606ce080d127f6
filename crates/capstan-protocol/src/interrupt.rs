//! Interrupts: questions to the user, which the conversation waits for.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::time::Timestamp;

/// A question of a run to the user. The next run's `ResumeEntry` answers it by its id.
///
/// In CAP it is the data of an INTERRUPT event, in AG-UI an item of RUN_FINISHED's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// The id that an answer names.
    pub id: String,
    /// The reason as a word, such as `approval`.
    pub reason: String,
    /// The question, for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tool call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// A JSON Schema of the answer, so that a form can be made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// The end of its time, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The subagent that has the question.
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

    /// Adds the question as text.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds a JSON Schema of the answer, which must be an object.
    #[must_use]
    pub fn response_schema(mut self, schema: Value) -> Self {
        if let Value::Object(schema) = schema {
            self.response_schema = Some(schema);
        }
        self
    }

    /// Adds the end of its time.
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

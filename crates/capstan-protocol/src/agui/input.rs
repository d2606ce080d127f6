//! What an AG-UI client posts to start a run.

use serde::{Deserialize, Serialize};

use super::message::AguiMessage;
use crate::json::{RawJson, RawObject};

/// A request to run an agent. `runId` is the key under which the run starts at most once,
/// `threadId` the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunAgentInput {
    /// The conversation.
    pub thread_id: String,
    /// The key of the run.
    pub run_id: String,
    /// Sent by clients of 1.0 and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// The run that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// The agent's state; a bare null means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RawJson>,
    /// The conversation so far.
    pub messages: Vec<AguiMessage>,
    /// Tools of the application that the agent may call.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// Further information for the agent.
    #[serde(default)]
    pub context: Vec<Context>,
    /// Anything else, for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded_props: Option<RawJson>,
    /// Answers to interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Vec<ResumeEntry>>,
}

/// A tool of the application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// A JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<RawJson>,
    /// Whether a model's arguments must follow the schema exactly (an extension).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawObject>,
}

/// A named piece of ambient information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Context {
    /// The name of the information.
    pub description: String,
    /// The information.
    pub value: String,
}

/// The kind of answer to an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ResumeStatus {
    /// With an answer.
    Resolved,
    /// By giving up.
    Cancelled,
}

/// An answer to one interrupt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResumeEntry {
    /// The id of the interrupt.
    pub interrupt_id: String,
    /// The kind of answer.
    pub status: ResumeStatus,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<RawJson>,
    /// Data beside the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RawObject>,
}

//! AG-UI events.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::message::{AguiMessage, MessageContent};
use crate::interrupt::Interrupt;

/// An event: its body, and what every event may carry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AguiEvent {
    /// Type and members.
    #[serde(flatten)]
    pub body: EventBody,
    /// Milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// The provider's own event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_event: Option<Value>,
    /// Open by key; client 1.0 strips unknown members but preserves these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The subagent that did this work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<String>,
}

impl From<EventBody> for AguiEvent {
    fn from(body: EventBody) -> Self {
        Self { body, timestamp: None, raw_event: None, metadata: None, subagent_run_id: None }
    }
}

impl AguiEvent {
    /// The event's type on the wire.
    pub fn kind(&self) -> &'static str {
        self.body.kind()
    }

    /// Whether this event ends the run. No event may follow.
    pub fn is_terminal(&self) -> bool {
        matches!(self.body, EventBody::RunFinished { .. } | EventBody::RunError { .. })
    }
}

/// The author of a streamed text message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TextRole {
    /// The application's developer.
    Developer,
    /// Instructions.
    System,
    /// The agent.
    #[default]
    Assistant,
    /// The person.
    User,
}

/// Why a run finished. Clients before 1.0 reject `cancelled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// It is complete.
    Success {
        /// Tool calls that the application still has to answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pending_tool_call_ids: Option<Vec<String>>,
    },
    /// It waits for something outside.
    Interrupt {
        /// The open questions; at least one.
        interrupts: Vec<Interrupt>,
    },
    /// It was stopped.
    Cancelled,
}

/// Tokens of one provider and model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TokenUsage {
    /// The provider that counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens of the whole prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens of the whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens of prompt and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// The part of the answer that was thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// The part of the prompt that came from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
}

/// Declares the events once: the enum and the spelling of each type.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $wire:literal {
        $($(#[$attr:meta])* $field:ident: $type:ty,)*
    })*) => {
        /// The members of an event, by type.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(tag = "type", rename_all_fields = "camelCase")]
        // The members are AG-UI's own. Each type's line explains them.
        #[allow(missing_docs)]
        pub enum EventBody {
            $($(#[$doc])* #[serde(rename = $wire)] $name { $($(#[$attr])* $field: $type,)* },)*
        }

        impl EventBody {
            /// Every type's spelling.
            pub const KINDS: &[&str] = &[$($wire,)*];

            /// The type on the wire.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $wire,)*
                }
            }
        }
    };
}

events! {
    /// Opens a run.
    RunStarted = "RUN_STARTED" {
        thread_id: String,
        run_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] protocol_version: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] parent_run_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] input: Option<Value>,
    }
    /// Closes a run that did not fail.
    RunFinished = "RUN_FINISHED" {
        thread_id: String,
        run_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] result: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] outcome: Option<Outcome>,
        #[serde(default, skip_serializing_if = "Option::is_none")] usage: Option<Vec<TokenUsage>>,
    }
    /// Ends a run that failed; `RunError` writes and reads the members that are
    /// ours.
    RunError = "RUN_ERROR" {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none",
        rename = "http_status")] http_status: Option<u16>,
        #[serde(default, skip_serializing_if = "Option::is_none")] details: Option<Map<String,
        Value>>,
        #[serde(default, skip_serializing_if = "Option::is_none",
        rename = "retry_after")] retry_after: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] usage: Option<Vec<TokenUsage>>,
    }
    /// Opens a named step.
    StepStarted = "STEP_STARTED" { step_name: String, }
    /// Closes a named step.
    StepFinished = "STEP_FINISHED" { step_name: String, }
    /// Opens a streamed text message.
    TextMessageStart = "TEXT_MESSAGE_START" {
        message_id: String,
        #[serde(default)] role: TextRole,
        #[serde(default, skip_serializing_if = "Option::is_none")] name: Option<String>,
    }
    /// A piece of a text message; never empty.
    TextMessageContent = "TEXT_MESSAGE_CONTENT" { message_id: String, delta: String, }
    /// Closes a text message.
    TextMessageEnd = "TEXT_MESSAGE_END" { message_id: String, }
    /// Start, content and end in one, for producers that do not know where a message begins.
    TextMessageChunk = "TEXT_MESSAGE_CHUNK" {
        #[serde(default, skip_serializing_if = "Option::is_none")] message_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] role: Option<TextRole>,
        #[serde(default, skip_serializing_if = "Option::is_none")] delta: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] name: Option<String>,
    }
    /// Opens a span of reasoning.
    ReasoningStart = "REASONING_START" { message_id: String, }
    /// Opens a reasoning message inside the span.
    ReasoningMessageStart = "REASONING_MESSAGE_START" { message_id: String, role: String, }
    /// A piece of a reasoning message.
    ReasoningMessageContent = "REASONING_MESSAGE_CONTENT" { message_id: String, delta: String, }
    /// Closes a reasoning message.
    ReasoningMessageEnd = "REASONING_MESSAGE_END" { message_id: String, }
    /// Start, content and end in one.
    ReasoningMessageChunk = "REASONING_MESSAGE_CHUNK" {
        #[serde(default, skip_serializing_if = "Option::is_none")] message_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] delta: Option<String>,
    }
    /// Closes a span of reasoning.
    ReasoningEnd = "REASONING_END" { message_id: String, }
    /// A provider's opaque reasoning, to be handed back later.
    ReasoningEncryptedValue = "REASONING_ENCRYPTED_VALUE" { subtype: String, entity_id: String,
    encrypted_value: String, }
    /// Opens a tool call.
    ToolCallStart = "TOOL_CALL_START" {
        tool_call_id: String,
        tool_call_name: String,
        #[serde(default,
        skip_serializing_if = "Option::is_none")] parent_message_id: Option<String>,
    }
    /// A piece of a tool call's arguments.
    ToolCallArgs = "TOOL_CALL_ARGS" { tool_call_id: String, delta: String, }
    /// Closes a tool call.
    ToolCallEnd = "TOOL_CALL_END" { tool_call_id: String, }
    /// Start, arguments and end in one.
    ToolCallChunk = "TOOL_CALL_CHUNK" {
        #[serde(default, skip_serializing_if = "Option::is_none")] tool_call_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] tool_call_name: Option<String>,
        #[serde(default,
        skip_serializing_if = "Option::is_none")] parent_message_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] delta: Option<String>,
    }
    /// The result of a tool, a message of its own.
    ToolCallResult = "TOOL_CALL_RESULT" {
        message_id: String,
        tool_call_id: String,
        content: MessageContent,
        #[serde(default, skip_serializing_if = "Option::is_none")] role: Option<String>,
    }
    /// Replaces the state.
    StateSnapshot = "STATE_SNAPSHOT" { snapshot: Value, }
    /// Changes the state by a JSON Patch.
    StateDelta = "STATE_DELTA" { delta: Vec<Value>, }
    /// Replaces the messages.
    MessagesSnapshot = "MESSAGES_SNAPSHOT" { messages: Vec<AguiMessage>, }
    /// Reports a complete activity.
    ActivitySnapshot = "ACTIVITY_SNAPSHOT" {
        message_id: String,
        activity_type: String,
        content: Map<String, Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] replace: Option<bool>,
    }
    /// Changes an activity by a JSON Patch.
    ActivityDelta = "ACTIVITY_DELTA" { message_id: String, activity_type: String,
    patch: Vec<Value>, }
    /// A provider's event, untranslated.
    Raw = "RAW" {
        event: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")] source: Option<String>,
    }
    /// An application's own event.
    Custom = "CUSTOM" { name: String, value: Value, }
    /// A subagent began.
    SubagentStarted = "SUBAGENT_STARTED" {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] description: Option<String>,
        #[serde(default,
        skip_serializing_if = "Option::is_none")] parent_subagent_run_id: Option<String>,
        #[serde(default,
        skip_serializing_if = "Option::is_none")] parent_tool_call_id: Option<String>,
        #[serde(default,
        skip_serializing_if = "Option::is_none")] parent_message_id: Option<String>,
    }
    /// A subagent is done or suspended.
    SubagentFinished = "SUBAGENT_FINISHED" {
        #[serde(default, skip_serializing_if = "Option::is_none")] result: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] outcome: Option<Value>,
    }
    /// A subagent failed; the run may continue.
    SubagentError = "SUBAGENT_ERROR" {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<String>,
    }
}

//! AG-UI messages: what a run is given and what a snapshot holds.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A tool call inside an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name and arguments.
    pub function: FunctionCall,
}

/// Name and arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionCall {
    /// The tool.
    pub name: String,
    /// JSON as text.
    pub arguments: String,
}

/// Text, or several parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum MessageContent {
    /// Plain text.
    Text(String),
    /// Parts.
    Parts(Vec<ContentPart>),
}

impl MessageContent {
    /// The text, parts of other kinds left out.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts
                .iter()
                .filter_map(|part| {
                    if let ContentPart::Text { text } = part { Some(text.as_str()) } else { None }
                })
                .collect(),
        }
    }
}

/// The place of a part's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum PartSource {
    /// Inline, in base64.
    Data {
        /// The bytes.
        value: String,
        /// Their media type.
        mime_type: String,
    },
    /// Elsewhere.
    Url {
        /// The URL.
        value: String,
        /// Their media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// Already at the provider.
    File {
        /// The provider's handle.
        value: String,
        /// The provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// Their media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes.
        source: PartSource,
    },
    /// Sound.
    Audio {
        /// Its bytes.
        source: PartSource,
    },
    /// A film.
    Video {
        /// Its bytes.
        source: PartSource,
    },
    /// A document.
    Document {
        /// Its bytes.
        source: PartSource,
    },
    /// Bytes, as clients before 1.0 attach them.
    Binary {
        /// Their media type.
        mime_type: String,
        /// A handle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Their URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
        /// The bytes, in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The file's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
}

/// A message of a conversation, by role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "role", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum AguiMessage {
    /// From the application's developer.
    Developer {
        /// The message's id.
        id: String,
        /// The text.
        content: String,
    },
    /// Instructions.
    System {
        /// The message's id.
        id: String,
        /// The text.
        content: String,
    },
    /// From the agent.
    Assistant {
        /// The message's id.
        id: String,
        /// The text; absent if the turn has only tool calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        /// The calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_calls: Option<Vec<ToolCall>>,
    },
    /// From the user.
    User {
        /// The message's id.
        id: String,
        /// Text or parts.
        content: MessageContent,
    },
    /// From a tool.
    Tool {
        /// The message's id.
        id: String,
        /// The tool's result.
        content: MessageContent,
        /// The call that it answers.
        tool_call_id: String,
        /// The tool's error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Structured progress, at its place in the conversation.
    Activity {
        /// The message's id.
        id: String,
        /// The kind of activity.
        activity_type: String,
        /// The activity.
        content: Map<String, Value>,
    },
    /// A span of reasoning.
    Reasoning {
        /// The message's id.
        id: String,
        /// The thought.
        content: String,
    },
}

//! Chat messages (profile v1): a role and parts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The agent.
    Assistant,
    /// A tool.
    Tool,
}

/// What kind of bytes a part carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Modality {
    /// Text.
    Text,
    /// A picture.
    Image,
    /// A film.
    Video,
    /// Sound.
    Audio,
}

/// A tool call's arguments: an object, or the text that a model wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Arguments {
    /// Parsed.
    Object(Map<String, Value>),
    /// As written.
    Text(String),
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        content: String,
    },
    /// Bytes inline, in base64.
    Blob {
        /// The bytes.
        content: String,
        /// What they are.
        modality: Modality,
        /// Their media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A file that was uploaded before.
    File {
        /// Its id.
        file_id: String,
        /// What it is.
        modality: Modality,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// Bytes elsewhere.
    Uri {
        /// Where.
        uri: String,
        /// What they are.
        modality: Modality,
        /// Their media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// The agent calls a tool.
    ToolCall {
        /// The tool.
        name: String,
        /// What it is given.
        arguments: Arguments,
        /// The call's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// A tool answers.
    ToolCallResponse {
        /// What it said; any JSON.
        #[serde(deserialize_with = "any")]
        response: Value,
        /// The call's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// The agent thinks.
    Reasoning {
        /// The thought.
        content: String,
    },
}

/// Any value, but the member must be there: serde alone would fill a missing `Value` with null.
fn any<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Value::deserialize(deserializer)
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// The speaker's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ChatMessage {
    /// A message of one text part.
    ///
    /// ```
    /// use capstan_protocol::{ChatMessage, Role};
    /// assert_eq!(ChatMessage::user("Hi").text(), "Hi");
    /// assert_eq!(ChatMessage::user("Hi").role, Role::User);
    /// ```
    pub fn text_of(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text { content: text.into() }], name: None }
    }

    /// The person says `text`.
    pub fn user(text: impl Into<String>) -> Self {
        Self::text_of(Role::User, text)
    }

    /// The agent says `text`.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text_of(Role::Assistant, text)
    }

    /// Instructions.
    pub fn system(text: impl Into<String>) -> Self {
        Self::text_of(Role::System, text)
    }

    /// A tool's answer to call `id`.
    pub fn tool(id: impl Into<String>, response: impl Into<Value>) -> Self {
        let part = Part::ToolCallResponse { response: response.into(), id: Some(id.into()) };
        Self { role: Role::Tool, parts: vec![part], name: None }
    }

    /// The text parts, joined.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|p| if let Part::Text { content } = p { Some(content.as_str()) } else { None })
            .collect()
    }
}

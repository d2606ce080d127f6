//! Chat messages (profile v1): a role and parts.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::decode::{self, Tagged};
use crate::json::{RawJson, RawObject, kind_of};
use crate::native::NativePart;

/// The author of a message.
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

/// The kind of a part's bytes.
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
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Arguments {
    /// As an object.
    Object(RawObject),
    /// As text.
    Text(String),
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'{') => raw.decode().map(Self::Object).map_err(decode::nested),
            Some(b'"') => raw.decode().map(Self::Text).map_err(decode::nested),
            _ => Err(D::Error::custom(format_args!(
                "expected an object or a string, found {}",
                kind_of(raw.get())
            ))),
        }
    }
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
        /// Their kind.
        modality: Modality,
        /// Their media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The name of their file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// A file that was uploaded before.
    File {
        /// Its id.
        file_id: String,
        /// Its kind.
        modality: Modality,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// Bytes elsewhere.
    Uri {
        /// The URI.
        uri: String,
        /// Their kind.
        modality: Modality,
        /// Their media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// The name of their file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
    /// The agent calls a tool.
    ToolCall {
        /// The tool.
        name: String,
        /// The arguments.
        arguments: Arguments,
        /// The call's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// A tool answers.
    ToolCallResponse {
        /// The result; any JSON.
        response: RawJson,
        /// The call's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// The agent thinks.
    Reasoning {
        /// The thought.
        content: String,
    },
    /// Content that only the provider that made it understands.
    Native(Box<NativePart>),
}

/// The members of a [`Part`], by its `type`.
#[derive(Deserialize)]
#[serde(remote = "Part", rename_all = "snake_case")]
enum Members {
    Text {
        content: String,
    },
    Blob {
        content: String,
        modality: Modality,
        #[serde(default)]
        mime_type: Option<String>,
        #[serde(default)]
        filename: Option<String>,
    },
    File {
        file_id: String,
        modality: Modality,
        #[serde(default)]
        mime_type: Option<String>,
        #[serde(default)]
        filename: Option<String>,
    },
    Uri {
        uri: String,
        modality: Modality,
        #[serde(default)]
        mime_type: Option<String>,
        #[serde(default)]
        filename: Option<String>,
    },
    ToolCall {
        name: String,
        arguments: Arguments,
        #[serde(default)]
        id: Option<String>,
    },
    ToolCallResponse {
        response: RawJson,
        #[serde(default)]
        id: Option<String>,
    },
    Reasoning {
        content: String,
    },
    Native(Box<NativePart>),
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Members::deserialize(Tagged { tag: "type", inner: deserializer })
    }
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChatMessage {
    /// The author.
    pub role: Role,
    /// The content.
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

    /// A user's message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::text_of(Role::User, text)
    }

    /// An agent's message.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text_of(Role::Assistant, text)
    }

    /// Instructions.
    pub fn system(text: impl Into<String>) -> Self {
        Self::text_of(Role::System, text)
    }

    /// A tool's answer to call `id`.
    pub fn tool(id: impl Into<String>, response: impl Into<Value>) -> Self {
        let part = Part::ToolCallResponse { response: response.into().into(), id: Some(id.into()) };
        Self { role: Role::Tool, parts: vec![part], name: None }
    }

    /// The text parts, joined.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(
                |p| if let Part::Text { content } = p { Some(content.as_str()) } else { None },
            )
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::from_str;

    #[test]
    fn a_part_is_read_whatever_stands_first_and_keeps_its_values_as_text() {
        let texts = [
            r#"{"type":"tool_call_response","id":"c","response":{"n":1e999}}"#,
            r#"{"response":{"n":1e999},"type":"tool_call_response","id":"c"}"#,
            r#"{"id":"c","content":[1],"response":{"n":1e999},"type":"tool_call_response"}"#,
        ];
        for text in texts {
            let Part::ToolCallResponse { response, id } = from_str(text).unwrap() else {
                panic!("{text}")
            };
            assert_eq!((response.get(), id.as_deref()), (r#"{"n":1e999}"#, Some("c")));
        }
        let call = r#"{"type":"tool_call","name":"f","arguments":{"a":10000000000000000000000}}"#;
        assert_eq!(serde_json::to_string(&from_str::<Part>(call).unwrap()).unwrap(), call);
    }

    #[test]
    fn a_mistake_in_a_part_is_named_wherever_the_type_stands() {
        for (text, what) in [
            (r#"{"content":"x"}"#, "type: required member is absent"),
            (r#"{"type":"text"}"#, "content: required member is absent"),
            (r#"{"type":"text","type":"text","content":""}"#, "type: member appears twice"),
            (r#"{"type":"text","content":"a","content":"b"}"#, "content: member appears twice"),
            (r#"{"content":"a","type":"text","content":"b"}"#, "content: member appears twice"),
            (r#"{"content":"a","content":"b","type":"text"}"#, "content: member appears twice"),
            (r#"{"type":"text","content":5}"#, "content: expected a string, found integer 5"),
            (r#"{"content":5,"type":"text"}"#, "content: expected a string, found integer 5"),
            (r#"{"type":"tool_call_response"}"#, "response: required member is absent"),
            (
                r#"{"type":"tool_call","name":"f","arguments":[]}"#,
                "arguments: expected an object or a string, found an array",
            ),
        ] {
            assert_eq!(from_str::<Part>(text).unwrap_err().to_string(), what, "{text}");
        }
        let unknown = from_str::<Part>(r#"{"type":"song"}"#).unwrap_err().to_string();
        assert!(
            unknown.starts_with(r#"type: unknown variant "song", expected text, blob"#),
            "{unknown}"
        );
    }
}

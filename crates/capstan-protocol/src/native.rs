//! The native lane: content that only one provider's protocol can express, unchanged.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::RawJson;

/// The type of the EVENT for content that CAP itself cannot express (v1; an extension).
pub const NATIVE: &str = "NATIVE";

/// A provider's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI's Chat Completions, and the servers that are compatible with it.
    OpenaiChat,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// Anthropic's Messages.
    AnthropicMessages,
}

/// The members of a response of OpenAI's Responses that a gateway answers itself. They are not sent
/// in the native lane.
pub const GATEWAY_RESPONSE_MEMBERS: &[&str] = &[
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "background",
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "conversation",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "user",
];

/// The maker of a piece of an answer. No other model can read its opaque content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NativeOrigin {
    /// The protocol.
    pub dialect: Dialect,
    /// The host that answered, and a digest that names the account there.
    pub provider: String,
    /// The requested model.
    pub model: String,
}

impl NativeOrigin {
    /// A client, which wrote the part in its request for any model of this protocol.
    pub fn client(dialect: Dialect) -> Self {
        Self { dialect, provider: String::new(), model: String::new() }
    }

    /// Whether the part is an item of a client's request.
    pub fn is_client(&self) -> bool {
        self.provider.is_empty() && self.model.is_empty()
    }
}

/// The data of a `NATIVE` event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NativeEvent {
    /// The maker.
    #[serde(flatten)]
    pub origin: NativeOrigin,
    /// An event, or a part of one, that CAP cannot express.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<RawJson>,
    /// A part of the answer that the next turn must bring back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<RawJson>,
    /// The JSON pointer within `part` at which its text belongs: the thoughts since the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_at: Option<String>,
}

/// A part of a message that only its provider understands: a thinking block with its signature, an
/// encrypted reasoning item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NativePart {
    /// The maker, which alone gets it back.
    #[serde(flatten)]
    pub origin: NativeOrigin,
    /// The part without its text.
    pub part: RawJson,
    /// The JSON pointer at which the text belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_at: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl NativePart {
    /// Whether the part is an item or a block of this call, or of its result.
    pub fn is_of_call(&self, call: &str) -> bool {
        #[derive(Deserialize)]
        struct Ids {
            id: Option<String>,
            call_id: Option<String>,
            tool_use_id: Option<String>,
        }
        let Ok(Ids { id, call_id, tool_use_id }) = self.part.decode() else { return false };
        [id, call_id, tool_use_id].iter().flatten().any(|id| id == call)
    }

    /// The part with its text in its place.
    pub fn to_value(&self) -> Value {
        let mut value = self.part.to_value();
        let place = self.text_at.as_deref().and_then(|at| value.pointer_mut(at));
        if let Some(place) = place {
            *place = self.text.as_str().into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::message::Part;

    #[test]
    fn a_part_gets_its_text_back() {
        let text = r#"{"type":"native","dialect":"anthropic-messages","provider":"a.example",
            "model":"m","part":{"type":"thinking","thinking":null,"signature":"s"},
            "text_at":"/thinking","text":"Hm."}"#;
        let part: Part = crate::decode::from_str(text).unwrap();
        let Part::Native(native) = &part else { panic!("{part:?}") };
        let whole = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
        assert_eq!(native.to_value(), whole);
        let again = serde_json::to_string(&part).unwrap();
        assert_eq!(crate::decode::from_str::<Part>(&again).unwrap(), part);
    }
}

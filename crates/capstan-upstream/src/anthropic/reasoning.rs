//! Reasoning in a message as the client wrote it: what this model made goes back to it, and nothing
//! else. All other blocks stay as they came.

use capstan_agent::sealed;
use capstan_protocol::NativeOrigin;
use serde::Deserialize;

use crate::native;
use crate::request_body::{Raw, RequestBody, raw};

/// The members by which a block of reasoning is known.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    signature: Option<String>,
    data: Option<String>,
}

/// Opens sealed blocks, and leaves out those of other models and thinking without a signature: the
/// provider would refuse both. `None` if nothing is left of the message.
pub(super) fn own(message: Raw, origin: &NativeOrigin) -> Option<Raw> {
    if !message.get().contains("thinking\"") {
        return Some(message);
    }
    let mut read: RequestBody = serde_json::from_str(message.get()).unwrap_or_default();
    let blocks = read.list("content");
    let own: Vec<Raw> = blocks.iter().flat_map(|block| own_block(block, origin)).collect();
    if own.len() == blocks.len() && own.iter().zip(&blocks).all(|(a, b)| a.get() == b.get()) {
        return Some(message);
    }
    read.set("content", &own);
    (!own.is_empty()).then(|| raw(&read))
}

fn own_block(raw_block: &Raw, origin: &NativeOrigin) -> Vec<Raw> {
    let block: Block = serde_json::from_str(raw_block.get()).unwrap_or_default();
    let proof = match block.kind.as_str() {
        "thinking" => block.signature.unwrap_or_default(),
        "redacted_thinking" => block.data.unwrap_or_default(),
        _ => return vec![raw_block.clone()],
    };
    if sealed::is_sealed(&proof) {
        return native::unsealed(&proof, origin).iter().map(raw).collect();
    }
    let is_unsigned = block.kind == "thinking" && proof.is_empty();
    if is_unsigned { Vec::new() } else { vec![raw_block.clone()] }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Dialect, NativePart};
    use serde_json::{Value, json};

    use super::*;

    fn origin(model: &str) -> NativeOrigin {
        let dialect = Dialect::AnthropicMessages;
        NativeOrigin { dialect, provider: "p".into(), model: model.into() }
    }

    fn left(content: Value) -> Option<Value> {
        let message = raw(&json!({ "role": "assistant", "content": content }));
        let left = own(message, &origin("m"))?;
        Some(serde_json::from_str::<Value>(left.get()).unwrap()["content"].clone())
    }

    fn sealed_by(model: &str, part: &Value) -> String {
        let part = part.clone().into();
        let (origin, text_at, text) = (origin(model), None, String::new());
        sealed::seal(&NativePart { origin, part, text_at, text }).unwrap()
    }

    #[test]
    fn thinking_without_a_signature_is_left_out() {
        let text = json!({ "type": "text", "text": "Hi" });
        let signed = json!({ "type": "thinking", "thinking": "", "signature": "s" });
        let unsigned = json!({ "type": "thinking", "thinking": "Hm.", "signature": "" });
        assert_eq!(left(json!([signed, unsigned, text])), Some(json!([signed, text])));
        assert_eq!(left(json!([unsigned])), None);
        assert_eq!(left(json!("of \"thinking\"")), Some(json!("of \"thinking\"")));
    }

    #[test]
    fn sealed_blocks_come_back_to_their_model_alone() {
        let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
        let redacted = json!({ "type": "redacted_thinking", "data": "d" });
        let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": {} });
        let carried = |model: &str| {
            json!([
                { "type": "thinking", "thinking": "Hm.",
                    "signature": sealed_by(model, &thinking) },
                { "type": "redacted_thinking", "data": sealed_by(model, &redacted) },
                call,
            ])
        };
        assert_eq!(left(carried("m")), Some(json!([thinking, redacted, call])));
        assert_eq!(left(carried("n")), Some(json!([call])));
        let broken = json!([{ "type": "redacted_thinking", "data": "cap1.!" }, call]);
        assert_eq!(left(broken), Some(json!([call])));
    }

    #[test]
    fn other_blocks_stay_byte_for_byte() {
        let unsigned = r#"{"type":"thinking","thinking":"Hm."}"#;
        let call = r#"{"type":"tool_use","id":"t","name":"f","input":{"z":1,"a":2.50}}"#;
        let message = format!(r#"{{"role":"assistant","content":[{unsigned},{call}]}}"#);
        let left = own(serde_json::from_str(&message).unwrap(), &origin("m")).unwrap();
        assert_eq!(left.get(), format!(r#"{{"role":"assistant","content":[{call}]}}"#));
    }
}

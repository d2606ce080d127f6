//! Reasoning in a message as the client wrote it: what this model made goes back to it. Sealed
//! parts of others, and the thoughts beside them, are left out.

use capstan_agent::sealed;
use capstan_protocol::NativeOrigin;
use serde_json::{Map, Value};

use super::kept::{CALLS, DETAILS, THOUGHTS};
use crate::native;
use crate::request_body::{Raw, raw};

/// Where a call carries a sealed part.
const SIGNATURE: &str = "/extra_content/google/thought_signature";

/// A message with the parts that it carries, opened.
pub(super) fn own(message: Raw, origin: &NativeOrigin) -> Raw {
    if !message.get().contains(sealed::PREFIX) {
        return message;
    }
    let Ok(Value::Object(mut members)) = serde_json::from_str(message.get()) else {
        return message;
    };
    let carried = take_sealed(&mut members);
    if carried.is_empty() {
        return message;
    }
    THOUGHTS.iter().for_each(|name| drop(members.remove(*name)));
    let own = carried.iter().flat_map(|sealed| native::unsealed(sealed, origin));
    for part in own.collect::<Vec<_>>() {
        restore(&mut members, part);
    }
    raw(&members)
}

/// Takes the sealed parts out of a message.
fn take_sealed(members: &mut Map<String, Value>) -> Vec<String> {
    let mut carried = Vec::new();
    if let Some(Value::Array(details)) = members.get_mut(DETAILS) {
        details.retain(|detail| {
            let data = detail.get("data").and_then(Value::as_str);
            let sealed = data.filter(|data| sealed::is_sealed(data));
            carried.extend(sealed.map(str::to_owned));
            sealed.is_none()
        });
        if details.is_empty() {
            members.remove(DETAILS);
        }
    }
    let calls = members.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let signature = call.pointer(SIGNATURE).and_then(Value::as_str);
        let sealed = signature.filter(|text| sealed::is_sealed(text)).map(str::to_owned);
        if let (Some(sealed), Some(call)) = (sealed, call.as_object_mut()) {
            call.remove("extra_content");
            carried.push(sealed);
        }
    }
    carried
}

/// Puts a part back: members of the message, and of its calls.
fn restore(members: &mut Map<String, Value>, part: Value) {
    let Value::Object(mut part) = part else { return };
    let of_calls = part.remove(CALLS).unwrap_or_default();
    let calls = members.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
        let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
        if let Some(Value::Object(more)) = of_calls.get(id) {
            let more = more.clone();
            call.extend(more);
        }
    }
    // The part says nothing of what the message itself says.
    part.retain(|name, _| !["role", "content", "tool_calls"].contains(&name.as_str()));
    members.extend(part);
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Dialect, NativePart};
    use serde_json::json;

    use super::*;

    fn origin(model: &str) -> NativeOrigin {
        let dialect = Dialect::OpenaiChat;
        NativeOrigin { dialect, provider: "p".into(), model: model.into() }
    }

    fn sealed_by(model: &str, part: Value) -> String {
        let (origin, part, text_at, text) = (origin(model), part.into(), None, String::new());
        sealed::seal(&NativePart { origin, part, text_at, text }).unwrap()
    }

    fn told(model: &str) -> Value {
        let of_call = json!({ "calls": { "c": { "extra_content": {
            "google": { "thought_signature": "s" } } } } });
        let of_message = json!({ "reasoning_content": "Hm.", "reasoning_details": [{ "a": 1 }] });
        let signature = sealed_by(model, of_call);
        let message = json!({ "role": "assistant", "content": null, "reasoning_content": "Hm.",
            "reasoning_details": [{ "type": "reasoning.encrypted", "index": 0,
                "data": sealed_by(model, of_message) }],
            "tool_calls": [{ "id": "c", "extra_content": {
                "google": { "thought_signature": signature } } }] });
        serde_json::from_str(own(raw(&message), &origin("m")).get()).unwrap()
    }

    #[test]
    fn sealed_parts_come_back_to_their_model_alone() {
        let restored = json!({ "role": "assistant", "content": null, "reasoning_content": "Hm.",
            "reasoning_details": [{ "a": 1 }], "tool_calls": [{ "id": "c", "extra_content": {
                "google": { "thought_signature": "s" } } }] });
        assert_eq!(told("m"), restored);
        let bare = json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "c" }] });
        assert_eq!(told("n"), bare);
    }

    #[test]
    fn message_without_a_sealed_part_stays_byte_for_byte() {
        let message = r#"{"role":"assistant","reasoning_content":"Hm.","content":"cap1. is"}"#;
        let raw: Raw = serde_json::from_str(message).unwrap();
        assert_eq!(own(raw, &origin("m")).get(), message);
    }
}

//! Whether a model may think before the first piece of its answer. OpenAI's APIs send nothing, or
//! only keep-alives, meanwhile.

use serde_json::Value;

use crate::request_body::RequestBody;

/// The names of OpenAI's models that think unless a request says otherwise begin like this.
const THINKERS: [&str; 5] = ["o1", "o3", "o4", "gpt-5", "gpt-6"];

/// Whether the model of a request may think first: the request asks for it, or the model is known
/// to.
pub(crate) fn thinks_first(body: &RequestBody) -> bool {
    let member = |name: &str| body.read::<Value>(name).filter(|value| !value.is_null());
    let reasoning = member("reasoning");
    let effort = reasoning.as_ref().and_then(|it| it.get("effort")).cloned();
    if let Some(effort) = member("reasoning_effort").or(effort) {
        return effort != "none" && effort != "minimal";
    }
    let thinking = member("thinking").is_some_and(|it| it.get("type") != Some(&"disabled".into()));
    thinking
        || reasoning.is_some()
        || body.read::<String>("model").is_some_and(|it| is_thinker(&it))
}

fn is_thinker(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    THINKERS.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn thinks(members: Value) -> bool {
        let mut body = RequestBody::default();
        members.as_object().unwrap().iter().for_each(|(name, value)| body.set(name, value));
        thinks_first(&body)
    }

    #[test]
    fn who_is_asked_to_think_or_known_to_may_take_longer() {
        for members in [
            json!({ "model": "m", "reasoning_effort": "high" }),
            json!({ "model": "m", "reasoning": { "effort": "medium" } }),
            json!({ "model": "m", "reasoning": { "summary": "auto" } }),
            json!({ "model": "m", "thinking": { "type": "adaptive" } }),
            json!({ "model": "openai/gpt-5-mini" }),
            json!({ "model": "o3" }),
        ] {
            assert!(thinks(members.clone()), "{members}");
        }
        for members in [
            json!({ "model": "gpt-4.1" }),
            json!({ "model": "gpt-5.2", "reasoning_effort": "none" }),
            json!({ "model": "gpt-5.2", "reasoning": { "effort": "minimal" } }),
            json!({ "model": "m", "thinking": { "type": "disabled" }, "reasoning": null }),
        ] {
            assert!(!thinks(members.clone()), "{members}");
        }
    }
}

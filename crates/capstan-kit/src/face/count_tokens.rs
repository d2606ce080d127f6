//! Counts the tokens of a request without running it. If the agent's upstream can count, it does;
//! otherwise the result is an estimate.

use std::sync::Arc;

use capstan_agent::Turn;
use capstan_protocol::{Fault, FaultKind};
use serde_json::Value;

use crate::face::FaceContext;
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::cpu_offload;

/// Counts the tokens of the agent's input, which these members of the body contain.
pub async fn count(
    cx: &FaceContext,
    ask: &Ask,
    body: &RequestBody,
    members: &[&str],
) -> Result<u64, Fault> {
    let agent = cx.engine.agent_for(None, ask)?;
    let limit = cx.engine.settings().timeouts.request;
    let asking = agent.agent.count_tokens(turn_of(ask, &agent.name));
    match tokio::time::timeout(limit, asking).await {
        Ok(Some(counted)) => counted,
        Ok(None) => Ok(cpu_offload::run(body.size(), || estimate(body.bytes(), members))),
        Err(_) => Err(Fault::new(FaultKind::UpstreamTimeout)),
    }
}

/// The agent's input.
fn turn_of(ask: &Ask, agent: &Arc<str>) -> Turn {
    let mut turn = Turn::talk(Vec::new());
    (turn.history, turn.messages) =
        (Arc::clone(&ask.messages.history), Arc::clone(&ask.messages.turn));
    turn.agent = Arc::clone(agent);
    turn.tools = Arc::clone(&ask.extras.tools);
    turn.parameters = Arc::clone(&ask.extras.parameters);
    turn.payload = Arc::clone(&ask.extras.payload);
    turn.dialect = ask.extras.dialect;
    turn
}

const BYTES: u64 = 4;
const PICTURE: u64 = 1600;

/// Estimates the tokens of these members.
fn estimate(body: &[u8], members: &[&str]) -> u64 {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let members_of_body = members.iter().filter_map(|name| body.get(*name));
    members_of_body.map(tokens).sum()
}

fn tokens(value: &Value) -> u64 {
    match value {
        Value::String(text) => (text.len() as u64).div_ceil(BYTES),
        Value::Array(items) => items.iter().map(tokens).sum(),
        Value::Object(members) => {
            let kind = members.get("type").and_then(Value::as_str);
            if matches!(kind, Some("image" | "input_image")) {
                return PICTURE;
            }
            // Names of members cost tokens as well.
            members.iter().map(|(name, value)| name.len() as u64 / BYTES + tokens(value)).sum()
        }
        Value::Number(_) | Value::Bool(_) => 1,
        Value::Null => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_estimate_grows_with_text_and_not_with_the_bytes_of_a_picture() {
        let of = |content: Value| {
            let body = json!({ "messages": [{ "content": content }] }).to_string();
            estimate(body.as_bytes(), &["messages"])
        };
        assert_eq!(of(json!("a".repeat(4000))) - of(json!("")), 1000);
        let picture = |bytes: usize| {
            of(json!([{ "type": "image", "source": { "data": "A".repeat(bytes) } }]))
        };
        assert_eq!(picture(10), picture(1_000_000));
    }
}

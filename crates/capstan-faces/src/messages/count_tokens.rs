//! How many tokens a request has, before it is asked. An agent whose upstream counts is asked; for
//! all others the answer is an estimate.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_agent::Turn;
use capstan_protocol::{Fault, FaultKind};
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::errors::REFUSALS;
use super::routes::{TAG, hello, request as request_schema};
use super::{Messages, request};
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::{self, Face, RefusalTarget};
use crate::identity::caller::Caller;
use crate::openapi::{Answer, Body, Content, Row, model};
use crate::refusal::Refusal;
use capstan_engine::ask::Ask;
use capstan_engine::cpu_offload;

/// A count.
#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    input_tokens: u64,
}

pub(super) const COUNT: Row = Row {
    tag: &TAG,
    summary: "Count tokens",
    says: "How many tokens a message would have. The provider of an `anthropic` agent counts. For \
     other agents this is an estimate: a token for four bytes of text, 1600 for a picture.",
    body: Some(&REQUEST),
    answers: &[Answer::ok("The count.", &[Content::Json(model::<Counted>)])],
    faults: &[FaultKind::InvalidRequest, FaultKind::AgentNotFound],
    tells_of_run: true,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const REQUEST: Body =
    Body { says: "As for a message.", model: request_schema, examples: &[("count", hello)] };

/// Answers a POST that only counts.
pub(super) async fn count(
    face: Arc<Messages>,
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    let counted = counted(&face, &cx, &caller, &parts, &posted).await;
    let refused = |fault| face::refusal(&cx, &*face, fault, RefusalTarget::Unread(&parts));
    let input_tokens = counted.map_err(refused)?;
    Ok(Json(Counted { input_tokens }).into_response())
}

async fn counted(
    face: &Messages,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    posted: &Posted,
) -> Result<u64, Fault> {
    let _begun = cx.engine.limiter.cpu_offload.begin(&caller.tenant, posted.body.len()).await;
    let body = request::with_head(&posted.body, &parts.headers);
    let mut ask = cpu_offload::run(body.len(), || request::from_body(&body))?;
    face.complete(cx, &caller.tenant, parts, &mut ask).await?;
    let agent = cx.engine.agent_for(None, &ask)?;
    let limit = cx.engine.settings.timeouts.request;
    let asking = agent.agent.count_tokens(turn_of(&ask, &agent.name));
    match tokio::time::timeout(limit, asking).await {
        Ok(Some(counted)) => counted,
        Ok(None) => Ok(cpu_offload::run(body.len(), || estimate(&body))),
        Err(_) => Err(Fault::new(FaultKind::UpstreamTimeout)),
    }
}

/// What the agent would be asked.
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

/// What the texts of a request amount to.
fn estimate(body: &[u8]) -> u64 {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let told = ["system", "messages", "tools"].into_iter().filter_map(|name| body.get(name));
    told.map(tokens).sum()
}

fn tokens(value: &Value) -> u64 {
    match value {
        Value::String(text) => (text.len() as u64).div_ceil(BYTES),
        Value::Array(items) => items.iter().map(tokens).sum(),
        Value::Object(members) => {
            if members.get("type").is_some_and(|kind| kind == "image") {
                return PICTURE;
            }
            // Names are read as well.
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
            estimate(json!({ "messages": [{ "content": content }] }).to_string().as_bytes())
        };
        assert_eq!(of(json!("a".repeat(4000))) - of(json!("")), 1000);
        let picture = |bytes: usize| {
            of(json!([{ "type": "image", "source": { "data": "A".repeat(bytes) } }]))
        };
        assert_eq!(picture(10), picture(1_000_000));
    }
}

//! `GET /v1/agents`: lists the agents, in the order of the configuration.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};

use crate::answers::{AgentList, ListedAgent};
use capstan_engine::Engine;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};

pub(crate) const LIST: Row = Row {
    tag: &Tag::RUNS,
    summary: "List the agents",
    says: "The default agent is first. It answers requests that name no agent.",
    answers: &[Answer::ok("The agents.", &[Content::Json(model::<AgentList<'_>>)])],
    ..Row::NONE
};

pub(crate) async fn list(State(engine): State<Engine>) -> Response {
    let listed = engine.agents().map(|agent| ListedAgent {
        name: &agent.name,
        id: agent.id,
        aliases: agent.aliases.iter().map(|alias| &**alias).collect(),
    });
    let agents = listed.collect();
    Json(AgentList { agents }).into_response()
}

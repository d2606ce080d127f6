//! The gateways that share the journal.

use axum::Json;
use axum::extract::State;
use capstan_protocol::FaultKind;

use super::numbers::FAULTS_OF_ANY;
use crate::Console;
use crate::visitor::Visitor;
use capstan_kit::answers::ReplicaList;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};
use capstan_kit::refusal::Refusal;

pub(crate) const REPLICAS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "List the processes that share the journal",
    says: "The same as `GET /v1/replicas`, for visitors who may see the server.",
    answers: &[Answer::ok("The oldest lease first.", &[Content::Json(model::<ReplicaList>)])],
    faults: FAULTS_OF_ANY,
    ..Row::NONE
};

pub(crate) async fn replicas(
    State(console): State<Console>,
    visitor: Visitor,
) -> Result<Json<ReplicaList>, Refusal> {
    if !visitor.sees_server() {
        return Err(FaultKind::RouteNotFound.into());
    }
    let replicas = match console.engine.store().cluster() {
        Some(cluster) => cluster.replicas().await?,
        None => Vec::new(),
    };
    Ok(Json(ReplicaList { replicas: replicas.into_iter().map(Into::into).collect() }))
}

//! `GET /v1/replicas`: lists the gateways that share the journal, for operators.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, State};
use axum::{Extension, Json};
use capstan_protocol::FaultKind;
use http::{HeaderMap, Uri};

use crate::access::Access;
use crate::answers::ReplicaList;
use crate::refusal::Refusal;
use capstan_engine::faults::journal_fault;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};

pub(crate) const LIST: Row = Row {
    tag: &Tag::SERVER,
    summary: "The processes that share the journal",
    says: "The gateways: their state and start, their runs and open responses, and the time of \
     their appends. Empty if the journal belongs to one process only. For loopback, and for \
     callers that send the metrics key as `Authorization: Bearer`.",
    answers: &[Answer::ok("The oldest lease first.", &[Content::Json(model::<ReplicaList>)])],
    faults: &[FaultKind::TenantUnauthorized, FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) async fn list(
    State(access): State<Access>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<ReplicaList>, Refusal> {
    access.check_monitor(peer, &uri, &headers)?;
    let replicas = match access.engine.store().cluster() {
        Some(cluster) => cluster.replicas().await.map_err(journal_fault)?,
        None => Vec::new(),
    };
    Ok(Json(ReplicaList { replicas: replicas.into_iter().map(Into::into).collect() }))
}

//! `POST /v1/streams/{id}/ticket`: for pages whose EventSource cannot send a key.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_protocol::FaultKind;
use http::{HeaderValue, header};

use crate::answers::StreamTicket;
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::identity::tenants::KeyHash;
use crate::identity::tickets::{Holder, Tickets};
use crate::refusal::Refusal;
use capstan_engine::{Engine, lookup};
use capstan_kit::openapi::{self, Answer, Content, Does, Row, Tag, model};

pub(crate) const ISSUE: Row = Row {
    tag: &Tag::STREAMS,
    summary: "Get a ticket for a stream",
    says: "A browser's EventSource cannot send a key. A ticket in the URL replaces the key: it is \
     valid for minutes, for this stream, and for reading only.",
    places: &[&openapi::STREAM],
    answers: &[Answer {
        headers: &[&openapi::STREAM_TICKET],
        ..Answer::ok(
            "The ticket, and the URL to open with it.",
            &[Content::Json(model::<StreamTicket<'_>>)],
        )
    }],
    faults: &[FaultKind::StreamNotFound, FaultKind::StreamExpired, FaultKind::JournalUnavailable],
    does: Does::This(Operation::Read),
    ..Row::NONE
};

/// A read-only ticket for one stream, and the URL to open with it.
pub(crate) async fn issue(
    State(engine): State<Engine>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let run = lookup::by_stream(&engine, &caller.tenant, &id).await?;
    // Without tenants a ticket is not necessary and gives no further access.
    let key = caller.key.clone().unwrap_or_else(|| KeyHash::of(""));
    let holder = Holder { tenant: &run.tenant, key: &key };
    let ticket = Tickets::load(&engine).await?.issue(holder, run.stream_id, engine.wall().unset());
    let url = format!("/v1/streams/{}?ticket={}", run.stream_id, ticket.text);
    let answer = StreamTicket {
        stream_id: run.stream_id,
        ticket: &ticket.text,
        expires_at: ticket.expires_at,
        url,
    };
    let mut response = Json(answer).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ticket.put_into(response.headers_mut());
    Ok(response)
}

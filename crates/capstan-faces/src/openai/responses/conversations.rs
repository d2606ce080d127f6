//! Conversations: sessions with the routes and names of OpenAI's SDKs. A conversation exists as
//! soon as its id does. Its items are those of its responses.

use std::sync::Arc;

use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_journal::TurnRange;
use capstan_protocol::{ChatMessage, Fault, FaultKind, Role};
use futures_util::future::BoxFuture;
use http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::errors::REFUSALS;
use super::super::models::TAG;
use super::super::parameters::refuse;
use super::items::{ItemPage, PageParams};
use super::references::items_of_run;
use super::{NAME, Responses, conversation_id};
use crate::face::FaceContext;
use crate::face::{self, RefusalTarget, post};
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::openapi::{Answer, Body, Content, Does, PathParameter, Routes, Row, model};
use crate::refusal::Refusal;
use crate::{accounted_body, query};
use capstan_engine::ask::{check_id, invalid};
use capstan_engine::conversation::TurnRecord;
use capstan_engine::faults::journal_fault;
use capstan_engine::purge;

/// The limits of one read from the journal, in turns and bytes.
const PAGE: usize = 100;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A request about a conversation.
struct About {
    cx: FaceContext,
    caller: Caller,
    parts: Parts,
    id: String,
    /// The item that the path names.
    item: String,
}

type Answering = fn(About) -> BoxFuture<'static, Result<Response, Fault>>;

pub(super) fn routes(face: &Arc<Responses>) -> Routes<FaceContext> {
    let to = face.clone();
    let create =
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    http: HttpRequest| { create(to.clone(), cx, caller, http).await };
    let about = |answer: Answering| {
        let face = face.clone();
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    Path(names): Path<Vec<(String, String)>>,
                    request: HttpRequest| {
            let parts = request.into_parts().0;
            let mut names = names.into_iter().map(|(_, name)| name);
            let (id, item) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
            let about = About { cx: cx.clone(), caller, parts: parts.clone(), id, item };
            let answered = answer(about).await;
            answered
                .map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Viewer(&parts)))
        }
    };
    const ONE: &str = "/v1/conversations/{id}";
    const ITEMS: &str = "/v1/conversations/{id}/items";
    const ITEM: &str = "/v1/conversations/{id}/items/{item}";
    Routes::default()
        .post("/v1/conversations", create, &CREATE)
        .get(ONE, about(|about| Box::pin(async move { look(&about).await })), &GET)
        .post(ONE, about(|_| Box::pin(async { Err(unsupported("metadata")) })), &UPDATE)
        .delete(ONE, about(|about| Box::pin(async move { erase(&about).await })), &DELETE)
        .get(ITEMS, about(|about| Box::pin(async move { list(&about).await })), &LIST)
        .post(ITEMS, about(|_| Box::pin(async { Err(unsupported("items")) })), &ADD)
        .get(ITEM, about(|about| Box::pin(async move { item(&about).await })), &ITEM_ROW)
        .delete(ITEM, about(|_| Box::pin(async { Err(unsupported("item")) })), &REMOVE)
}

/// The refusal of a feature that conversations do not have here.
fn unsupported(name: &str) -> Fault {
    let what = match name {
        "metadata" => "metadata of a conversation: give it to its responses, it",
        "items" => "an item without a response: send it as the input of one, it",
        _ => "to take one item away: erase the response that has it, which",
    };
    invalid(&refuse(name, what))
}

/// A conversation.
#[derive(Debug, Serialize, JsonSchema)]
struct Conversation<'a> {
    id: &'a str,
    object: &'static str,
    created_at: i64,
    metadata: Map<String, Value>,
}

impl<'a> Conversation<'a> {
    fn new(id: &'a str, created_at: i64) -> Self {
        Self { id, object: "conversation", created_at, metadata: Map::new() }
    }
}

/// The answer to an erasure.
#[derive(Debug, Serialize, JsonSchema)]
struct Erased<'a> {
    id: &'a str,
    object: &'static str,
    deleted: bool,
}

async fn create(
    face: Arc<Responses>,
    cx: FaceContext,
    caller: Caller,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Wanted {
        items: Option<Vec<Box<RawValue>>>,
        metadata: Option<Map<String, Value>>,
    }
    let (parts, body) = request.into_parts();
    let posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    let created = async {
        let wanted: Wanted = posted.body.decode()?;
        if wanted.items.is_some_and(|items| !items.is_empty()) {
            return Err(unsupported("items"));
        }
        if wanted.metadata.is_some_and(|metadata| !metadata.is_empty()) {
            return Err(unsupported("metadata"));
        }
        let stream = Uuid::now_v7();
        let id = conversation_id::issue(&cx.engine, &caller.tenant, stream).await?;
        Ok(Json(Conversation::new(&id, began(stream))).into_response())
    };
    created
        .await
        .map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Undecoded(&parts)))
}

/// The time in an id, in seconds.
fn began(id: Uuid) -> i64 {
    id.get_timestamp().map_or(0, |at| i64::try_from(at.to_unix().0).unwrap_or_default())
}

impl About {
    fn turns(&self) -> TurnRange<'_> {
        TurnRange::all(&self.caller.tenant, &self.id)
    }

    /// The time at which the conversation began. A conversation with an issued id exists before its
    /// first response.
    async fn began(&self) -> Result<i64, Fault> {
        let unknown = || {
            let message = format!("There is no conversation {:?}.", self.id);
            Fault::new(FaultKind::SessionNotFound).with_message(message)
        };
        check_id("the conversation's id", &self.id)?;
        let (store, tenant) = (self.cx.engine.store(), &self.caller.tenant);
        if self.cx.engine.is_erased(tenant, &self.id) {
            return Err(unknown());
        }
        let issued = conversation_id::issued(&self.cx.engine, tenant, &self.id).await?;
        if let Some(issued) = issued {
            return Ok(began(issued));
        }
        let is_known = store.has_session(tenant, &self.id).await.map_err(journal_fault)?;
        if !is_known {
            return Err(unknown());
        }
        let first = store.turns(TurnRange { limit: 1, ..self.turns() }).await;
        let first = first.map_err(journal_fault)?;
        Ok(first.first().map_or(0, |turn| began(turn.stream_id)))
    }

    /// All items with their ids, oldest first.
    async fn items(&self) -> Result<Vec<(String, String)>, Fault> {
        self.began().await?;
        let engine = &self.cx.engine;
        let _one = engine.cpu_offload().answer(&self.caller.tenant).await;
        let mut load = engine.reserve(&self.caller.tenant);
        let (mut from, mut items) = (1, Vec::new());
        loop {
            let range = TurnRange { from, limit: PAGE, max_bytes: PAGE_BYTES, ..self.turns() };
            let turns = engine.store().turns(range).await.map_err(journal_fault)?;
            let Some(last) = turns.last() else { return Ok(items) };
            from = last.number + 1;
            for turn in turns {
                let stream = turn.stream_id;
                load.grow(turn.said_bytes().saturating_mul(3))?;
                let record = TurnRecord::of(turn);
                let run = engine.store().run(stream).await.map_err(journal_fault)?;
                match run.filter(|_| !record.is_partial) {
                    Some(run) if run.face == NAME => {
                        items.extend(items_of_run(&self.cx, &run).await?);
                    }
                    // A turn of another protocol.
                    Some(_) => items.extend(messages(stream, record)),
                    None => {}
                }
            }
        }
    }
}

/// The texts of a turn of another face.
fn messages(stream: Uuid, record: TurnRecord) -> Vec<(String, String)> {
    let all =
        (0_u64..).zip(record.into_messages()).filter(|(_, message)| !message.text().is_empty());
    let item = |(n, message): (u64, ChatMessage)| {
        let id = super::item::item_id("msg", stream, n);
        let is_answer = message.role == Role::Assistant;
        let kind = if is_answer { "output_text" } else { "input_text" };
        let role = message.role;
        let content = json!([{ "type": kind, "text": message.text(), "annotations": [] }]);
        let item = json!({ "id": id, "type": "message", "role": role, "status": "completed",
            "content": content });
        (id, item.to_string())
    };
    all.map(item).collect()
}

async fn look(about: &About) -> Result<Response, Fault> {
    let began = about.began().await?;
    Ok(Json(Conversation::new(&about.id, began)).into_response())
}

async fn erase(about: &About) -> Result<Response, Fault> {
    about.began().await?;
    purge::session(&about.cx.engine, &about.caller.tenant, &about.id, &about.caller).await?;
    let erased = Erased { id: &about.id, object: "conversation.deleted", deleted: true };
    Ok(Json(erased).into_response())
}

async fn list(about: &About) -> Result<Response, Fault> {
    let params: PageParams = query::parse(&about.parts.uri)?;
    let items = about.items().await?;
    let bytes = items.iter().map(|(_, item)| item.len()).sum::<usize>();
    let mut load = about.cx.engine.reserve(&about.caller.tenant);
    load.grow(bytes.saturating_mul(2))?;
    accounted_body::json(&ItemPage::among(items, &params)?, load)
}

async fn item(about: &About) -> Result<Response, Fault> {
    let items = about.items().await?;
    let found = items.into_iter().find(|(id, _)| *id == about.item);
    let unknown = || {
        let message = format!("The conversation {:?} has no item {:?}.", about.id, about.item);
        Fault::new(FaultKind::SessionNotFound).with_message(message)
    };
    let (_, item) = found.ok_or_else(unknown)?;
    let item: Box<RawValue> = RawValue::from_string(item).map_err(Fault::from_error)?;
    Ok(Json(item).into_response())
}

const ID: PathParameter = PathParameter {
    says: "The id of a conversation, which is that of its session.",
    schema: || json!({ "type": "string" }),
    example: "conv_0193a8f2c4d57b6e9a1b2c3d4e5f6a7b0011223344556677",
};

const ITEM_ID: PathParameter = PathParameter {
    says: "The id of an item.",
    schema: || json!({ "type": "string" }),
    example: "msg_0193a8f2c4d57b6e9a1b2c3d4e5f6a7b_3",
};

const BODY: Body =
    Body { says: "`items` and `metadata` have to be empty.", model: body, examples: &[] };

fn body(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "properties": {
        "items": { "type": ["array", "null"] }, "metadata": { "type": ["object", "null"] } } })
}

const KINDS: &[FaultKind] = &[
    FaultKind::InvalidRequest,
    FaultKind::SessionNotFound,
    FaultKind::ServiceUnavailable,
    FaultKind::JournalUnavailable,
];

const OF_ONE: Row =
    Row { tag: &TAG, places: &[&ID], faults: KINDS, refusals: Some(&REFUSALS), ..Row::NONE };

const CREATE: Row = Row {
    summary: "Create a conversation",
    says: "Issues an id. A conversation begins with its first response.",
    places: &[],
    body: Some(&BODY),
    answers: &[Answer::ok("The conversation.", &[Content::Json(model::<Conversation<'_>>)])],
    ..OF_ONE
};

const GET: Row = Row {
    summary: "Look up a conversation",
    says: "Any session is one.",
    answers: &[Answer::ok("The conversation.", &[Content::Json(model::<Conversation<'_>>)])],
    ..OF_ONE
};

const UPDATE: Row = Row {
    summary: "Change a conversation",
    says: "Refused: a conversation has no metadata here. Give it to its responses.",
    body: Some(&BODY),
    ..OF_ONE
};

const DELETE: Row = Row {
    summary: "Erase a conversation",
    says: "Stops its runs, and erases its responses and items for good.",
    answers: &[Answer::ok("The erased conversation.", &[Content::Json(model::<Erased<'_>>)])],
    does: Does::This(Operation::Purge),
    ..OF_ONE
};

const LIST: Row = Row {
    summary: "List the items of a conversation",
    says: "The input and output items of its responses, newest first unless the request has \
     another order.",
    query: Some(PageParams::json_schema),
    answers: &[Answer::ok("A page of items.", &[Content::Json(model::<ItemPage>)])],
    ..OF_ONE
};

const ADD: Row = Row {
    summary: "Add items to a conversation",
    says: "Refused: items come with a response. Send them as the input of the next one.",
    body: Some(&BODY),
    ..OF_ONE
};

const ITEM_ROW: Row = Row {
    summary: "Look up an item of a conversation",
    says: "One item, in the form of the list.",
    places: &[&ID, &ITEM_ID],
    answers: &[Answer::ok("The item.", &[Content::Json(model::<Value>)])],
    ..OF_ONE
};

const REMOVE: Row = Row {
    summary: "Remove an item from a conversation",
    says: "Refused: erase the response that has it.",
    places: &[&ID, &ITEM_ID],
    does: Does::This(Operation::Purge),
    ..OF_ONE
};

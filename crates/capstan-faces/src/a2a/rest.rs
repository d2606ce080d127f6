//! HTTP+JSON of version 1.0, and of 0.3 below `v1`. A path parameter has the task and the
//! operation: `tasks/{id}:cancel`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use capstan_protocol::{Fault, FaultKind, RawJson};
use futures_util::future::BoxFuture;
use http::Method;
use serde::Deserialize;

use super::call::{self, Call};
use super::push_config::Config;
use super::requests::{Asked, ListParams};
use super::{A2a, rows};
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::{self, RefusalTarget};
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::openapi::{self, Routes};
use crate::query;
use crate::refusal::Refusal;
use capstan_engine::ask::invalid;

/// The agent and the task that a path names.
#[derive(Default)]
struct Places {
    agent: Option<String>,
    task: String,
    /// A push notification config.
    config: String,
}

impl Places {
    fn of(path: Vec<(String, String)>) -> Self {
        let mut places = Self::default();
        for (name, value) in path {
            match name.as_str() {
                "name" => places.agent = Some(value),
                "config" => places.config = value,
                _ => places.task = value,
            }
        }
        places
    }
}

type Serve = for<'a> fn(
    &'a A2a,
    &'a FaceContext,
    &'a Caller,
    &'a Places,
    HttpRequest,
) -> BoxFuture<'a, Result<Response, Refusal>>;

pub(super) fn routes(face: &Arc<A2a>) -> Routes<FaceContext> {
    let handler = |serve: Serve| {
        let face = face.clone();
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    Path(path): Path<Vec<(String, String)>>,
                    request: HttpRequest| {
            let (parts, body) = request.into_parts();
            if let Some(unknown) = call::unknown_version(&parts) {
                return Ok(Call::at(parts.uri.path()).refuse(&unknown));
            }
            let request = HttpRequest::from_parts(parts, body);
            serve(&face, &cx, &caller, &Places::of(path), request).await
        }
    };
    let to_send: Serve = |f, a, c, p, r| Box::pin(send(f, a, c, p, r, false));
    let to_stream: Serve = |f, a, c, p, r| Box::pin(send(f, a, c, p, r, true));
    let to_list: Serve = |f, a, c, p, r| Box::pin(list(f, a, c, p, r));
    let to_look: Serve = |f, a, c, p, r| Box::pin(look(f, a, c, p, r));
    let to_act: Serve = |f, a, c, p, r| Box::pin(act(f, a, c, p, r));
    let to_push: Serve = |f, a, c, p, r| Box::pin(push(f, a, c, p, r));
    let pushing = |routes: Routes<FaceContext>,
                   [all, one]: [&'static str; 2],
                   rows: [&'static openapi::Row; 4]| {
        let [set, list, get, delete] = rows;
        routes
            .post(all, handler(to_push), set)
            .get(all, handler(to_push), list)
            .get(one, handler(to_push), get)
            .delete(one, handler(to_push), delete)
    };
    let both = |routes: Routes<FaceContext>, at: &Paths, rows: &Rows| {
        pushing(routes, at.pushing, rows.pushing)
            .post(at.send, handler(to_send), rows.send)
            .post(at.stream, handler(to_stream), rows.stream)
            .get(at.tasks, handler(to_list), rows.list)
            .get(at.task, handler(to_look), rows.get)
            .post(at.task, handler(to_act), rows.act)
    };
    let routes = both(Routes::default(), &DEFAULT, &ROWS);
    let routes = both(routes, &DEFAULT_03, &ROWS);
    let routes = both(routes, &AGENT, &ROWS_OF_AGENT);
    both(routes, &AGENT_03, &ROWS_OF_AGENT)
}

/// The paths.
struct Paths {
    send: &'static str,
    stream: &'static str,
    tasks: &'static str,
    task: &'static str,
    pushing: [&'static str; 2],
}

macro_rules! paths {
    ($base:literal) => {
        Paths {
            send: concat!($base, "/message:send"),
            stream: concat!($base, "/message:stream"),
            tasks: concat!($base, "/tasks"),
            task: concat!($base, "/tasks/{task}"),
            pushing: [
                concat!($base, "/tasks/{task}/pushNotificationConfigs"),
                concat!($base, "/tasks/{task}/pushNotificationConfigs/{config}"),
            ],
        }
    };
}

const DEFAULT: Paths = paths!("/v1/a2a");
const DEFAULT_03: Paths = paths!("/v1/a2a/v1");
const AGENT: Paths = paths!("/v1/agents/{name}/a2a");
const AGENT_03: Paths = paths!("/v1/agents/{name}/a2a/v1");

struct Rows {
    send: &'static openapi::Row,
    stream: &'static openapi::Row,
    list: &'static openapi::Row,
    get: &'static openapi::Row,
    act: &'static openapi::Row,
    pushing: [&'static openapi::Row; 4],
}

const ROWS: Rows = Rows {
    send: &rows::SEND,
    stream: &rows::STREAM,
    list: &rows::LIST,
    get: &rows::GET,
    act: &rows::ACT,
    pushing: [&rows::PUSH_SET, &rows::PUSH_LIST, &rows::PUSH_GET, &rows::PUSH_DELETE],
};
const ROWS_OF_AGENT: Rows = Rows {
    send: &rows::SEND_TO_AGENT,
    stream: &rows::STREAM_OF_AGENT,
    list: &rows::LIST_OF_AGENT,
    get: &rows::GET_OF_AGENT,
    act: &rows::ACT_OF_AGENT,
    pushing: [
        &rows::PUSH_SET_OF_AGENT,
        &rows::PUSH_LIST_OF_AGENT,
        &rows::PUSH_GET_OF_AGENT,
        &rows::PUSH_DELETE_OF_AGENT,
    ],
};

fn asked<'a>(
    face: &'a A2a,
    cx: &'a FaceContext,
    caller: &'a Caller,
    places: &'a Places,
    path: &str,
) -> Asked<'a> {
    Asked {
        face,
        cx,
        caller,
        agent: places.agent.as_deref().map(|name| cx.engine.own_name(name)),
        call: Call::at(path),
    }
}

/// The body that creates a config: the config itself in 1.0, wrapped once or twice in 0.3.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wrapped {
    config: Option<RawJson>,
    push_notification_config: Option<RawJson>,
}

fn config_of(body: &[u8]) -> Result<Config, Fault> {
    let mut text: RawJson = capstan_protocol::decode::from_slice(body).map_err(|e| invalid(&e))?;
    while let Ok(Wrapped { config, push_notification_config }) =
        capstan_protocol::decode::from_str(text.get())
        && let Some(inner) = push_notification_config.or(config)
    {
        text = inner;
    }
    capstan_protocol::decode::from_str(text.get()).map_err(|e| invalid(&e))
}

async fn send(
    face: &A2a,
    cx: &FaceContext,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
    is_stream: bool,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let asked = asked(face, cx, caller, places, parts.uri.path());
    // The refusal of an invalid body has the version's own form.
    parts.extensions.insert(asked.call.clone());
    let Posted { body, load, .. } = post::read(cx, caller, face, &parts, body).await?;
    Box::pin(asked.send(parts, body.bytes(), load, is_stream)).await
}

async fn list(
    face: &A2a,
    cx: &FaceContext,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let asked = asked(face, cx, caller, places, parts.uri.path());
    let listed = async {
        let params: ListParams = query::parse(&parts.uri)?;
        Ok(asked.call.answer(asked.list(&params).await?))
    };
    listed.await.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)))
}

/// `GET tasks/{id}`, and `GET tasks/{id}:subscribe`.
async fn look(
    face: &A2a,
    cx: &FaceContext,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, _) = request.into_parts();
    let asked = asked(face, cx, caller, places, parts.uri.path());
    let looked = match places.task.strip_suffix(":subscribe") {
        Some(id) => {
            let response = asked.subscribe(&mut parts, id).await;
            response.map(|response| response.unwrap_or_else(|wrong| asked.call.refuse(&wrong)))
        }
        None => asked.get(&places.task).await.map(|task| asked.call.answer(task)),
    };
    looked.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)))
}

/// `POST tasks/{id}:cancel`, and `POST tasks/{id}:subscribe`.
async fn act(
    face: &A2a,
    cx: &FaceContext,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, _) = request.into_parts();
    let asked = asked(face, cx, caller, places, parts.uri.path());
    let done = async {
        let response = match places.task.rsplit_once(':') {
            Some((id, "cancel")) => {
                caller.check(Operation::StopAndRead)?;
                asked.cancel(id).await?.map(|task| asked.call.answer(task))
            }
            Some((id, "subscribe")) => {
                caller.check(Operation::Read)?;
                asked.subscribe(&mut parts, id).await?
            }
            _ => return Err(Fault::new(FaultKind::RouteNotFound)),
        };
        Ok(response.unwrap_or_else(|wrong| asked.call.refuse(&wrong)))
    };
    done.await.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)))
}

/// Creates, reads or deletes a push notification config.
async fn push(
    face: &A2a,
    cx: &FaceContext,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let asked = asked(face, cx, caller, places, parts.uri.path());
    let (task, id) = (&places.task, &places.config);
    let done = match parts.method {
        Method::POST => {
            let Posted { body, load: _load, .. } =
                post::read(cx, caller, face, &parts, body).await?;
            match config_of(body.bytes()) {
                Ok(config) => Box::pin(asked.push_set(task, config)).await,
                Err(fault) => Err(fault),
            }
        }
        Method::DELETE => asked.push_delete(task, id).await.map(Ok),
        _ if id.is_empty() => asked.push_list(task).await.map(Ok),
        _ => asked.push_get(task, id).await.map(Ok),
    };
    let response = done.map(|response| match response {
        Ok(value) => asked.call.answer(value),
        Err(wrong) => asked.call.refuse(&wrong),
    });
    response.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)))
}

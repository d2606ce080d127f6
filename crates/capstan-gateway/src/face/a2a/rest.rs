//! HTTP+JSON of version 1.0. A task and what is done with it stand in one place of the path: `tasks/{id}:cancel`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use capstan_protocol::{Fault, FaultKind};
use futures_util::future::BoxFuture;
use http::Method;

use super::call::Call;
use super::requests::{Asked, ListParams};
use super::{A2a, rows};
use crate::access::Caller;
use crate::app::App;
use crate::ask::invalid;
use crate::face::{self, Asker};
use crate::openapi::{self, Routes};
use crate::refusal::Refusal;
use crate::{post, query};

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
    &'a App,
    &'a Caller,
    &'a Places,
    HttpRequest,
) -> BoxFuture<'a, Result<Response, Refusal>>;

pub(super) fn routes(face: &Arc<A2a>) -> Routes {
    let handler = |serve: Serve| {
        let face = face.clone();
        async move |State(app): State<App>,
                    Extension(caller): Extension<Caller>,
                    Path(path): Path<Vec<(String, String)>>,
                    request: HttpRequest| {
            serve(&face, &app, &caller, &Places::of(path), request).await
        }
    };
    let to_send: Serve = |f, a, c, p, r| Box::pin(send(f, a, c, p, r, false));
    let to_stream: Serve = |f, a, c, p, r| Box::pin(send(f, a, c, p, r, true));
    let to_list: Serve = |f, a, c, p, r| Box::pin(list(f, a, c, p, r));
    let to_look: Serve = |f, a, c, p, r| Box::pin(look(f, a, c, p, r));
    let to_act: Serve = |f, a, c, p, r| Box::pin(act(f, a, c, p, r));
    let to_push: Serve = |f, a, c, p, r| Box::pin(push(f, a, c, p, r));
    let pushing = |routes: Routes, [all, one]: [&'static str; 2], rows: [&'static openapi::Row; 4]| {
        let [set, list, get, delete] = rows;
        routes
            .post(all, handler(to_push), set)
            .get(all, handler(to_push), list)
            .get(one, handler(to_push), get)
            .delete(one, handler(to_push), delete)
    };
    let routes = pushing(
        Routes::default(),
        [
            "/v1/a2a/tasks/{task}/pushNotificationConfigs",
            "/v1/a2a/tasks/{task}/pushNotificationConfigs/{config}",
        ],
        [&rows::PUSH_SET, &rows::PUSH_LIST, &rows::PUSH_GET, &rows::PUSH_DELETE],
    );
    let places = [
        "/v1/agents/{name}/a2a/tasks/{task}/pushNotificationConfigs",
        "/v1/agents/{name}/a2a/tasks/{task}/pushNotificationConfigs/{config}",
    ];
    let of_agent = [
        &rows::PUSH_SET_OF_AGENT,
        &rows::PUSH_LIST_OF_AGENT,
        &rows::PUSH_GET_OF_AGENT,
        &rows::PUSH_DELETE_OF_AGENT,
    ];
    pushing(routes, places, of_agent)
        .post("/v1/a2a/message:send", handler(to_send), &rows::SEND)
        .post("/v1/a2a/message:stream", handler(to_stream), &rows::STREAM)
        .get("/v1/a2a/tasks", handler(to_list), &rows::LIST)
        .get("/v1/a2a/tasks/{task}", handler(to_look), &rows::GET)
        .post("/v1/a2a/tasks/{task}", handler(to_act), &rows::ACT)
        .post("/v1/agents/{name}/a2a/message:send", handler(to_send), &rows::SEND_TO_AGENT)
        .post("/v1/agents/{name}/a2a/message:stream", handler(to_stream), &rows::STREAM_OF_AGENT)
        .get("/v1/agents/{name}/a2a/tasks", handler(to_list), &rows::LIST_OF_AGENT)
        .get("/v1/agents/{name}/a2a/tasks/{task}", handler(to_look), &rows::GET_OF_AGENT)
        .post("/v1/agents/{name}/a2a/tasks/{task}", handler(to_act), &rows::ACT_OF_AGENT)
}

fn asked<'a>(face: &'a A2a, app: &'a App, caller: &'a Caller, places: &'a Places) -> Asked<'a> {
    Asked { face, app, caller, agent: places.agent.as_deref(), call: Call::at("/v1/a2a/tasks") }
}

async fn send(
    face: &A2a,
    app: &App,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
    is_stream: bool,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let (body, load) = post::read(app, caller, face, &parts, body).await?;
    asked(face, app, caller, places).send(parts, &body, load, is_stream).await
}

async fn list(
    face: &A2a,
    app: &App,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let asked = asked(face, app, caller, places);
    let listed = async {
        let params: ListParams = query::parse(&parts.uri)?;
        Ok(asked.call.answer(asked.list(&params).await?))
    };
    listed.await.map_err(|fault| face::refusal(app, face, fault, Asker::Viewer(&parts)))
}

/// `GET tasks/{id}`, and `GET tasks/{id}:subscribe`.
async fn look(
    face: &A2a,
    app: &App,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, _) = request.into_parts();
    let asked = asked(face, app, caller, places);
    let looked = match places.task.strip_suffix(":subscribe") {
        Some(id) => {
            let told = asked.subscribe(&mut parts, id).await;
            told.map(|told| told.unwrap_or_else(|wrong| asked.call.refuse(&wrong)))
        }
        None => asked.get(&places.task).await.map(|task| asked.call.answer(task)),
    };
    looked.map_err(|fault| face::refusal(app, face, fault, Asker::Viewer(&parts)))
}

/// `POST tasks/{id}:cancel`, and `POST tasks/{id}:subscribe`.
async fn act(
    face: &A2a,
    app: &App,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, _) = request.into_parts();
    let asked = asked(face, app, caller, places);
    let done = match places.task.rsplit_once(':') {
        Some((id, "cancel")) => asked.cancel(id).await.map(|told| match told {
            Ok(task) => asked.call.answer(task),
            Err(wrong) => asked.call.refuse(&wrong),
        }),
        Some((id, "subscribe")) => {
            let told = asked.subscribe(&mut parts, id).await;
            told.map(|told| told.unwrap_or_else(|wrong| asked.call.refuse(&wrong)))
        }
        _ => Err(Fault::new(FaultKind::RouteNotFound)),
    };
    done.map_err(|fault| face::refusal(app, face, fault, Asker::Viewer(&parts)))
}

/// Who wants to be told of a task: asked, answered, forgotten.
async fn push(
    face: &A2a,
    app: &App,
    caller: &Caller,
    places: &Places,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let asked = asked(face, app, caller, places);
    let (task, id) = (&places.task, &places.config);
    let done = match parts.method {
        Method::POST => {
            let (body, _load) = post::read(app, caller, face, &parts, body).await?;
            let config = capstan_protocol::decode::from_slice(&body).map_err(|e| invalid(&e));
            match config {
                Ok(config) => asked.push_set(task, config).await,
                Err(fault) => Err(fault),
            }
        }
        Method::DELETE => asked.push_delete(task, id).await.map(Ok),
        _ if id.is_empty() => asked.push_list(task).await.map(Ok),
        _ => asked.push_get(task, id).await.map(Ok),
    };
    let told = done.map(|told| match told {
        Ok(value) => asked.call.answer(value),
        Err(wrong) => asked.call.refuse(&wrong),
    });
    told.map_err(|fault| face::refusal(app, face, fault, Asker::Viewer(&parts)))
}

//! JSON-RPC: both versions at one address, told apart by the names of their methods.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use capstan_protocol::{Fault, RawJson};
use serde::Deserialize;
use serde_json::Value;

use super::call::{Call, Wrong};
use super::requests::{Asked, ListParams};
use super::words::Version;
use super::{A2a, rows};
use crate::access::Caller;
use crate::app::App;
use crate::ask::invalid;
use crate::openapi::Routes;
use crate::post;
use crate::refusal::Refusal;

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: String,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    method: String,
    params: Option<RawJson>,
}

#[derive(Clone, Copy)]
enum Method {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
}

fn method(name: &str) -> Option<(Method, Version)> {
    Some(match name {
        "SendMessage" => (Method::Send, Version::V1),
        "SendStreamingMessage" => (Method::Stream, Version::V1),
        "GetTask" => (Method::Get, Version::V1),
        "ListTasks" => (Method::List, Version::V1),
        "CancelTask" => (Method::Cancel, Version::V1),
        "SubscribeToTask" => (Method::Subscribe, Version::V1),
        "message/send" => (Method::Send, Version::V03),
        "message/stream" => (Method::Stream, Version::V03),
        "tasks/get" => (Method::Get, Version::V03),
        "tasks/cancel" => (Method::Cancel, Version::V03),
        "tasks/resubscribe" => (Method::Subscribe, Version::V03),
        _ => return None,
    })
}

pub(super) fn routes(face: &Arc<A2a>) -> Routes {
    let handler = |face: Arc<A2a>| {
        async move |State(app): State<App>,
                    Extension(caller): Extension<Caller>,
                    agent: Option<Path<String>>,
                    request: HttpRequest| {
            let agent = agent.as_ref().map(|Path(name)| name.as_str());
            call(&face, &app, &caller, agent, request).await
        }
    };
    Routes::default().post("/v1/a2a", handler(face.clone()), &rows::RPC).post(
        "/v1/agents/{name}/a2a",
        handler(face.clone()),
        &rows::RPC_OF_AGENT,
    )
}

async fn call(
    face: &A2a,
    app: &App,
    caller: &Caller,
    agent: Option<&str>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(Call::at("/v1/a2a"));
    let (body, load) = post::read(app, caller, face, &parts, body).await?;
    let unread = Call::at("/v1/a2a");
    let envelope: Envelope = match serde_json::from_slice(&body) {
        Ok(envelope) => envelope,
        Err(error) => {
            return Ok(unread.refuse(&Wrong::unparsable(format!("The body is no JSON-RPC call: {error}."))));
        }
    };
    let call = Call { id: Some(envelope.id), ..unread };
    if envelope.jsonrpc != "2.0" {
        return Ok(call.refuse(&Wrong::invalid_call("jsonrpc: expected \"2.0\"")));
    }
    let Some((method, version)) = method(&envelope.method) else {
        return Ok(call.refuse(&Wrong::unknown_method(&envelope.method)));
    };
    let params = envelope.params.as_ref().map_or("{}", RawJson::get);
    let asked = Asked { face, app, caller, agent, call: Call { version, ..call } };
    let answered = match method {
        Method::Send | Method::Stream => {
            return asked.send(parts, params.as_bytes(), load, matches!(method, Method::Stream)).await;
        }
        Method::Get => match id_of(params) {
            Ok(id) => asked.get(&id).await.map(|task| asked.call.answer(task)),
            Err(fault) => Err(fault),
        },
        Method::List => match serde_json::from_str::<ListParams>(params) {
            Ok(params) => asked.list(&params).await.map(|tasks| asked.call.answer(tasks)),
            Err(error) => Ok(asked.call.refuse(&Wrong::invalid_call(format!("params: {error}")))),
        },
        Method::Cancel => match id_of(params) {
            Ok(id) => asked.cancel(&id).await.map(|told| match told {
                Ok(task) => asked.call.answer(task),
                Err(wrong) => asked.call.refuse(&wrong),
            }),
            Err(fault) => Err(fault),
        },
        Method::Subscribe => match id_of(params) {
            Ok(id) => asked
                .subscribe(&mut parts, &id)
                .await
                .map(|told| told.unwrap_or_else(|wrong| asked.call.refuse(&wrong))),
            Err(fault) => Err(fault),
        },
    };
    Ok(answered.unwrap_or_else(|fault| asked.wrong(&fault)))
}

fn id_of(params: &str) -> Result<String, Fault> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    capstan_protocol::decode::from_str::<Named>(params).map(|named| named.id).map_err(|e| invalid(&e))
}

//! JSON-RPC: both versions at one address, distinguished by the names of their methods.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use capstan_protocol::{Fault, RawJson};
use serde::Deserialize;
use serde_json::Value;

use super::call::{self, Call, Wrong};
use super::methods::{METHODS, Method};
use super::push_config::Config;
use super::requests::{Asked, ListParams};
use super::version::Version;
use super::{A2a, card, rows};
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::{self, RefusalTarget};
use crate::identity::caller::Caller;
use crate::openapi::Routes;
use crate::refusal::Refusal;
use capstan_engine::ask::invalid;

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    jsonrpc: Value,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    method: Value,
    params: Option<RawJson>,
}

impl Envelope {
    /// The method's name, or why the body is no call.
    fn method(&self) -> Result<&str, &'static str> {
        if self.jsonrpc != "2.0" {
            return Err("jsonrpc: expected \"2.0\"");
        }
        if !is_id(&self.id) {
            return Err("id: expected a string, a number or null");
        }
        self.method.as_str().ok_or("method: expected a string")
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_number() || id.is_null()
}

pub(super) fn routes(face: &Arc<A2a>) -> Routes<FaceContext> {
    let handler = |face: Arc<A2a>| {
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    agent: Option<Path<String>>,
                    request: HttpRequest| {
            let agent = agent.as_ref().map(|Path(name)| cx.engine.own_name(name));
            // Boxed, because this future is large.
            Box::pin(call(&face, &cx, &caller, agent, request)).await
        }
    };
    // Also with a slash, because some HTTP clients append one to every base address.
    Routes::default()
        .post("/v1/a2a", handler(face.clone()), &rows::RPC)
        .post_also("/v1/a2a/", handler(face.clone()), &rows::RPC)
        .post("/v1/agents/{name}/a2a", handler(face.clone()), &rows::RPC_OF_AGENT)
        .post_also("/v1/agents/{name}/a2a/", handler(face.clone()), &rows::RPC_OF_AGENT)
}

async fn call(
    face: &A2a,
    cx: &FaceContext,
    caller: &Caller,
    agent: Option<&str>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(Call::at("/v1/a2a"));
    let Posted { body, load, .. } = post::read(cx, caller, face, &parts, body).await?;
    let unread = Call::at("/v1/a2a");
    let envelope: Envelope = match serde_json::from_slice(body.bytes()) {
        Ok(envelope) => envelope,
        Err(error) => {
            let message = format!("The body is not a JSON-RPC call: {error}.");
            let is_json = error.is_data();
            let wrong =
                if is_json { Wrong::invalid_call(message) } else { Wrong::unparsable(message) };
            return Ok(unread.refuse(&wrong));
        }
    };
    let id = if is_id(&envelope.id) { envelope.id.clone() } else { Value::Null };
    let call = Call { id: Some(id), ..unread };
    let name = match envelope.method() {
        Ok(name) => name,
        Err(why) => return Ok(call.refuse(&Wrong::invalid_call(why))),
    };
    if let Some(unknown) = call::unknown_version(&parts) {
        return Ok(call.refuse(&unknown));
    }
    let Some((_, method, version)) = METHODS.into_iter().find(|(known, ..)| *known == name) else {
        return Ok(call.refuse(&Wrong::unknown_method(name)));
    };
    let call = Call { version, ..call };
    if let Err(fault) = caller.check(method.operation()) {
        parts.extensions.insert(call);
        return Err(face::refusal(cx, face, fault, RefusalTarget::Viewer(&parts)));
    }
    let params = envelope.params.as_ref().map_or("{}", RawJson::get);
    let asked = Asked { face, cx, caller, agent, call };
    let answered = match method {
        Method::Send | Method::Stream => {
            let is_stream = matches!(method, Method::Stream);
            return Box::pin(asked.send(parts, params.as_bytes(), load, is_stream)).await;
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
            Ok(id) => asked.cancel(&id).await.map(|result| match result {
                Ok(task) => asked.call.answer(task),
                Err(wrong) => asked.call.refuse(&wrong),
            }),
            Err(fault) => Err(fault),
        },
        Method::Subscribe => match id_of(params) {
            Ok(id) => asked
                .subscribe(&mut parts, &id)
                .await
                .map(|response| response.unwrap_or_else(|wrong| asked.call.refuse(&wrong))),
            Err(fault) => Err(fault),
        },
        Method::Card => {
            card::extended(cx, agent, version, &parts).map(|card| asked.call.answer(card))
        }
        Method::PushSet | Method::PushGet | Method::PushList | Method::PushDelete => {
            Box::pin(push(&asked, method, params)).await
        }
    };
    Ok(answered.unwrap_or_else(|fault| asked.wrong(&fault)))
}

/// The parameters of calls about push notifications, in either version.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PushParams {
    #[serde(alias = "task_id")]
    task_id: String,
    /// The id of the config in 1.0, of the task in 0.3.
    id: String,
    push_notification_config_id: String,
    push_notification_config: Option<RawJson>,
}

async fn push(asked: &Asked<'_>, method: Method, params: &str) -> Result<Response, Fault> {
    let named: PushParams = capstan_protocol::decode::from_str(params).map_err(|e| invalid(&e))?;
    let is_old = asked.call.version == Version::V03;
    let (task, id) = match is_old {
        true if !named.id.is_empty() => (&named.id, &named.push_notification_config_id),
        _ => (&named.task_id, &named.id),
    };
    let answered = match method {
        Method::PushSet => {
            let config = named.push_notification_config.as_ref().map_or(params, RawJson::get);
            let config: Config =
                capstan_protocol::decode::from_str(config).map_err(|e| invalid(&e))?;
            match Box::pin(asked.push_set(task, config)).await? {
                Ok(response) => response,
                Err(wrong) => return Ok(asked.call.refuse(&wrong)),
            }
        }
        Method::PushList => asked.push_list(task).await?,
        Method::PushDelete => asked.push_delete(task, id).await?,
        Method::PushGet
        | Method::Send
        | Method::Stream
        | Method::Get
        | Method::List
        | Method::Cancel
        | Method::Subscribe
        | Method::Card => asked.push_get(task, id).await?,
    };
    Ok(asked.call.answer(answered))
}

fn id_of(params: &str) -> Result<String, Fault> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    capstan_protocol::decode::from_str::<Named>(params)
        .map(|named| named.id)
        .map_err(|e| invalid(&e))
}

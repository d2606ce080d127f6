//! Writes an OpenAPI 3.1 document from the rows. Statuses and codes of refusals come from the
//! catalogue.

use std::collections::BTreeMap;

use capstan_protocol::fault::Entry;
use capstan_protocol::{CATALOGUE, FaultKind, Problem, problem};
use serde_json::{Map, Value, json};

use super::models::Models;

use super::routes::Described;
use super::{Answer, Body, Content, Header, Link, REQUEST_ID, TENANT_ID, Tag, WAIT, model};
use crate::identity::tickets;

/// What holds for all routes.
const ABOUT: &str = "The run contract for AI agents: start once, stream, fail in types, resume \
 anywhere, stop on purpose.\n\nEvery refusal is a problem (RFC 9457) with a `code` of the \
 catalogue. Its `type` is the URL of a page that explains it. Every response has `X-Request-ID`. \
 Routes with GET also answer HEAD. Another method is 405 `method_not_allowed` with `Allow`, an \
 unknown path 404 `route_not_found`. Unknown query parameters are ignored, except those that look \
 like a key.\n\nA server without tenants needs no key, and serves its own machine only.";

/// The document, in the order of the routes.
pub fn document(routes: &[Described]) -> Value {
    let mut models = Models::new();
    let mut paths = Map::new();
    for route in routes {
        // OpenAPI has no wildcards, so one becomes an ordinary parameter.
        let path = paths.entry(route.path.replace("{*", "{")).or_insert_with(|| json!({}));
        if let Value::Object(methods) = path {
            methods.insert(route.method.to_owned(), operation(route, &mut models));
        }
    }
    let mut tags: Vec<&Tag> = Vec::new();
    for route in routes {
        if !tags.contains(&route.row.tag) {
            tags.push(route.row.tag);
        }
    }
    let tags: Vec<Value> =
        tags.iter().map(|tag| json!({ "name": tag.name, "description": tag.says })).collect();
    let mut document = json!({
        "openapi": "3.1.1",
        "info": {
            "title": "Capstan", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        // The address is relative to the document, because the routes may be mounted below others.
        "servers": [{ "url": "." }],
        "tags": tags,
        "paths": paths,
    });
    let components = components(routes, models.settle(&mut document));
    if let Value::Object(document) = &mut document {
        document.insert("components".into(), components);
    }
    document
}

fn security_schemes() -> Value {
    json!({
        "key": { "type": "http", "scheme": "bearer",
            "description": "A key of a tenant, from `capstan key new`. A server without tenants \
             needs none." },
        "ticket": { "type": "apiKey", "in": "query", "name": "ticket",
            "description": "A ticket for one stream, from `POST /v1/streams/{id}/ticket`: for an \
             EventSource, which cannot send a key." },
    })
}

fn operation(route: &Described, models: &mut Models) -> Value {
    let row = route.row;
    let mut operation = json!({
        "tags": [row.tag.name],
        "operationId": operation_id(route.method, route.path),
        "summary": row.summary,
        "description": row.says,
        "parameters": parameters(route, models),
        "responses": responses(route, models),
        "security": security(route),
    });
    if let (Some(body), Value::Object(operation)) = (row.body, &mut operation) {
        operation.insert("requestBody".into(), request_body(body, models));
    }
    operation
}

/// `get_v1_streams_id`: unique because a method and a path are.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn security(route: &Described) -> Value {
    match (route.needs_key, route.method, route.path) {
        (true, "get", tickets::STREAM | tickets::DURABLE_STREAM) => {
            json!([{ "key": [] }, { "ticket": [] }])
        }
        (true, _, _) => json!([{ "key": [] }]),
        (false, _, _) => json!([]),
    }
}

fn parameters(route: &Described, models: &mut Models) -> Vec<Value> {
    let row = route.row;
    let mut parameters = Vec::new();
    parameters.extend(row.places.iter().zip(placeholders(route.path)).map(|(place, name)| {
        json!({ "name": name, "in": "path", "required": true, "description": place.says,
            "schema": (place.schema)(), "example": place.example })
    }));
    if let Some(query) = row.query {
        parameters.extend(query_parameters(&models.read(query)));
    }
    let of_tenants = route.needs_key.then_some(&TENANT_ID);
    let headers = row.headers.iter().copied().chain(of_tenants).chain([&REQUEST_ID]);
    parameters.extend(headers.map(|header| reference("parameters", header)));
    parameters
}

fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}').map(|(name, _)| name.trim_start_matches('*')))
}

/// A parameter for each member of a struct.
fn query_parameters(schema: &Value) -> Vec<Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let parameters = members.map(|(name, member)| {
        let mut member = member.clone();
        let says = member.as_object_mut().and_then(|member| member.remove("description"));
        json!({ "name": name, "in": "query", "required": required.contains(&name.as_str()),
        "description": says,
            "schema": not_null(member) })
    });
    parameters.collect()
}

/// An absent parameter is absent; there is no way to say null in a query.
fn not_null(mut schema: Value) -> Value {
    let is_null = |kind: &Value| *kind == json!({ "type": "null" });
    if let Some(kinds) = schema.get("anyOf").and_then(Value::as_array) {
        return kinds.iter().find(|kind| !is_null(kind)).cloned().unwrap_or_default();
    }
    if let Some(kinds) = schema.get_mut("type")
        && let Some(kind) =
            kinds.as_array().and_then(|kinds| kinds.iter().find(|kind| *kind != "null")).cloned()
    {
        *kinds = kind;
    }
    if let Some(members) = schema.as_object_mut()
        && members.get("default").is_some_and(Value::is_null)
    {
        members.remove("default");
    }
    schema
}

fn request_body(body: &Body, models: &mut Models) -> Value {
    let examples: Map<String, Value> = body
        .examples
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!({ "value": value() })))
        .collect();
    json!({ "required": true, "description": body.says,
        "content": { "application/json": { "schema": models.read(body.model),
        "examples": examples } } })
}

fn responses(route: &Described, models: &mut Models) -> Map<String, Value> {
    let mut responses: Map<String, Value> = route
        .row
        .answers
        .iter()
        .map(|answer| (answer.status.to_string(), answer_object(answer, models)))
        .collect();
    for (status, entries) in faults(route) {
        // A status that is an answer's as well is described there.
        responses
            .entry(status.to_string())
            .or_insert_with(|| refusal(route, status, &entries, models));
    }
    responses
}

fn answer_object(answer: &Answer, models: &mut Models) -> Value {
    let mut response = json!({ "description": answer.says,
    "headers": headers(answer.headers.iter().copied().chain([&REQUEST_ID])) });
    if let Value::Object(response) = &mut response {
        if !answer.content.is_empty() {
            let content: Map<String, Value> =
                answer.content.iter().map(|c| content(c, models)).collect();
            response.insert("content".into(), content.into());
        }
        if !answer.links.is_empty() {
            let links: Map<String, Value> = answer.links.iter().map(link).collect();
            response.insert("links".into(), links.into());
        }
    }
    response
}

fn content(content: &Content, models: &mut Models) -> (String, Value) {
    match content {
        Content::Json(model) => {
            ("application/json".into(), json!({ "schema": models.written(*model) }))
        }
        Content::Events(model) => {
            ("text/event-stream".into(), json!({ "schema": event(models.written(*model)) }))
        }
        Content::Text(kind) => ((*kind).into(), json!({ "schema": { "type": "string" } })),
    }
}

/// Before 3.2 the schema of a stream is taken for that of each event.
fn event(data: Value) -> Value {
    json!({ "type": "object", "required": ["data"], "properties": {
        "id": { "type": "string", "description": "The cursor after it. A refusal has none." },
        "event": { "type": "string" },
        "data": { "type": "string", "contentMediaType": "application/json", "contentSchema": data },
    } })
}

fn link(link: &Link) -> (String, Value) {
    let id = operation_id(link.method, link.path);
    let parameters = json!({ link.parameter: link.value });
    (id.clone(), json!({ "operationId": id, "parameters": parameters }))
}

fn headers<'a>(headers: impl Iterator<Item = &'a Header>) -> Map<String, Value> {
    headers.map(|header| (header.name.to_owned(), reference("headers", header))).collect()
}

fn reference(group: &str, header: &Header) -> Value {
    json!({ "$ref": format!("#/components/{group}/{}", header.name) })
}

/// Components that many routes share.
fn components(routes: &[Described], schemas: Value) -> Value {
    let of_request = |header: &Header| {
        json!({ "name": header.name, "in": "header",
    "description": header.says, "schema": (header.schema)() })
    };
    let of_response =
        |header: &Header| json!({ "description": header.says, "schema": (header.schema)() });
    let of_rows = routes.iter().flat_map(|route| route.row.headers).copied();
    let sent = of_rows.chain([&TENANT_ID, &REQUEST_ID]);
    let of_answers =
        routes.iter().flat_map(|route| route.row.answers).flat_map(|answer| answer.headers);
    let headers = of_answers.copied().chain([&WAIT, &REQUEST_ID]);
    json!({
        "parameters": sent.map(|header| (header.name.to_owned(),
        of_request(header))).collect::<Map<_, _>>(),
        "headers": headers.map(|header| (header.name.to_owned(),
        of_response(header))).collect::<Map<_, _>>(),
        "securitySchemes": security_schemes(),
        "schemas": schemas,
    })
}

/// All faults of a route by status: its own, and those of the layers before it.
fn faults(route: &Described) -> BTreeMap<u16, Vec<&'static Entry>> {
    // The guard of a gateway without tenants may refuse any route.
    let mut kinds = vec![FaultKind::TenantUnauthorized];
    if route.needs_key {
        kinds.extend([FaultKind::TenantRequired, FaultKind::InvalidRequest]);
    }
    if route.row.query.is_some() || placeholders(route.path).next().is_some() {
        kinds.push(FaultKind::InvalidRequest);
    }
    kinds.extend(route.row.faults);
    let is_possible = |entry: &&Entry| route.row.tells_of_run || kinds.contains(&entry.kind);
    let mut by_status = BTreeMap::<u16, Vec<_>>::new();
    for entry in CATALOGUE.iter().filter(is_possible) {
        let status = route.row.refusals.map_or(entry.status, |refusals| (refusals.status)(entry));
        by_status.entry(status).or_default().push(entry);
    }
    by_status
}

/// Problem details with one of these codes.
fn refusal(route: &Described, status: u16, entries: &[&Entry], models: &mut Models) -> Value {
    let lines: Vec<String> =
        entries.iter().map(|entry| format!("- `{}`: {}", entry.code, entry.meaning)).collect();
    let refusal_object = |content: Map<String, Value>| {
        json!({ "description": lines.join("\n"),
    "headers": headers([&WAIT, &REQUEST_ID].into_iter()), "content": content })
    };
    if let Some(refusals) = route.row.refusals {
        return refusal_object([content(&refusals.content, models)].into_iter().collect());
    }
    let codes: Vec<&str> = entries.iter().map(|entry| entry.code).collect();
    // An agent may report a code of its own, with the status of an unclassified failure.
    let is_open =
        route.row.tells_of_run && entries.iter().any(|e| e.kind == FaultKind::AgentExecutionError);
    let code = if is_open { json!({ "examples": codes }) } else { json!({ "enum": codes }) };
    let schema = json!({ "allOf": [models.written(model::<Problem>)],
        "properties": { "code": code, "status": { "const": status } } });
    refusal_object(
        [(problem::CONTENT_TYPE.to_owned(), json!({ "schema": schema }))].into_iter().collect(),
    )
}

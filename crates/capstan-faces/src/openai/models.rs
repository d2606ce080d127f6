//! `/v1/models`: lists the agents as models. Anthropic's clients use the same path.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::FaultKind;
use http::HeaderMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::json;

use super::errors::{self, REFUSALS};
use crate::face::FaceContext;
use crate::face::RefusalTarget;
use crate::face::models::{self, ModelInfo, ModelPage, Page};
use crate::openapi::{Answer, Content, PathParameter, Row, Tag, model};
use crate::query::Query;
use crate::refusal::Refusal;
use capstan_engine::Registered;

pub(super) const TAG: Tag = Tag { name: "OpenAI", says: "The same runs in OpenAI's API." };

/// An agent.
#[derive(Serialize, JsonSchema)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    /// Agents are as old as the configuration, which has no date.
    created: u64,
    owned_by: &'static str,
}

impl<'a> From<&'a str> for Model<'a> {
    fn from(name: &'a str) -> Self {
        Self { id: name, object: "model", created: 0, owned_by: "capstan" }
    }
}

/// The list of agents.
#[derive(Serialize, JsonSchema)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

pub(super) const LIST: Row = Row {
    tag: &TAG,
    summary: "List the models",
    says: "The agents are the models: the default one first, each followed by its aliases. With \
     the header `anthropic-version` the list has Anthropic's format, in pages.",
    query: Some(model::<Page>),
    answers: &[Answer::ok("The agents.", &[Content::Json(list_of_either)])],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

pub(super) const GET: Row = Row {
    tag: &TAG,
    summary: "Look up a model",
    says: "An agent by its name or an alias. With the header `anthropic-version` it has \
     Anthropic's format.",
    places: &[&NAME],
    answers: &[Answer::ok("The agent.", &[Content::Json(either)])],
    faults: &[FaultKind::AgentNotFound],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

fn list_of_either(generator: &mut SchemaGenerator) -> Schema {
    let (own, other) = (model::<ModelList<'_>>(generator), model::<ModelPage<'_>>(generator));
    json_schema!({ "anyOf": [own, other] })
}

fn either(generator: &mut SchemaGenerator) -> Schema {
    let (own, other) = (model::<Model<'_>>(generator), model::<ModelInfo<'_>>(generator));
    json_schema!({ "anyOf": [own, other] })
}

const NAME: PathParameter = PathParameter {
    says: "The name of an agent.",
    schema: || json!({ "type": "string" }),
    example: "demo",
};

pub(super) async fn list(
    State(cx): State<FaceContext>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Response {
    let default = cx.engine.default_agent().map(|agent| agent.id);
    let mut agents: Vec<_> = cx.engine.agents().collect();
    agents.sort_by_key(|agent| (Some(agent.id) != default, agent.name.clone()));
    let names = agents.into_iter().flat_map(Registered::names);
    if models::is_anthropics(&headers) {
        return models::list(&names.collect::<Vec<_>>(), &page);
    }
    let data = names.map(Model::from).collect();
    Json(ModelList { object: "list", data }).into_response()
}

pub(super) async fn get(
    State(cx): State<FaceContext>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let is_anthropics = models::is_anthropics(&headers);
    let is_answered = is_anthropics && models::is_anthropics_name(&name);
    if cx.engine.agent(&name).is_some() || is_answered {
        return Ok(match is_anthropics {
            true => models::get(&name),
            false => Json(Model::from(&*name)).into_response(),
        });
    }
    let fault = cx.engine.no_agent(&name);
    let shaped = if is_anthropics {
        models::unknown(fault.message())
    } else {
        errors::response(&cx, &fault, RefusalTarget::BeforeFace("/v1/models"))
    };
    Err(Refusal::from(fault).shaped_as(Some(shaped)))
}

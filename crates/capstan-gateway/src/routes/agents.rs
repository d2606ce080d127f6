//! `GET /v1/agents`: which agents there are, the default one first.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::App;

pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let default = app.default_agent().map(|agent| agent.id);
    let mut agents: Vec<_> = app.agents().collect();
    agents.sort_by_key(|agent| (Some(agent.id) != default, agent.name.clone()));
    let entries =
        agents.iter().map(|agent| json!({ "name": &*agent.name, "id": agent.id })).collect::<Vec<_>>();
    Json(json!({ "agents": entries }))
}

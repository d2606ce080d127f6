//! The agents as a list of models in Anthropic's format. Its clients use the same address as
//! OpenAI's clients, and send a header of their own.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelInfo<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    display_name: &'a str,
    /// Agents are as old as the configuration, which has no date.
    created_at: &'static str,
    lifecycle: &'static str,
    /// The gateway does not know the following of an agent.
    capabilities: Option<()>,
    deprecated_at: Option<()>,
    retires_at: Option<()>,
    line: Option<()>,
    max_input_tokens: Option<()>,
    max_tokens: Option<()>,
}

impl<'a> From<&'a str> for ModelInfo<'a> {
    fn from(name: &'a str) -> Self {
        Self {
            kind: "model",
            id: name,
            display_name: name,
            created_at: "1970-01-01T00:00:00Z",
            lifecycle: "active",
            capabilities: None,
            deprecated_at: None,
            retires_at: None,
            line: None,
            max_input_tokens: None,
            max_tokens: None,
        }
    }
}

/// A page of models.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelPage<'a> {
    data: Vec<ModelInfo<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

/// The query for a page. OpenAI's clients get all models at once.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Page {
    /// How many at most, for Anthropic's clients (20).
    limit: Option<u16>,
    /// Those behind this one, for Anthropic's clients.
    after_id: Option<String>,
    /// Those before this one, for Anthropic's clients.
    before_id: Option<String>,
}

/// Anthropic's default size of a page.
const USUAL: usize = 20;
const MOST: usize = 1000;

/// Whether a name is one of Anthropic's models, as its clients have them built in. The first agent
/// answers for those that no agent has.
pub fn is_anthropics_name(name: &str) -> bool {
    name == "default" || name.starts_with("claude") || name.starts_with("anthropic")
}

/// Whether the request is from a client of Anthropic's API.
pub fn is_anthropics(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// Builds a page of these names.
pub fn list(names: &[&str], page: &Page) -> Response {
    let place = |id: &Option<String>| {
        id.as_ref().and_then(|id| names.iter().position(|name| *name == id.as_str()))
    };
    let limit = page.limit.map_or(USUAL, usize::from).clamp(1, MOST);
    let (from, to) = match (place(&page.after_id), place(&page.before_id)) {
        (_, Some(before)) => (before.saturating_sub(limit), before),
        (Some(after), None) => (after + 1, (after + 1 + limit).min(names.len())),
        (None, None) => (0, limit.min(names.len())),
    };
    let shown = names.get(from..to).unwrap_or_default();
    let page = ModelPage {
        data: shown.iter().copied().map(ModelInfo::from).collect(),
        has_more: if page.before_id.is_some() { from > 0 } else { to < names.len() },
        first_id: shown.first().copied(),
        last_id: shown.last().copied(),
    };
    Json(page).into_response()
}

/// Builds the model of an agent.
pub fn get(name: &str) -> Response {
    Json(ModelInfo::from(name)).into_response()
}

/// The error for an unknown model.
pub fn unknown(message: &str) -> Response {
    let error = json!({ "type": "not_found_error", "message": format!("model: {message}") });
    (StatusCode::NOT_FOUND, Json(json!({ "type": "error", "error": error }))).into_response()
}

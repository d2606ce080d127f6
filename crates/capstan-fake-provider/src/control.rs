//! Requests that are no call of a model: the provider's own routes, and small routes that clients
//! of providers need.

use serde_json::{Value, json};

use crate::fault::FAULTS;
use crate::question::Question;
use crate::request::Request;
use crate::rule::{Rule, RuleError};
use crate::shared::Shared;
use crate::step::Step;

/// The route that lists the calls.
const CALLS: &str = "/fake/calls";
/// The route that returns the faults, or replaces them by a body of rules.
const FAULTS_ROUTE: &str = "/fake/faults";
/// When all models came out.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// The answer to a request that is no call of a model.
pub(crate) fn answer(request: &Request, shared: &Shared) -> Step {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", CALLS) => document(200, json!({ "calls": shared.calls() })),
        ("GET", FAULTS_ROUTE) => document(200, rules(&shared.faults())),
        ("PUT" | "POST", FAULTS_ROUTE) => match read(&request.body) {
            Ok(faults) => {
                shared.set_faults(faults.clone());
                document(200, rules(&faults))
            }
            Err(error) => document(400, json!({ "error": { "message": error.to_string() } })),
        },
        (method, path) => provided(method, path, request, shared),
    }
}

/// Routes of a provider beside its models. Their calls are recorded.
fn provided(method: &str, path: &str, request: &Request, shared: &Shared) -> Step {
    let (api, answer) = match (method, path) {
        ("HEAD", _) => ("probe", empty()),
        ("GET", path) if path.ends_with("/models") => {
            ("models", document(200, models(request, shared)))
        }
        ("GET", path) if path.contains("/models/") => {
            let name = path.rsplit('/').next().unwrap_or_default();
            ("models", document(200, model(name, is_anthropic(request))))
        }
        ("POST", path) if path.ends_with("/count_tokens") => {
            let tokens = Question::parse(&request.json()).prompt_tokens;
            ("count-tokens", document(200, json!({ "input_tokens": tokens })))
        }
        // It speaks no WebSocket. Clients switch to a plain stream at this status.
        ("GET", path) if path.ends_with("/responses") => {
            let message = "There is no WebSocket here.";
            ("unknown", document(426, json!({ "error": { "message": message } })))
        }
        (method, path) => {
            let message = format!(
                "nothing at {method} {path}; there are POST …/chat/completions, …/responses, \
                 …/messages and …/messages/count_tokens, GET …/models, \
                 GET {CALLS}, GET and PUT {FAULTS_ROUTE}"
            );
            ("unknown", document(404, json!({ "error": { "message": message } })))
        }
    };
    shared.note(request, api);
    answer
}

/// A response without a body, as HEAD wants it.
fn empty() -> Step {
    Step::Whole { status: 200, kind: "application/json", headers: Vec::new(), body: Vec::new() }
}

fn document(status: u16, body: Value) -> Step {
    Step::Whole {
        status,
        kind: "application/json",
        headers: Vec::new(),
        body: format!("{body}\n").into_bytes(),
    }
}

/// The script's models, then those with names of faults.
fn models(request: &Request, shared: &Shared) -> Value {
    let mut names = shared.script().models.clone();
    names.extend(FAULTS.iter().map(|row| row.name.to_owned()));
    let is_anthropic = is_anthropic(request);
    let models: Vec<Value> = names.iter().map(|name| model(name, is_anthropic)).collect();
    if is_anthropic {
        json!({ "data": models, "has_more": false, "first_id": names.first(),
        "last_id": names.last() })
    } else {
        json!({ "object": "list", "data": models })
    }
}

fn model(name: &str, is_anthropic: bool) -> Value {
    if is_anthropic {
        json!({ "type": "model", "id": name, "display_name": name, "created_at": CREATED })
    } else {
        json!({ "id": name, "object": "model", "owned_by": "fake" })
    }
}

/// Whether the client is Anthropic's: those send the version of the API.
fn is_anthropic(request: &Request) -> bool {
    request.headers.iter().any(|(name, _)| name == "anthropic-version")
}

fn rules(faults: &[Rule]) -> Value {
    json!({ "faults": faults.iter().map(ToString::to_string).collect::<Vec<_>>() })
}

/// Rules by comma, space or line; `none` for a healthy provider.
fn read(body: &[u8]) -> Result<Vec<Rule>, RuleError> {
    let text = String::from_utf8_lossy(body);
    let words = text.split([',', ' ', '\n', '\r', '\t']).map(str::trim);
    words.filter(|word| !word.is_empty() && *word != "none").map(str::parse).collect()
}

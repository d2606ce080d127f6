//! The provider's own routes, beside those that it pretends to have: what it was asked, and what
//! goes wrong next.

use serde_json::json;

use crate::connection::Request;
use crate::fault::FAULTS;
use crate::response::Step;
use crate::rule::{Rule, RuleError};
use crate::shared::Shared;

/// What came in.
const CALLS: &str = "/fake/calls";
/// What goes wrong: read, or replaced by a body of rules.
const FAULTS_ROUTE: &str = "/fake/faults";

/// The answer to a request that is no call.
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
        ("GET", path) if path.ends_with("/models") => {
            let model = |row: &crate::fault::Row| {
                json!({ "id": row.name, "object": "model",
            "owned_by": "fake" })
            };
            document(
                200,
                json!({ "object": "list", "data": FAULTS.iter().map(model).collect::<Vec<_>>() }),
            )
        }
        (method, path) => {
            let message = format!(
                "nothing at {method} {path}; there are POST …/chat/completions, …/responses and \
                 …/messages, GET …/models, \
                 GET {CALLS}, GET and PUT {FAULTS_ROUTE}"
            );
            document(404, json!({ "error": { "message": message } }))
        }
    }
}

fn document(status: u16, body: serde_json::Value) -> Step {
    Step::Whole {
        status,
        kind: "application/json",
        headers: Vec::new(),
        body: format!("{body}\n").into_bytes(),
    }
}

fn rules(faults: &[Rule]) -> serde_json::Value {
    json!({ "faults": faults.iter().map(ToString::to_string).collect::<Vec<_>>() })
}

/// Rules by comma, space or line; `none` for a healthy provider.
fn read(body: &[u8]) -> Result<Vec<Rule>, RuleError> {
    let text = String::from_utf8_lossy(body);
    let words = text.split([',', ' ', '\n', '\r', '\t']).map(str::trim);
    words.filter(|word| !word.is_empty() && *word != "none").map(str::parse).collect()
}

//! Request bodies, with working examples.

use schemars::Schema;
use serde_json::{Value, json};

use super::Model;

/// A request body in JSON.
pub struct Body {
    pub says: &'static str,
    pub model: Model,
    /// By name; the first is the one of the page. Each is a request that works.
    pub examples: &'static [Example],
}

/// A name and a body.
pub(super) type Example = (&'static str, fn() -> Value);

/// A schema of messages with at least one user message.
pub fn of_user(mut messages: Schema) -> Schema {
    let user = json!({ "required": ["role"], "properties": { "role": { "const": "user" } } });
    messages.insert("contains".into(), user);
    messages
}

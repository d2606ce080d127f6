//! What is posted, and examples of it that work.

use schemars::Schema;
use serde_json::{Value, json};

use super::Model;

/// What is posted, always as JSON.
pub struct Body {
    pub says: &'static str,
    pub model: Model,
    /// By name; the first is the one of the page. Each is a request that works.
    pub examples: &'static [Example],
}

/// A name and a body.
pub(super) type Example = (&'static str, fn() -> Value);

/// Messages of which one is a user's.
pub fn of_user(mut messages: Schema) -> Schema {
    let user = json!({ "required": ["role"], "properties": { "role": { "const": "user" } } });
    messages.insert("contains".into(), user);
    messages
}

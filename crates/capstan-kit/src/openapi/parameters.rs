//! The parameters of paths, each described once.

use capstan_protocol::CATALOGUE;
use serde_json::{Value, json};

/// A parameter of a path.
pub struct PathParameter {
    pub says: &'static str,
    pub schema: fn() -> Value,
    /// The value in examples.
    pub example: &'static str,
}

pub const AGENT: PathParameter = PathParameter {
    says: "The agent's name, as `GET /v1/agents` lists it.",
    schema: text,
    example: "demo",
};

pub const STREAM: PathParameter = PathParameter {
    says: "The stream, as `X-Stream-ID` names it.",
    schema: || json!({ "type": "string", "format": "uuid" }),
    example: "0198b0d5-6a2e-7c31-9f4e-2f1d3c5b7a90",
};

pub const SESSION: PathParameter = PathParameter {
    says: "The session: `context.session_id` of a request, `threadId` in AG-UI.",
    schema: text,
    example: "0198b0d5-11aa-7d42-8c3f-90e1b2a3c4d5",
};

pub const TENANT: PathParameter = PathParameter {
    says: "The tenant; `local` on a server without tenants.",
    schema: text,
    example: "local",
};

pub const SLUG: PathParameter = PathParameter {
    says: "The last part of a problem's `type`.",
    schema: || json!({ "enum": CATALOGUE.iter().map(|entry| entry.slug).collect::<Vec<_>>() }),
    example: "rate-limited",
};

pub const VIEW: PathParameter =
    PathParameter { says: "What the page shows.", schema: text, example: "runs" };

pub const FILE: PathParameter =
    PathParameter { says: "A file that the page at `/` names.", schema: text, example: "index.js" };

fn text() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

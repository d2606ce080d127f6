//! The headers that requests and responses carry, each described once.

use serde_json::{Value, json};

/// A header of requests or of responses.
pub struct Header {
    pub name: &'static str,
    pub says: &'static str,
    pub schema: fn() -> Value,
}

/// The last event that the client received.
pub const CURSOR: Header = Header {
    name: "Last-Event-ID",
    says: "Resume after this place: the last received `id:`, `<stream_id>:<seq>`. A bare \
     `<stream_id>` replays all. It takes precedence over `after`. An empty value counts as none.",
    schema: || {
        json!({ "type": "string", "pattern":
            "^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(:[0-9]{1,19}(\\.[0-9]{1,9})?)?)?$"
        })
    },
};

/// The trace id of requests and responses.
pub const REQUEST_ID: Header = Header {
    name: "X-Request-ID",
    says: "The id of this request in the logs: the client's own if it is plain and short, else a \
     new one. It is not the key of the run.",
    schema: text,
};

pub const TENANT_ID: Header = Header {
    name: "X-Tenant-ID",
    says: "If present, it must name the tenant of the key.",
    schema: text,
};

pub const ALLOW_RESET: Header = Header {
    name: "X-CAP-Accept",
    says: "`stream_reset`: the client can take back text when a later attempt says something \
     else. Without it a difference ends the run with `attempt_diverged`.",
    schema: text,
};

pub const KNOWN_TAG: Header =
    Header { name: "If-None-Match", says: "The `ETag` of the copy that is known.", schema: text };

pub const STREAM_ID: Header = Header {
    name: "X-Stream-ID",
    says: "The stream of the run.",
    schema: || json!({ "type": "string", "format": "uuid" }),
};

pub const STREAM_TICKET: Header = Header {
    name: "X-Stream-Ticket",
    says: "With tenants: a ticket with which an EventSource may watch the stream.",
    schema: text,
};

pub const WAIT: Header = Header {
    name: "Retry-After",
    says: "Seconds to wait before trying again, if that is known.",
    schema: || json!({ "type": "integer", "minimum": 0 }),
};

pub const ETAG: Header = Header { name: "ETag", says: "Names this copy.", schema: text };

fn text() -> Value {
    json!({ "type": "string" })
}

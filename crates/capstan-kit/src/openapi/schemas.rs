//! Answers that several routes share, and links to further routes.

use super::Link;

const STREAM: &str = "$response.header.X-Stream-ID";

pub const fn of_stream(method: &'static str, path: &'static str) -> Link {
    Link { method, path, parameter: "id", value: STREAM }
}

pub const fn of_session(method: &'static str, value: &'static str) -> Link {
    Link { method, path: "/v1/sessions/{id}", parameter: "id", value }
}

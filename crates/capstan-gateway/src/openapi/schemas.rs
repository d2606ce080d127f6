//! What several routes answer with, and where to go from there.

use capstan_protocol::agui::AguiEvent;
use capstan_protocol::{ServiceResponse, StreamPacket, v2};
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{Link, model};
use crate::access::WATCH;
use crate::answers::{RunMetrics, RunOutput};

/// A packet of either profile.
pub(crate) fn packets(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [model::<StreamPacket>(generator), model::<v2::StreamPacket>(generator)] })
}

/// A packet, or an event of AG-UI.
pub(crate) fn events_of_any_face(generator: &mut SchemaGenerator) -> Schema {
    let packets = [model::<StreamPacket>(generator), model::<v2::StreamPacket>(generator)];
    let [v1, v2] = packets;
    json_schema!({ "anyOf": [v1, v2, model::<AguiEvent>(generator)] })
}

/// A run in one object: the data contract's envelope with our output.
pub(crate) fn whole_run(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "allOf": [model::<ServiceResponse>(generator)], "properties": {
        "output": model::<RunOutput<'_>>(generator), "metrics": model::<RunMetrics<'_>>(generator) } })
}

const STREAM: &str = "$response.header.X-Stream-ID";

const fn of_stream(method: &'static str, path: &'static str) -> Link {
    Link { method, path, parameter: "id", value: STREAM }
}

const fn of_session(method: &'static str, value: &'static str) -> Link {
    Link { method, path: "/v1/sessions/{id}", parameter: "id", value }
}

/// What a run's stream and session can be asked.
pub(crate) const LINKS_OF_RUN: &[Link] = &[
    of_stream("get", WATCH),
    of_stream("get", "/v1/streams/{id}/packets"),
    of_stream("post", "/v1/streams/{id}/ticket"),
    of_stream("delete", WATCH),
    of_session("get", "$request.body#/context/session_id"),
    of_session("delete", "$request.body#/context/session_id"),
];

/// The same for a run that was started in AG-UI.
pub(crate) const LINKS_OF_INPUT: &[Link] = &[
    Link { method: "get", path: "/v1/ag-ui", parameter: "runId", value: "$request.body#/runId" },
    of_stream("get", WATCH),
    of_stream("get", "/v1/streams/{id}/packets"),
    of_stream("delete", WATCH),
    of_session("get", "$request.body#/threadId"),
    of_session("delete", "$request.body#/threadId"),
];

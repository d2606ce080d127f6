//! Models that only v2 has: events of an agent graph, stream references, agent capabilities.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::decode;

/// The forms in which an agent can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliveryMode {
    /// A stream.
    Sse,
    /// One answer.
    RequestResponse,
}

/// The abilities of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentCapabilities {
    /// The forms in which it can answer.
    #[serde(default = "sse_only")]
    pub delivery_mode: Vec<DeliveryMode>,
    /// Whether it accepts history.
    #[serde(default = "yes")]
    pub history_support: bool,
}

fn sse_only() -> Vec<DeliveryMode> {
    vec![DeliveryMode::Sse]
}

fn yes() -> bool {
    true
}

/// A named stream inside a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamReference {
    /// Its id.
    pub stream_id: String,
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The type of its content.
    #[serde(default = "plain_text")]
    pub content_type: String,
}

fn plain_text() -> String {
    "text/plain".into()
}

/// An event of an agent graph.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(transform = crate::schema::graph_event))]
pub struct GraphEvent {
    /// The run.
    pub run_id: String,
    /// The trace.
    pub trace_id: String,
    /// The node.
    pub node_id: String,
    /// Seconds since the Unix epoch.
    pub timestamp: f64,
    /// The place in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_id: Option<i64>,
    /// A hint for its display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visual_cue: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub kind: GraphEventKind,
}

/// An event in an agent graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event_type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GraphEventKind {
    /// A node began.
    NodeStart {
        /// The input.
        payload: Map<String, Value>,
    },
    /// A node produced a piece of a stream.
    NodeStream {
        /// The piece.
        chunk: String,
        /// The stream.
        #[serde(default = "default_stream")]
        stream_id: String,
    },
    /// A stream began.
    StreamStart {
        /// The stream.
        stream_id: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The type of its content.
        content_type: String,
    },
    /// A stream ended.
    StreamEnd {
        /// The stream.
        stream_id: String,
    },
    /// A node is done.
    NodeDone {
        /// The output.
        output: Map<String, Value>,
    },
    /// A node failed.
    Error {
        /// The error message.
        error_message: String,
        /// The place of the error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack_trace: Option<String>,
    },
    /// A council voted.
    CouncilVote {
        /// The votes.
        votes: Map<String, Value>,
    },
    /// A node was restored.
    NodeRestored {
        /// The status.
        status: String,
    },
    /// Something was made.
    ArtifactGenerated {
        /// The type.
        artifact_type: String,
        /// Its URL.
        url: String,
    },
}

fn default_stream() -> String {
    "default".into()
}

/// Each kind with the members that only it has, the longest list first. They identify the kind if
/// `event_type` is absent.
const TELLTALES: [(&str, &[&str]); 9] = [
    ("STREAM_START", &["stream_id", "content_type"]),
    ("ARTIFACT_GENERATED", &["artifact_type", "url"]),
    ("NODE_STREAM", &["chunk"]),
    ("NODE_START", &["payload"]),
    ("NODE_DONE", &["output"]),
    ("ERROR", &["error_message"]),
    ("COUNCIL_VOTE", &["votes"]),
    ("STREAM_END", &["stream_id"]),
    ("NODE_RESTORED", &["status"]),
];

#[derive(Deserialize)]
struct Base {
    run_id: String,
    trace_id: String,
    node_id: String,
    timestamp: f64,
    #[serde(default)]
    sequence_id: Option<i64>,
    #[serde(default)]
    visual_cue: Option<String>,
}

impl<'de> Deserialize<'de> for GraphEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = Map::deserialize(deserializer)?;
        if !members.contains_key("event_type") {
            let found = TELLTALES
                .iter()
                .find(|(_, names)| names.iter().all(|name| members.contains_key(*name)));
            let (kind, _) = found.ok_or_else(|| D::Error::missing_field("event_type"))?;
            members.insert("event_type".into(), (*kind).into());
        }
        let members = Value::Object(members);
        let base: Base = decode::from_value(&members).map_err(decode::nested)?;
        let kind = decode::from_value(&members).map_err(decode::nested)?;
        Ok(Self {
            run_id: base.run_id,
            trace_id: base.trace_id,
            node_id: base.node_id,
            timestamp: base.timestamp,
            sequence_id: base.sequence_id,
            visual_cue: base.visual_cue,
            kind,
        })
    }
}

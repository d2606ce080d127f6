//! The JSON of both versions of A2A. 1.0 names a state TASK_STATE_WORKING and wraps results. 0.3
//! has `kind` members in JSON-RPC, and another form in HTTP+JSON, whose clients refuse unknown
//! members.

use capstan_protocol::{MediaItem, Timestamp};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V03,
    /// 0.3 as HTTP+JSON.
    Rest03,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskState {
    Working,
    InputRequired,
    Completed,
    Canceled,
    Failed,
}

impl TaskState {
    fn word(self, version: Version) -> &'static str {
        match (version, self) {
            (Version::V1 | Version::Rest03, Self::Working) => "TASK_STATE_WORKING",
            (Version::V1 | Version::Rest03, Self::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
            (Version::V1 | Version::Rest03, Self::Completed) => "TASK_STATE_COMPLETED",
            (Version::V1, Self::Canceled) => "TASK_STATE_CANCELED",
            (Version::Rest03, Self::Canceled) => "TASK_STATE_CANCELLED",
            (Version::V1 | Version::Rest03, Self::Failed) => "TASK_STATE_FAILED",
            (Version::V03, Self::Working) => "working",
            (Version::V03, Self::InputRequired) => "input-required",
            (Version::V03, Self::Completed) => "completed",
            (Version::V03, Self::Canceled) => "canceled",
            (Version::V03, Self::Failed) => "failed",
        }
    }

    fn is_working(self) -> bool {
        self == Self::Working
    }
}

/// A task and its context, by their ids.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    pub(super) task: String,
    pub(super) context: String,
}

/// The status of a task: its state, with a message.
#[derive(Debug, Clone)]
pub(super) struct Status {
    pub(super) state: TaskState,
    pub(super) at: Timestamp,
    /// The message as a sentence, and as data.
    pub(super) says: Option<(String, Option<Value>)>,
    /// The id of the status message.
    pub(super) message_id: String,
}

impl Version {
    pub(super) fn text(self, text: &str) -> Value {
        match self {
            Self::V1 | Self::Rest03 => json!({ "text": text }),
            Self::V03 => json!({ "kind": "text", "text": text }),
        }
    }

    pub(super) fn data(self, data: Value) -> Value {
        match self {
            Self::V1 => json!({ "data": data, "mediaType": "application/json" }),
            Self::V03 => json!({ "kind": "data", "data": object(data) }),
            Self::Rest03 => json!({ "data": { "data": object(data) } }),
        }
    }

    /// A file by its URL. Its title is the name, as for agents behind the gateway.
    pub(super) fn file(self, item: &MediaItem) -> Value {
        let (url, mime, name) = (item.url.as_str(), &item.mime_type, item.alt_text.as_deref());
        let named = |file: Value, member: &str| match name {
            Some(name) => with(file, member, name),
            None => file,
        };
        match self {
            Self::V1 => named(json!({ "url": url, "mediaType": mime }), "filename"),
            Self::V03 => {
                json!({ "kind": "file", "file": named(json!({ "uri": url, "mimeType": mime }),
                "name") })
            }
            Self::Rest03 => json!({ "file": { "fileWithUri": url, "mimeType": mime } }),
        }
    }

    /// Adds the `kind` of 0.3.
    fn kinded(self, kind: &str, value: Value) -> Value {
        match self {
            Self::V1 | Self::Rest03 => value,
            Self::V03 => with(value, "kind", kind),
        }
    }

    fn status(self, ids: &Ids, status: &Status) -> Value {
        let mut value = json!({ "state": status.state.word(self), "timestamp": status.at });
        if let Some((text, data)) = &status.says {
            let parts: Vec<Value> = std::iter::once(self.text(text))
                .chain(data.clone().map(|data| self.data(data)))
                .collect();
            let role = if self == Self::V03 { "agent" } else { "ROLE_AGENT" };
            let message = json!({ "messageId": status.message_id, "contextId": ids.context,
            "taskId": ids.task, "role": role });
            let message =
                with(message, if self == Self::Rest03 { "content" } else { "parts" }, parts);
            value = with(value, "message", self.kinded("message", message));
        }
        value
    }

    pub(super) fn artifact(id: &str, parts: Vec<Value>) -> Value {
        json!({ "artifactId": id, "name": "answer", "parts": parts })
    }

    pub(super) fn task(self, ids: &Ids, status: &Status, artifacts: Vec<Value>) -> Value {
        let task = json!({ "id": ids.task, "contextId": ids.context, "status": self.status(ids,
        status), "artifacts": artifacts });
        self.kinded("task", task)
    }

    pub(super) fn task_event(self, task: Value) -> Value {
        self.wrapped("task", task)
    }

    pub(super) fn status_event(
        self,
        ids: &Ids,
        status: &Status,
        metadata: Option<Map<String, Value>>,
    ) -> Value {
        let mut event = json!({ "taskId": ids.task, "contextId": ids.context,
        "status": self.status(ids, status) });
        if self != Self::V1 {
            event = with(event, "final", !status.state.is_working());
        }
        if let Some(metadata) = metadata {
            event = with(event, "metadata", metadata);
        }
        self.wrapped("statusUpdate", self.kinded("status-update", event))
    }

    pub(super) fn artifact_event(self, ids: &Ids, artifact: Value, append: bool) -> Value {
        let event = json!({ "taskId": ids.task, "contextId": ids.context, "artifact": artifact,
        "append": append,
            "lastChunk": false });
        self.wrapped("artifactUpdate", self.kinded("artifact-update", event))
    }

    fn wrapped(self, name: &str, value: Value) -> Value {
        match self {
            Self::V1 | Self::Rest03 => Value::Object(Map::from_iter([(name.to_owned(), value)])),
            Self::V03 => value,
        }
    }
}

/// Data are an object in 0.3.
fn object(data: Value) -> Value {
    if data.is_object() { data } else { json!({ "items": data }) }
}

/// An object with one member more.
pub(super) fn with(mut object: Value, name: &str, value: impl Into<Value>) -> Value {
    if let Value::Object(members) = &mut object {
        members.insert(name.to_owned(), value.into());
    }
    object
}

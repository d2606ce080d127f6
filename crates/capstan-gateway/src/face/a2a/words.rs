//! A2A's words, in both of its versions: 1.0 names a state TASK_STATE_WORKING and wraps what it says, 0.3 has `kind`s.

use capstan_protocol::Timestamp;
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V03,
}

/// Where a task stands.
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
            (Version::V1, Self::Working) => "TASK_STATE_WORKING",
            (Version::V1, Self::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
            (Version::V1, Self::Completed) => "TASK_STATE_COMPLETED",
            (Version::V1, Self::Canceled) => "TASK_STATE_CANCELED",
            (Version::V1, Self::Failed) => "TASK_STATE_FAILED",
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

/// Where a task stands, with what there is to say about it.
#[derive(Debug, Clone)]
pub(super) struct Status {
    pub(super) state: TaskState,
    pub(super) at: Timestamp,
    /// A sentence, and the same for machines.
    pub(super) says: Option<(String, Option<Value>)>,
    /// The id of the message that says so.
    pub(super) message_id: String,
}

impl Version {
    pub(super) fn text(self, text: &str) -> Value {
        match self {
            Self::V1 => json!({ "text": text }),
            Self::V03 => json!({ "kind": "text", "text": text }),
        }
    }

    pub(super) fn data(self, data: Value) -> Value {
        match self {
            Self::V1 => json!({ "data": data, "mediaType": "application/json" }),
            // An object in that version.
            Self::V03 if data.is_object() => json!({ "kind": "data", "data": data }),
            Self::V03 => json!({ "kind": "data", "data": { "items": data } }),
        }
    }

    /// With the `kind` that 0.3 has.
    fn kinded(self, kind: &str, mut value: Value) -> Value {
        if let (Self::V03, Value::Object(members)) = (self, &mut value) {
            members.insert("kind".into(), kind.into());
        }
        value
    }

    fn status(self, ids: &Ids, status: &Status) -> Value {
        let mut told = json!({ "state": status.state.word(self), "timestamp": status.at });
        if let Some((text, data)) = &status.says {
            let parts: Vec<Value> =
                std::iter::once(self.text(text)).chain(data.clone().map(|data| self.data(data))).collect();
            let role = if self == Self::V1 { "ROLE_AGENT" } else { "agent" };
            let message = json!({ "messageId": status.message_id, "contextId": ids.context, "taskId": ids.task,
                "role": role, "parts": parts });
            told["message"] = self.kinded("message", message);
        }
        told
    }

    pub(super) fn artifact(id: &str, parts: Vec<Value>) -> Value {
        json!({ "artifactId": id, "name": "answer", "parts": parts })
    }

    pub(super) fn task(self, ids: &Ids, status: &Status, artifacts: Vec<Value>) -> Value {
        let task = json!({ "id": ids.task, "contextId": ids.context, "status": self.status(ids, status), "artifacts": artifacts });
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
        let mut event =
            json!({ "taskId": ids.task, "contextId": ids.context, "status": self.status(ids, status) });
        if self == Self::V03 {
            event["final"] = (!status.state.is_working()).into();
        }
        if let Some(metadata) = metadata {
            event["metadata"] = metadata.into();
        }
        self.wrapped("statusUpdate", self.kinded("status-update", event))
    }

    pub(super) fn artifact_event(self, ids: &Ids, artifact: Value, append: bool) -> Value {
        let event = json!({ "taskId": ids.task, "contextId": ids.context, "artifact": artifact, "append": append,
            "lastChunk": false });
        self.wrapped("artifactUpdate", self.kinded("artifact-update", event))
    }

    fn wrapped(self, name: &str, value: Value) -> Value {
        match self {
            Self::V1 => Value::Object(Map::from_iter([(name.to_owned(), value)])),
            Self::V03 => value,
        }
    }
}

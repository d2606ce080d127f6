//! The mapping from packets to updates of the artifact and of the status.

use capstan_protocol::{
    Close, ErrorSeverity, Event, EventView, Payload, RawObject, StreamError, StreamPacket,
    Timestamp,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::task::{failure, foreign_data, questions};
use super::version::{Ids, Status, TaskState, Version};

pub(super) struct Fold {
    pub(super) version: Version,
    pub(super) ids: Ids,
    pub(super) stream: Uuid,
    /// Whether the artifact has begun. Later updates then append to it.
    pub(super) has_begun: bool,
    asked: Vec<Value>,
    failed: Option<StreamError>,
}

impl Fold {
    pub(super) fn new(version: Version, ids: Ids, stream: Uuid, has_begun: bool) -> Self {
        Self { version, ids, stream, has_begun, asked: Vec::new(), failed: None }
    }

    pub(super) fn status(
        &self,
        state: TaskState,
        at: Timestamp,
        seq: u64,
        says: Option<(String, Option<Value>)>,
    ) -> Status {
        Status { state, at, says, message_id: format!("{}:{seq}", self.stream) }
    }

    /// The events of a packet, and true if they are the last ones.
    pub(super) fn take(&mut self, packet: &StreamPacket) -> (Vec<Value>, bool) {
        let (at, seq) = (packet.t, packet.seq);
        let event = match &packet.payload {
            Payload::Delta(text) if text.is_empty() => None,
            Payload::Delta(text) => Some(self.add(vec![self.version.text(text)])),
            Payload::Event(raw) => self.event(raw, at, seq),
            Payload::Error(error) => self.error(error, at, seq),
            Payload::Close(close) => return (vec![self.close(close, at, seq)], true),
        };
        (event.into_iter().collect(), false)
    }

    fn add(&mut self, parts: Vec<Value>) -> Value {
        let artifact = Version::artifact(&self.stream.to_string(), parts);
        let append = std::mem::replace(&mut self.has_begun, true);
        self.version.artifact_event(&self.ids, artifact, append)
    }

    /// Replaces the artifact after a reset.
    pub(super) fn replace(&mut self, text: &str) -> Value {
        self.has_begun = false;
        self.add(vec![self.version.text(text)])
    }

    fn working(&self, at: Timestamp, seq: u64, says: (String, Option<Value>)) -> Value {
        let status = self.status(TaskState::Working, at, seq, Some(says));
        self.version.status_event(&self.ids, &status, None)
    }

    fn event(&mut self, raw: &RawObject, at: Timestamp, seq: u64) -> Option<Value> {
        let data = || Value::Object(raw.to_map());
        match Event::of(raw).view() {
            EventView::Markdown(block) => Some(self.add(vec![self.version.text(&block.content)])),
            EventView::Citations(_) => Some(self.add(vec![self.version.data(data())])),
            EventView::Media(media) if media.items.is_empty() => None,
            EventView::Media(media) => {
                let files = media.items.iter().map(|item| self.version.file(item)).collect();
                Some(self.add(files))
            }
            EventView::Progress(update) => {
                Some(self.working(at, seq, (update.label, Some(data()))))
            }
            EventView::UserError(error) => {
                Some(self.working(at, seq, (error.message, Some(data()))))
            }
            EventView::Interrupt(asked) => {
                self.asked.extend(serde_json::to_value(asked));
                None
            }
            EventView::Other => {
                foreign_data(raw).map(|data| self.add(vec![self.version.data(data)]))
            }
            EventView::Thought(_) | EventView::Reset(_) => None,
        }
    }

    /// A transient error becomes a status message. The end of the task reports a fatal one.
    fn error(&mut self, error: &StreamError, at: Timestamp, seq: u64) -> Option<Value> {
        if error.severity == ErrorSeverity::Fatal {
            self.failed = Some(error.clone());
            return None;
        }
        Some(self.working(at, seq, failure(error)))
    }

    fn close(&mut self, close: &Close, at: Timestamp, seq: u64) -> Value {
        let reason = close.reason();
        let (state, says) = match (self.failed.take(), reason.as_str()) {
            (Some(error), _) => (TaskState::Failed, Some(failure(&error))),
            (None, "error") => (TaskState::Failed, None),
            (None, Close::CANCELLED) => (TaskState::Canceled, None),
            (None, Close::INTERRUPT) => (TaskState::InputRequired, Some(questions(&self.asked))),
            (None, _) => (TaskState::Completed, None),
        };
        let mut metadata =
            if let Close::Report(report) = close { report.to_map() } else { Map::new() };
        metadata.insert("reason".into(), reason.into());
        let status = self.status(state, at, seq, says);
        self.version.status_event(&self.ids, &status, Some(metadata))
    }
}

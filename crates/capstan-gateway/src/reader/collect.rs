//! A whole run in one object: the reader of JSON mode.

use capstan_journal::{JournalError, Run, RunState, Step};
use capstan_protocol::{
    Close, Event, EventView, Fault, FaultKind, Payload, RawObject, ServiceResponse, Timestamp,
};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::refusal::journal_fault;
use crate::relay::packet_of;

/// What a run has said, resets applied.
#[derive(Default)]
struct Collected {
    text: String,
    marks: Vec<(u64, usize)>,
    events: Vec<(u64, Value)>,
    close: Option<Close>,
    fault: Option<Fault>,
}

/// Follows a run to its end, or until it waits.
pub(crate) async fn collect(app: &App, run: &Run, request_id: uuid::Uuid) -> Result<ServiceResponse, Fault> {
    let mut reader = app.journal.reader_of(run, 0);
    let mut whole = Collected::default();
    loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = app.broken.cancelled() => return Err(Fault::new(FaultKind::JournalUnavailable)),
            () = app.closing.cancelled() => return Err(Fault::new(FaultKind::RunInterrupted).with_retry_after(1.0)),
        };
        match step {
            Step::Frames(frames) => {
                for packet in frames.iter().filter_map(|frame| packet_of(frame)) {
                    whole.take(packet.seq, packet.payload);
                }
            }
            Step::State(RunState::Running) => {}
            Step::State(RunState::Waiting | RunState::Closed) => break,
        }
    }
    let ended = now(app, run).await.map_err(journal_fault)?;
    whole.into_response(&ended, request_id)
}

async fn now(app: &App, run: &Run) -> Result<Run, JournalError> {
    Ok(app.journal.store().run(run.stream_id).await?.unwrap_or_else(|| run.clone()))
}

impl Collected {
    fn take(&mut self, seq: u64, payload: Payload) {
        match payload {
            Payload::Delta(text) => {
                self.text.push_str(&text);
                self.marks.push((seq, self.text.len()));
            }
            Payload::Event(raw) => self.event(seq, &raw),
            Payload::Error(error) => self.fault = Some(Fault::from(error)),
            Payload::Close(close) => self.close = Some(close),
        }
    }

    fn event(&mut self, seq: u64, raw: &RawObject) {
        let EventView::Reset(reset) = Event::of(raw).view() else {
            self.events.push((seq, Value::Object(raw.to_map())));
            return;
        };
        self.marks.retain(|(seq, _)| *seq <= reset.after_seq);
        self.events.retain(|(seq, _)| *seq <= reset.after_seq);
        self.text.truncate(self.marks.last().map_or(0, |(_, end)| *end));
    }

    fn into_response(self, run: &Run, request_id: uuid::Uuid) -> Result<ServiceResponse, Fault> {
        if run.fault.is_some() && run.state != RunState::Running {
            return Err(self.fault.unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError)));
        }
        let close = match &self.close {
            Some(Close::Report(report)) => Value::Object(report.to_map()),
            Some(close @ (Close::Reason(_) | Close::Unstated)) => Value::from(close.reason()),
            None => Value::Null,
        };
        let output = json!({
            "text": self.text,
            "events": self.events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(),
            "stream_id": run.stream_id,
            "conversation_id": run.session,
            "close": close,
        });
        let metrics = json!({ "usage": run.usage, "attempts": run.attempt });
        let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
        Ok(ServiceResponse {
            request_id,
            created_at: Timestamp::now(),
            output: object(output),
            metrics: Some(object(metrics)),
        })
    }
}

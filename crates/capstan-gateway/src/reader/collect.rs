//! A whole run in one object: the reader of JSON mode.

use bytes::Bytes;
use capstan_journal::{JournalError, Run, RunState, Step};
use capstan_protocol::{Close, Fault, FaultKind, ServiceResponse, Timestamp, Transcript, sse};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::answers::{RunMetrics, RunOutput};
use crate::app::App;
use crate::limits::Load;
use crate::refusal::journal_fault;

/// What a byte of the journal takes here: as a packet's payload, as a member of the answer, as the answer's text.
const COPIES: usize = 3;

/// Follows a run to its end, or until it waits; the answer as JSON. What it holds is in `load` before it is there.
pub(crate) async fn collect(
    app: &App,
    run: &Run,
    request_id: uuid::Uuid,
    mut load: Load,
) -> Result<Vec<u8>, Fault> {
    let mut reader = app.journal.reader_of(run, 0);
    let (mut whole, mut bytes) = (Transcript::default(), 0_usize);
    let limits = &app.settings.limits;
    let end = loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = app.broken.cancelled() => return Err(Fault::new(FaultKind::JournalUnavailable)),
            () = app.closing.cancelled() => return Err(Fault::new(FaultKind::RunInterrupted).with_retry_after(1.0)),
        };
        match step {
            Step::Frames(frames) => {
                let more: usize = frames.iter().map(Bytes::len).sum();
                bytes = bytes.saturating_add(more);
                if bytes > limits.whole_bytes {
                    return Err(too_large(run, limits.whole_bytes));
                }
                load.grow(more.saturating_mul(COPIES), limits)?;
                for packet in frames.iter().filter_map(|frame| sse::decode_packet(frame)) {
                    whole.take(&packet);
                }
            }
            Step::State(RunState::Running) => {}
            Step::State(end @ (RunState::Waiting | RunState::Closed)) => break end,
        }
    };
    let ended = now(app, run).await.map_err(journal_fault)?;
    let answer = response(&whole, &ended, end, request_id)?;
    drop(whole);
    serde_json::to_vec(&answer).map_err(Fault::from_error)
}

/// The run goes on, and its stream tells all of it.
fn too_large(run: &Run, most: usize) -> Fault {
    let stream = run.stream_id;
    Fault::new(FaultKind::AnswerTooLarge)
        .with_message(format!(
            "The answer is larger than {most} bytes, so it is not put into one object: read it at /v1/streams/{stream}."
        ))
        .with_detail("stream_id", stream.to_string())
}

async fn now(app: &App, run: &Run) -> Result<Run, JournalError> {
    Ok(app.journal.store().run(run.stream_id).await?.unwrap_or_else(|| run.clone()))
}

/// `end` is what this reader saw: somebody may have armed a waiting run since.
fn response(
    whole: &Transcript,
    run: &Run,
    end: RunState,
    request_id: uuid::Uuid,
) -> Result<ServiceResponse, Fault> {
    if end == RunState::Waiting || run.fault.is_some() {
        let fault = whole.error().cloned().map(Fault::from);
        return Err(fault.unwrap_or_else(|| Fault::new(FaultKind::AgentExecutionError)));
    }
    let close = match whole.close() {
        Some(Close::Report(report)) => Value::Object(report.to_map()),
        Some(close @ (Close::Reason(_) | Close::Unstated)) => Value::from(close.reason()),
        None => Value::Null,
    };
    let output = RunOutput {
        text: whole.text().to_owned(),
        events: whole.events().map(|event| event.to_map()).collect(),
        stream_id: run.stream_id,
        conversation_id: &run.session,
        close,
    };
    let metrics = RunMetrics { usage: run.usage.as_ref(), attempts: run.attempt };
    Ok(ServiceResponse {
        request_id,
        created_at: Timestamp::now(),
        output: object(&output),
        metrics: Some(object(&metrics)),
    })
}

/// A struct as the map that the data contract has for it.
fn object(told: &impl Serialize) -> Map<String, Value> {
    let value = serde_json::to_value(told).unwrap_or_default();
    if let Value::Object(map) = value { map } else { Map::new() }
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use capstan_protocol::{Payload, StreamPacket};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_that_was_seen_waiting_is_no_success_even_if_it_goes_on_since() {
        let run = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        let mut whole = Transcript::default();
        let error = Fault::new(FaultKind::UpstreamTruncated).to_stream_error(Default::default());
        for (seq, payload) in [(1, Payload::Delta("half".into())), (2, Payload::Error(error))] {
            whole.take(&StreamPacket { stream_id: run.stream_id, seq, t: Timestamp::now(), payload });
        }
        let answer = response(&whole, &run, RunState::Waiting, Uuid::now_v7());
        assert_eq!(answer.unwrap_err().kind(), FaultKind::UpstreamTruncated);
    }
}

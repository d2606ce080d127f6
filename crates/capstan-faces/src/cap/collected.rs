//! A run as one CAP object.

use axum::response::Response;
use capstan_journal::Run;
use capstan_protocol::{Close, Fault, ServiceResponse, Timestamp, Transcript};
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::accounted_body;
use crate::answers::{RunMetrics, RunOutput};
use crate::face::FaceContext;
use crate::face::reader;

/// Waits for the answer of a run and encodes it as JSON. Returns the fault if there is none.
pub(super) async fn response(
    cx: &FaceContext,
    run: &Run,
    request_id: Uuid,
) -> Result<Response, Fault> {
    let collected = reader::collect_to_end::<Transcript>(cx, run).await?;
    if let Some(fault) = collected.fault() {
        return Err(fault);
    }
    let run = &collected.run;
    let close = match collected.transcript.close() {
        Some(Close::Report(report)) => Value::Object(report.to_map()),
        Some(close @ (Close::Reason(_) | Close::Unstated)) => Value::from(close.reason()),
        None => Value::Null,
    };
    let reported = |name: &str| close.get(name).cloned();
    let (usage_by_member, calls, member) =
        (reported("usage_by_member"), reported("calls"), reported("member"));
    let output = RunOutput {
        text: collected.transcript.text().to_owned(),
        events: collected.transcript.events().map(|event| event.to_map()).collect(),
        stream_id: run.stream_id,
        conversation_id: &run.session,
        close,
    };
    let (usage, attempts) = (run.usage.as_ref(), run.attempt);
    let metrics = RunMetrics { usage, usage_by_member, attempts, calls, member };
    let answer = ServiceResponse {
        request_id,
        created_at: Timestamp::now(),
        output: object(&output),
        metrics: Some(object(&metrics)),
    };
    accounted_body::json(&answer, collected.load)
}

/// A struct as the map that the data contract has for it.
fn object(report: &impl Serialize) -> Map<String, Value> {
    let value = serde_json::to_value(report).unwrap_or_default();
    if let Value::Object(map) = value { map } else { Map::new() }
}

//! The position after which a viewer resumes, from the request's headers.

use capstan_engine::resume::ResumePoint;
use capstan_protocol::{Fault, FaultKind, LastEventId};
use http::HeaderMap;

/// The resume point of `Last-Event-ID`, if there is one.
pub fn resume_point(headers: &HeaderMap) -> Result<ResumePoint, Fault> {
    Ok(ResumePoint { cursor: last_event_id(headers)?, ..ResumePoint::default() })
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<LastEventId>, Fault> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    // An EventSource that has received nothing sends an empty one.
    if text.is_empty() {
        return Ok(None);
    }
    let wrong =
        |e| Fault::new(FaultKind::InvalidRequest).with_message(format!("Last-Event-ID: {e}"));
    text.parse().map(Some).map_err(wrong)
}

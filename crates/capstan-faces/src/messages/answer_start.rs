//! Holds the head of a streamed answer back until the answer begins. A failure before that can then
//! be a status, which clients act on.

use capstan_journal::{ArmedBy, Frames, Run, RunState, Step};
use capstan_protocol::{ErrorSeverity, Event, Fault, NATIVE, Payload, sse};

use super::answer_events::is_refusal;
use crate::face::FaceContext;
use capstan_engine::faults::journal_fault;

/// Returns when the answer has begun, or after one heartbeat interval. Fails if the run fails
/// before.
pub(super) async fn wait(cx: &FaceContext, run: &Run) -> Result<(), Fault> {
    let mut reader = cx.engine.reader_of(run, 0);
    let heartbeat = tokio::time::sleep(cx.engine.settings().timeouts.heartbeat);
    tokio::pin!(heartbeat);
    loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = &mut heartbeat => return Ok(()),
            () = cx.engine.until_ended() => return Ok(()),
        };
        match step {
            Step::Frames(frames) => {
                if let Some(start) = start_in(&frames) {
                    return start;
                }
            }
            Step::State(RunState::Running) => {}
            // The gateway makes the next attempt itself.
            Step::State(RunState::Waiting) if run.armed_by == ArmedBy::Gateway => {}
            Step::State(RunState::Waiting | RunState::Closed) => return Ok(()),
        }
    }
}

/// Finds the beginning of the answer among these packets, or the failure in its place.
fn start_in(frames: &Frames) -> Option<Result<(), Fault>> {
    frames.iter().filter_map(sse::decode_packet).find_map(|packet| match packet.payload {
        Payload::Delta(text) => (!text.is_empty()).then_some(Ok(())),
        // `message_start` and `ping` have nothing of the answer.
        Payload::Event(raw) => (!is_head(&Event::of(&raw))).then_some(Ok(())),
        Payload::Error(error) if error.severity == ErrorSeverity::Fatal => {
            let fault = Fault::from(*error);
            Some(if is_refusal(&fault) { Ok(()) } else { Err(fault) })
        }
        Payload::Error(_) => None,
        Payload::Close(_) => Some(Ok(())),
    })
}

fn is_head(event: &Event) -> bool {
    let kind = event.data.pointer("/event/type");
    event.kind.as_deref() == Some(NATIVE)
        && kind.is_some_and(|kind| kind == "message_start" || kind == "ping")
}

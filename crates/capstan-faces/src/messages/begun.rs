//! The head of a streamed answer waits for its first word, so that what fails before it is told by
//! a status: that is what clients act upon.

use capstan_journal::{ArmedBy, Frames, Run, RunState, Step};
use capstan_protocol::{ErrorSeverity, Event, Fault, NATIVE, Payload, sse};

use super::telling::is_refusal;
use crate::face::FaceContext;
use capstan_engine::faults::journal_fault;

/// Returns when there is something to tell, or nothing was for as long as a client may have to wait
/// for a sign of life; fails if the run does so before.
pub(super) async fn wait(cx: &FaceContext, run: &Run) -> Result<(), Fault> {
    let mut reader = cx.engine.journal.reader_of(run, 0);
    let patience = tokio::time::sleep(cx.engine.settings.timeouts.heartbeat);
    tokio::pin!(patience);
    loop {
        let step = tokio::select! {
            step = reader.next() => step.map_err(journal_fault)?,
            () = &mut patience => return Ok(()),
            () = cx.engine.ended.cancelled() => return Ok(()),
        };
        match step {
            Step::Frames(frames) => {
                if let Some(begun) = begun(&frames) {
                    return begun;
                }
            }
            Step::State(RunState::Running) => {}
            // The gateway itself goes on with it.
            Step::State(RunState::Waiting) if run.armed_by == ArmedBy::Gateway => {}
            Step::State(RunState::Waiting | RunState::Closed) => return Ok(()),
        }
    }
}

/// The first word among these packets, or the failure in its place.
fn begun(frames: &Frames) -> Option<Result<(), Fault>> {
    frames.iter().filter_map(sse::decode_packet).find_map(|packet| match packet.payload {
        Payload::Delta(text) => (!text.is_empty()).then_some(Ok(())),
        // What opens an answer is no word of it yet.
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
    event.kind.as_deref() == Some(NATIVE) && kind.is_some_and(|kind| kind == "message_start")
}

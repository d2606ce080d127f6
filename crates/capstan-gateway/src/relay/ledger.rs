//! What a run's record tells of its attempts, for whoever asks later why it failed. It is kept in memory while an attempt is
//! under way and written with the transitions that happen anyway: a crash loses only what the open attempt had not noted.

use capstan_agent::TraceParent;
use capstan_journal::{Attempt, Run};
use capstan_protocol::{Fault, Timestamp};

use super::packet_writer::PacketWriter;

/// The POST that started a run, or armed one of its attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    /// Its X-Request-ID.
    pub(crate) request_id: Option<String>,
    /// The trace that it is a part of.
    pub(crate) trace: Option<TraceParent>,
}

impl Origin {
    pub(crate) fn trace_id(&self) -> Option<String> {
        self.trace.as_ref().map(|trace| trace.trace_id().to_owned())
    }
}

/// Another attempt comes; it is to begin then.
pub(crate) fn add(run: &mut Run, begins_at: Timestamp, origin: &Origin) {
    let Origin { request_id, .. } = origin.clone();
    let begun = Attempt::new(run.attempt, begins_at);
    run.attempts.push(Attempt { request_id, trace_id: origin.trace_id(), ..begun });
}

/// The attempt begins now, in this trace.
pub(super) fn begins(run: &mut Run, at: Timestamp, trace: Option<&TraceParent>) {
    let trace_id = trace.map(|trace| trace.trace_id().to_owned());
    run.trace_id = run.trace_id.take().or_else(|| trace_id.clone());
    note(run, |attempt| {
        attempt.began_at = Some(at);
        attempt.trace_id = attempt.trace_id.take().or(trace_id);
    });
}

/// The attempt has said something.
pub(super) fn speaks(run: &mut Run, at: Timestamp) {
    note(run, |attempt| attempt.first_packet_at = attempt.first_packet_at.or(Some(at)));
}

/// The attempt is over, before anything is written of that; `told` is its fault as the next packet tells it.
pub(super) fn ends(run: &mut Run, packets: &PacketWriter, at: Timestamp, told: Option<&Fault>) {
    note(run, |attempt| {
        attempt.reset_to = packets.reset_to();
        attempt.swallowed_bytes = packets.swallowed();
        attempt.usage = packets.attempt_usage().cloned();
    });
    ends_after(run, packets.seq(), at, told.map(|fault| (fault, packets.seq() + 1)));
}

/// The same of an attempt of which only the last packet is known; `told` is its fault and the packet that tells it. One
/// that was over before stays as it is.
pub(super) fn ends_after(run: &mut Run, last: u64, at: Timestamp, told: Option<(&Fault, u64)>) {
    let earlier = run.attempts.iter().filter(|attempt| attempt.n < run.attempt);
    let first = 1 + earlier.filter_map(|attempt| attempt.fault_seq.max(attempt.to_seq)).max().unwrap_or(0);
    note(run, |attempt| {
        if attempt.ended_at.is_some() {
            return;
        }
        // It was to begin later, and never did.
        attempt.began_at = attempt.began_at.filter(|began| *began <= at);
        attempt.ended_at = Some(at);
        if first <= last {
            (attempt.from_seq, attempt.to_seq) = (Some(first), Some(last));
        }
        if let Some((fault, seq)) = told {
            attempt.fault = Some(fault.code().to_owned());
            attempt.severity = Some(fault.severity().to_string());
            attempt.fault_seq = Some(seq);
            attempt.retry_after = fault.retry_after().map(|seconds| seconds as f64);
        }
    });
}

/// Changes the entry of the present attempt. One that an older build began has none yet.
fn note(run: &mut Run, change: impl FnOnce(&mut Attempt)) {
    let n = run.attempt;
    let known = run.attempts.pop_if(|attempt| attempt.n == n);
    let mut attempt = known.unwrap_or_else(|| Attempt { n, ..Attempt::default() });
    change(&mut attempt);
    run.attempts.push(attempt);
}

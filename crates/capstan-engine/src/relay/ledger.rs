//! What a run's record tells of its attempts, for whoever asks later why it failed. It is kept in
//! memory while an attempt is under way and written with the transitions that happen anyway: a
//! crash loses only what the open attempt had not noted, and its packets do not tell.

use capstan_agent::{CallEnded, CallOutcome, CallsMade, MemberCalls, TraceParent};
use capstan_journal::{Attempt, MemberUse, Run};
use capstan_protocol::{Fault, FaultKind, Timestamp, sse};

use super::packet_writer::{PacketWriter, is_said};
use crate::Engine;

/// The POST that started a run, or armed one of its attempts.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Its X-Request-ID.
    pub request_id: Option<String>,
    /// The trace that it is a part of.
    pub trace: Option<TraceParent>,
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

/// The attempt said something first at this time.
pub(super) fn speaks(run: &mut Run, at: Timestamp) {
    note(run, |attempt| attempt.first_packet_at = attempt.first_packet_at.or(Some(at)));
}

/// Its agent may have warned of several calls before one of them said anything; of more the record
/// tells nothing.
const LOOKED_AT: usize = 16;
const BYTES_LOOKED_AT: usize = 64 * 1024;

/// Looks up when the attempt spoke first, if whoever was at work on it died before that was written
/// down.
pub(super) async fn recall_speech(engine: &Engine, run: &mut Run) {
    let (first, last) = (first_seq(run), run.last_seq);
    let is_told = |entry: &Attempt| {
        entry.n == run.attempt && entry.ended_at.or(entry.first_packet_at).is_some()
    };
    if first > last || run.attempts.iter().any(is_told) {
        return;
    }
    // A place that is damaged tells nothing, and the run ends or waits all the same.
    let frames =
        engine.journal.store().read(run.stream_id, first - 1, LOOKED_AT, BYTES_LOOKED_AT).await;
    let frames = frames.unwrap_or_default();
    let mut packets = frames.iter().filter_map(|frame| sse::decode_packet(&frame.bytes));
    if let Some(spoken) = packets.find(|packet| is_said(&packet.payload)) {
        speaks(run, spoken.t);
    }
}

/// The packet with which the present attempt began, if it wrote any.
fn first_seq(run: &Run) -> u64 {
    let earlier = run.attempts.iter().filter(|attempt| attempt.n < run.attempt);
    1 + earlier.filter_map(|attempt| attempt.fault_seq.max(attempt.to_seq)).max().unwrap_or(0)
}

/// The attempt is over, before anything is written of that; `told` is its fault as the next packet
/// tells it.
pub(super) fn ends(run: &mut Run, packets: &PacketWriter, at: Timestamp, told: Option<&Fault>) {
    let mut tokens = 0;
    note(run, |attempt| {
        if attempt.ended_at.is_some() {
            return;
        }
        tokens = packets.attempt_tokens();
        attempt.reset_to = packets.reset_to();
        attempt.swallowed_bytes = packets.swallowed();
        attempt.usage = packets.summary().attempt_usage();
        for (name, usage) in packets.summary().attempt_usage_by_member() {
            member(attempt, &name, |used| used.usage = Some(usage));
        }
    });
    run.tokens = run.tokens.saturating_add(tokens);
    ends_after(run, packets.seq(), at, told.map(|fault| (fault, packets.seq() + 1)));
}

/// The same of an attempt of which only the last packet is known; `told` is its fault and the
/// packet that tells it. One that was over before stays as it is.
pub(super) fn ends_after(run: &mut Run, last: u64, at: Timestamp, told: Option<(&Fault, u64)>) {
    let first = first_seq(run);
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

/// A call begins. Whoever wants it to count in every case writes the record before it is made.
pub(super) fn call_began(run: &mut Run, name: Option<&str>) {
    note(run, |attempt| {
        attempt.calls += 1;
        if let Some(name) = name {
            member(attempt, name, |used| {
                used.calls += 1;
                (used.fault, used.is_unreached) = (None, false);
            });
        }
    });
}

/// A call of a route's member is over.
pub(super) fn call_ended(run: &mut Run, ended: &CallEnded) {
    let CallOutcome::Failed { code, has_reached } = &ended.outcome else { return };
    note(run, |attempt| {
        member(attempt, &ended.member, |used| {
            (used.fault, used.is_unreached) = (Some(code.clone()), !has_reached);
        });
    });
}

/// What the attempts before the present one have called.
pub(super) fn made(run: &Run) -> CallsMade {
    let before = run.attempts.iter().filter(|entry| entry.n < run.attempt);
    let member = |used: &MemberUse| MemberCalls {
        name: used.name.clone(),
        calls: u32::try_from(used.calls).unwrap_or(u32::MAX),
        fault: used.fault.clone(),
        has_reached: !used.is_unreached,
    };
    CallsMade {
        calls: calls_before(run, run.attempt),
        members: before.flat_map(|entry| &entry.members).map(member).collect(),
    }
}

/// The calls of a run so far; nothing if its agent does not count them.
pub(super) fn calls(run: &Run) -> Option<u32> {
    let present = run.attempts.iter().find(|entry| entry.n == run.attempt);
    let is_seen =
        |entry: &Attempt| entry.fault.as_deref() != Some(FaultKind::RunInterrupted.entry().code);
    let made = match present {
        // Its process died, and what it had called died with it.
        Some(entry) if !is_seen(entry) => entry.calls.max(1),
        Some(entry) => entry.calls,
        None => 0,
    };
    let made = u32::try_from(made).unwrap_or(u32::MAX);
    let counts = run.attempts.iter().any(|entry| entry.calls > 0);
    counts.then(|| calls_before(run, run.attempt).saturating_add(made))
}

/// An attempt of which nothing more is known has made the call that nobody wrote down.
fn calls_before(run: &Run, attempt: u32) -> u32 {
    let of = |n: u32| {
        run.attempts.iter().find(|entry| entry.n == n).map_or(1, |entry| entry.calls.max(1))
    };
    let calls: u64 = (1..attempt).map(of).sum();
    u32::try_from(calls).unwrap_or(u32::MAX)
}

fn member(attempt: &mut Attempt, name: &str, change: impl FnOnce(&mut MemberUse)) {
    match attempt.members.iter_mut().find(|used| used.name == name) {
        Some(used) => change(used),
        None => {
            let mut used = MemberUse { name: name.to_owned(), ..MemberUse::default() };
            change(&mut used);
            attempt.members.push(used);
        }
    }
}

/// Changes the entry of the present attempt. One that an older build began has none yet.
fn note(run: &mut Run, change: impl FnOnce(&mut Attempt)) {
    let n = run.attempt;
    let known = run.attempts.pop_if(|attempt| attempt.n == n);
    let mut attempt = known.unwrap_or_else(|| Attempt { n, ..Attempt::default() });
    change(&mut attempt);
    run.attempts.push(attempt);
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_attempt_that_nobody_saw_the_end_of_has_made_one_call_at_least() {
        let mut run = Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run();
        assert_eq!((calls(&run), made(&run).calls), (None, 0));
        // The first attempt died with its process, before anything was written.
        run.attempt = 2;
        assert_eq!(made(&run).calls, 1);
        call_began(&mut run, Some("a"));
        call_began(&mut run, Some("b"));
        assert_eq!(calls(&run), Some(3));
        run.attempt = 3;
        let made = made(&run);
        assert_eq!((made.calls, made.members.len()), (3, 2));
        assert!(made.members.iter().all(|member| member.has_reached && member.fault.is_none()));
    }
}

//! Maintains the entries of a run's attempts in its record, for later analysis. An entry is in
//! memory while its attempt runs, and stored with the run's next transition. A crash loses only
//! what the open attempt has not stored and its packets do not show.

use capstan_agent::{CallEnded, CallOutcome, CallsMade, MemberCalls, TraceParent};
use capstan_journal::{Attempt, MemberUse, Run};
use capstan_protocol::{Fault, FaultKind, Timestamp, sse};

use super::packet_writer::{PacketWriter, is_output};
use crate::Engine;

/// The POST that started a run or one of its attempts.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Its `X-Request-ID`.
    pub request_id: Option<String>,
    /// Its trace.
    pub trace: Option<TraceParent>,
}

impl Origin {
    pub(crate) fn trace_id(&self) -> Option<String> {
        self.trace.as_ref().map(|trace| trace.trace_id().to_owned())
    }
}

/// Adds the entry of the next attempt, which is due at `begins_at`.
pub(crate) fn add(run: &mut Run, begins_at: Timestamp, origin: &Origin) {
    let Origin { request_id, .. } = origin.clone();
    let begun = Attempt::new(run.attempt, begins_at);
    run.attempts.push(Attempt { request_id, trace_id: origin.trace_id(), ..begun });
}

/// Records that the attempt begins now, in this trace.
pub(super) fn begins(run: &mut Run, at: Timestamp, trace: Option<&TraceParent>) {
    let trace_id = trace.map(|trace| trace.trace_id().to_owned());
    run.trace_id = run.trace_id.take().or_else(|| trace_id.clone());
    change_entry(run, |attempt| {
        attempt.began_at = Some(at);
        attempt.trace_id = attempt.trace_id.take().or(trace_id);
    });
}

/// Records the time of the attempt's first packet.
pub(super) fn first_packet(run: &mut Run, at: Timestamp) {
    change_entry(run, |attempt| attempt.first_packet_at = attempt.first_packet_at.or(Some(at)));
}

/// How much of an attempt is searched for its first packet. Warnings may precede it, rarely more
/// than these.
const MOST_PACKETS: usize = 16;
const MOST_BYTES: usize = 64 * 1024;

/// Finds the time of the attempt's first packet, if its process died before it stored that time.
pub(super) async fn recover_first_packet(engine: &Engine, run: &mut Run) {
    let (first, last) = (first_seq(run), run.last_seq);
    let has_time = |entry: &Attempt| {
        entry.n == run.attempt && entry.ended_at.or(entry.first_packet_at).is_some()
    };
    if first > last || run.attempts.iter().any(has_time) {
        return;
    }
    // If these packets are damaged, the time stays unknown.
    let frames =
        engine.journal.store().read(run.stream_id, first - 1, MOST_PACKETS, MOST_BYTES).await;
    let frames = frames.unwrap_or_default();
    let mut packets = frames.iter().filter_map(|frame| sse::decode_packet(&frame.bytes));
    if let Some(first) = packets.find(|packet| is_output(&packet.payload)) {
        first_packet(run, first.t);
    }
}

/// The `seq` of the first packet of the present attempt, if it wrote any.
fn first_seq(run: &Run) -> u64 {
    let earlier = run.attempts.iter().filter(|attempt| attempt.n < run.attempt);
    1 + earlier.filter_map(|attempt| attempt.fault_seq.max(attempt.to_seq)).max().unwrap_or(0)
}

/// Records the end of the attempt before its ERROR is written. `fault` is the fault as that packet
/// reports it.
pub(super) fn ends(run: &mut Run, packets: &PacketWriter, at: Timestamp, fault: Option<&Fault>) {
    let mut tokens = 0;
    change_entry(run, |attempt| {
        if attempt.ended_at.is_some() {
            return;
        }
        tokens = packets.attempt_tokens();
        attempt.reset_to = packets.reset_to();
        attempt.swallowed_bytes = packets.swallowed();
        attempt.continued_by = packets.continued_by();
        attempt.usage = packets.summary().attempt_usage();
        for (name, usage) in packets.summary().attempt_usage_by_member() {
            member(attempt, &name, |used| used.usage = Some(usage));
        }
    });
    run.tokens = run.tokens.saturating_add(tokens);
    ends_after(run, packets.seq(), at, fault.map(|fault| (fault, packets.seq() + 1)));
}

/// The same if only the attempt's last packet is known. `fault` comes with the `seq` of its packet.
/// An attempt that ended before does not change.
pub(super) fn ends_after(run: &mut Run, last: u64, at: Timestamp, fault: Option<(&Fault, u64)>) {
    let first = first_seq(run);
    change_entry(run, |attempt| {
        if attempt.ended_at.is_some() {
            return;
        }
        // A planned begin after the end: the attempt never began.
        attempt.began_at = attempt.began_at.filter(|began| *began <= at);
        attempt.ended_at = Some(at);
        if first <= last {
            (attempt.from_seq, attempt.to_seq) = (Some(first), Some(last));
        }
        if let Some((fault, seq)) = fault {
            attempt.fault = Some(fault.code().to_owned());
            attempt.severity = Some(fault.severity().to_string());
            attempt.fault_seq = Some(seq);
            attempt.retry_after = fault.retry_after().map(|seconds| seconds as f64);
        }
    });
}

/// Counts a call. An agent that must not exceed its budget waits until the record is stored.
pub(super) fn call_began(run: &mut Run, name: Option<&str>) {
    change_entry(run, |attempt| {
        attempt.calls += 1;
        if let Some(name) = name {
            member(attempt, name, |used| {
                used.calls += 1;
                (used.fault, used.is_unreached) = (None, false);
            });
        }
    });
}

/// Records the failure of a call to a route's member.
pub(super) fn call_ended(run: &mut Run, ended: &CallEnded) {
    let CallOutcome::Failed { code, has_reached } = &ended.outcome else { return };
    change_entry(run, |attempt| {
        member(attempt, &ended.member, |used| {
            (used.fault, used.is_unreached) = (Some(code.clone()), !has_reached);
        });
    });
}

/// The calls of the attempts before the present one.
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

/// The calls of the run so far; `None` if its agent does not count them.
pub(super) fn calls(run: &Run) -> Option<u32> {
    let present = run.attempts.iter().find(|entry| entry.n == run.attempt);
    let is_seen =
        |entry: &Attempt| entry.fault.as_deref() != Some(FaultKind::RunInterrupted.entry().code);
    let made = match present {
        // The attempt's process died, and with it the count of its calls.
        Some(entry) if !is_seen(entry) => entry.calls.max(1),
        Some(entry) => entry.calls,
        None => 0,
    };
    let made = u32::try_from(made).unwrap_or(u32::MAX);
    let counts = run.attempts.iter().any(|entry| entry.calls > 0);
    counts.then(|| calls_before(run, run.attempt).saturating_add(made))
}

/// An earlier attempt counts as at least one call, because a crash may have lost its count.
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

/// Changes the entry of the present attempt, and creates it if it is missing.
fn change_entry(run: &mut Run, change: impl FnOnce(&mut Attempt)) {
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
        // The process died in the first attempt, before it stored anything.
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

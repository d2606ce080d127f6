//! The ledger: what each attempt of a run did, in the run's record.
//!
//! It is kept in memory and written with the transitions that happen anyway. That an attempt has begun is on record,
//! so its first call is, too; every further one is written before it is made, and no crash forgets it.

use capstan_agent::{CallEnded, CallOutcome, CallsMade, MemberCalls};
use capstan_journal::{Attempt, MemberUse, Run};
use capstan_protocol::{Fault, Timestamp};
use serde_json::{Map, Value};

/// The entry of the present attempt; made if there is none.
pub(super) fn entry(run: &mut Run, now: Timestamp) -> &mut Attempt {
    let at = run.attempts.iter().position(|entry| entry.n == run.attempt);
    let at = at.unwrap_or_else(|| {
        run.attempts.push(Attempt::new(run.attempt, now));
        run.attempts.len() - 1
    });
    // It was found, or made, right here.
    #[allow(clippy::indexing_slicing)]
    &mut run.attempts[at]
}

/// A call begins.
pub(super) fn call_began(run: &mut Run, member: Option<&str>, now: Timestamp) {
    let entry = entry(run, now);
    entry.calls += 1;
    if let Some(name) = member {
        let used = member_of(entry, name);
        used.calls += 1;
        (used.fault, used.is_unreached) = (None, false);
    }
}

/// A call is over.
pub(super) fn call_ended(run: &mut Run, ended: &CallEnded, now: Timestamp) {
    let used = member_of(entry(run, now), &ended.member);
    if let CallOutcome::Failed { code, has_reached } = &ended.outcome {
        (used.fault, used.is_unreached) = (Some(code.clone()), !has_reached);
    }
}

fn member_of<'a>(entry: &'a mut Attempt, name: &str) -> &'a mut MemberUse {
    let at = entry.members.iter().position(|used| used.name == name);
    let at = at.unwrap_or_else(|| {
        entry.members.push(MemberUse { name: name.to_owned(), ..MemberUse::default() });
        entry.members.len() - 1
    });
    #[allow(clippy::indexing_slicing)]
    &mut entry.members[at]
}

/// What an attempt took, by its members.
pub(super) struct Took {
    pub(super) usage: Option<Map<String, Value>>,
    pub(super) by_member: Vec<(String, Map<String, Value>)>,
    pub(super) last_seq: u64,
}

/// The attempt is over.
pub(super) fn attempt_ended(run: &mut Run, fault: Option<&Fault>, took: Took, now: Timestamp) {
    let entry = entry(run, now);
    entry.ended_at = Some(now);
    entry.usage = took.usage;
    if entry.from_seq.is_some_and(|from| from <= took.last_seq) {
        entry.to_seq = Some(took.last_seq);
    } else {
        entry.from_seq = None;
    }
    for (name, usage) in took.by_member {
        member_of(entry, &name).usage = Some(usage);
    }
    if let Some(fault) = fault {
        entry.fault = Some(fault.code().to_owned());
        entry.severity = Some(fault.severity().to_string());
        #[allow(clippy::cast_precision_loss)]
        let wait = fault.retry_after().map(|seconds| seconds as f64);
        entry.retry_after = wait;
    }
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
    run.attempts.iter().any(|entry| entry.calls > 0).then(|| calls_before(run, run.attempt + 1))
}

/// An attempt of which nothing is known has made the call that nobody wrote down.
fn calls_before(run: &Run, attempt: u32) -> u32 {
    let of = |n: u32| run.attempts.iter().find(|entry| entry.n == n).map_or(1, |entry| entry.calls.max(1));
    let calls: u64 = (1..attempt).map(of).sum();
    u32::try_from(calls).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_attempt_that_nobody_saw_the_end_of_has_made_one_call_at_least() {
        let now = Timestamp::now();
        let mut run = Claim::new("t", "k", Uuid::now_v7(), now).to_run();
        assert_eq!((calls(&run), made(&run).calls), (None, 0));
        // The first attempt died with its process, before anything was written.
        run.attempt = 2;
        assert_eq!(made(&run).calls, 1);
        call_began(&mut run, Some("a"), now);
        call_began(&mut run, Some("b"), now);
        assert_eq!(calls(&run), Some(3));
        run.attempt = 3;
        let made = made(&run);
        assert_eq!((made.calls, made.members.len()), (3, 2));
        assert!(made.members.iter().all(|member| member.has_reached && member.fault.is_none()));
    }
}

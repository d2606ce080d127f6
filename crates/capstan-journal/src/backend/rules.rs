//! The rules for writes to a run, shared by all stores.

use capstan_protocol::cursor::LOST_TAIL_GAP;

use crate::backend::planted_bug::{self, Bug};
use crate::{ArmedBy, Attempt, Claim, ErrorKind, Frame, JournalError, Piece, Run, RunState};

/// Joins frames that were read one by one.
pub fn piece(frames: Vec<Frame>) -> Piece {
    let last = frames.last()?.seq;
    Some((frames.into_iter().collect(), last))
}

/// Selects the open runs whose next attempt a gateway has to start.
pub fn unarmed(open: Vec<Run>, limit: usize) -> Vec<Run> {
    let is_unarmed = |run: &Run| run.state == RunState::Waiting && run.armed_by == ArmedBy::Gateway;
    open.into_iter().filter(is_unarmed).take(limit).collect()
}

/// Checks whether `attempt` may append `frames` to the run.
pub fn check_append(run: &Run, attempt: u32, frames: &[Frame]) -> Result<(), JournalError> {
    if run.state != RunState::Running || run.attempt != attempt {
        let message = format!(
            "stream {} is {:?} in attempt {}, not running attempt {attempt}",
            run.stream_id, run.state, run.attempt
        );
        return Err(JournalError::new(ErrorKind::Fenced, message));
    }
    check_order(run, frames, false)
}

/// Checks whether the run may leave `from` with `frames`; false if another writer was faster.
pub fn check_transition(
    run: &Run,
    from: (RunState, u32),
    frames: &[Frame],
) -> Result<bool, JournalError> {
    if (run.state, run.attempt) != from || run.state == RunState::Closed {
        return Ok(false);
    }
    check_order(run, frames, true)?;
    Ok(true)
}

fn check_order(run: &Run, frames: &[Frame], may_skip: bool) -> Result<(), JournalError> {
    let mut last = run.last_seq;
    for frame in frames {
        let is_next = frame.seq == last.saturating_add(1);
        let is_skip =
            may_skip && last == run.last_seq && frame.seq >= last.saturating_add(LOST_TAIL_GAP);
        let is_planted = planted_bug::is(Bug::ReusedSeq) && frame.seq == last;
        if !(is_next || is_skip || is_planted) {
            let message = format!(
                "stream {} is at seq {last}, so {} cannot follow",
                run.stream_id, frame.seq
            );
            return Err(JournalError::new(ErrorKind::OutOfOrder, message));
        }
        last = frame.seq;
    }
    Ok(())
}

/// The record after a transition. The claim's fields stay, the caller sets the rest, and the store
/// sets the counts.
pub fn advance(run: &Run, to: Run, frames: &[Frame]) -> Run {
    let closed_at = match to.state {
        RunState::Closed => Some(to.closed_at.unwrap_or(to.updated_at)),
        RunState::Running | RunState::Waiting => None,
    };
    let mut more = run.more.clone();
    more.extend(to.more);
    let mut next = Run {
        state: to.state,
        attempt: to.attempt,
        not_before: to.not_before,
        updated_at: to.updated_at,
        closed_at,
        fault: to.fault,
        reason: to.reason,
        model: to.model,
        usage: to.usage,
        // Used tokens never decrease.
        tokens: to.tokens.max(run.tokens),
        attempts: capped(to.attempts),
        // A request without a trace gets one when its attempt begins.
        trace_id: run.trace_id.clone().or(to.trace_id),
        owner: to.owner,
        far_id: to.far_id,
        asked: to.asked,
        webhook: to.webhook,
        viewers: to.viewers,
        more,
        ..run.clone()
    };
    count(&mut next.last_seq, &mut next.bytes, frames);
    next
}

/// The tokens that a transition adds to the run's usage.
pub fn tokens_used(run: &Run, to: &Run) -> u64 {
    to.tokens.saturating_sub(run.tokens)
}

/// Keeps the first attempt and the latest ones.
fn capped(mut attempts: Vec<Attempt>) -> Vec<Attempt> {
    if let Some(over) = attempts.len().checked_sub(Attempt::KEPT).filter(|over| *over > 0) {
        attempts.drain(1..=over);
    }
    attempts
}

/// Marks the questions of a run as answered by this claim. They can be answered once, in their own
/// session.
pub fn answer(asker: Option<Run>, claim: &Claim) -> Result<Run, JournalError> {
    let is_open = |run: &Run| {
        let is_ours = (&run.tenant, &run.session) == (&claim.tenant, &claim.session);
        is_ours && run.asked.as_ref().is_some_and(|asked| asked.answered_by.is_none())
    };
    let Some(mut run) = asker.filter(is_open) else {
        return Err(JournalError::new(ErrorKind::Answered, "the interrupt is no longer open"));
    };
    if let Some(asked) = &mut run.asked {
        asked.answered_by = Some(claim.stream_id);
    }
    Ok(run)
}

/// Updates a run's counts for these frames.
pub fn count(last_seq: &mut u64, bytes: &mut u64, frames: &[Frame]) {
    for frame in frames {
        *last_seq = frame.seq;
        *bytes = bytes.saturating_add(frame.bytes.len() as u64);
    }
}

/// The run's record as callers of the store see it.
pub fn shown(mut run: Run) -> Run {
    run.last_seq = run.last_seq.saturating_sub(u64::from(planted_bug::is(Bug::ReusedSeq)));
    run
}

/// The error for an unknown stream.
pub fn not_found(stream: uuid::Uuid) -> JournalError {
    JournalError::new(ErrorKind::NotFound, format!("there is no stream {stream}"))
}

/// The error for a key whose stream retention has deleted.
pub fn expired(key: &str) -> JournalError {
    JournalError::new(ErrorKind::Expired, format!("the stream of key {key} has expired"))
}

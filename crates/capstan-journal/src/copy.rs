//! Copies a journal to another store, for example `disk:` to `postgres:`. A copy can be interrupted
//! and started again.

use std::collections::HashMap;
use std::fmt;

use uuid::Uuid;

use crate::{
    ErrorKind, Frame, JournalError, Run, RunCopy, SessionCopy, Standing, Store, Transfer, TurnRange,
};

/// How much is read at once.
const RUNS: usize = 256;
const TURNS: usize = 1024;
const PACKETS: usize = 4096;
const BYTES: usize = 4 * 1024 * 1024;

/// The result of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Runs that were copied, or that existed already and are equal.
    pub runs: u64,
    /// The part of these runs that an earlier copy had written.
    pub known: u64,
    /// Packets of these runs. Each was read back and compared.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
    /// The sessions of these runs.
    pub sessions: u64,
    /// The turns of these sessions.
    pub turns: u64,
    /// Runs that were not copied: the target has them in another state, or has another run with
    /// their key.
    pub different: Vec<Uuid>,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, known, packets, bytes, sessions, turns, .. } = self;
        write!(
            f,
            "{runs} runs ({known} of them were there), {packets} packets, {bytes} bytes, {turns} \
             turns of {sessions} sessions"
        )
    }
}

/// Copies all runs of an unused journal with their packets, names and sessions, and reads each one
/// back.
///
/// Runs that were copied before are compared and not written again. Other data of the target stays
/// unchanged. Calls `progress` after each page. Returns `Unavailable` if a process uses the
/// source.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(&Copied) + Send,
) -> Result<Copied, JournalError> {
    let (source, target) = (transfer(from)?, transfer(to)?);
    check_unused(from).await?;
    let (mut copied, mut sessions, mut after) = (Copied::default(), HashMap::new(), Uuid::nil());
    loop {
        let runs = source.runs_after(after, RUNS).await?;
        let Some(last) = runs.last() else { return Ok(copied) };
        after = last.stream_id;
        for run in runs {
            let name = (run.tenant.clone(), run.session.clone());
            if !sessions.contains_key(&name) {
                let numbers = copy_session(from, target, &run, &mut copied).await?;
                sessions.insert(name.clone(), numbers);
            }
            let turn = sessions.get(&name).and_then(|numbers| numbers.get(&run.stream_id)).copied();
            copy_run(from, to, run, turn.unwrap_or(0), &mut copied).await?;
        }
        progress(&copied);
    }
}

async fn check_unused(store: &dyn Store) -> Result<(), JournalError> {
    let Some(cluster) = store.cluster() else { return Ok(()) };
    let others = cluster.replicas().await?;
    let Some(other) = others.iter().find(|one| !one.is_self && one.standing != Standing::Gone)
    else {
        return Ok(());
    };
    let message =
        format!("{} uses the journal; stop it first, or wait until its lease is over", other.name);
    Err(JournalError::new(ErrorKind::Unavailable, message))
}

/// Copies the turns of a run's session. Returns their numbers by stream.
async fn copy_session(
    from: &dyn Store,
    to: &dyn Transfer,
    run: &Run,
    copied: &mut Copied,
) -> Result<HashMap<Uuid, u64>, JournalError> {
    let (tenant, session) = (run.tenant.as_str(), run.session.as_str());
    let (mut next, mut numbers, mut last_turn) = (0, HashMap::new(), run.turns_before);
    let mut used_at = run.closed_at.unwrap_or(run.created_at).max(run.created_at);
    loop {
        let turns = from
            .turns(TurnRange { tenant, session, from: next, limit: TURNS, max_bytes: BYTES })
            .await?;
        let is_last = turns.is_empty();
        for turn in &turns {
            (next, last_turn) = (turn.number + 1, last_turn.max(turn.number));
            used_at = used_at.max(turn.closed_at);
            numbers.insert(turn.stream_id, turn.number);
        }
        copied.turns += turns.len() as u64;
        let (tenant, session) = (tenant.to_owned(), session.to_owned());
        to.import_session(SessionCopy { tenant, session, used_at, last_turn, turns }).await?;
        if is_last {
            copied.sessions += 1;
            return Ok(numbers);
        }
    }
}

async fn copy_run(
    from: &dyn Store,
    to: &dyn Store,
    run: Run,
    turn: u64,
    copied: &mut Copied,
) -> Result<(), JournalError> {
    let stream = run.stream_id;
    let frames = frames_of(from, stream).await?;
    let (packets, bytes) = (frames.len() as u64, run.bytes);
    let is_tail_certain = from.is_tail_certain(stream).await?;
    let body = from.body(stream).await?.unwrap_or_default();
    let run_copy = RunCopy { run, body, frames, turn, is_tail_certain };
    let is_new = transfer(to)?.import(run_copy.clone()).await?;
    if !is_same(to, &run_copy).await? {
        if is_new {
            let message = format!("stream {stream} differs from the source after it was copied");
            return Err(JournalError::new(ErrorKind::Corrupt, message));
        }
        copied.different.push(stream);
        return Ok(());
    }
    copied.runs += 1;
    copied.known += u64::from(!is_new);
    (copied.packets, copied.bytes) = (copied.packets + packets, copied.bytes + bytes);
    Ok(())
}

async fn is_same(to: &dyn Store, run_copy: &RunCopy) -> Result<bool, JournalError> {
    let stream = run_copy.run.stream_id;
    let Some(run) = to.run(stream).await? else { return Ok(false) };
    let shape = |run: &Run| (run.state, run.attempt, run.last_seq, run.bytes, run.closed_at);
    Ok(shape(&run) == shape(&run_copy.run)
        && (&run.tenant, &run.key) == (&run_copy.run.tenant, &run_copy.run.key)
        && to.body(stream).await?.unwrap_or_default() == run_copy.body
        && frames_of(to, stream).await? == run_copy.frames)
}

async fn frames_of(store: &dyn Store, stream: Uuid) -> Result<Vec<Frame>, JournalError> {
    let mut frames: Vec<Frame> = Vec::new();
    loop {
        let after = frames.last().map_or(0, |frame| frame.seq);
        let page = store.read(stream, after, PACKETS, BYTES).await?;
        if page.is_empty() {
            return Ok(frames);
        }
        frames.extend(page);
    }
}

fn transfer(store: &dyn Store) -> Result<&dyn Transfer, JournalError> {
    store.transfer().ok_or_else(|| {
        let message = "only journals on disk and in PostgreSQL can be copied";
        JournalError::new(ErrorKind::Unsupported, message)
    })
}

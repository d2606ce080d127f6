//! Writes claims: checks the quotas of a group of claims and writes them in one synced step.

use std::sync::Arc;
use std::time::Duration;

use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::{ArmedBy, Claim, ErrorKind, JournalError, Over, Quota, Refused, Run};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Shared;
use super::connection::{Failure, FailureKind};
use super::heartbeat;
use super::readers::ReaderUpdate;
use super::rows::{self, column};
use super::writer_connection::WriterConnection;

/// The most claims of a group, and the most bytes.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// How often this process checks whether it has a lease again.
const LEASE_CHECK: Duration = Duration::from_millis(50);

/// A claim to be written.
pub(super) struct ClaimJob {
    pub(super) claim: Box<Claim>,
    pub(super) quota: Quota,
    /// It was sent a second time, because its first try was still running in the server.
    pub(super) was_repeated: bool,
    pub(super) reply: oneshot::Sender<Result<ClaimAnswer, JournalError>>,
}

/// The result of a claim.
// The large variant is the usual one.
#[allow(clippy::large_enum_variant)]
pub(super) enum ClaimAnswer {
    New(Run),
    /// Another stream has the key.
    InUse(Uuid),
}

/// Also records the reader of a new run, so that no other process finds the run without its reader.
const CLAIM: &str = "with c as materialized (\
    select nr, outcome, stream_id, turns, over_what, wait_us from capstan.claim_runs(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
    $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)), \
    r as (insert into capstan.readers select stream_id, $1, null from c \
    where outcome = 1 and ($24::bool[])[nr] \
    on conflict (stream, replica) do update set left_at = null) \
    select nr, outcome, stream_id, turns, over_what, wait_us from c order by nr";

pub(super) async fn run(shared: Arc<Shared>, mut jobs: mpsc::Receiver<ClaimJob>) {
    let mut writer = WriterConnection::new(shared, "");
    while let Some(first) = jobs.recv().await {
        let mut group = gather(first, &mut jobs);
        while !group.is_empty() {
            if let Err(failure) = step(&mut writer, &mut group).await {
                writer.failed(&failure).await;
            }
        }
    }
}

/// Forms a group, in the order in which the statement takes its locks.
fn gather(first: ClaimJob, jobs: &mut mpsc::Receiver<ClaimJob>) -> Vec<ClaimJob> {
    let mut size = first.claim.body.len();
    let mut group = vec![first];
    while group.len() < GROUP
        && size < GROUP_BYTES
        && let Ok(job) = jobs.try_recv()
    {
        size += job.claim.body.len();
        group.push(job);
    }
    group.sort_by(|a, b| (&a.claim.tenant, &a.claim.key).cmp(&(&b.claim.tenant, &b.claim.key)));
    group
}

async fn step(writer: &mut WriterConnection, group: &mut Vec<ClaimJob>) -> Result<(), Failure> {
    let shared = Arc::clone(&writer.shared);
    if !shared.has_lease() {
        tokio::time::sleep(LEASE_CHECK).await;
        return Ok(());
    }
    let me = shared.me();
    match claim(writer, group, me, shared.is_synced).await {
        Ok(rows) => {
            writer.succeeded();
            let is_fenced = rows.first().map_or(Ok(9), |row| column::<i32>(row, 1))? == 9;
            if is_fenced {
                // The claims are repeated under the next lease.
                if me == shared.me() {
                    shared.lose_lease(heartbeat::FENCED);
                }
                return Ok(());
            }
            failpoint::hit(Point::AfterClaim);
            answer(&shared, me, group, &rows)
        }
        Err(failure) if matches!(failure.kind, FailureKind::Permanent | FailureKind::Exists) => {
            tracing::error!(%failure, "PostgreSQL refuses a claim");
            let error = failure.into_error();
            group.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone()))));
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

async fn claim(
    writer: &mut WriterConnection,
    group: &[ClaimJob],
    me: Uuid,
    is_synced: bool,
) -> Result<Vec<Row>, Failure> {
    fn each<'a, T>(group: &'a [ClaimJob], take: impl Fn(&'a Claim) -> T) -> Vec<T> {
        group.iter().map(|job| take(&job.claim)).collect()
    }
    let most = |take: fn(&Quota) -> Option<u64>| -> Vec<Option<i64>> {
        group
            .iter()
            .map(|job| take(&job.quota).map(|most| most.try_into().unwrap_or(i64::MAX)))
            .collect()
    };
    let runs: Vec<Run> = each(group, Claim::to_run);
    let records = runs.iter().map(rows::record).collect::<Result<Vec<_>, _>>();
    let records = records.map_err(|error| Failure::unexpected(&error.to_string()))?;
    let per_minute: Vec<Option<i32>> = group
        .iter()
        .map(|job| job.quota.per_minute.map(|most| most.get().try_into().unwrap_or(i32::MAX)))
        .collect();
    writer
        .connection()
        .await?
        .query(
            CLAIM,
            &[
                &me,
                &each(group, |claim| claim.tenant.as_str()),
                &each(group, |claim| claim.key.as_str()),
                &each(group, |claim| claim.stream_id),
                &each(group, |claim| claim.session.as_str()),
                &each(group, |claim| claim.answers),
                &each(group, |claim| &claim.body[..]),
                &records,
                &each(group, |claim| claim.turns_elsewhere.cast_signed()),
                &each(group, |claim| claim.created_at.as_micros()),
                &each(group, |claim| claim.armed_by == ArmedBy::Gateway),
                &each(group, |claim| claim.chat.as_deref().filter(|chat| rows::is_name(chat))),
                &runs.iter().map(Run::body_hash_text).collect::<Vec<_>>(),
                &runs.iter().map(rows::request_ids).collect::<Vec<_>>(),
                &is_synced,
                &per_minute,
                &most(|quota| quota.running),
                &most(|quota| quota.sessions),
                &most(|quota| quota.messages_per_session),
                &most(|quota| quota.bytes_per_session),
                &most(|quota| quota.bytes),
                &most(|quota| quota.tokens_per_minute),
                &most(|quota| quota.tokens_per_day),
                &each(group, |claim| claim.is_read),
            ],
        )
        .await
}

fn answer(
    shared: &Shared,
    me: Uuid,
    group: &mut Vec<ClaimJob>,
    rows: &[Row],
) -> Result<(), Failure> {
    let outcomes = rows.iter().map(Outcome::read).collect::<Result<Vec<_>, _>>()?;
    let mut again = Vec::new();
    for (mut job, outcome) in group.drain(..).zip(outcomes) {
        if outcome.is_repeated(&job) {
            job.was_repeated = true;
            again.push(job);
        } else {
            let _ = job.reply.send(outcome.into_answer(shared, me, &job.claim));
        }
    }
    *group = again;
    Ok(())
}

struct Outcome {
    outcome: i32,
    stream: Uuid,
    turns: i64,
    over: i32,
    wait_us: i64,
}

impl Outcome {
    fn read(row: &Row) -> Result<Self, Failure> {
        Ok(Self {
            outcome: column(row, 1)?,
            stream: column(row, 2)?,
            turns: column(row, 3)?,
            over: column(row, 4)?,
            wait_us: column(row, 5)?,
        })
    }

    /// Whether the key belongs to this claim itself, from an earlier try whose answer was lost. A
    /// second try then gets a certain answer.
    fn is_repeated(&self, job: &ClaimJob) -> bool {
        self.outcome == 0 && self.stream == job.claim.stream_id && !job.was_repeated
    }

    fn into_answer(
        self,
        shared: &Shared,
        me: Uuid,
        claim: &Claim,
    ) -> Result<ClaimAnswer, JournalError> {
        match self.outcome {
            0 => Ok(ClaimAnswer::InUse(self.stream)),
            1 => {
                let run = Run { turns_before: self.turns.cast_unsigned(), ..claim.to_run() };
                shared.owned.add(run.clone(), me);
                if claim.is_read {
                    let _ = shared.reader_updates.send(ReaderUpdate::Claimed(run.stream_id, me));
                }
                Ok(ClaimAnswer::New(run))
            }
            2 => Err(JournalError::new(ErrorKind::Answered, "the interrupt is no longer open")),
            _ => Err(self.refused().into()),
        }
    }

    fn refused(&self) -> Refused {
        let over = match self.over {
            1 => Over::Rate,
            2 => Over::Running,
            4 => Over::Sessions,
            5 => Over::Messages,
            6 => Over::SessionBytes,
            8 => Over::TokensPerMinute,
            9 => Over::TokensPerDay,
            _ => Over::Bytes,
        };
        let is_timed = matches!(over, Over::Rate | Over::TokensPerMinute | Over::TokensPerDay);
        let wait = is_timed.then(|| Duration::from_micros(self.wait_us.cast_unsigned()));
        Refused { over, wait }
    }
}

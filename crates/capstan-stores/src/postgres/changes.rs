//! Writes state changes: a run waits, continues or ends. Each change is one synced step with the
//! last packets and the session's turn.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use capstan_journal::backend::rules;
use capstan_journal::{ErrorKind, Frame, JournalError, Over, Refused, Run, RunState, StoredTurn};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Failure, FailureKind};
use super::heartbeat;
use super::owned_runs::WriteGuard;
use super::peer_message::{PeerMessage, number_of};
use super::rows::{self, column};
use super::writer_connection::WriterConnection;
use super::{Shared, block};

/// The most changes of a group, and the most bytes.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// A change to be written.
pub(super) struct Change {
    /// Identifies the change, if it is repeated because its answer was lost.
    pub(super) id: Uuid,
    /// Present if the run is running in this process.
    pub(super) guard: Option<WriteGuard>,
    pub(super) before: Run,
    pub(super) after: Run,
    pub(super) frames: Vec<Frame>,
    pub(super) turn: Option<StoredTurn>,
    pub(super) most_waiting: Option<u64>,
    pub(super) reply: oneshot::Sender<Result<bool, JournalError>>,
}

impl Change {
    fn size(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes.len()).sum()
    }

    fn answer(self, shared: &Shared, me: Uuid, outcome: i32) -> Option<Self> {
        let stream = self.after.stream_id;
        let answer = match outcome {
            1 => {
                let standing = (self.after.attempt, self.after.state);
                shared.owned.set_run(self.after, me);
                shared.notify(PeerMessage::Frames { stream, standing, frames: self.frames });
                Ok(true)
            }
            // Earlier packets are missing: they are rewritten, or the run is given up.
            2 if self.guard.is_some() => return Some(self),
            2 => Err(JournalError::new(
                ErrorKind::Corrupt,
                format!("packets of stream {stream} are missing"),
            )),
            3 => Err(Refused::from(Over::Waiting).into()),
            4 => Err(rules::not_found(stream)),
            _ => {
                if self.guard.is_some() {
                    shared.owned.remove(stream);
                }
                Ok(false)
            }
        };
        let _ = self.reply.send(answer);
        None
    }
}

const CHANGE: &str = "select nr, outcome from capstan.change_runs(\
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
    $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)";

pub(super) async fn run(shared: Arc<Shared>, mut jobs: mpsc::Receiver<Change>) {
    let mut writer = WriterConnection::new(shared, "");
    let mut queue = VecDeque::new();
    loop {
        if queue.is_empty() {
            let Some(first) = jobs.recv().await else { return };
            queue.push_back(first);
        }
        while queue.len() < GROUP
            && let Ok(job) = jobs.try_recv()
        {
            queue.push_back(job);
        }
        let mut group = gather(&mut queue);
        while !group.is_empty() {
            if let Err(failure) = step(&mut writer, &mut group).await {
                writer.failed(&failure).await;
            }
        }
    }
}

/// Forms a group, in the order in which the statement takes its locks. It has at most one change
/// for each run, because a statement does not see its own writes.
fn gather(queue: &mut VecDeque<Change>) -> Vec<Change> {
    let (mut group, mut later, mut streams, mut size) =
        (Vec::new(), VecDeque::new(), HashSet::new(), 0);
    while let Some(job) = queue.pop_front() {
        if size > GROUP_BYTES || !streams.insert(job.after.stream_id) {
            later.push_back(job);
            continue;
        }
        size += job.size();
        group.push(job);
    }
    *queue = later;
    group.sort_by_key(|job| job.after.stream_id);
    group
}

async fn step(writer: &mut WriterConnection, group: &mut Vec<Change>) -> Result<(), Failure> {
    let shared = Arc::clone(&writer.shared);
    let me = shared.me();
    // Another process may own the run by now.
    let is_ours = |job: &Change| {
        job.guard.as_ref().is_none_or(|guard| shared.owned.is_under(me, &guard.owned))
    };
    let (ours, others): (Vec<_>, Vec<_>) = group.drain(..).partition(is_ours);
    others.into_iter().for_each(|job| drop(job.reply.send(Ok(false))));
    *group = ours;
    if group.is_empty() || !shared.has_lease() {
        return if group.is_empty() {
            Ok(())
        } else {
            Err(Failure::retryable("this process has no lease"))
        };
    }
    match change(writer, group, me, shared.is_synced).await {
        Ok(rows) => {
            writer.succeeded();
            let outcomes =
                rows.iter().map(|row| column::<i32>(row, 1)).collect::<Result<Vec<_>, _>>()?;
            if outcomes.first().is_none_or(|outcome| *outcome == 9) {
                if me == shared.me() {
                    shared.lose_lease(heartbeat::FENCED);
                }
                return Ok(());
            }
            let again = group
                .drain(..)
                .zip(outcomes)
                .filter_map(|(job, outcome)| job.answer(&shared, me, outcome));
            let again: Vec<_> = again.collect();
            *group = again;
            if group.is_empty() {
                return Ok(());
            }
            shared.reconcile.notify_one();
            Err(Failure::retryable("packets that PostgreSQL has lost are not rewritten yet"))
        }
        Err(failure) if matches!(failure.kind, FailureKind::Permanent | FailureKind::Exists) => {
            tracing::error!(%failure, "PostgreSQL refuses a change of a run");
            let error = failure.into_error();
            group.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone()))));
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

async fn change(
    writer: &mut WriterConnection,
    group: &[Change],
    me: Uuid,
    is_synced: bool,
) -> Result<Vec<Row>, Failure> {
    fn each<'a, T>(group: &'a [Change], take: impl Fn(&'a Change) -> T) -> Vec<T> {
        group.iter().map(take).collect()
    }
    let state = |state: RunState| i32::from(number_of(state));
    let records = group.iter().map(|job| rows::record(&job.after)).collect::<Result<Vec<_>, _>>();
    let records = records.map_err(|error| Failure::unexpected(&error.to_string()))?;
    let turn: Vec<Option<String>> =
        each(group, |job| job.turn.as_ref().and_then(|turn| serde_json::to_string(turn).ok()));
    let blocks: Vec<_> = group
        .iter()
        .flat_map(|job| {
            let stream = job.after.stream_id;
            block::encode(&job.frames, job.before.bytes)
                .into_iter()
                .map(move |block| (stream, block))
        })
        .collect();
    let data: Vec<&[u8]> = blocks.iter().map(|(_, block)| &*block.data).collect();
    writer
        .connection()
        .await?
        .query(
            CHANGE,
            &[
                &me,
                &each(group, |job| job.after.stream_id),
                &each(group, |job| job.id),
                &each(group, |job| job.after.tenant.as_str()),
                &each(group, |job| job.after.session.as_str()),
                &each(group, |job| state(job.before.state)),
                &each(group, |job| job.before.attempt.cast_signed()),
                &each(group, |job| state(job.after.state)),
                &each(group, |job| job.after.attempt.cast_signed()),
                &each(group, |job| job.before.last_seq.cast_signed()),
                &records,
                &each(group, |job| job.after.last_seq.cast_signed()),
                &each(group, |job| job.after.bytes.cast_signed()),
                &each(group, |job| job.after.updated_at.as_micros()),
                &each(group, |job| job.after.closed_at.map(|at| at.as_micros())),
                &each(group, |job| {
                    job.after.asked.as_ref().is_some_and(|asked| asked.answered_by.is_none())
                }),
                &each(group, |job| rows::request_ids(&job.after)),
                &turn,
                &each(group, |job| job.turn.as_ref().map(|turn| turn.closed_at.as_micros())),
                &each(group, |job| {
                    job.most_waiting.map(|most| i64::try_from(most).unwrap_or(i64::MAX))
                }),
                &each(group, |job| {
                    rules::tokens_used(&job.before, &job.after).try_into().unwrap_or(i64::MAX)
                }),
                &is_synced,
                &blocks.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(),
                &blocks.iter().map(|(_, block)| block.last_seq.cast_signed()).collect::<Vec<_>>(),
                &blocks.iter().map(|(_, block)| block.total.cast_signed()).collect::<Vec<_>>(),
                &data,
            ],
        )
        .await
}

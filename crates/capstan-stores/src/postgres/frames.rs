//! Writes frames: appends in groups, with one statement each. It inserts rows and updates none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::backend::planted_bug::{self, Bug};
use capstan_journal::{ErrorKind, Frame, JournalError, RunState};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::Shared;
use super::block::{self, Block};
use super::connection::{Connection, Failure, FailureKind};
use super::heartbeat;
use super::owned_runs::{OwnedRun, WriteGuard};
use super::peer_message::PeerMessage;
use super::rows::column;
use super::writer_connection::WriterConnection;

/// The most appends of a group, and the most bytes.
const GROUP: usize = 1024;
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Frames to be written, with the right to write to their run.
pub(super) struct Append {
    pub(super) guard: WriteGuard,
    pub(super) attempt: u32,
    pub(super) frames: Vec<Frame>,
    /// The same frames, encoded for the table.
    pub(super) blocks: Vec<Block>,
    pub(super) reply: oneshot::Sender<Result<(), JournalError>>,
}

impl Append {
    fn last_seq(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.seq)
    }

    fn size(&self) -> usize {
        self.blocks.iter().map(|block| block.data.len()).sum()
    }

    fn blocks(&self) -> impl Iterator<Item = (Uuid, &Block)> {
        let stream = self.guard.owned.stream;
        self.blocks.iter().map(move |block| (stream, block))
    }

    fn done(self, shared: &Shared) {
        let owned = Arc::clone(&self.guard.owned);
        owned.wrote(&self.frames, shared.is_synced);
        // Release the guard first: the caller may write again as soon as it has the answer.
        drop(self.guard);
        let _ = self.reply.send(Ok(()));
        if owned.is_awaited() || !shared.is_listening.load(Ordering::Relaxed) {
            let standing = (self.attempt, RunState::Running);
            shared.notify(PeerMessage::Frames {
                stream: owned.stream,
                standing,
                frames: self.frames,
            });
        }
    }

    fn refuse(self) {
        let _ = self.reply.send(Err(fenced(self.guard.owned.stream)));
    }
}

pub(super) fn fenced(stream: Uuid) -> JournalError {
    JournalError::new(
        ErrorKind::Fenced,
        format!("this process does not own stream {stream} any more"),
    )
}

const WRITE: &str = "with me as materialized (select 1 from capstan.writers \
    where replica = $1 and writer = 0 and not fenced \
    and (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint = $2 for share) \
    insert into capstan.blocks select b.* from me, \
    unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bytea[]) b";
/// For a planted bug: a fenced process can write.
const WRITE_UNFENCED: &str = "insert into capstan.blocks \
    select b.* from unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bytea[]) b \
    where $1::uuid is not null and $2::bigint is not null";
const STARTED: &str = "select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint";
const MAY_WRITE: &str = "select not fenced from capstan.writers where replica = $1 and writer = 0";
const LAST_SEQS: &str = "select r.stream, coalesce((select b.last_seq from capstan.blocks b \
    where b.stream = r.stream order by b.last_seq desc limit 1), 0) \
    from capstan.runs r where r.stream = any($2) and r.owner = $1 and r.state = 1";
const MARK_LOST: &str = "update capstan.runs set owner = null, incarnation = 'lost' \
    where stream = $2 and owner = $1 and state = 1";
/// Marks runs as lost that ended here, while the server has lost their end and still has them as
/// running. Runs that were written since the server started are not among them.
const MARK_ENDED_LOST: &str = "update capstan.runs set owner = null, incarnation = 'lost' \
    where owner = $1 and state = 1 and stream <> all($2) and not capstan.survives(incarnation)";

pub(super) async fn run(shared: Arc<Shared>, jobs: mpsc::Receiver<Append>) {
    let set_up = if shared.is_synced { "" } else { "set synchronous_commit = off" };
    let writer = WriterConnection::new(Arc::clone(&shared), set_up);
    FrameWriter {
        shared,
        writer,
        jobs,
        started: 0,
        group: Vec::new(),
        is_uncertain: false,
        must_reconcile: true,
    }
    .run()
    .await;
}

struct FrameWriter {
    shared: Arc<Shared>,
    writer: WriterConnection,
    jobs: mpsc::Receiver<Append>,
    /// The start time of the server with which this process was reconciled.
    started: i64,
    group: Vec<Append>,
    /// An earlier try may have written the group.
    is_uncertain: bool,
    /// Compare with the server's state before the next write.
    must_reconcile: bool,
}

impl FrameWriter {
    async fn run(mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => self.gather(job),
                    None => return,
                },
                () = shared.reconcile.notified() => self.must_reconcile = true,
            }
            while !self.group.is_empty() || self.must_reconcile {
                if let Err(failure) = self.step().await {
                    self.is_uncertain |= failure.kind.is_uncertain();
                    self.writer.failed(&failure).await;
                }
            }
        }
    }

    fn gather(&mut self, first: Append) {
        let mut size = first.size();
        self.group.push(first);
        while self.group.len() < GROUP
            && size < GROUP_BYTES
            && let Ok(job) = self.jobs.try_recv()
        {
            size += job.size();
            self.group.push(job);
        }
    }

    async fn step(&mut self) -> Result<(), Failure> {
        let me = self.shared.me();
        self.refuse_lost_runs(me);
        self.must_reconcile |= self.writer.is_down();
        if self.must_reconcile {
            self.reconcile(me).await?;
            self.refuse_lost_runs(me);
        }
        if self.group.is_empty() {
            return Ok(());
        }
        let blocks: Vec<_> = self.group.iter().flat_map(Append::blocks).collect();
        if planted_bug::is(Bug::EarlyNotice) {
            self.group.iter().for_each(|job| {
                self.shared.notify(job.guard.owned.frames_message(job.frames.clone()))
            });
            // Delay the write in the server, so that the message is first even with a paused clock.
            self.writer.connection().await?.batch("select pg_sleep(0.02)").await?;
        }
        let connection = self.writer.connection().await?;
        match write(connection, me, self.started, &blocks).await {
            Ok(true) => self.done(),
            Ok(false) => self.check_lease(me).await?,
            // The try on the lost connection had succeeded after all.
            Err(failure) if failure.kind == FailureKind::Exists && self.is_uncertain => self.done(),
            Err(failure)
                if matches!(failure.kind, FailureKind::Exists | FailureKind::Permanent) =>
            {
                tracing::error!(%failure, "PostgreSQL refuses packets");
                let error = failure.into_error();
                self.group.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone()))));
            }
            Err(failure) => return Err(failure),
        }
        self.writer.succeeded();
        Ok(())
    }

    fn done(&mut self) {
        failpoint::hit(Point::AfterAppend);
        self.is_uncertain = false;
        self.group.drain(..).for_each(|job| job.done(&self.shared));
    }

    /// Refuses the appends of runs that this process does not own any more.
    fn refuse_lost_runs(&mut self, me: Uuid) {
        let (ours, others) =
            self.group.drain(..).partition(|job| self.shared.owned.is_under(me, &job.guard.owned));
        self.group = ours;
        Vec::<Append>::into_iter(others).for_each(Append::refuse);
        self.is_uncertain &= !self.group.is_empty();
    }

    /// Nothing was written: the lease has ended, or the server has restarted.
    async fn check_lease(&mut self, me: Uuid) -> Result<(), Failure> {
        let rows = self.writer.connection().await?.query(MAY_WRITE, &[&me]).await?;
        let may_write = rows.first().map_or(Ok(false), |row| column(row, 0))?;
        if may_write {
            self.must_reconcile = true;
        } else if me == self.shared.me() {
            self.shared.lose_lease(heartbeat::FENCED);
        }
        Ok(())
    }

    /// Compares what this process has acknowledged with what the server has, and rewrites what is
    /// missing there.
    async fn reconcile(&mut self, me: Uuid) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        // Take the numbers before the query, which then must find at least these.
        let owned: Vec<_> =
            shared.owned.all().into_iter().map(|owned| (owned.last_seq(), owned)).collect();
        let streams: Vec<Uuid> = owned.iter().map(|(_, owned)| owned.stream).collect();
        let connection = self.writer.connection().await?;
        let started: i64 = column(&connection.one(STARTED, &[]).await?, 0)?;
        let mut found: HashMap<Uuid, u64> = HashMap::new();
        for row in connection.query(LAST_SEQS, &[&me, &streams]).await? {
            found.insert(column(&row, 0)?, column::<i64>(&row, 1)?.try_into().unwrap_or(0));
        }
        for (acknowledged, owned) in owned {
            match found.get(&owned.stream) {
                Some(last) if *last < acknowledged && !planted_bug::is(Bug::NoSettle) => {
                    restore(&shared, connection, me, started, &owned, *last).await?
                }
                Some(_) => {}
                // The server has lost its claim, or the run has changed hands.
                None => shared.owned.remove(owned.stream),
            }
        }
        if connection.execute(MARK_ENDED_LOST, &[&me, &streams]).await? > 0 {
            tracing::error!("PostgreSQL has lost the ends of runs; these runs end as lost");
        }
        (self.started, self.must_reconcile) = (started, false);
        let is_written = |job: &Append| {
            found.get(&job.guard.owned.stream).is_some_and(|last| *last >= job.last_seq())
        };
        // A group is written completely or not at all.
        if self.is_uncertain && self.group.iter().any(is_written) {
            self.done();
        }
        Ok(())
    }
}

/// Rewrites frames that the server has lost. If they are not in memory any more, marks the run as
/// lost.
async fn restore(
    shared: &Shared,
    connection: &Connection,
    me: Uuid,
    started: i64,
    owned: &Arc<OwnedRun>,
    last: u64,
) -> Result<(), Failure> {
    let stream = owned.stream;
    if let Some((frames, total)) = owned.since(last) {
        let blocks = block::encode(&frames, total);
        let blocks: Vec<_> = blocks.iter().map(|block| (stream, block)).collect();
        return match write(connection, me, started, &blocks).await {
            Ok(_) => {
                tracing::warn!(%stream, after = last, packets = frames.len(),
                "packets that PostgreSQL had lost were written again");
                Ok(())
            }
            // An earlier try has written them.
            Err(failure) if failure.kind == FailureKind::Exists => Ok(()),
            Err(failure) => Err(failure),
        };
    }
    tracing::error!(
        %stream,
        after = last,
        "PostgreSQL has lost packets, and no process has them any more"
    );
    connection.execute(MARK_LOST, &[&me, &stream]).await?;
    shared.owned.remove(stream);
    Ok(())
}

/// Writes all blocks or none; false if none.
async fn write(
    connection: &Connection,
    me: Uuid,
    started: i64,
    blocks: &[(Uuid, &Block)],
) -> Result<bool, Failure> {
    let streams: Vec<Uuid> = blocks.iter().map(|(stream, _)| *stream).collect();
    let seqs: Vec<i64> = blocks.iter().map(|(_, block)| block.last_seq.cast_signed()).collect();
    let totals: Vec<i64> = blocks.iter().map(|(_, block)| block.total.cast_signed()).collect();
    let data: Vec<&[u8]> = blocks.iter().map(|(_, block)| &*block.data).collect();
    let statement = if planted_bug::is(Bug::NoFence) { WRITE_UNFENCED } else { WRITE };
    let written =
        connection.execute(statement, &[&me, &started, &streams, &seqs, &totals, &data]).await?;
    Ok(written == blocks.len() as u64)
}

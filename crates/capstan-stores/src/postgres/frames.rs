//! The frames lane: appends in groups, one statement each. Nothing in it updates a row.

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
use super::link::{Failure, FailureKind, Link};
use super::notice::Notice;
use super::own::{OwnRun, Turn};
use super::rows::column;
use super::wire::Wire;

/// What a group may hold.
const GROUP: usize = 1024;
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Frames to be written by whoever has the turn of their run.
pub(super) struct Append {
    pub(super) turn: Turn,
    pub(super) attempt: u32,
    pub(super) frames: Vec<Frame>,
    /// The same, as they are stored.
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
        let stream = self.turn.own.stream;
        self.blocks.iter().map(move |block| (stream, block))
    }

    fn done(self, shared: &Shared) {
        let own = Arc::clone(&self.turn.own);
        own.wrote(&self.frames, shared.is_synced);
        // The turn goes first: whoever is told may write on at once.
        drop(self.turn);
        let _ = self.reply.send(Ok(()));
        if own.is_awaited() || !shared.hears.load(Ordering::Relaxed) {
            let standing = (self.attempt, RunState::Running);
            shared.tell(Notice::Frames { stream: own.stream, standing, frames: self.frames });
        }
    }

    fn refuse(self) {
        let _ = self.reply.send(Err(fenced(self.turn.own.stream)));
    }
}

pub(super) fn fenced(stream: Uuid) -> JournalError {
    JournalError::new(ErrorKind::Fenced, format!("stream {stream} is no longer this process's"))
}

const WRITE: &str = "with me as materialized (select 1 from capstan.lanes where replica = $1 and \
 lane = 0 and not fenced \
    and (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint = $2 for share) \
    insert into capstan.blocks select b.* from me, unnest($3::uuid[], $4::bigint[], $5::bigint[], \
    $6::bytea[]) b";
/// With a mistake planted: whoever is fenced can write.
const WRITE_UNFENCED: &str = "insert into capstan.blocks select b.* from unnest($3::uuid[], \
 $4::bigint[], $5::bigint[], $6::bytea[]) b \
    where $1::uuid is not null and $2::bigint is not null";
const STARTED: &str = "select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint";
const IS_FREE: &str = "select not fenced from capstan.lanes where replica = $1 and lane = 0";
const SETTLE: &str = "select r.stream, coalesce((select b.last_seq from capstan.blocks b where \
 b.stream = r.stream \
    order by b.last_seq desc limit 1), 0) from capstan.runs r where r.stream = any($2) and \
    r.owner = $1 and r.state = 1";
const LOSE: &str = "update capstan.runs set owner = null, life = 'lost' where stream = $2 and \
 owner = $1 and state = 1";

/// Ends that were acknowledged and lost with the server: there the runs still run, and nobody knows
/// of them any more. What was written since this server began is not among them.
const ABANDON: &str = "update capstan.runs set owner = null, life = 'lost' where owner = $1 and \
 state = 1 \
    and stream <> all($2) and not capstan.is_alive_1(life)";

pub(super) async fn run(shared: Arc<Shared>, jobs: mpsc::Receiver<Append>) {
    let set_up = if shared.is_synced { "" } else { "set synchronous_commit = off" };
    let wire = Wire::new(Arc::clone(&shared), set_up);
    Lane {
        shared,
        wire,
        jobs,
        started: 0,
        group: Vec::new(),
        is_unsure: false,
        is_unsettled: true,
    }
    .run()
    .await;
}

struct Lane {
    shared: Arc<Shared>,
    wire: Wire,
    jobs: mpsc::Receiver<Append>,
    /// When the server was started that has what this process knows it to have.
    started: i64,
    group: Vec<Append>,
    /// The group may have been written by an earlier try.
    is_unsure: bool,
    /// What the server has is to be compared before anything more is written.
    is_unsettled: bool,
}

impl Lane {
    async fn run(mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => self.gather(job),
                    None => return,
                },
                () = shared.unsettled.notified() => self.is_unsettled = true,
            }
            while !self.group.is_empty() || self.is_unsettled {
                if let Err(failure) = self.step().await {
                    self.is_unsure |= failure.kind.is_unsure();
                    self.wire.failed(&failure).await;
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
        self.refuse_what_is_not_ours(me);
        self.is_unsettled |= self.wire.is_down();
        if self.is_unsettled {
            self.settle(me).await?;
            self.refuse_what_is_not_ours(me);
        }
        if self.group.is_empty() {
            return Ok(());
        }
        let blocks: Vec<_> = self.group.iter().flat_map(Append::blocks).collect();
        if planted_bug::is(Bug::EarlyNotice) {
            self.group
                .iter()
                .for_each(|job| self.shared.tell(job.turn.own.notice(job.frames.clone())));
            // The server takes its time, so that the notice is there first, whoever holds the
            // clock.
            self.wire.link().await?.batch("select pg_sleep(0.02)").await?;
        }
        let link = self.wire.link().await?;
        match write(link, me, self.started, &blocks).await {
            Ok(true) => self.done(),
            Ok(false) => self.look_at_lane(me).await?,
            // The connection that was lost had done it after all.
            Err(failure) if failure.kind == FailureKind::Exists && self.is_unsure => self.done(),
            Err(failure) if matches!(failure.kind, FailureKind::Exists | FailureKind::Never) => {
                tracing::error!(%failure, "PostgreSQL refuses packets");
                let error = failure.into_error();
                self.group.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone()))));
            }
            Err(failure) => return Err(failure),
        }
        self.wire.rest();
        Ok(())
    }

    fn done(&mut self) {
        failpoint::hit(Point::AfterAppend);
        self.is_unsure = false;
        self.group.drain(..).for_each(|job| job.done(&self.shared));
    }

    fn refuse_what_is_not_ours(&mut self, me: Uuid) {
        let (ours, others) =
            self.group.drain(..).partition(|job| self.shared.own.is_under(me, &job.turn.own));
        self.group = ours;
        Vec::<Append>::into_iter(others).for_each(Append::refuse);
        self.is_unsure &= !self.group.is_empty();
    }

    /// Nothing was written: the lease has ended, or the server is another than this process knew.
    async fn look_at_lane(&mut self, me: Uuid) -> Result<(), Failure> {
        let rows = self.wire.link().await?.query(IS_FREE, &[&me]).await?;
        let is_free = rows.first().map_or(Ok(false), |row| column(row, 0))?;
        if is_free {
            self.is_unsettled = true;
        } else if me == self.shared.me() {
            self.shared.lose_seat("another process has fenced this one");
        }
        Ok(())
    }

    /// Compares what this process knows to be written with what the server has, and writes again
    /// what is missing there.
    async fn settle(&mut self, me: Uuid) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        // What is acknowledged before the look must be found by it.
        let own: Vec<_> = shared.own.all().into_iter().map(|own| (own.last_seq(), own)).collect();
        let streams: Vec<Uuid> = own.iter().map(|(_, own)| own.stream).collect();
        let link = self.wire.link().await?;
        let started: i64 = column(&link.one(STARTED, &[]).await?, 0)?;
        let mut found: HashMap<Uuid, u64> = HashMap::new();
        for row in link.query(SETTLE, &[&me, &streams]).await? {
            found.insert(column(&row, 0)?, column::<i64>(&row, 1)?.try_into().unwrap_or(0));
        }
        for (acknowledged, own) in own {
            match found.get(&own.stream) {
                Some(last) if *last < acknowledged && !planted_bug::is(Bug::NoSettle) => {
                    restore(&shared, link, me, started, &own, *last).await?
                }
                Some(_) => {}
                // Its claim was lost with the server, or it has moved on.
                None => shared.own.forget(own.stream),
            }
        }
        if link.execute(ABANDON, &[&me, &streams]).await? > 0 {
            tracing::error!("the server has lost the ends of runs; they are ended as lost");
        }
        (self.started, self.is_unsettled) = (started, false);
        let is_written = |job: &Append| {
            found.get(&job.turn.own.stream).is_some_and(|last| *last >= job.last_seq())
        };
        // A group is written as a whole or not at all.
        if self.is_unsure && self.group.iter().any(is_written) {
            self.done();
        }
        Ok(())
    }
}

/// Writes what a server has lost; if that is no longer known, the run is left to be ended as lost.
async fn restore(
    shared: &Shared,
    link: &Link,
    me: Uuid,
    started: i64,
    own: &Arc<OwnRun>,
    last: u64,
) -> Result<(), Failure> {
    let stream = own.stream;
    if let Some((frames, total)) = own.since(last) {
        let blocks = block::encode(&frames, total);
        let blocks: Vec<_> = blocks.iter().map(|block| (stream, block)).collect();
        return match write(link, me, started, &blocks).await {
            Ok(_) => {
                tracing::warn!(%stream, after = last, packets = frames.len(),
                "packets that the server had lost are written again");
                Ok(())
            }
            // By an earlier try.
            Err(failure) if failure.kind == FailureKind::Exists => Ok(()),
            Err(failure) => Err(failure),
        };
    }
    tracing::error!(%stream, after = last, "the server has lost packets that nobody has any more");
    link.execute(LOSE, &[&me, &stream]).await?;
    shared.own.forget(stream);
    Ok(())
}

/// All blocks or none; false if none.
async fn write(
    link: &Link,
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
        link.execute(statement, &[&me, &started, &streams, &seqs, &totals, &data]).await?;
    Ok(written == blocks.len() as u64)
}

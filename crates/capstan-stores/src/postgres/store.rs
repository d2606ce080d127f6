//! The PostgreSQL store as a [`Store`]. It sends writes to the writer tasks, and reads through the
//! pool.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_journal::backend::planted_bug::{self, Bug};
use capstan_journal::backend::rules::{self, expired, not_found, shown};
use capstan_journal::{
    Catalog, Claim, Claimed, Cluster, ErrorKind, Expired, Found, Frame, Health, JournalError,
    Layer, Named, Piece, Query, Quota, Records, Result, Retention, Rollup, Run, RunCopy, RunPage,
    RunState, Secret, SessionCopy, Sessions, SharedStats, Spent, Stats, Store, StoredTurn, Tokens,
    Transfer, Transition, TurnRange, Usage,
};
use capstan_protocol::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio_postgres::Row;
use uuid::Uuid;

use super::changes::Change;
use super::claims::{ClaimAnswer, ClaimJob};
use super::connection::{Failure, Params};
use super::frames::{Append, fenced};
use super::rows::{self, by_name, check_name, column, is_name, select_runs};
use super::{PostgresStore, block, closed, heartbeat};

/// The timeout of `close`, if the database does not answer.
const CLOSE: Duration = Duration::from_secs(5);
/// The most runs that a process takes over at once, so that the others get a share.
const ADOPTED: usize = 50;

const BODY: &str = "select body from capstan.runs where stream = $1";
const ONE: &str = select_runs!("where r.stream = $1");
const SOME: &str = select_runs!("where r.stream = any($1) order by r.stream");
const LIST: &str =
    select_runs!("where r.tenant = $1 and r.stream < $2 order by r.stream desc limit $3");
const AFTER: &str = select_runs!("where r.stream > $1 order by r.stream limit $2");
const OPEN: &str = select_runs!("where r.state < 3");
const WAITING: &str =
    select_runs!("where r.state = 2 and r.updated_at < $1 order by r.updated_at limit $2");
const UNARMED: &str =
    select_runs!("where r.state = 2 and r.is_armed_by_gateway order by r.stream limit $1");
const CLAIM: &str =
    "select stream, deleted_at is not null from capstan.claims where tenant = $1 and key = $2";
const IS_EXPIRED: &str = "select 1 from capstan.claims \
    where stream = $2 and tenant = $1 and deleted_at is not null";
/// Reads blocks up to a size limit. The part of the first block before the cursor does not count.
/// The subquery finds the last block without the data, which the server would have to buffer.
const READ: &str = "select last_seq, data from capstan.blocks \
    where stream = $1 and last_seq > $2 and last_seq <= (select max(last_seq) from \
    (select last_seq, lag(total) over w - first_value(total) over w as before from \
    (select last_seq, total from capstan.blocks where stream = $1 and last_seq > $2 \
    order by last_seq limit $3) b window w as (order by last_seq)) b \
    where before is null or before < $4) order by last_seq";
const MARK_SENT: &str = "update capstan.runs set sent_at = $2 where stream = $1 and state = 3 \
    returning stream";
const IS_CERTAIN: &str =
    "select state > 1 or capstan.survives(incarnation) from capstan.runs where stream = $1";
const TURNS: &str = "select number, turn::text from (select number, turn, \
    sum(octet_length(turn::text)) over (order by number) as size, \
    row_number() over (order by number) as place from capstan.turns \
    where tenant = $1 and session = $2 and number >= $3 order by number limit $4) t \
    where place = 1 or size <= $5 order by number";
const TURN_COUNT: &str =
    "select turn_count from capstan.sessions where tenant = $1 and session = $2";
const SESSIONS: &str = "select count(*) from capstan.sessions where tenant = $1";
const USAGE: &str = "select running, waiting, sessions, bytes, has_session, messages, \
    session_bytes, coalesce(t.minute, 0), coalesce(t.minute_tokens, 0), coalesce(t.day, 0), \
    coalesce(t.day_tokens, 0) from capstan.usage_of($1, $2, true) \
    left join capstan.tenants t on t.tenant = $1";
const ADOPT: &str = "select capstan.adopt_runs($1, $2)";
/// For a planted bug: takes over runs of live processes.
const ADOPT_LIVING: &str =
    "update capstan.runs set owner = $1 where state = 1 and $2::int is not null returning stream";
const SECRET: &str = "select secret from capstan.meta";

/// A limit as an SQL parameter.
pub(super) fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl PostgresStore {
    pub(super) async fn rows(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>> {
        self.shared.reads.query(statement, params).await
    }

    async fn runs(&self, statement: &'static str, params: Params<'_>) -> Result<Vec<Run>> {
        rows::runs(&self.rows(statement, params).await?)
    }

    /// The first column of the first row.
    pub(super) async fn first<T>(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Option<T>, JournalError>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let rows = self.rows(statement, params).await?;
        rows.first().map(|row| column(row, 0)).transpose().map_err(Failure::into_error)
    }

    /// The error for an append to a run that this process does not own.
    async fn not_ours(&self, stream: Uuid, attempt: u32) -> JournalError {
        match self.run(stream).await {
            Ok(None) => not_found(stream),
            Ok(Some(run)) => {
                let message = format!(
                    "stream {stream} is {:?} in attempt {}, and this process does not own \
                     attempt {attempt}",
                    run.state, run.attempt
                );
                JournalError::new(ErrorKind::Fenced, message)
            }
            Err(error) => error,
        }
    }
}

impl Layer for PostgresStore {}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Records for PostgresStore {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        self.shared.check_open()?;
        [&claim.tenant, &claim.key, &claim.session]
            .into_iter()
            .try_for_each(|name| check_name(name))?;
        let (reply, answer) = oneshot::channel();
        let key = claim.key.clone();
        let job = ClaimJob { claim: Box::new(claim), quota: *quota, was_repeated: false, reply };
        self.shared.claims.send(job).await.map_err(|_| closed())?;
        match answer.await.map_err(|_| closed())?? {
            ClaimAnswer::New(run) => Ok(Claimed { run: shown(run), is_new: true }),
            ClaimAnswer::InUse(stream) => {
                let run = self.run(stream).await?.ok_or_else(|| expired(&key))?;
                Ok(Claimed { run, is_new: false })
            }
        }
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>> {
        Ok(self.first::<Vec<u8>>(BODY, &[&stream]).await?.map(Bytes::from))
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        self.shared.check_open()?;
        let Some(guard) = self.shared.owned.write_guard(stream).await else {
            return Err(if self.shared.has_lease() {
                self.not_ours(stream, attempt).await
            } else {
                fenced(stream)
            });
        };
        guard.owned.check_append(attempt, &frames)?;
        if frames.is_empty() {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        // Encode here and not in the writer task, which all runs share.
        let blocks = block::encode(&frames, guard.owned.bytes());
        let append = Append { guard, attempt, frames, blocks, reply };
        self.shared.appends.send(append).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn transition(&self, step: Transition) -> Result<bool> {
        self.shared.check_open()?;
        let Transition { from, to, frames, turn, quota } = step;
        let stream = to.stream_id;
        let guard = match from.0 {
            RunState::Running => self.shared.owned.write_guard(stream).await,
            RunState::Waiting | RunState::Closed => None,
        };
        let before = match &guard {
            Some(guard) => guard.owned.run(),
            None => self.run(stream).await?.ok_or_else(|| not_found(stream))?,
        };
        let is_elsewhere = guard.is_none() && before.state == RunState::Running;
        if is_elsewhere || !rules::check_transition(&before, from, &frames)? {
            return Ok(false);
        }
        let after = rules::advance(&before, to, &frames);
        let (id, most_waiting) = (Uuid::new_v4(), quota.waiting);
        let (reply, answer) = oneshot::channel();
        let change = Change { id, guard, before, after, frames, turn, most_waiting, reply };
        self.shared.changes.send(change).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        let Ok(cursor) = i64::try_from(after) else { return Ok(Vec::new()) };
        let (blocks, max_bytes) = (as_limit(most.max(1)), as_limit(bytes));
        let (mut found, mut size) = (Vec::new(), 0);
        for row in self.rows(READ, &[&id, &cursor, &blocks, &max_bytes]).await? {
            let read = || -> Result<_, Failure> {
                Ok((column::<i64>(&row, 0)?, column::<Vec<u8>>(&row, 1)?))
            };
            let (last_seq, data) = read().map_err(Failure::into_error)?;
            let frames = block::decode(last_seq.cast_unsigned(), data.into())?;
            for frame in frames.into_iter().filter(|frame| frame.seq > after) {
                size += frame.bytes.len();
                if !found.is_empty() && (size > bytes || found.len() >= most) {
                    return Ok(found);
                }
                found.push(frame);
            }
        }
        Ok(found)
    }

    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        Ok(rules::piece(self.read(id, after, most, bytes).await?))
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        Ok(self.runs(ONE, &[&stream]).await?.pop())
    }

    async fn mark_sent(&self, stream: Uuid, at: Timestamp) -> Result<bool> {
        Ok(!self.rows(MARK_SENT, &[&stream, &at.as_micros()]).await?.is_empty())
    }

    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool> {
        Ok(self.first(IS_CERTAIN, &[&stream]).await?.unwrap_or(true))
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        if !is_name(tenant) || !is_name(key) {
            return Ok(None);
        }
        let Some(stream) = self.first::<Uuid>(CLAIM, &[&tenant, &key]).await? else {
            return Ok(None);
        };
        Ok(Some(self.run(stream).await?.map_or(Found::Expired, Found::Run)))
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        Ok(is_name(tenant) && !self.rows(IS_EXPIRED, &[&tenant, &stream]).await?.is_empty())
    }

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool> {
        self.shared.purge(stream, now).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sessions for PostgresStore {
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        let TurnRange { tenant, session, from, limit, max_bytes } = range;
        if !is_name(tenant) || !is_name(session) {
            return Ok(Vec::new());
        }
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        self.rows(TURNS, &[&tenant, &session, &from, &as_limit(limit), &as_limit(max_bytes)])
            .await?
            .iter()
            .map(rows::turn)
            .collect()
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(0);
        }
        Ok(self.first::<i64>(TURN_COUNT, &[&tenant, &session]).await?.unwrap_or(0).cast_unsigned())
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        Ok(is_name(tenant)
            && is_name(session)
            && !self.rows(TURN_COUNT, &[&tenant, &session]).await?.is_empty())
    }

    async fn sessions(&self, tenant: &str) -> Result<u64> {
        if !is_name(tenant) {
            return Ok(0);
        }
        Ok(self.first::<i64>(SESSIONS, &[&tenant]).await?.unwrap_or(0).cast_unsigned())
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(Usage::default());
        }
        let rows = self.rows(USAGE, &[&tenant, &session]).await?;
        let read = |row: &Row| -> Result<Usage, Failure> {
            let number = |at: usize| column::<i64>(row, at).map(i64::cast_unsigned);
            Ok(Usage {
                running: number(0)?,
                waiting: number(1)?,
                sessions: number(2)?,
                bytes: number(3)?,
                has_session: column(row, 4)?,
                messages: number(5)?,
                session_bytes: number(6)?,
                tokens: Tokens {
                    minute: Spent { window: column(row, 7)?, tokens: number(8)? },
                    day: Spent { window: column(row, 9)?, tokens: number(10)? },
                },
            })
        };
        rows.first().map_or(Ok(Usage::default()), |row| read(row).map_err(Failure::into_error))
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(false);
        }
        self.shared.purge_session(tenant, session).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Catalog for PostgresStore {
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        if !is_name(tenant) {
            return Ok(Vec::new());
        }
        self.runs(LIST, &[&tenant, &before.unwrap_or(Uuid::max()), &as_limit(limit)]).await
    }

    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        let Named { tenant, kind, name, before, limit } = named;
        if !is_name(tenant) || !is_name(name) {
            return Ok(Vec::new());
        }
        self.runs(
            by_name(kind),
            &[&tenant, &name, &before.unwrap_or(Uuid::max()), &as_limit(limit)],
        )
        .await
    }

    async fn page(&self, query: Query) -> Result<RunPage> {
        self.browse(&query).await
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        self.shared.check_open()?;
        let me = self.shared.me();
        let limit = i32::try_from(limit.min(ADOPTED)).unwrap_or(0);
        // Without retries: the next call returns the same runs again, until they have ended.
        let statement = if planted_bug::is(Bug::AdoptLiving) { ADOPT_LIVING } else { ADOPT };
        let adopted = self.shared.reads.try_query(statement, &[&me, &limit]).await;
        let adopted = adopted.map_err(Failure::into_error)?;
        let streams = adopted.iter().map(|row| column(row, 0)).collect::<Result<Vec<Uuid>, _>>();
        let streams = streams.map_err(Failure::into_error)?;
        if streams.is_empty() {
            return Ok(Vec::new());
        }
        let runs = self.runs(SOME, &[&streams]).await?;
        let runs: Vec<_> = runs.into_iter().filter(|run| run.state == RunState::Running).collect();
        runs.iter().for_each(|run| self.shared.owned.add(run.clone(), me));
        Ok(runs)
    }

    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>> {
        self.runs(UNARMED, &[&as_limit(limit)]).await
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        self.runs(WAITING, &[&before.as_micros(), &as_limit(limit)]).await
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        self.runs(OPEN, &[]).await
    }

    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<()> {
        self.add_counts(rollups).await
    }

    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>> {
        self.counts_between(from, to).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for PostgresStore {
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        self.shared.expire(retention, now).await
    }

    async fn secret(&self) -> Result<Secret> {
        let secret = self.first::<Vec<u8>>(SECRET, &[]).await?;
        secret.and_then(|bytes| Secret::read(&bytes)).ok_or_else(|| {
            JournalError::new(ErrorKind::Corrupt, "the journal's secret in capstan.meta is damaged")
        })
    }

    /// Waits for the writes in progress, then ends the lease, so that others need not wait for it
    /// to expire.
    async fn close(&self) -> Result<()> {
        if self.shared.is_closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.shared.health.send_replace(Health::Unavailable("the journal is closed".into()));
        let leaving = async {
            // Each write holds the guard of its run.
            for owned in self.shared.owned.all() {
                drop(self.shared.owned.write_guard(owned.stream).await);
            }
            heartbeat::end_lease(&self.shared).await
        };
        let left = tokio::time::timeout(CLOSE, leaving).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("the lease could not be ended; it expires");
        }
        Ok(())
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    fn newest(&self) -> Option<Timestamp> {
        None
    }

    fn stats(&self) -> Stats {
        let runs = self.shared.owned.count() as u64;
        let shared = SharedStats {
            runs,
            peers: self.shared.peers.load(Ordering::Relaxed) as u64,
            silent_for: self.shared.lock_last_heartbeat().elapsed(),
            followed: self.shared.watched.streams().len() as u64,
            unanswered: self.shared.target.unanswered.count() as u64,
        };
        Stats { streams: runs, shared: Some(shared), ..Stats::default() }
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }
}

#[async_trait]
impl Transfer for PostgresStore {
    async fn runs_after(&self, after: Uuid, limit: usize) -> Result<Vec<Run>> {
        self.runs(AFTER, &[&after, &as_limit(limit)]).await
    }

    async fn import(&self, copy: RunCopy) -> Result<bool> {
        self.shared.check_open()?;
        self.import_run(copy).await
    }

    async fn import_session(&self, copy: SessionCopy) -> Result<()> {
        self.shared.check_open()?;
        self.write_session(copy).await
    }
}

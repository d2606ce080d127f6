//! The PostgreSQL store as a [`Store`]: writes to the lanes, reads from the pool.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_journal::backend::planted_bug::{self, Bug};
use capstan_journal::backend::rules::{self, expired, not_found, shown};
use capstan_journal::{
    BreakerNotice, Claim, Claimed, Elsewhere, ErrorKind, Expired, Found, Frame, Health, Home,
    JournalError, Kept, KeptSession, Load, NameKind, Noted, Query, Quota, ReplicaState, Retention,
    Rollup, Run, RunPage, RunState, Secret, SharedStats, Spent, Standing, Stats, Store, StoredTurn,
    Tokens, Usage,
};
use capstan_journal::{News, Tenure, Watch};
use capstan_protocol::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::changes::Change;
use super::claims::{ClaimJob, Claiming};
use super::frames::{Append, fenced};
use super::link::{Failure, Params};
use super::notice::Notice;
use super::readers::Mark;
use super::rows::{self, by_name, check_name, column, is_name, select_runs};
use super::{PostgresStore, block, closed, pulse};

/// How long the end waits for a database that does not answer.
const CLOSE: Duration = Duration::from_secs(5);
/// How many runs one process takes over at once, so that the living share a dead one's.
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
const UNARMED: &str = select_runs!("where r.state = 2 and r.is_unasked order by r.stream limit $1");
const CLAIM: &str =
    "select stream, gone_at is not null from capstan.claims where tenant = $1 and key = $2";
const IS_EXPIRED: &str =
    "select 1 from capstan.claims where stream = $2 and tenant = $1 and gone_at is not null";
/// Blocks until the limit is reached; what lies between the cursor and the end of the first is not
/// counted. How far that is, is found without their data, which the server would have to put aside
/// meanwhile.
const READ: &str = "select last_seq, data from capstan.blocks where stream = $1 and last_seq > $2 \
 and last_seq <= (select max(last_seq) \
    from (select last_seq, lag(total) over all_of_it - first_value(total) over all_of_it as before \
    from (select last_seq, total from capstan.blocks where stream = $1 and last_seq > $2 order by \
    last_seq limit $3) b \
    window all_of_it as (order by last_seq)) b where before is null or before < $4) order by \
    last_seq";
const IS_CERTAIN: &str =
    "select state > 1 or capstan.is_alive_1(life) from capstan.runs where stream = $1";
const TURNS: &str = "select number, turn::text from (select number, turn, \
 sum(octet_length(turn::text)) over (order by number) as size, \
    row_number() over (order by number) as place from capstan.turns where tenant = $1 and session \
    = $2 and number >= $3 \
    order by number limit $4) t where place = 1 or size <= $5 order by number";
const TURN_COUNT: &str = "select kept from capstan.sessions where tenant = $1 and session = $2";
const SESSIONS: &str = "select count(*) from capstan.sessions where tenant = $1";
const USAGE: &str = "select running, waiting, sessions, bytes, has_session, messages, \
 session_bytes, coalesce(t.minute, 0), \
    coalesce(t.minute_tokens, 0), coalesce(t.day, 0), coalesce(t.day_tokens, 0) from \
    capstan.usage_1($1, $2, true) \
    left join capstan.tenants t on t.tenant = $1";
const ADOPT: &str = "select capstan.adopt_1($1, $2)";
/// With a mistake planted: whoever lives is robbed.
const ADOPT_LIVING: &str =
    "update capstan.runs set owner = $1 where state = 1 and $2::int is not null returning stream";
const ASK_STOP: &str = "update capstan.runs set is_stop_asked = true where stream = $1 and state \
 = 1 and attempt = $2 returning true";
const IS_STOP_ASKED: &str = "select is_stop_asked from capstan.runs where stream = $1";
const SECRET: &str = "select secret from capstan.meta";
const REPLICAS: &str = "select p.id, p.name, p.url, p.version, p.state, \
    (extract(epoch from clock_timestamp() - p.since) * 1000)::bigint, \
    (extract(epoch from clock_timestamp() - p.seen_at) * 1000)::bigint, \
    (select count(*) from capstan.runs r where r.owner = p.id and r.state = 1), p.responses, \
    p.append_p95_us from capstan.replicas p \
    where p.state < 3 or p.seen_at > clock_timestamp() - interval '10 minutes' order by p.since";

/// What a process has said that it has to do, in the row of [`REPLICAS`].
fn load(row: &tokio_postgres::Row) -> Result<Option<Load>, Failure> {
    let Some(responses) = column::<Option<i64>>(row, 8)? else { return Ok(None) };
    let p95 = column::<Option<i64>>(row, 9)?;
    let append_p95 = p95.map(|us| Duration::from_micros(us.max(0).cast_unsigned()));
    Ok(Some(Load { responses: responses.max(0).cast_unsigned(), append_p95 }))
}

/// As many as a statement can be asked for.
pub(super) fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl PostgresStore {
    async fn rows(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, JournalError> {
        self.shared.reads.query(statement, params).await
    }

    async fn runs(
        &self,
        statement: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Run>, JournalError> {
        rows::runs(&self.rows(statement, params).await?)
    }

    /// The first column of the first row.
    async fn first<T>(
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

    /// Why a run that is not this process's takes no frames of it.
    async fn not_ours(&self, stream: Uuid, attempt: u32) -> JournalError {
        match self.run(stream).await {
            Ok(None) => not_found(stream),
            Ok(Some(run)) => {
                let message = format!(
                    "stream {stream} is {:?} in attempt {}, and not this process's to write \
                     attempt {attempt}",
                    run.state, run.attempt
                );
                JournalError::new(ErrorKind::Fenced, message)
            }
            Err(error) => error,
        }
    }

    /// A change of a run, if it may leave `from` with these frames.
    async fn change(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        said: Option<StoredTurn>,
        most_waiting: Option<u64>,
    ) -> Result<bool, JournalError> {
        self.shared.check_open()?;
        let stream = to.stream_id;
        let turn =
            if from.0 == RunState::Running { self.shared.own.turn(stream).await } else { None };
        let before = match &turn {
            Some(turn) => turn.own.run(),
            None => self.run(stream).await?.ok_or_else(|| not_found(stream))?,
        };
        let is_elsewhere = turn.is_none() && before.state == RunState::Running;
        if is_elsewhere || !rules::check_transition(&before, from, &frames)? {
            return Ok(false);
        }
        let after = rules::advance(&before, to, &frames);
        let (reply, answer) = oneshot::channel();
        let change =
            Change { id: Uuid::new_v4(), turn, before, after, frames, said, most_waiting, reply };
        self.shared.changes.send(change).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
        self.shared.check_open()?;
        [&claim.tenant, &claim.key, &claim.session]
            .into_iter()
            .try_for_each(|name| check_name(name))?;
        let (reply, answer) = oneshot::channel();
        let key = claim.key.clone();
        let job = ClaimJob { claim: Box::new(claim), quota: *quota, has_met_itself: false, reply };
        self.shared.claims.send(job).await.map_err(|_| closed())?;
        match answer.await.map_err(|_| closed())?? {
            Claiming::New(run) => Ok(Claimed { run: shown(run), is_new: true }),
            Claiming::Held(stream) => {
                let run = self.run(stream).await?.ok_or_else(|| expired(&key))?;
                Ok(Claimed { run, is_new: false })
            }
        }
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
        Ok(self.first::<Vec<u8>>(BODY, &[&stream]).await?.map(Bytes::from))
    }

    async fn append(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
    ) -> Result<(), JournalError> {
        self.shared.check_open()?;
        let Some(turn) = self.shared.own.turn(stream).await else {
            return Err(if self.shared.is_seated() {
                self.not_ours(stream, attempt).await
            } else {
                fenced(stream)
            });
        };
        turn.own.check_append(attempt, &frames)?;
        if frames.is_empty() {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        // Here and not in the lane, which all runs share.
        let blocks = block::encode(&frames, turn.own.bytes());
        let append = Append { turn, attempt, frames, blocks, reply };
        self.shared.appends.send(append).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool, JournalError> {
        self.change(from, to, frames, turn, None).await
    }

    async fn suspend(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        quota: &Quota,
    ) -> Result<bool, JournalError> {
        self.change(from, to, frames, None, quota.waiting).await
    }

    async fn read(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, JournalError> {
        let Ok(cursor) = i64::try_from(after) else { return Ok(Vec::new()) };
        let (blocks, bytes) = (most(max_packets.max(1)), most(max_bytes));
        let (mut found, mut size) = (Vec::new(), 0);
        for row in self.rows(READ, &[&stream, &cursor, &blocks, &bytes]).await? {
            let read = || -> Result<_, Failure> {
                Ok((column::<i64>(&row, 0)?, column::<Vec<u8>>(&row, 1)?))
            };
            let (last_seq, data) = read().map_err(Failure::into_error)?;
            let frames = block::decode(last_seq.cast_unsigned(), data.into())?;
            for frame in frames.into_iter().filter(|frame| frame.seq > after) {
                size += frame.bytes.len();
                if !found.is_empty() && (size > max_bytes || found.len() >= max_packets) {
                    return Ok(found);
                }
                found.push(frame);
            }
        }
        Ok(found)
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError> {
        Ok(self.runs(ONE, &[&stream]).await?.pop())
    }

    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool, JournalError> {
        Ok(self.first(IS_CERTAIN, &[&stream]).await?.unwrap_or(true))
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        if !is_name(tenant) || !is_name(key) {
            return Ok(None);
        }
        let Some(stream) = self.first::<Uuid>(CLAIM, &[&tenant, &key]).await? else {
            return Ok(None);
        };
        Ok(Some(self.run(stream).await?.map_or(Found::Expired, Found::Run)))
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool, JournalError> {
        Ok(is_name(tenant) && !self.rows(IS_EXPIRED, &[&tenant, &stream]).await?.is_empty())
    }

    async fn list(
        &self,
        tenant: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        if !is_name(tenant) {
            return Ok(Vec::new());
        }
        self.runs(LIST, &[&tenant, &before.unwrap_or(Uuid::max()), &most(limit)]).await
    }

    async fn named(
        &self,
        tenant: &str,
        kind: NameKind,
        name: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        if !is_name(tenant) || !is_name(name) {
            return Ok(Vec::new());
        }
        self.runs(by_name(kind), &[&tenant, &name, &before.unwrap_or(Uuid::max()), &most(limit)])
            .await
    }

    async fn page(&self, query: Query) -> Result<RunPage, JournalError> {
        self.browse(&query).await
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.shared.check_open()?;
        let me = self.shared.me();
        let limit = i32::try_from(limit.min(ADOPTED)).unwrap_or(0);
        // Not tried again: whatever was taken over is told again until it is ended.
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
        runs.iter().for_each(|run| self.shared.own.add(run.clone(), me));
        Ok(runs)
    }

    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.runs(UNARMED, &[&most(limit)]).await
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.runs(WAITING, &[&before.as_micros(), &most(limit)]).await
    }

    async fn runs_after(&self, after: Uuid, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.runs(AFTER, &[&after, &most(limit)]).await
    }

    async fn import(&self, kept: Kept) -> Result<bool, JournalError> {
        self.shared.check_open()?;
        self.take_in(kept).await
    }

    async fn import_session(&self, kept: KeptSession) -> Result<(), JournalError> {
        self.shared.check_open()?;
        self.take_in_session(kept).await
    }

    async fn open_runs(&self) -> Result<Vec<Run>, JournalError> {
        self.runs(OPEN, &[]).await
    }

    async fn turns(
        &self,
        tenant: &str,
        session: &str,
        from: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<StoredTurn>, JournalError> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(Vec::new());
        }
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        self.rows(TURNS, &[&tenant, &session, &from, &most(limit), &most(max_bytes)])
            .await?
            .iter()
            .map(rows::turn)
            .collect()
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64, JournalError> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(0);
        }
        Ok(self.first::<i64>(TURN_COUNT, &[&tenant, &session]).await?.unwrap_or(0).cast_unsigned())
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        Ok(is_name(tenant)
            && is_name(session)
            && !self.rows(TURN_COUNT, &[&tenant, &session]).await?.is_empty())
    }

    async fn sessions(&self, tenant: &str) -> Result<u64, JournalError> {
        if !is_name(tenant) {
            return Ok(0);
        }
        Ok(self.first::<i64>(SESSIONS, &[&tenant]).await?.unwrap_or(0).cast_unsigned())
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage, JournalError> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(Usage::default());
        }
        let rows = self.rows(USAGE, &[&tenant, &session]).await?;
        let read = |row: &tokio_postgres::Row| -> Result<Usage, Failure> {
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

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        self.shared.purge(stream, now).await
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        if !is_name(tenant) || !is_name(session) {
            return Ok(false);
        }
        self.shared.purge_session(tenant, session).await
    }

    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired, JournalError> {
        self.shared.expire(retention, now).await
    }

    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<(), JournalError> {
        self.add_counts(rollups).await
    }

    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>, JournalError> {
        self.counts_between(from, to).await
    }

    async fn secret(&self) -> Result<Secret, JournalError> {
        let secret = self.first::<Vec<u8>>(SECRET, &[]).await?;
        secret.and_then(|bytes| Secret::read(&bytes)).ok_or_else(|| {
            JournalError::new(ErrorKind::Corrupt, "the journal's secret is not as it should be")
        })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn watch(&self, stream: Uuid) -> Option<Watch> {
        Some(self.shared.watched.watch(stream))
    }

    fn tenure(&self) -> Tenure {
        self.shared.tenure.subscribe()
    }

    async fn ask_stop(&self, stream: Uuid, attempt: u32) -> Result<bool, JournalError> {
        let is_asked = !self.rows(ASK_STOP, &[&stream, &attempt.cast_signed()]).await?.is_empty();
        if is_asked {
            // Whoever works on it hears it now, or with its next sign of life.
            self.shared.tell(Notice::Stop(stream));
        }
        Ok(is_asked)
    }

    async fn is_stop_asked(&self, stream: Uuid) -> Result<bool, JournalError> {
        Ok(self.first(IS_STOP_ASKED, &[&stream]).await?.unwrap_or(false))
    }

    fn stops(&self) -> Option<mpsc::Receiver<Uuid>> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn mark_read(&self, stream: Uuid, is_read: bool) {
        let _ = self.shared.marks.send(Mark::Reads(stream, is_read));
    }

    async fn take_unread(&self, stream: Uuid) -> Result<bool, JournalError> {
        self.shared.take_unread(stream).await
    }

    async fn elsewhere(&self, stream: Uuid, tenant: &str) -> Result<Elsewhere, JournalError> {
        self.shared.elsewhere(stream, tenant).await
    }

    fn expect(&self, tenant: &str, within: Duration) {
        let _ = self.shared.marks.send(Mark::Expects(tenant.to_owned(), within));
    }

    async fn home(&self, tenant: &str, may_move_in: bool) -> Result<Home, JournalError> {
        self.shared.home(tenant, may_move_in).await
    }

    async fn note(
        &self,
        tenant: &str,
        key: &str,
        stream: Uuid,
        now: Timestamp,
    ) -> Result<Noted, JournalError> {
        self.shared.note(tenant, key, stream, now).await
    }

    async fn unnote(&self, tenant: &str, key: &str, stream: Uuid) -> Result<(), JournalError> {
        self.shared.unnote(tenant, key, stream).await
    }

    async fn breakers(&self) -> Result<Vec<BreakerNotice>, JournalError> {
        self.shared.breakers().await
    }

    async fn set_breaker(&self, notice: &BreakerNotice) -> Result<(), JournalError> {
        self.shared.set_breaker(notice).await
    }

    fn outdated(&self) -> watch::Receiver<bool> {
        self.shared.outdated.subscribe()
    }

    fn replica_name(&self) -> Option<&str> {
        Some(&self.shared.replica.name)
    }

    async fn replicas(&self) -> Result<Vec<ReplicaState>, JournalError> {
        let me = self.shared.me();
        let read = |row: &tokio_postgres::Row| -> Result<ReplicaState, Failure> {
            let millis = |at: usize| {
                column::<i64>(row, at).map(|ms| Duration::from_millis(ms.max(0).cast_unsigned()))
            };
            let id = column(row, 0)?;
            let standing = match column::<i16>(row, 4)? {
                1 => Standing::Live,
                2 => Standing::Draining,
                _ => Standing::Gone,
            };
            Ok(ReplicaState {
                id,
                name: column(row, 1)?,
                url: column(row, 2)?,
                version: column(row, 3)?,
                standing,
                is_self: id == me,
                age: millis(5)?,
                silent_for: millis(6)?,
                runs: column::<i64>(row, 7)?.cast_unsigned(),
                // Whoever is gone has nothing to do any more.
                load: load(row)?.filter(|_| standing != Standing::Gone),
            })
        };
        let rows = self.rows(REPLICAS, &[]).await?;
        rows.iter().map(|row| read(row).map_err(Failure::into_error)).collect()
    }

    fn set_load(&self, load: Load) {
        *self.shared.lock_load() = Some(load);
    }

    fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    fn stats(&self) -> Stats {
        let runs = self.shared.own.count() as u64;
        let shared = SharedStats {
            runs,
            peers: self.shared.peers.load(Ordering::Relaxed) as u64,
            silent_for: self.shared.lock_pulsed().elapsed(),
            followed: self.shared.watched.streams().len() as u64,
            unanswered: self.shared.target.unanswered.count() as u64,
        };
        Stats { streams: runs, shared: Some(shared), ..Stats::default() }
    }

    /// Writes what was begun, then gives the lease up: others need not wait for it to end.
    async fn close(&self) -> Result<(), JournalError> {
        if self.shared.is_closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.shared.health.send_replace(Health::Unavailable("the journal is closed".into()));
        let leaving = async {
            // The turn of a run is held by whatever is being written to it.
            for own in self.shared.own.all() {
                drop(self.shared.own.turn(own.stream).await);
            }
            pulse::leave(&self.shared).await
        };
        let left = tokio::time::timeout(CLOSE, leaving).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("the lease could not be given up; it ends by itself");
        }
        Ok(())
    }
}

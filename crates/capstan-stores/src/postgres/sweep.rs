//! Retention, and erasure on request.

use std::collections::HashMap;

use capstan_journal::backend::Judge;
use capstan_journal::{Expired, JournalError, Retention};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::connection::Failure;
use super::peer_message::PeerMessage;
use super::rows::column;
use super::{Shared, readers};

/// The rows of a page of candidates.
const PAGE: i64 = 1000;
/// The most streams that one statement deletes.
const STEP: usize = 100;

/// One process at a time applies retention, for half a minute at least.
const LEASE: &str = "update capstan.meta \
    set sweeper = $1, sweeper_until = clock_timestamp() + interval '30 seconds' \
    where sweeper is null or sweeper = $1 or sweeper_until < clock_timestamp() returning true";
const SIZES: &str = "select tenant, sum(size)::bigint from ( \
    select r.tenant, octet_length(r.body) + greatest(r.bytes, coalesce(b.total, 0)) as size \
    from capstan.runs r left join lateral (select b.total from capstan.blocks b \
    where b.stream = r.stream order by b.last_seq desc limit 1) b on r.state = 1 \
    union all select tenant, bytes from capstan.sessions) stored group by 1";
/// Closed streams by their end, and sessions without open runs by their last use, in one order.
const CANDIDATES: &str = "(select stream as id, tenant, null as session, closed_at as at, \
    bytes + octet_length(body) as size from capstan.runs \
    where state = 3 and (closed_at, stream) > ($1, $2) order by closed_at, stream limit $3) \
    union all (select s.id, s.tenant, s.session, s.used_at, s.bytes from \
    (select md5(tenant || '/' || session)::uuid as id, * from capstan.sessions \
    where used_at >= $1) s where (s.used_at, s.id) > ($1, $2) and not exists \
    (select 1 from capstan.runs r \
    where r.tenant = s.tenant and r.session = s.session and r.state < 3) \
    order by s.used_at, s.id limit $3) order by at, id limit $3";
const DELETE_RUNS: &str = "select capstan.delete_runs($1, $2, $3)";
const CLAIMS: &str = "with deleted as (delete from capstan.claims where deleted_at <= $1 \
    returning 1) select count(*) from deleted";
const SESSIONS: &str = "with deleted as (delete from capstan.sessions s where s.used_at <= $1 \
    and case when $2::text is null then s.tenant <> all ($3) else s.tenant = $2 end \
    returning s.tenant, s.session), \
    turns as (delete from capstan.turns t using deleted \
    where t.tenant = deleted.tenant and t.session = deleted.session) \
    select count(*) from deleted";
/// Deletes a session, unless it was used since it was selected.
const DELETE_UNUSED: &str = "with deleted as (delete from capstan.sessions \
    where tenant = $1 and session = $2 and used_at = $3 returning tenant, session), \
    turns as (delete from capstan.turns t using deleted \
    where t.tenant = deleted.tenant and t.session = deleted.session) \
    select count(*) from deleted";
const DELETE_SESSION: &str = "select capstan.delete_session($1, $2)";
const IS_DELETED: &str =
    "select 1 from capstan.claims where stream = $1 and deleted_at is not null";

/// A closed stream or an unused session, which retention may delete.
struct Candidate {
    id: Uuid,
    tenant: String,
    /// `None` for a stream.
    session: Option<String>,
    at: Timestamp,
    size: u64,
}

impl Shared {
    pub(super) async fn expire(
        &self,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<Expired, JournalError> {
        self.check_open()?;
        let mut report = Expired::default();
        if self.reads.query(LEASE, &[&self.me()]).await?.is_empty() {
            return Ok(report);
        }
        self.expire_candidates(retention, now, &mut report).await?;
        let claims = retention.before(now, retention.claim_age).as_micros();
        report.claims = self.count(CLAIMS, &[&claims]).await?;
        report.sessions += self.expire_sessions(retention, now).await?;
        for statement in readers::DELETE_OLD {
            self.reads.query(statement, &[]).await?;
        }
        Ok(report)
    }

    /// Deletes what is too old or exceeds a size limit, oldest first: streams by their end,
    /// sessions by their last use.
    async fn expire_candidates(
        &self,
        retention: &Retention,
        now: Timestamp,
        report: &mut Expired,
    ) -> Result<(), JournalError> {
        let is_measured = retention.max_bytes.is_some()
            || retention.tenants.values().any(|own| own.max_bytes.is_some());
        let sizes = if is_measured { self.sizes().await? } else { HashMap::new() };
        let mut judge = Judge::new(retention, now, &sizes);
        let (mut after, mut is_more) = ((i64::MIN, Uuid::nil()), true);
        while is_more {
            let page = self.candidates_after(after).await?;
            is_more = page.last().is_some_and(|last| !judge.is_done(last.at));
            after = page.last().map_or(after, |last| (last.at.as_micros(), last.id));
            let due = page.iter().filter(|one| judge.is_due(&one.tenant, one.at, one.size));
            let (sessions, streams): (Vec<_>, Vec<_>) = due.partition(|one| one.session.is_some());
            for step in streams.chunks(STEP) {
                let streams: Vec<Uuid> = step.iter().map(|one| one.id).collect();
                let deleted =
                    self.reads.query(DELETE_RUNS, &[&streams, &now.as_micros(), &false]).await?;
                report.streams += deleted.len() as u64;
                report.bytes += step.iter().map(|one| one.size).sum::<u64>();
            }
            for one in sessions {
                let used_at = one.at.as_micros();
                let deleted =
                    self.count(DELETE_UNUSED, &[&one.tenant, &one.session, &used_at]).await?;
                report.sessions += deleted;
                report.bytes += deleted * one.size;
            }
        }
        Ok(())
    }

    async fn sizes(&self) -> Result<HashMap<String, u64>, JournalError> {
        let rows = self.reads.query(SIZES, &[]).await?;
        let read = |row| -> Result<_, Failure> {
            Ok((column(row, 0)?, column::<i64>(row, 1)?.cast_unsigned()))
        };
        rows.iter().map(|row| read(row).map_err(Failure::into_error)).collect()
    }

    async fn candidates_after(
        &self,
        (at, id): (i64, Uuid),
    ) -> Result<Vec<Candidate>, JournalError> {
        let rows = self.reads.query(CANDIDATES, &[&at, &id, &PAGE]).await?;
        let read = |row| -> Result<_, Failure> {
            let (at, size) =
                (Timestamp::from_micros(column(row, 3)?), column::<i64>(row, 4)?.cast_unsigned());
            Ok(Candidate {
                id: column(row, 0)?,
                tenant: column(row, 1)?,
                session: column(row, 2)?,
                at,
                size,
            })
        };
        rows.iter().map(|row| read(row).map_err(Failure::into_error)).collect()
    }

    async fn expire_sessions(
        &self,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<u64, JournalError> {
        let special: Vec<&str> = retention.tenants.keys().map(String::as_str).collect();
        let before = |age| retention.before(now, age).as_micros();
        let mut count =
            self.count(SESSIONS, &[&before(retention.max_age), &None::<&str>, &special]).await?;
        for (tenant, own) in &retention.tenants {
            count += self
                .count(SESSIONS, &[&before(own.max_age), &Some(tenant.as_str()), &special])
                .await?;
        }
        Ok(count)
    }

    async fn count(
        &self,
        statement: &'static str,
        params: super::connection::Params<'_>,
    ) -> Result<u64, JournalError> {
        let rows = self.reads.query(statement, params).await?;
        let count: i64 =
            rows.first().map_or(Ok(0), |row| column(row, 0)).map_err(Failure::into_error)?;
        Ok(count.cast_unsigned())
    }

    pub(super) async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        self.check_open()?;
        let mut is_deleted = !self.reads.query(IS_DELETED, &[&stream]).await?.is_empty();
        if is_deleted {
            return Ok(false);
        }
        is_deleted = !self.reads.query(DELETE_RUNS, &[&[stream].as_slice(), &now.as_micros(),
        &true]).await?.is_empty()
            // An earlier try, whose answer was lost, may have deleted it.
            || !self.reads.query(IS_DELETED, &[&stream]).await?.is_empty();
        if is_deleted {
            self.notify(PeerMessage::Erased(stream));
        }
        Ok(is_deleted)
    }

    pub(super) async fn purge_session(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<bool, JournalError> {
        self.check_open()?;
        let rows = self.reads.query(DELETE_SESSION, &[&tenant, &session]).await?;
        rows.first().map_or(Ok(false), |row| column(row, 0)).map_err(Failure::into_error)
    }
}

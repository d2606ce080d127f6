//! What expires, and what is erased on request.

use std::collections::HashMap;

use capstan_journal::backend::Judge;
use capstan_journal::{Expired, JournalError, Retention};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::link::Failure;
use super::notice::Notice;
use super::rows::column;
use super::{Shared, readers};

/// What is kept is looked through in pages of this many, and streams are deleted in steps of that
/// many.
const PAGE: i64 = 1000;
const STEP: usize = 100;

/// Whoever keeps house does so for half a minute; the others need not.
const LEASE: &str = "update capstan.meta set sweeper = $1, sweeper_until = clock_timestamp() + \
 interval '30 seconds' \
    where sweeper is null or sweeper = $1 or sweeper_until < clock_timestamp() returning true";
const SIZES: &str = "select tenant, sum(size)::bigint from ( \
    select r.tenant, octet_length(r.body) + greatest(r.bytes, coalesce(b.total, 0)) as size from \
    capstan.runs r \
    left join lateral (select b.total from capstan.blocks b where b.stream = r.stream order by \
    b.last_seq desc limit 1) b \
    on r.state = 1 union all select tenant, bytes from capstan.sessions) kept group by 1";
/// Closed streams by their end, and sessions that nobody uses by their last use, in one order.
const KEPT: &str = "(select stream as id, tenant, null as session, closed_at as at, bytes + \
 octet_length(body) as size \
    from capstan.runs where state = 3 and (closed_at, stream) > ($1, $2) order by closed_at, \
    stream limit $3) \
    union all (select s.id, s.tenant, s.session, s.used_at, s.bytes from \
    (select md5(tenant || '/' || session)::uuid as id, * from capstan.sessions where used_at >= \
    $1) s \
    where (s.used_at, s.id) > ($1, $2) and not exists \
    (select 1 from capstan.runs r where r.tenant = s.tenant and r.session = s.session and r.state \
    < 3) \
    order by s.used_at, s.id limit $3) order by at, id limit $3";
const RETIRE: &str = "select capstan.retire_1($1, $2, $3)";
const CLAIMS: &str = "with gone as (delete from capstan.claims where gone_at <= $1 returning 1) \
 select count(*) from gone";
const SESSIONS: &str = "with gone as (delete from capstan.sessions s where s.used_at <= $1 \
    and case when $2::text is null then s.tenant <> all ($3) else s.tenant = $2 end returning \
    s.tenant, s.session), \
    said as (delete from capstan.turns t using gone where t.tenant = gone.tenant and t.session = \
    gone.session) \
    select count(*) from gone";
/// Unless somebody has used it since it was looked at.
const FORGET_UNUSED: &str = "with gone as (delete from capstan.sessions where tenant = $1 and \
 session = $2 and used_at = $3 \
    returning tenant, session), \
    said as (delete from capstan.turns t using gone where t.tenant = gone.tenant and t.session = \
    gone.session) \
    select count(*) from gone";
const FORGET: &str = "select capstan.forget_1($1, $2)";
const IS_GONE: &str = "select 1 from capstan.claims where stream = $1 and gone_at is not null";

/// A closed stream, or a session that nobody uses.
struct Kept {
    id: Uuid,
    tenant: String,
    /// Nothing for a stream.
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
        self.expire_kept(retention, now, &mut report).await?;
        let claims = retention.before(now, retention.claim_age).as_micros();
        report.claims = self.count(CLAIMS, &[&claims]).await?;
        report.sessions += self.expire_sessions(retention, now).await?;
        for statement in readers::FORGET {
            self.reads.query(statement, &[]).await?;
        }
        Ok(report)
    }

    /// What is too old or too much, the oldest first: streams by their end, sessions by their last
    /// use.
    async fn expire_kept(
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
            let page = self.kept_after(after).await?;
            is_more = page.last().is_some_and(|last| !judge.is_done(last.at));
            after = page.last().map_or(after, |last| (last.at.as_micros(), last.id));
            let due = page.iter().filter(|kept| judge.is_due(&kept.tenant, kept.at, kept.size));
            let (sessions, streams): (Vec<_>, Vec<_>) =
                due.partition(|kept| kept.session.is_some());
            for step in streams.chunks(STEP) {
                let streams: Vec<Uuid> = step.iter().map(|kept| kept.id).collect();
                let gone = self.reads.query(RETIRE, &[&streams, &now.as_micros(), &false]).await?;
                report.streams += gone.len() as u64;
                report.bytes += step.iter().map(|kept| kept.size).sum::<u64>();
            }
            for kept in sessions {
                let used_at = kept.at.as_micros();
                let gone =
                    self.count(FORGET_UNUSED, &[&kept.tenant, &kept.session, &used_at]).await?;
                report.sessions += gone;
                report.bytes += gone * kept.size;
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

    async fn kept_after(&self, (at, id): (i64, Uuid)) -> Result<Vec<Kept>, JournalError> {
        let rows = self.reads.query(KEPT, &[&at, &id, &PAGE]).await?;
        let read = |row| -> Result<_, Failure> {
            let (at, size) =
                (Timestamp::from_micros(column(row, 3)?), column::<i64>(row, 4)?.cast_unsigned());
            Ok(Kept {
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
        params: super::link::Params<'_>,
    ) -> Result<u64, JournalError> {
        let rows = self.reads.query(statement, params).await?;
        let count: i64 =
            rows.first().map_or(Ok(0), |row| column(row, 0)).map_err(Failure::into_error)?;
        Ok(count.cast_unsigned())
    }

    pub(super) async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        self.check_open()?;
        let mut is_gone = !self.reads.query(IS_GONE, &[&stream]).await?.is_empty();
        if is_gone {
            return Ok(false);
        }
        is_gone = !self.reads.query(RETIRE, &[&[stream].as_slice(), &now.as_micros(),
        &true]).await?.is_empty()
            // By a try whose answer was lost.
            || !self.reads.query(IS_GONE, &[&stream]).await?.is_empty();
        if is_gone {
            self.tell(Notice::Gone(stream));
        }
        Ok(is_gone)
    }

    pub(super) async fn purge_session(
        &self,
        tenant: &str,
        session: &str,
    ) -> Result<bool, JournalError> {
        self.check_open()?;
        let rows = self.reads.query(FORGET, &[&tenant, &session]).await?;
        rows.first().map_or(Ok(false), |row| column(row, 0)).map_err(Failure::into_error)
    }
}

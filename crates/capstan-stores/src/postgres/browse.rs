//! Searches the runs of several tenants, newest first. Each statement searches a window of rows,
//! and the database filters them.

use capstan_journal::backend::Pager;
use capstan_journal::{JournalError, Query, Run, RunPage, Status};
use uuid::Uuid;

use super::connection::Failure;
use super::rows::{self, column, is_name};
use super::store::as_limit;
use super::{PostgresStore, closed};

/// The rows that one statement searches. The clock is checked between two statements.
const WINDOW: usize = 1000;

/// The search, with a condition for the window itself where an index supports it.
macro_rules! page {
    ($narrow:literal) => {
        concat!(
            "with seen as materialized (select r.stream, r.tenant, r.session, r.state, r.attempt, ",
            "r.turns_before, r.answered_by, r.record, r.last_seq, r.bytes, r.sent_at, r.owner ",
            "from capstan.runs r where r.stream >= $1 and r.stream < $2 ",
            "and ($3::text[] is null or r.tenant = any($3)) and ",
            $narrow,
            " order by r.stream desc limit $5), ",
            "found as (select * from seen r ",
            "where ($6::text is null or r.record ->> 'agent' = $6) ",
            "and ($7::text is null or r.session = $7) ",
            "and ($8::text is null or $8 = any(capstan.fault_codes(r.record))) ",
            "and ($9::int is null or case when r.state < 3 then r.state ",
            "when r.record ->> 'fault' is not null then 3 ",
            "when r.record ->> 'reason' = 'cancelled' then 4 ",
            "when r.attempt > 1 then 6 else 5 end = $9) ",
            "order by r.stream desc limit $10) ",
            "select r.stream, r.state, r.attempt, r.turns_before, r.answered_by, r.record::text, ",
            "greatest(r.last_seq, coalesce(b.last_seq, 0)), ",
            "greatest(r.bytes, coalesce(b.total, 0)), r.sent_at, s.count, s.last, ",
            "(select p.name from capstan.replicas p where p.id = r.owner) ",
            "from (select count(*) as count, ",
            "(select stream from seen order by stream limit 1) as last from seen) s ",
            "left join found r on true ",
            "left join lateral (select b.last_seq, b.total from capstan.blocks b ",
            "where b.stream = r.stream order by b.last_seq desc limit 1) b on r.state = 1 ",
            "order by r.stream desc"
        )
    };
}

const ALL: &str = page!("$4::text is null");
const OPEN: &str = page!("$4::text is null and r.state < 3");
const BY_REQUEST: &str = page!("r.request_ids @> array[$4::text]");
const BY_TRACE: &str = page!(
    "capstan.trace_ids(r.record) @> array[$4::text] \
     and capstan.trace_ids(r.record) <> '{}'"
);
const BY_FAULT: &str = page!(
    "capstan.fault_codes(r.record) @> array[$4::text] \
     and capstan.fault_codes(r.record) <> '{}'"
);

/// The statement that reads the fewest rows, and the value that it searches for.
fn narrowest(query: &Query) -> (&'static str, Option<&str>) {
    if let Some(id) = query.request_id.as_deref() {
        return (BY_REQUEST, Some(id));
    }
    if let Some(id) = query.trace_id.as_deref() {
        return (BY_TRACE, Some(id));
    }
    if query.is_of_open() {
        return (OPEN, None);
    }
    query.fault.as_deref().map_or((ALL, None), |code| (BY_FAULT, Some(code)))
}

fn number(status: Status) -> i32 {
    match status {
        Status::Running => 1,
        Status::Waiting => 2,
        Status::Failed => 3,
        Status::Stopped => 4,
        Status::Done => 5,
        Status::Healed => 6,
    }
}

/// A run with the name of its owner.
fn owned(row: &tokio_postgres::Row) -> Result<Run, JournalError> {
    let owner = column::<Option<String>>(row, 11).map_err(Failure::into_error)?;
    rows::run(row).map(|run| Run { owner, ..run })
}

impl PostgresStore {
    pub(super) async fn browse(&self, query: &Query) -> Result<RunPage, JournalError> {
        let values =
            [&query.agent, &query.session, &query.fault, &query.request_id, &query.trace_id];
        if values.into_iter().flatten().any(|value| !is_name(value)) {
            return Ok(RunPage::default());
        }
        let _permit = self.shared.browsers.acquire().await.map_err(|_| closed())?;
        let (mut pager, from) = (Pager::new(query), query.from.unwrap_or(Uuid::nil()));
        while pager.goes_on() {
            let window = pager.room().min(WINDOW);
            let (count, last, runs) =
                self.window(query, from, query.end(pager.last()), window, &pager).await?;
            if let Some(last) = last {
                pager.looked_at_many(count, last, runs);
            }
            // If the page was full before the end of the window, more runs may follow.
            if count < window && pager.wanted() > 0 {
                return Ok(pager.page(true));
            }
        }
        Ok(pager.page(false))
    }

    /// Searches a window. Returns the number of rows, the last of them, and the matching runs.
    async fn window(
        &self,
        query: &Query,
        from: Uuid,
        before: Uuid,
        window: usize,
        pager: &Pager,
    ) -> Result<(usize, Option<Uuid>, Vec<Run>), JournalError> {
        let (statement, word) = narrowest(query);
        let status = query.status.map(number);
        let (window, wanted) = (as_limit(window), as_limit(pager.wanted().max(1)));
        let found = self
            .shared
            .reads
            .query(
                statement,
                &[
                    &from,
                    &before,
                    &query.tenants,
                    &word,
                    &window,
                    &query.agent,
                    &query.session,
                    &query.fault,
                    &status,
                    &wanted,
                ],
            )
            .await?;
        let read = || -> Result<_, Failure> {
            let Some(first) = found.first() else { return Ok((0, None)) };
            Ok((column::<i64>(first, 9)?, column::<Option<Uuid>>(first, 10)?))
        };
        let (count, last) = read().map_err(Failure::into_error)?;
        let is_run = |row: &&tokio_postgres::Row| {
            column::<Option<Uuid>>(row, 0).is_ok_and(|id| id.is_some())
        };
        let runs = found.iter().filter(is_run).map(owned).collect::<Result<Vec<_>, _>>()?;
        // If the page was full before the end of the window, the rest was not searched.
        let full = runs.last().filter(|_| runs.len() >= pager.wanted()).map(|run| run.stream_id);
        Ok((usize::try_from(count).unwrap_or(0), full.or(last), runs))
    }
}

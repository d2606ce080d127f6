//! The circuit breakers of all processes: a row for each upstream, timed by the database's clock.

use std::time::Duration;

use capstan_journal::{BreakerState, JournalError};
use uuid::Uuid;

use super::Shared;
use super::connection::Failure;
use super::rows::{check_name, column};

/// Returns the remaining time, so that the clocks of two machines are not compared.
const ALL: &str = "select upstream, opened, \
    greatest(0, extract(epoch from open_until - clock_timestamp()) * 1000)::bigint, change \
    from capstan.breakers";
const SET: &str = "insert into capstan.breakers \
    values ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond', $4) \
    on conflict (upstream) do update \
    set opened = excluded.opened, open_until = excluded.open_until, change = excluded.change";

impl Shared {
    pub(super) async fn breakers(&self) -> Result<Vec<BreakerState>, JournalError> {
        let read = |row: &tokio_postgres::Row| -> Result<BreakerState, Failure> {
            Ok(BreakerState {
                upstream: column(row, 0)?,
                opened: column::<i32>(row, 1)?.try_into().unwrap_or(0),
                left: Duration::from_millis(column::<i64>(row, 2)?.max(0).cast_unsigned()),
                change: column(row, 3)?,
            })
        };
        let rows = self.reads.try_query(ALL, &[]).await.map_err(Failure::into_error)?;
        rows.iter().map(|row| read(row).map_err(Failure::into_error)).collect()
    }

    pub(super) async fn set_breaker(&self, state: &BreakerState) -> Result<(), JournalError> {
        check_name(&state.upstream)?;
        let opened = i32::try_from(state.opened).unwrap_or(i32::MAX);
        let left = i64::try_from(state.left.as_millis()).unwrap_or(i64::MAX);
        let (upstream, change): (&str, Uuid) = (&state.upstream, state.change);
        self.reads.query(SET, &[&upstream, &opened, &left, &change]).await.map(drop)
    }
}

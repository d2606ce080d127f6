//! What the processes know of upstreams that fail: a row for each, by the database's clock.

use std::time::Duration;

use capstan_journal::{BreakerNotice, JournalError};
use uuid::Uuid;

use super::Shared;
use super::link::Failure;
use super::rows::{check_name, column};

/// Ends are told as what is left, so that no two clocks are compared.
const ALL: &str = "select upstream, opened, \
    greatest(0, extract(epoch from open_until - clock_timestamp()) * 1000)::bigint, change from \
    capstan.breakers";
const SET: &str = "insert into capstan.breakers values \
    ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond', $4) on conflict \
    (upstream) do update \
    set opened = excluded.opened, open_until = excluded.open_until, change = excluded.change";

impl Shared {
    pub(super) async fn breakers(&self) -> Result<Vec<BreakerNotice>, JournalError> {
        let read = |row: &tokio_postgres::Row| -> Result<BreakerNotice, Failure> {
            Ok(BreakerNotice {
                upstream: column(row, 0)?,
                opened: column::<i32>(row, 1)?.try_into().unwrap_or(0),
                left: Duration::from_millis(column::<i64>(row, 2)?.max(0).cast_unsigned()),
                change: column(row, 3)?,
            })
        };
        let rows = self.reads.try_query(ALL, &[]).await.map_err(Failure::into_error)?;
        rows.iter().map(|row| read(row).map_err(Failure::into_error)).collect()
    }

    pub(super) async fn set_breaker(&self, notice: &BreakerNotice) -> Result<(), JournalError> {
        check_name(&notice.upstream)?;
        let opened = i32::try_from(notice.opened).unwrap_or(i32::MAX);
        let left = i64::try_from(notice.left.as_millis()).unwrap_or(i64::MAX);
        let (upstream, change): (&str, Uuid) = (&notice.upstream, notice.change);
        self.reads.query(SET, &[&upstream, &opened, &left, &change]).await.map(drop)
    }
}

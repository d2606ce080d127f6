//! Statistics by the hour. Each process adds its own.

use capstan_journal::backend::KEPT_HOURS;
use capstan_journal::{Counts, JournalError, Rollup, RollupKey};

use super::PostgresStore;
use super::connection::Failure;
use super::rows::{column, is_name};

const ADD: &str = "insert into capstan.rollups as r values ($1, $2, $3, $4, $5, $6, $7) \
    on conflict (hour, replica, tenant, agent, is_fault, code) \
    do update set counts = capstan.add_counts(r.counts, excluded.counts)";
const DELETE_OLD: &str = "delete from capstan.rollups where hour <= $1";
const BETWEEN: &str = "select hour, tenant, agent, is_fault, code, counts \
    from capstan.rollups where hour >= $1 and hour <= $2";

impl PostgresStore {
    pub(super) async fn add_counts(&self, rollups: Vec<Rollup>) -> Result<(), JournalError> {
        let newest = rollups.iter().map(|row| row.hour).max();
        let replica = &self.shared.replica.name;
        for Rollup { hour, key, counts } in rollups {
            let RollupKey { tenant, agent, is_fault, code } = key;
            if ![&tenant, &agent, &code].into_iter().all(|name| is_name(name)) {
                continue;
            }
            let counts: Vec<i64> =
                counts.numbers().map(|count| i64::try_from(count).unwrap_or(i64::MAX)).collect();
            // Without retries: the statement may have run, and a repeat would count twice.
            let row: super::connection::Params<'_> =
                &[&hour, replica, &tenant, &agent, &is_fault, &code, &counts];
            self.shared.reads.try_query(ADD, row).await.map_err(Failure::into_error)?;
        }
        if let Some(newest) = newest {
            self.shared.reads.query(DELETE_OLD, &[&(newest - KEPT_HOURS)]).await?;
        }
        Ok(())
    }

    pub(super) async fn counts_between(
        &self,
        from: i64,
        to: i64,
    ) -> Result<Vec<Rollup>, JournalError> {
        let rows = self.shared.reads.query(BETWEEN, &[&from, &to]).await?;
        let read = |row: &tokio_postgres::Row| -> Result<Rollup, Failure> {
            let counts: Vec<i64> = column(row, 5)?;
            let key = RollupKey {
                tenant: column(row, 1)?,
                agent: column(row, 2)?,
                is_fault: column(row, 3)?,
                code: column(row, 4)?,
            };
            let counts =
                Counts::of(counts.into_iter().map(|count| u64::try_from(count).unwrap_or(0)));
            Ok(Rollup { hour: column(row, 0)?, key, counts })
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(Failure::into_error)
    }
}

//! Converts rows to runs and turns.

use capstan_journal::backend::rules::shown;
use capstan_journal::{ErrorKind, JournalError, NameKind, Run, StoredTurn};
use capstan_protocol::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use super::connection::Failure;
use super::peer_message::state_of;

/// A statement that selects runs in the form that [`run`] reads, from a table `r`.
macro_rules! select_runs {
    ($($rest:literal),*) => {
        concat!(
            "select r.stream, r.state, r.attempt, r.turns_before, r.answered_by, r.record::text, ",
            "greatest(r.last_seq, coalesce(b.last_seq, 0)), ",
            "greatest(r.bytes, coalesce(b.total, 0)), r.sent_at from capstan.runs r ",
            // The counts of a running run are in its last block.
            "left join lateral (select b.last_seq, b.total from capstan.blocks b ",
            "where b.stream = r.stream order by b.last_seq desc limit 1) b on r.state = 1 ",
            $($rest),*
        )
    };
}
pub(super) use select_runs;

/// Reads a column as the type that the statement gives it.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Failure> {
    row.try_get(at).map_err(|error| {
        Failure::unexpected(&format!(
            "a row of the journal's database has an unexpected form: {error}"
        ))
    })
}

pub(super) fn runs(rows: &[Row]) -> Result<Vec<Run>, JournalError> {
    rows.iter().map(run).collect()
}

/// Reads a row of [`select_runs`].
pub(super) fn run(row: &Row) -> Result<Run, JournalError> {
    let read = || -> Result<_, Failure> {
        let counts: (i64, i64, i64) = (column(row, 3)?, column(row, 6)?, column(row, 7)?);
        Ok((
            column::<Uuid>(row, 0)?,
            column::<i16>(row, 1)?,
            column::<i32>(row, 2)?,
            column(row, 4)?,
            column::<&str>(row, 5)?,
            counts,
            column::<Option<i64>>(row, 8)?,
        ))
    };
    let (stream, state, attempt, answered_by, record, (turns, last_seq, bytes), sent_at) =
        read().map_err(Failure::into_error)?;
    let damaged = || {
        JournalError::new(
            ErrorKind::Corrupt,
            format!("the record of stream {stream} cannot be read"),
        )
    };
    let mut run: Run = serde_json::from_str(record).map_err(|error| damaged().caused_by(error))?;
    run.state = state_of(state).ok_or_else(damaged)?;
    run.attempt = attempt.cast_unsigned();
    run.turns_before = turns.cast_unsigned();
    (run.last_seq, run.bytes) = (last_seq.cast_unsigned(), bytes.cast_unsigned());
    run.sent_at = sent_at.map(Timestamp::from_micros).or(run.sent_at);
    if let Some(asked) = &mut run.asked {
        asked.answered_by = asked.answered_by.or(answered_by);
    }
    Ok(shown(run))
}

/// Reads a row of a number and a turn.
pub(super) fn turn(row: &Row) -> Result<StoredTurn, JournalError> {
    let read = || -> Result<_, Failure> { Ok((column::<i64>(row, 0)?, column::<&str>(row, 1)?)) };
    let (number, text) = read().map_err(Failure::into_error)?;
    let damaged =
        |error| JournalError::new(ErrorKind::Corrupt, "a turn cannot be read").caused_by(error);
    let turn: StoredTurn = serde_json::from_str(text).map_err(damaged)?;
    Ok(StoredTurn { number: number.cast_unsigned(), ..turn })
}

/// A run's record as JSON. Columns of the table have the rest.
pub(super) fn record(run: &Run) -> Result<String, JournalError> {
    serde_json::to_string(run).map_err(|error| {
        JournalError::new(ErrorKind::Unsupported, "a record cannot be written").caused_by(error)
    })
}

/// The ids of all requests of a run, one per line.
pub(super) fn request_ids(run: &Run) -> String {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.request_id.as_deref());
    let mut ids: Vec<_> =
        run.request_id.as_deref().into_iter().chain(attempts).filter(|id| is_name(id)).collect();
    ids.dedup();
    ids.join("\n")
}

/// Whether PostgreSQL can store and index a name. No run has any other name.
pub(super) fn is_name(name: &str) -> bool {
    const LONGEST: usize = 1024;
    name.len() <= LONGEST && !name.contains('\0')
}

pub(super) fn check_name(name: &str) -> Result<(), JournalError> {
    if is_name(name) {
        return Ok(());
    }
    Err(JournalError::new(
        ErrorKind::Unsupported,
        "a name is too long for the journal, or contains a zero byte",
    ))
}

/// The statement that finds runs by a name. Its parameters are tenant, name, before and limit.
pub(super) fn by_name(kind: NameKind) -> &'static str {
    macro_rules! by {
        ($condition:literal) => {
            select_runs!(
                "where r.tenant = $1 and ",
                $condition,
                " and r.stream < $3 order by r.stream desc limit $4"
            )
        };
    }
    match kind {
        NameKind::Key => by!("r.key = $2"),
        NameKind::Session => by!("r.session = $2"),
        NameKind::RequestId => by!("r.request_ids @> array[$2]"),
        NameKind::Chat => by!("r.chat = $2"),
        NameKind::BodyHash => by!("r.body_hash = $2"),
    }
}

//! Imports runs and sessions of another journal.

use capstan_journal::{ArmedBy, JournalError, RunCopy, SessionCopy};
use uuid::Uuid;

use super::PostgresStore;
use super::block;
use super::connection::{Failure, Params};
use super::peer_message::number_of;
use super::rows::{self, check_name, column};

/// Inserts the claim first, and everything else only if its key was free. A run that may lack
/// packets gets the incarnation `lost`.
const RUN: &str = "with claimed as (insert into capstan.claims values ($1, $2, $3, null) \
        on conflict do nothing returning stream), \
    imported as (insert into capstan.runs (stream, tenant, key, session, state, attempt, \
        is_armed_by_gateway, has_questions, answered_by, turns_before, record, body, last_seq, \
        bytes, updated_at, closed_at, incarnation, chat, body_hash, request_ids) \
        select stream, $1, $2, $4, $5, $6, $7, $8, $9, $10, $11::text::json, $12, $13, $14, $15, \
        $16, case when $17 then '' else 'lost' end, $18, $19, string_to_array($20, E'\\n') \
        from claimed returning stream), \
    packets as (insert into capstan.blocks select imported.stream, b.* from imported, \
        unnest($21::bigint[], $22::bigint[], $23::bytea[]) b) \
    select count(*) from imported";
const SESSION: &str = "insert into capstan.sessions as s (tenant, session, used_at, last_turn) \
    values ($1, $2, $3, $4) on conflict (tenant, session) do update \
    set used_at = greatest(s.used_at, excluded.used_at), \
    last_turn = greatest(s.last_turn, excluded.last_turn)";
const TURNS: &str = "with imported as (insert into capstan.turns \
        select $1, $2, t.number, t.stream, t.turn::json \
        from unnest($3::bigint[], $4::uuid[], $5::text[]) t(number, stream, turn) \
        on conflict do nothing returning octet_length(turn::text) as size) \
    update capstan.sessions set turn_count = turn_count + (select count(*) from imported), \
        bytes = bytes + (select coalesce(sum(size), 0) from imported) \
        where tenant = $1 and session = $2";

impl PostgresStore {
    pub(super) async fn import_run(&self, copy: RunCopy) -> Result<bool, JournalError> {
        let run = copy.counted();
        [&run.tenant, &run.key, &run.session].into_iter().try_for_each(|name| check_name(name))?;
        let record = rows::record(&run)?;
        let blocks = block::encode(&copy.frames, 0);
        let questions = run.asked.as_ref();
        let params: Params<'_> = &[
            &run.tenant,
            &run.key,
            &run.stream_id,
            &run.session,
            &number_of(run.state),
            &run.attempt.cast_signed(),
            &(run.armed_by == ArmedBy::Gateway),
            &questions.is_some_and(|asked| asked.answered_by.is_none()),
            &questions.and_then(|asked| asked.answered_by),
            &run.turns_before.cast_signed(),
            &record,
            &&copy.body[..],
            &run.last_seq.cast_signed(),
            &run.bytes.cast_signed(),
            &run.updated_at.as_micros(),
            &run.closed_at.map(|at| at.as_micros()),
            &copy.is_tail_certain,
            &run.chat.as_deref().filter(|chat| rows::is_name(chat)),
            &run.body_hash_text(),
            &rows::request_ids(&run),
            &blocks.iter().map(|block| block.last_seq.cast_signed()).collect::<Vec<_>>(),
            &blocks.iter().map(|block| block.total.cast_signed()).collect::<Vec<_>>(),
            &blocks.iter().map(|block| &*block.data).collect::<Vec<&[u8]>>(),
        ];
        let rows = self.shared.reads.query(RUN, params).await?;
        let count: i64 =
            rows.first().map_or(Ok(0), |row| column(row, 0)).map_err(Failure::into_error)?;
        Ok(count > 0)
    }

    pub(super) async fn write_session(&self, copy: SessionCopy) -> Result<(), JournalError> {
        [&copy.tenant, &copy.session].into_iter().try_for_each(|name| check_name(name))?;
        let (used_at, last_turn) = (copy.used_at.as_micros(), copy.last_turn.cast_signed());
        let (tenant, session) = (&copy.tenant, &copy.session);
        self.shared.reads.query(SESSION, &[tenant, session, &used_at, &last_turn]).await?;
        if copy.turns.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i64> = copy.turns.iter().map(|turn| turn.number.cast_signed()).collect();
        let streams: Vec<Uuid> = copy.turns.iter().map(|turn| turn.stream_id).collect();
        let turns = copy.turns.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
        let turns = turns.map_err(|error| {
            JournalError::new(capstan_journal::ErrorKind::Unsupported, "a turn cannot be written")
                .caused_by(error)
        })?;
        self.shared
            .reads
            .query(TURNS, &[tenant, session, &numbers, &streams, &turns])
            .await
            .map(drop)
    }
}

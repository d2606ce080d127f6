//! The promises of every store, tested with all stores. A new store is a line in `contract!`.

mod claims;
mod gated;
mod pages;
mod purging;
mod quotas;
mod readers;
mod retention;
mod secrets;
mod sessions;
mod streams;
mod tokens;

use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::{
    Claim, Frame, Journal, Quota, Result, Run, RunState, Store, StoredTurn, TailLimits, Transition,
    TurnRange,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

macro_rules! contract {
    ($($file:ident { $($promise:ident),* $(,)? })*) => {
        contract!(@ memory, super::Backend::memory(); $($($file::$promise)*)*);
        contract!(@ disk_process,
        super::Backend::disk(capstan_stores::Durability::Process); $($($file::$promise)*)*);
        contract!(@ private, super::Backend::split(true); $($($file::$promise)*)*);
        contract!(@ beside_private, super::Backend::split(false); $($($file::$promise)*)*);
        contract!(@ disk_power,
        super::Backend::disk(capstan_stores::Durability::Power); $($($file::$promise)*)*);
        #[cfg(feature = "postgres")]
        contract!(@connect postgres, capstan_stores::Durability::Process; $($($file::$promise)*)*);
        #[cfg(feature = "postgres")]
        contract!(@connect postgres_power,
        capstan_stores::Durability::Power; $($($file::$promise)*)*);
    };
    (@connect $backend:ident, $durability:expr; $($file:ident :: $promise:ident)*) => {
        mod $backend {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs PostgreSQL"]
            async fn $promise() {
                crate::contract::$file::$promise(&super::Backend::postgres($durability).await)
                    .await;
            })*
        }
    };
    (@ $backend:ident, $open:expr; $($file:ident :: $promise:ident)*) => {
        mod $backend {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                crate::contract::$file::$promise(&$open).await;
            })*
        }
    };
}

contract! {
    claims {
        concurrent_duplicates_start_one_run,
        claim_stores_its_body_and_terms,
        keys_are_scoped_by_tenant,
        long_names_are_refused_or_stored,
        questions_are_answered_once_in_their_session,
        concurrent_answers_have_one_winner,
    }
    quotas {
        running_quota_holds_for_concurrent_claims,
        rate_quota_holds_for_concurrent_claims,
        session_quota_holds_for_concurrent_claims,
        open_runs_count_as_messages_of_their_session,
        byte_quotas_hold_for_concurrent_claims,
        waiting_quota_holds_for_concurrent_transitions,
    }
    tokens {
        tokens_are_counted_when_an_attempt_ends,
        token_refusal_states_the_exact_wait,
        longer_token_wait_is_reported,
        concurrent_ends_are_all_counted,
    }
    streams {
        out_of_order_frames_are_refused,
        append_of_another_attempt_is_fenced,
        transition_is_compare_and_set,
        sent_answer_is_recorded_once_its_run_has_ended,
        concurrent_transitions_have_one_winner,
        transition_keeps_fields_of_the_claim,
        lost_tail_is_marked_by_a_gap,
        read_honours_cursor_and_limits,
        list_is_newest_first_and_by_tenant,
        open_runs_are_running_or_waiting,
        orphans_are_running_and_waiting_runs_are_old,
        runs_are_found_by_every_name,
        unknown_record_fields_survive,
        unknown_streams_are_not_found,
        closed_store_refuses_writes,
    }
    pages {
        page_covers_the_chosen_tenants_newest_first,
        page_applies_every_filter,
        page_stays_within_its_budget,
        open_runs_are_found_behind_many_closed_ones,
        deleted_runs_are_on_no_page,
        rollups_add_up_and_expire_after_a_month,
    }
    sessions {
        ended_runs_leave_turns_in_order,
        losing_transition_leaves_no_turn,
        turns_are_numbered_counted_and_paged,
        turn_page_is_bounded_by_bytes,
        sessions_are_counted_by_tenant,
        unused_sessions_expire,
        tenant_age_limit_applies_to_its_sessions_only,
    }
    purging {
        purge_deletes_a_stream_and_keeps_its_claim,
        open_runs_are_not_purged,
        purge_deletes_a_session_and_its_turns,
        purge_clears_the_memory_of_readers,
    }
    secrets {
        secret_is_stable_and_unique,
    }
    retention {
        old_streams_expire_before_their_claims,
        size_limit_deletes_the_oldest_closed_streams,
        open_runs_never_expire,
        long_streams_are_never_half_deleted,
        tenant_age_limit_applies_to_its_streams_only,
        tenant_size_limit_applies_to_its_streams_only,
        size_limit_counts_turns_and_deletes_sessions,
    }
    readers {
        reader_sees_frames_only_after_commit,
        reader_never_misses_a_wake_up,
        state_learned_by_one_reader_wakes_others,
        dropped_append_still_wakes_readers,
        a_thousand_readers_get_all_frames_in_order,
        every_cursor_resumes_exactly,
        waiting_is_returned_once_and_closed_always,
        reader_of_an_armed_run_skips_the_old_waiting,
        waiting_of_an_earlier_attempt_is_not_returned,
        reader_with_a_stale_record_sees_the_end,
        old_frames_are_read_from_the_store,
        tails_have_a_total_memory_limit,
        reader_step_is_bounded,
        reader_of_an_unknown_stream_fails,
        late_reader_replays_a_closed_stream,
        next_step_is_prefetched,
        unpolled_readers_do_not_block_others,
    }
}

/// A store of its own for one test.
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    // Dropped after the store, which uses them.
    _folder: Option<TempDir>,
    #[cfg(feature = "postgres")]
    database: Option<crate::postgres_server::Database>,
}

impl Backend {
    /// A transition without a quota.
    async fn step(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool> {
        self.store.transition(Transition::new(from, to, frames, turn)).await
    }

    fn memory() -> Self {
        Self::of(open("memory:", Durability::Process).unwrap(), None)
    }

    fn of(store: Arc<dyn Store>, folder: Option<TempDir>) -> Self {
        Self {
            store,
            _folder: folder,
            #[cfg(feature = "postgres")]
            database: None,
        }
    }

    fn disk(durability: Durability) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("disk:{}", folder.path().join("journal").display());
        Self::of(open(&url, durability).unwrap(), Some(folder))
    }

    /// A disk store of which all tenants, or none, are in memory.
    fn split(is_private: bool) -> Self {
        let Self { store, _folder, .. } = Self::disk(Durability::Process);
        let journal =
            Journal::new(store, TailLimits::default()).keeping_in_memory(move |_| is_private);
        Self::of(journal.store().clone(), _folder)
    }

    #[cfg(feature = "postgres")]
    async fn postgres(durability: Durability) -> Self {
        let database = crate::postgres_server::Database::create();
        let store = database.store(durability, capstan_journal::Replica::default()).await;
        Self { store, _folder: None, database: Some(database) }
    }

    /// The store as opened by the next process, after this one has ended.
    async fn successor(&self) -> Arc<dyn Store> {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            self.store.close().await.unwrap();
            return database.store(Durability::Process, capstan_journal::Replica::default()).await;
        }
        self.store.clone()
    }

    fn journal(&self) -> Journal {
        Journal::new(self.store.clone(), TailLimits::default())
    }

    /// Claims a new run of this tenant.
    async fn start(&self, tenant: &str) -> Run {
        let claimed = self
            .store
            .claim(claim(tenant, &Uuid::new_v4().to_string()), &Quota::UNLIMITED)
            .await
            .unwrap();
        assert!(claimed.is_new);
        claimed.run
    }

    /// A run with frames 1 to `count`, closed at `closed_at`.
    async fn closed(&self, tenant: &str, count: u64, closed_at: Timestamp) -> Run {
        let run = self.start(tenant).await;
        self.store.append(run.stream_id, 1, frames(1, count)).await.unwrap();
        let to = Run { closed_at: Some(closed_at), ..moved(&run, RunState::Closed, 1) };
        assert!(
            self.store
                .transition(Transition::new((RunState::Running, 1), to, vec![], None))
                .await
                .unwrap()
        );
        self.store.run(run.stream_id).await.unwrap().unwrap()
    }

    /// A run that begins and ends at this time, with a turn in a session.
    async fn said(&self, tenant: &str, session: &str, text: &str, at: Timestamp) -> StoredTurn {
        let claim = Claim {
            session: session.into(),
            created_at: at,
            ..claim(tenant, &Uuid::new_v4().to_string())
        };
        let run = self.store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
        let said = json!({"messages": [{"role": "user", "content": "?"}, {"role": "assistant",
        "content": text}]});
        let turn = StoredTurn::new(run.stream_id, at, 2, said);
        let to = Run { closed_at: Some(at), ..moved(&run, RunState::Closed, 1) };
        let from = (RunState::Running, 1);
        assert!(
            self.store
                .transition(Transition::new(from, to, frames(1, 700), Some(turn.clone())))
                .await
                .unwrap()
        );
        let turns = self.turns(tenant, session).await;
        turns.into_iter().find(|found| found.stream_id == turn.stream_id).unwrap()
    }

    /// All turns of a session.
    async fn turns(&self, tenant: &str, session: &str) -> Vec<StoredTurn> {
        self.store.turns(TurnRange::all(tenant, session)).await.unwrap()
    }
}

pub(crate) fn claim(tenant: &str, key: &str) -> Claim {
    let mut claim = Claim::new(tenant, key, Uuid::now_v7(), Timestamp::now());
    claim.session = "session".into();
    claim.body = Bytes::from_static(b"{\"request\":1}");
    claim
}

pub(crate) fn frame(seq: u64) -> Frame {
    Frame::new(seq, format!("id: {seq}\ndata: {}\n\n", "x".repeat(seq as usize % 97)))
}

pub(crate) fn frames(first: u64, last: u64) -> Vec<Frame> {
    (first..=last).map(frame).collect()
}

pub(crate) fn moved(run: &Run, state: RunState, attempt: u32) -> Run {
    Run { state, attempt, updated_at: Timestamp::now(), ..run.clone() }
}

//! What every store promises, run against every store there is. A new backend is a line in
//! `backends!`.

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
        duplicates_race_to_one_winner,
        a_claim_keeps_its_body_and_its_terms,
        keys_are_scoped_by_tenant,
        names_too_long_for_a_key_are_refused_or_kept,
        questions_are_answered_once_and_in_their_session,
        racing_answers_have_one_winner,
    }
    quotas {
        a_rush_does_not_get_past_runs_at_once,
        a_rush_does_not_get_past_the_rate,
        a_rush_does_not_get_past_sessions,
        a_sessions_open_runs_count_as_the_turns_they_will_be,
        a_rush_does_not_get_past_bytes,
        a_rush_does_not_get_past_runs_that_wait,
    }
    tokens {
        tokens_are_counted_at_each_attempts_end,
        a_claim_is_refused_until_exactly_the_wait_is_over,
        of_both_limits_the_longer_wait_is_told,
        what_ends_at_once_is_all_counted,
    }
    streams {
        frames_are_appended_in_order_or_not_at_all,
        another_attempt_or_state_is_fenced,
        a_transition_is_compare_and_set,
        racing_transitions_have_one_winner,
        a_transition_keeps_what_the_claim_fixed,
        a_lost_tail_is_marked_by_the_one_gap,
        reading_pages_and_seeks,
        listing_pages_newest_first_and_by_tenant,
        open_runs_are_those_that_run_or_wait,
        orphans_run_and_the_waiting_have_waited,
        runs_are_found_by_every_name_they_have,
        what_a_later_build_has_added_survives,
        unknown_streams_are_not_found,
        a_closed_store_takes_no_writes,
    }
    pages {
        a_page_is_of_all_tenants_or_some_newest_first,
        a_page_is_filtered_by_what_its_runs_are,
        a_page_looks_at_no_more_than_its_budget,
        what_is_open_is_found_whatever_has_ended_since,
        what_is_gone_is_on_no_page,
        what_was_counted_adds_up_by_the_hour_and_is_kept_for_a_month,
    }
    sessions {
        a_run_that_ends_leaves_its_turn_in_order,
        who_loses_the_race_to_end_a_run_leaves_no_turn,
        turns_are_numbered_counted_and_read_in_pages,
        a_page_of_turns_is_bounded_by_bytes,
        sessions_are_counted_by_tenant,
        unused_sessions_expire,
        a_tenants_own_age_holds_for_its_sessions_alone,
    }
    purging {
        a_purged_stream_is_gone_and_its_claim_stays,
        what_runs_or_waits_is_not_purged,
        a_purged_session_is_gone_with_its_turns,
        a_readers_memory_of_a_purged_stream_goes_with_it,
    }
    secrets {
        the_secret_stays_the_same_and_is_no_other_stores,
    }
    retention {
        old_streams_go_and_their_claims_outlive_them,
        the_oldest_closed_go_until_the_rest_fits,
        what_runs_or_waits_is_never_evicted,
        long_streams_are_never_seen_half_deleted,
        a_tenants_own_age_holds_for_its_streams_alone,
        a_tenants_own_size_holds_for_its_streams_alone,
        turns_count_and_sessions_go_when_it_is_too_much,
    }
    readers {
        a_reader_sees_frames_only_after_commit,
        a_reader_never_misses_a_wake_up,
        what_one_reader_learns_from_the_store_wakes_the_others,
        a_dropped_append_still_wakes,
        a_thousand_readers_get_all_frames_in_order,
        every_cursor_resumes_exactly,
        waiting_is_said_once_and_closed_always,
        a_reader_of_an_armed_run_is_not_told_that_it_waits,
        waiting_is_not_said_of_an_attempt_that_was_followed,
        a_reader_of_a_run_that_has_long_closed_is_not_left_waiting,
        recent_frames_come_from_memory_and_evicted_ones_from_the_store,
        the_total_of_all_tails_is_bounded,
        a_readers_step_is_bounded,
        a_reader_of_nothing_is_told_so,
        a_late_reader_replays_a_closed_stream,
        what_follows_a_full_step_is_fetched_while_it_is_sent,
        readers_that_are_not_polled_hold_up_nobody,
    }
}

/// A store of its own for one test.
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    // After the store, which uses them.
    _folder: Option<TempDir>,
    #[cfg(feature = "postgres")]
    database: Option<crate::postgres_server::Database>,
}

impl Backend {
    /// A transition that no quota hinders.
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

    /// A store on disk of which all tenants, or none, are kept in memory.
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

    /// The store as a process sees it whose predecessor is gone.
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

    /// A run that began and ended at a moment and left its turn to a session.
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

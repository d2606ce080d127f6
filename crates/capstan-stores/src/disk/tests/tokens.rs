//! Used tokens survive restarts, compaction and purges.

use capstan_journal::{ErrorKind, Over, Refused, Transition};

use super::*;

/// A run of `t` with seven tokens per attempt. Everything of it is purged.
async fn use_some(store: &DiskStore, at: Timestamp) {
    let id = Uuid::now_v7();
    let run = store.claim(claim(id), &Quota::UNLIMITED).await.unwrap().run;
    let to = Run { updated_at: at, ..closed(&run) };
    assert!(
        store
            .transition(Transition::new(
                (RunState::Running, 1),
                to,
                frames(id, 1, 9),
                Some(turn(id))
            ))
            .await
            .unwrap()
    );
    assert!(store.purge(id, at).await.unwrap());
}

#[tokio::test]
async fn used_tokens_survive_restart_compaction_and_purge() {
    for durability in [Durability::Process, Durability::Power] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), durability);
        let noon = Timestamp::from_micros((20_000 * 24 + 12) * 3_600_000_000);
        for round in 1..=100 {
            use_some(&store, noon).await;
            if round % 20 == 0 {
                store.maintain().await;
                drop(store);
                store = open(folder.path(), durability);
                let used = store.usage("t", "session").await.unwrap().tokens;
                assert_eq!(used.used(noon), (round * 7, round * 7));
            }
        }
        assert!(store.stats().segments < 20, "nothing was compacted: this proves nothing");
        let quota = Quota { tokens_per_day: Some(700), ..Quota::UNLIMITED };
        let later = Claim { created_at: noon, ..claim(Uuid::now_v7()) };
        let refused = store.claim(later, &quota).await.unwrap_err();
        let wait = Some(std::time::Duration::from_secs(12 * 3600));
        assert_eq!(refused.kind(), ErrorKind::Refused(Refused { over: Over::TokensPerDay, wait }));
        let one_of_each = store.shared.index().tokens_of.len();
        assert_eq!(one_of_each, 1);
    }
}

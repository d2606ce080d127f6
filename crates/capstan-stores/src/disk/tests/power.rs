//! Power cuts. Recorded writes are replayed, and unsynced ones are dropped at random and in any
//! order.

use super::super::shared::Settings;
use super::recorder::{Recorder, after_power_cut};
use super::*;

/// Records a workload, and what was acknowledged after how many operations.
async fn record(
    durability: Durability,
    folder: &Path,
    seed: u64,
) -> (Recorder, Vec<(usize, Uuid, Acknowledged)>) {
    let recorder = Recorder::default();
    let store = open_on(folder, durability, Arc::new(recorder.clone()));
    let (mut acknowledged, mut random, mut ended) = (Vec::new(), Random(seed), Vec::new());
    for round in 0..12 {
        let note = |id, known| acknowledged.push((recorder.count(), id, known));
        ended.push(run_once(&store, 1 + random.below(40), note).await.unwrap());
        if round % 3 == 2 {
            let id = ended.remove(random.below(ended.len() as u64) as usize);
            // Between this operation and the answer the write may be there or not.
            acknowledged.push((
                recorder.count(),
                id,
                Acknowledged { is_purged: true, ..Acknowledged::default() },
            ));
            assert!(store.purge(id, Timestamp::now()).await.unwrap());
            let known = Acknowledged { is_closed: true, is_purged: true, last: 0 };
            acknowledged.push((recorder.count(), id, known));
        }
        if round % 4 == 3 {
            store.maintain().await;
        }
    }
    drop(store);
    (recorder, acknowledged)
}

/// What must survive a power cut: claims and ends, and packets if they are synced.
fn owed(acknowledged: &[(usize, Uuid, Acknowledged)], upto: usize, durability: Durability) -> All {
    let mut all = All::new();
    for (_, id, known) in acknowledged.iter().filter(|(at, ..)| *at <= upto) {
        if known.is_purged && !known.is_closed {
            all.remove(id);
            continue;
        }
        let last = all.get(id).map_or(0, |before: &Acknowledged| before.last);
        let is_synced = known.is_closed || durability == Durability::Power;
        all.insert(*id, Acknowledged { last: if is_synced { known.last } else { last }, ..*known });
    }
    all
}

async fn cut_power(durability: Durability, seed: u64, cuts: u64) {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, acknowledged) = record(durability, folder.path(), seed).await;
    let (ops, mut random) = (recorder.ops(), Random(seed ^ 0x5555));
    for _ in 0..cuts {
        // Only after the journal was created.
        let upto =
            acknowledged[0].0 + random.below((ops.len() - acknowledged[0].0) as u64 + 1) as usize;
        let after = tempfile::tempdir().unwrap();
        after_power_cut(&ops[..upto], folder.path(), after.path(), &mut random);
        std::fs::create_dir_all(after.path().join("log")).unwrap();
        for name in ["format", "secret"] {
            std::fs::copy(folder.path().join(name), after.path().join(name)).unwrap();
        }
        let settings = Settings { boot: [2; 16], ..settings(durability) };
        let store = DiskStore::open_with(after.path(), settings, Arc::new(SystemFiles));
        let store = store.unwrap_or_else(|error| panic!("seed {seed}, cut at {upto}: {error}"));
        let owed = owed(&acknowledged, upto, durability);
        assert_kept(&store, &owed).await;
        for (_, id, _) in acknowledged
            .iter()
            .filter(|(at, _, known)| *at <= upto && known.is_purged && known.is_closed)
        {
            assert!(!holds(after.path(), &word(*id)), "words of {id}");
        }
        // The journal works as before.
        let mut all = All::new();
        run_once(&store, 20, |id, known| {
            all.insert(id, known);
        })
        .await
        .unwrap();
        store.maintain().await;
        assert_kept(&store, &all).await;
    }
}

#[tokio::test]
async fn power_cut_loses_nothing_promised() {
    for seed in 1..=seeds().div_ceil(50) {
        cut_power(Durability::Process, seed * 0x9e37_79b9, 40).await;
        cut_power(Durability::Power, seed * 0x51ed_270b, 40).await;
    }
}

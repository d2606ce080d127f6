//! Flipped bits, cut and missing files. They are reported, never misread, and never cut off.

use capstan_journal::{ErrorKind, JournalError, Quota};

use super::super::repair::{check, repair};
use super::*;

/// A journal with a few runs, one of them running, closed in order.
async fn sample(folder: &Path) -> All {
    let store = open(folder, Durability::Process);
    let mut all = All::new();
    for packets in [3, 40, 40, 70] {
        run_once(&store, packets, |id, known| {
            all.insert(id, known);
        })
        .await
        .unwrap();
    }
    let id = Uuid::now_v7();
    store.claim(claim(id), &Quota::UNLIMITED).await.unwrap();
    store.append(id, 1, frames(id, 1, 9)).await.unwrap();
    all.insert(id, Acknowledged { last: 9, ..Acknowledged::default() });
    store.maintain().await;
    store.close().await.unwrap();
    all
}

fn try_open(folder: &Path) -> Result<DiskStore, JournalError> {
    DiskStore::open_with(folder, settings(Durability::Process), Arc::new(SystemFiles))
}

fn contents(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let kept = |path: &std::path::PathBuf| !path.ends_with("lock");
    all_files(folder)
        .into_iter()
        .filter(kept)
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Checks that readers of damaged streams get only what was written, up to some place, or an error.
async fn assert_never_wrong(store: &DiskStore, all: &All) {
    for id in all.keys() {
        match store.read(*id, 0, usize::MAX, usize::MAX).await {
            Ok(found) => {
                assert_eq!(found, frames(*id, 1, found.len() as u64));
                let last = match store.run(*id).await {
                    Ok(run) => run.unwrap().last_seq,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                        continue;
                    }
                };
                if last > found.len() as u64 {
                    let rest = store.read(*id, found.len() as u64, 9, 9999).await;
                    assert_eq!(rest.unwrap_err().kind(), ErrorKind::Corrupt, "{id}");
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
        }
    }
}

#[tokio::test]
async fn deep_check_finds_every_flipped_bit() {
    let folder = tempfile::tempdir().unwrap();
    let all = sample(folder.path()).await;
    assert_eq!(check(folder.path(), true).unwrap().damage, []);
    let mut random = Random(0xfeed);
    for file in all_files(folder.path())
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "seg") || file.ends_with("files"))
    {
        let whole = std::fs::read(file).unwrap();
        let mut at = 0;
        while at < whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << random.below(8);
            std::fs::write(file, &flipped).unwrap();
            let report = check(folder.path(), true).unwrap();
            assert!(!report.damage.is_empty(), "{} at {at}", file.display());
            assert!(
                report.damage.iter().any(|damage| damage.file == *file),
                "{} at {at}: {:?}",
                file.display(),
                report.damage
            );
            if at % 16 == 0 {
                let before = contents(folder.path());
                match try_open(folder.path()) {
                    Ok(store) => {
                        assert_never_wrong(&store, &all).await;
                        drop(store);
                        let log = folder.path().join("log");
                        std::fs::remove_dir_all(&log).unwrap();
                        std::fs::create_dir(&log).unwrap();
                        before
                            .iter()
                            .for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
                        assert_eq!(contents(folder.path()), before, "everything is left as it was");
                    }
                }
            }
            at += 1 + random.below(if seeds() > 50 { 20 } else { 200 }) as usize;
        }
        std::fs::write(file, &whole).unwrap();
    }
    assert_eq!(check(folder.path(), true).unwrap().damage, []);
}

#[tokio::test]
async fn cut_empty_or_missing_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path()).await;
    let mut cuts = 0;
    for file in all_files(folder.path())
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "seg") || file.ends_with("files"))
    {
        let whole = std::fs::read(file).unwrap();
        for length in (0..whole.len()).step_by(97) {
            std::fs::write(file, &whole[..length]).unwrap();
            let error = try_open(folder.path())
                .err()
                .unwrap_or_else(|| panic!("{} cut at {length}", file.display()));
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(&file.display().to_string()), "{error}");
            cuts += 1;
        }
        std::fs::remove_file(file).unwrap();
        let error = try_open(folder.path()).err().unwrap();
        assert!(
            error.to_string().contains("missing")
                && error.to_string().contains(&file.display().to_string())
        );
        std::fs::write(file, &whole).unwrap();
    }
    assert!(cuts > 100);
    std::fs::rename(folder.path().join("log"), folder.path().join("elsewhere")).unwrap();
    assert_eq!(try_open(folder.path()).err().unwrap().kind(), ErrorKind::Corrupt);
    assert!(!folder.path().join("log").exists(), "nothing is made in its place");
}

#[tokio::test]
async fn torn_tail_is_cut_at_opening() {
    let folder = tempfile::tempdir().unwrap();
    let (mut all, id) = (All::new(), Uuid::now_v7());
    let store = open(folder.path(), Durability::Process);
    run_once(&store, 20, |id, known| {
        all.insert(id, known);
    })
    .await
    .unwrap();
    store.maintain().await;
    store.claim(claim(id), &Quota::UNLIMITED).await.unwrap();
    let segment = store.shared.index().segments.values().next_back().unwrap().segment.clone();
    let start = segment.size();
    store.append(id, 1, frames(id, 1, 8)).await.unwrap();
    let end = segment.size();
    // As after a kill: the last write may be cut anywhere.
    let killed = tempfile::tempdir().unwrap();
    copy(folder.path(), killed.path());
    let name = segment.path.strip_prefix(folder.path()).unwrap();
    for length in (start..end).step_by(if seeds() > 50 { 1 } else { 97 }) {
        let again = tempfile::tempdir().unwrap();
        copy(killed.path(), again.path());
        let whole = std::fs::read(killed.path().join(name)).unwrap();
        std::fs::write(again.path().join(name), &whole[..length as usize]).unwrap();
        let report = check(again.path(), true).unwrap();
        assert_eq!(
            (report.damage.len(), report.torn_bytes > 0),
            (0, length > start),
            "cut at {length}"
        );
        let store = try_open(again.path()).unwrap();
        assert_eq!(store.run(id).await.unwrap().unwrap().last_seq, 0);
        assert_kept(&store, &all).await;
        store.append(id, 1, frames(id, 1, 3)).await.unwrap();
        drop(store);
        assert_eq!(try_open(again.path()).unwrap().run(id).await.unwrap().unwrap().last_seq, 3);
    }
}

#[tokio::test]
async fn repair_keeps_intact_data_and_reports_losses() {
    let folder = tempfile::tempdir().unwrap();
    let all = sample(folder.path()).await;
    let mut random = Random(0xabcdef);
    for round in 0..seeds().min(400) {
        let broken = tempfile::tempdir().unwrap();
        copy(folder.path(), broken.path());
        let segments: Vec<_> = all_files(&broken.path().join("log"));
        let file = &segments[random.below(segments.len() as u64) as usize];
        let mut bytes = std::fs::read(file).unwrap();
        match round % 4 {
            0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
            1 => bytes.clear(),
            _ => {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 0x40;
            }
        }
        match round % 8 {
            5 => std::fs::remove_file(file).unwrap(),
            _ => std::fs::write(file, &bytes).unwrap(),
        }
        let path = broken.path().to_owned();
        let report = tokio::task::spawn_blocking(move || repair(&path)).await.unwrap().unwrap();
        assert!(!report.damage.is_empty(), "round {round}");
        let store =
            try_open(broken.path()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut whole = All::new();
        for (id, known) in &all {
            let run = store.run(*id).await.unwrap();
            match run {
                None => assert!(
                    report.lost_streams.contains(id) || round % 2 == 1 || round % 4 == 0,
                    "{id}"
                ),
                Some(run) if run.lost_after.is_some() => {
                    assert!(report.lost_streams.contains(id));
                    let upto = run.lost_after.unwrap();
                    if upto > 0 {
                        let found = store.read(*id, 0, usize::MAX, usize::MAX).await.unwrap();
                        assert_eq!(found, frames(*id, 1, upto));
                    }
                    assert_eq!(
                        store.read(*id, upto, 9, 999).await.unwrap_err().kind(),
                        ErrorKind::Corrupt
                    );
                    assert!(!store.is_tail_certain(*id).await.unwrap());
                }
                Some(run) => {
                    let found = store.read(*id, 0, usize::MAX, usize::MAX).await.unwrap();
                    assert_eq!(found, frames(*id, 1, run.last_seq));
                    // A run that continued with fewer packets than a viewer saw would give the same
                    // numbers to other text.
                    assert_eq!(
                        (run.last_seq, run.state == RunState::Closed),
                        (known.last, known.is_closed),
                        "{id}"
                    );
                    if known.is_closed {
                        whole.insert(*id, *known);
                    }
                }
            }
        }
        let aside = report.aside.unwrap();
        assert!(aside.exists());
        assert_eq!(store.stats().damaged, 0);
        // A purge removes the files that a repair moved aside, because they may contain data of any
        // owner.
        if let Some(id) = whole.keys().next() {
            assert!(store.purge(*id, Timestamp::now()).await.unwrap());
            assert!(!aside.exists() && !holds(broken.path(), &word(*id)));
        }
        drop(store);
        assert_eq!(check(broken.path(), true).unwrap().damage, [], "round {round}");
    }
}

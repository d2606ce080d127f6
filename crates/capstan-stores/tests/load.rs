//! The disk journal under a load that fills many segments. Memory and disk stay within bounds, and
//! it closes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use capstan_journal::{Claim, Frame, Quota};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use uuid::Uuid;

const WRITERS: u64 = 12;
const COMMITS: u64 = 10_000;
const PACKET: usize = 16 * 1024;

/// The unsynced data, and the overhead of the allocator.
const MEMORY: u64 = 128 << 20;
/// Much longer than the remaining writes and syncs take.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_commits_stay_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("disk:{}", folder.path().display()), Durability::Process).unwrap();
    let before = resident();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let claim = Claim::new("local", format!("k{writer}"), Uuid::now_v7(), Timestamp::now());
            store.claim(claim.clone(), &Quota::UNLIMITED).await.unwrap();
            for seq in 1..=COMMITS / WRITERS {
                store
                    .append(claim.stream_id, 1, vec![Frame::new(seq, vec![b'x'; PACKET])])
                    .await
                    .unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        tokio::time::timeout(PATIENCE, writer).await.expect("the journal takes writes").unwrap();
    }
    let kept = (COMMITS / WRITERS * WRITERS) * PACKET as u64;
    let (held, disk) = (resident().saturating_sub(before), size_of(folder.path()));
    assert!(held < MEMORY, "{held} bytes of memory are held");
    assert!(disk < kept + kept / 4, "{disk} bytes on disk for {kept}");
    let (closed, is_closed) = mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        closed.send(()).unwrap();
    });
    is_closed.recv_timeout(PATIENCE).expect("the journal closes");
}

fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn size_of(folder: &Path) -> u64 {
    let sizes = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        if entry.path().is_dir() { size_of(&entry.path()) } else { entry.metadata().unwrap().len() }
    });
    sizes.sum()
}

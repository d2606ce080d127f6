//! The storage engine under a load that fills its memory again and again: it goes on flushing, gives memory and log files
//! back, and closes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use capstan_journal::{Claim, Durability, Frame, open};
use capstan_protocol::Timestamp;
use uuid::Uuid;

const WRITERS: u64 = 12;
const COMMITS: u64 = 10_000;
const PACKET: usize = 16 * 1024;

/// What may be unflushed at once, and what the allocator makes of it.
const MEMORY: u64 = 128 << 20;
/// Logs are begun anew at 64 MB and deleted when all that they hold is flushed.
const LOGS: u64 = 100 << 20;
/// Much longer than a flush and a compaction take.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_commits_to_full_memtables_leave_memory_logs_and_closing_in_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("disk:{}", folder.path().display()), Durability::Process).unwrap();
    let before = resident();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let claim = Claim::new("local", format!("k{writer}"), Uuid::now_v7(), Timestamp::now());
            store.claim(claim.clone()).await.unwrap();
            for seq in 1..=COMMITS / WRITERS {
                store.append(claim.stream_id, 1, vec![Frame::new(seq, vec![b'x'; PACKET])]).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        tokio::time::timeout(PATIENCE, writer).await.expect("the engine takes writes").unwrap();
    }
    let (held, logs) = (resident().saturating_sub(before), log_bytes(folder.path()));
    println!("{held} bytes of memory, {logs} bytes of logs");
    assert!(held < MEMORY, "{held} bytes of memory are held");
    assert!(logs < LOGS, "{logs} bytes of logs are kept");
    let (closed, is_closed) = mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        closed.send(()).unwrap();
    });
    is_closed.recv_timeout(PATIENCE).expect("the engine closes");
}

fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn log_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder.join("store")).unwrap().map(|entry| entry.unwrap());
    let logs = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "jnl"));
    logs.map(|log| log.metadata().unwrap().len()).sum()
}

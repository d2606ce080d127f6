//! Measures how many frames a disk journal appends per second: `cargo run --release --example
//! append_rate -p capstan-stores`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::time::Instant;

use capstan_journal::{Claim, Frame, Journal, Quota, Step, TailLimits};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use uuid::Uuid;

const FRAMES: u64 = 200_000;

async fn write(journal: Journal, id: Uuid, frames: u64, per_append: u64) {
    let bytes = bytes::Bytes::from(vec![b'x'; 200]);
    for first in (1..=frames).step_by(per_append as usize) {
        let some =
            (first..first + per_append).map(|seq| Frame { seq, bytes: bytes.clone() }).collect();
        journal.append(id, 1, some).await.unwrap();
    }
}

async fn measure(durability: Durability, streams: u64, per_append: u64, frames: u64) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("disk:{}", folder.path().display());
    let journal = Journal::new(open(&url, durability).unwrap(), TailLimits::default());
    let mut ids = Vec::new();
    for _ in 0..streams {
        let id = Uuid::now_v7();
        journal
            .claim(Claim::new("local", id.to_string(), id, Timestamp::now()), &Quota::UNLIMITED)
            .await
            .unwrap();
        ids.push(id);
    }
    let start = Instant::now();
    let each = frames / streams / per_append * per_append;
    let writers: Vec<_> =
        ids.iter().map(|&id| tokio::spawn(write(journal.clone(), id, each, per_append))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let rate = (each * streams) as f64 / start.elapsed().as_secs_f64();
    println!(
        "{durability:?}: {streams:4} streams, {per_append:3} frames an append: {rate:9.0} frames/s"
    );
    replay(&url, journal, ids.first().copied().unwrap_or_default(), each).await;
}

/// Reads a whole stream from disk, and its last frames.
async fn replay(url: &str, journal: Journal, id: Uuid, last: u64) {
    drop(journal);
    let journal = Journal::new(open(url, Durability::Process).unwrap(), TailLimits::default());
    for after in [0, last - 5] {
        let (start, mut reader) = (Instant::now(), journal.reader(id, after));
        let mut first = None;
        while reader.cursor() < last
            && let Step::Frames(_) = reader.next().await.unwrap()
        {
            first.get_or_insert_with(|| start.elapsed());
        }
        println!(
            "    read {:7} frames: first after {:?}, all after {:?}",
            last - after,
            first.unwrap_or_default(),
            start.elapsed()
        );
    }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    for (streams, per_append) in [(1, 1), (1, 32), (100, 1), (1000, 1), (1000, 8)] {
        measure(Durability::Process, streams, per_append, FRAMES).await;
    }
    for (streams, per_append) in [(1, 1), (100, 1), (1000, 1)] {
        measure(Durability::Power, streams, per_append, FRAMES / 20 * u64::min(streams, 20) / 4)
            .await;
    }
}

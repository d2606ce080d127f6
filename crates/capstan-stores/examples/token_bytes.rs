//! Measures the disk space of single tokens, and how fast they are written and read: `cargo run
//! --release --example token_bytes -p capstan-stores`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use capstan_journal::{Claim, Frame, Quota, Store};
use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};
use capstan_stores::{Durability, open};
use uuid::Uuid;

/// The text of an agent, split into a model's tokens.
const WORDS: [&str; 12] = [
    "The ", "capstan ", "is ", "a ", "vert", "ical ", "wind", "lass ", "that ", "turns ", "on ",
    "deck. ",
];

fn token(stream_id: Uuid, seq: u64) -> Frame {
    let text = WORDS.get(seq as usize % WORDS.len()).copied().unwrap_or_default().to_owned();
    let packet =
        StreamPacket { stream_id, seq, t: Timestamp::now(), payload: Payload::Delta(text) };
    let mut bytes = Vec::new();
    sse::encode_packet(&packet, &mut bytes);
    Frame::new(seq, bytes)
}

/// Writes a stream. Returns the bytes that were sent.
async fn write(store: Arc<dyn Store>, id: Uuid, tokens: u64) -> u64 {
    let mut sent = 0;
    for seq in 1..=tokens {
        let token = token(id, seq);
        sent += token.bytes.len() as u64;
        store.append(id, 1, vec![token]).await.unwrap();
    }
    sent
}

fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                size(&entry.path())
            } else {
                entry.metadata().unwrap().len()
            }
        })
        .sum()
}

async fn measure(streams: u64, tokens: u64) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("disk:{}", folder.path().display());
    let store = open(&url, Durability::Process).unwrap();
    let ids: Vec<_> = (0..streams).map(|_| Uuid::now_v7()).collect();
    for id in &ids {
        let claim = Claim::new("local", id.to_string(), *id, Timestamp::now());
        store.claim(claim, &Quota::UNLIMITED).await.unwrap();
    }
    let start = Instant::now();
    let writers: Vec<_> =
        ids.iter().map(|id| tokio::spawn(write(store.clone(), *id, tokens))).collect();
    let mut sent = 0;
    for writer in writers {
        sent += writer.await.unwrap();
    }
    let took = start.elapsed();
    let ratio = size(folder.path()) as f64 / sent as f64;
    let each = took.as_secs_f64() * 1e6 / (streams * tokens) as f64;
    println!(
        "{streams:3} streams of {tokens:6} tokens: {ratio:.3} bytes on disk per byte sent, \
         {each:.2} µs a token"
    );
    read(&*store, ids.first().copied().unwrap_or_default(), tokens).await;
    store.close().await.unwrap();
    drop(store);
    println!("    closed: {:.3}", size(folder.path()) as f64 / sent as f64);
}

/// Reads a whole stream, and a packet in its middle.
async fn read(store: &dyn Store, id: Uuid, tokens: u64) {
    for (after, most) in [(tokens.saturating_sub(2000), usize::MAX), (tokens / 2, 1)] {
        let mut times: Vec<_> = Vec::new();
        for _ in 0..31 {
            let start = Instant::now();
            let found = store.read(id, after, most, usize::MAX).await.unwrap();
            times.push((start.elapsed(), found.len()));
        }
        times.sort();
        if let Some((took, packets)) = times.get(15) {
            println!("    read {packets:5} packets: {took:?}");
        }
    }
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    for (streams, tokens) in [(1, 2_000), (1, 20_000), (16, 2_000), (16, 25_000)] {
        measure(streams, tokens).await;
    }
}

//! Runs a mixed load on a journal: `cargo run --release --example journal_mix -p capstan-stores --
//! [seconds] [MB/s]`.
//!
//! By bytes, 70 % are token streams of 200 to 2,000 packets of 150 bytes over 100 open streams. 20
//! % are bodies of 0.1 to 1 MB, 10 % are long streams, and one stream stays open. Retention keeps
//! the newest 100 MB, and everything of one tenant in twenty. 2 % of the streams are purged. Disk
//! space is sampled meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use capstan_journal::{
    Claim, Frame, Quota, Retention, Run, RunState, Store, TenantRetention, Transition,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use uuid::Uuid;

const MB: u64 = 1 << 20;
const KEPT: u64 = 100 * MB;
const WRITERS: u64 = 100;

struct Load {
    store: Arc<dyn Store>,
    written: AtomicU64,
    is_over: AtomicBool,
    /// Bytes per second; 0 for no limit.
    rate: u64,
    start: Instant,
}

/// A random generator for each writer, so that the load is always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

impl Load {
    async fn pace(&self) {
        if self.rate == 0 {
            return;
        }
        loop {
            let due = Duration::from_secs_f64(
                self.written.load(Ordering::Relaxed) as f64 / self.rate as f64,
            );
            let Some(ahead) = due.checked_sub(self.start.elapsed()) else { return };
            tokio::time::sleep(ahead.min(Duration::from_millis(50))).await;
        }
    }

    /// Writes streams one after the other. Returns the duration of each append in microseconds.
    async fn write(self: Arc<Self>, number: u64) -> (Vec<u32>, Vec<u32>, Vec<Uuid>) {
        let mut random = Random((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut appends, mut syncs, mut purged) = (Vec::new(), Vec::new(), Vec::new());
        while !self.is_over.load(Ordering::Relaxed) {
            let id = Uuid::now_v7();
            let tenant = if random.below(20) == 0 { "for ever" } else { "usual" };
            let mut claim = Claim::new(tenant, id.to_string(), id, Timestamp::now());
            claim.session = format!("session {}", random.below(1000));
            let kind = random.below(100);
            let body = if kind < 4 { 100_000 + random.below(900_000) } else { 300 };
            claim.body = Bytes::from(vec![b'b'; body as usize]);
            let packets = match number {
                0 => u64::MAX,
                _ if kind < 4 => 5,
                _ if kind < 6 => 20_000,
                _ => 200 + random.below(1800),
            };
            let word = format!("word-{id} ");
            let text = Bytes::from(word.repeat(4).into_bytes()).slice(..150);
            let start = Instant::now();
            let run = self.store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
            syncs.push(start.elapsed().as_micros() as u32);
            self.written.fetch_add(body, Ordering::Relaxed);
            let mut seq = 0;
            while seq < packets && !self.is_over.load(Ordering::Relaxed) {
                self.pace().await;
                let count = (1 + random.below(8)).min(packets - seq);
                let frames =
                    (seq + 1..=seq + count).map(|seq| Frame { seq, bytes: text.clone() }).collect();
                let start = Instant::now();
                self.store.append(id, 1, frames).await.unwrap();
                appends.push(start.elapsed().as_micros() as u32);
                seq += count;
                self.written.fetch_add(count * 150, Ordering::Relaxed);
            }
            let to = Run { state: RunState::Closed, updated_at: Timestamp::now(), ..run };
            let start = Instant::now();
            assert!(
                self.store
                    .transition(Transition::new((RunState::Running, 1), to, vec![], None))
                    .await
                    .unwrap()
            );
            syncs.push(start.elapsed().as_micros() as u32);
            if random.below(50) == 0 && self.store.purge(id, Timestamp::now()).await.unwrap() {
                purged.push(id);
            }
        }
        (appends, syncs, purged)
    }
}

/// The size of the folder on disk.
fn disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// How many of these ids are in a file of the folder.
fn found(folder: &Path, words: &[Uuid]) -> usize {
    let (mut seen, mut folders) = (std::collections::HashSet::new(), vec![folder.to_owned()]);
    let words: std::collections::HashSet<String> = words.iter().map(|id| id.to_string()).collect();
    while let Some(path) = folders.pop() {
        if path.is_dir() {
            folders.extend(std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        for place in
            bytes.windows(5).enumerate().filter(|(_, part)| part == b"word-").map(|(at, _)| at + 5)
        {
            let word = bytes.get(place..place + 36).and_then(|word| std::str::from_utf8(word).ok());
            seen.extend(word.filter(|word| words.contains(*word)).map(str::to_owned));
        }
    }
    seen.len()
}

/// A figure of this process in kB or bytes, from /proc.
fn of_process(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn quantiles(mut times: Vec<u32>) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0) as f64 / 1000.0
    };
    let max = times.last().copied().unwrap_or(0) as f64 / 1000.0;
    format!("p50 {:.3} / p99 {:.2} / max {max:.0} ms", at(0.5), at(0.99))
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let (seconds, rate) = (arguments.next().unwrap_or(20), arguments.next().unwrap_or(0) * MB);
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("journal");
    let url = format!("disk:{}", folder.display());
    let store = open(&url, Durability::Process).unwrap();
    let load = Load {
        store: store.clone(),
        written: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        rate,
        start: Instant::now(),
    };
    let load = Arc::new(load);
    let writers: Vec<_> =
        (0..WRITERS).map(|number| tokio::spawn(load.clone().write(number))).collect();
    let own = TenantRetention { max_age: Duration::from_secs(1 << 30), max_bytes: None };
    let small = TenantRetention { max_age: Duration::from_secs(1 << 30), max_bytes: Some(KEPT) };
    let tenants = [("for ever".to_owned(), own), ("usual".to_owned(), small)].into();
    let retention = Retention { tenants, ..Retention::default() };
    let (mut worst, mut worst_kept, mut over, mut rss) = (0, 0, 0, 0);
    let mut next_expire = Duration::from_secs(1);
    while load.start.elapsed() < Duration::from_secs(seconds) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if load.start.elapsed() > next_expire {
            store.expire(&retention, Timestamp::now()).await.unwrap();
            next_expire = load.start.elapsed() + Duration::from_secs(1);
        }
        let size = disk(&folder);
        if size > worst {
            (worst, worst_kept) = (size, kept(&store).await);
            over = over.max((size as i64) - (worst_kept as i64) * 3 / 2 - 256 * MB as i64);
        }
        rss = rss.max(of_process("status", "VmRSS:"));
    }
    let elapsed = load.start.elapsed().as_secs_f64();
    load.is_over.store(true, Ordering::Relaxed);
    let (mut appends, mut syncs, mut purged) = (Vec::new(), Vec::new(), Vec::new());
    for writer in writers {
        let (some, ends, gone) = writer.await.unwrap();
        appends.extend(some);
        syncs.extend(ends);
        purged.extend(gone);
    }
    let written = load.written.load(Ordering::Relaxed);
    println!(
        "{} MB in {elapsed:.0} s: {:.0} MB/s",
        written / MB,
        written as f64 / MB as f64 / elapsed
    );
    println!("append {}; claim and end {}", quantiles(appends), quantiles(syncs));
    println!(
        "worst disk {} MB for {} kept, over the limit by {}",
        worst / MB,
        worst_kept / MB,
        over.max(0) as u64 / MB
    );
    store.expire(&retention, Timestamp::now()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    println!("after 12 s: disk {} MB, kept {} MB", disk(&folder) / MB, kept(&store).await / MB);
    println!("bytes written / payload {:.2}", of_process("io", "wchar:") as f64 / written as f64);
    println!(
        "purged {}, found {}; RSS peak {} MB",
        purged.len(),
        found(&folder, &purged),
        rss / 1024
    );
    drop(load);
    store.close().await.unwrap();
    drop(store);
    let start = Instant::now();
    drop(open(&url, Durability::Process).unwrap());
    println!("reopened in {:?}; RSS {} MB", start.elapsed(), of_process("status", "VmRSS:") / 1024);
}

async fn kept(store: &Arc<dyn Store>) -> u64 {
    let mut sum = 0;
    for tenant in ["for ever", "usual"] {
        let mut before = None;
        loop {
            let page = store.list(tenant, before, 1000).await.unwrap();
            sum += page.iter().map(|run| run.bytes).sum::<u64>();
            let Some(last) = page.last() else { break };
            before = Some(last.stream_id);
        }
    }
    sum
}

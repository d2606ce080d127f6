//! Measures the cost of many stored runs: `cargo run --release --example journal_runs -p
//! capstan-stores -- [runs]`.
//!
//! Writes short runs, opens the journal again, and ends 10,000 runs that a crash has left running.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use capstan_journal::{Claim, Frame, Quota, Run, RunState, Store, Transition};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use uuid::Uuid;

const AT_ONCE: usize = 1000;
const RUNNING: usize = 10_000;

fn rss() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

async fn start(store: Arc<dyn Store>, number: usize) -> Run {
    let id = Uuid::now_v7();
    let mut claim = Claim::new("local", id.to_string(), id, Timestamp::now());
    (claim.session, claim.request_id) =
        (format!("session {}", number % 10_000), Some(Uuid::new_v4().to_string()));
    (claim.body, claim.body_hash) = (vec![b'b'; 300].into(), [number as u8; 32]);
    let run = store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
    let frames = (1..=10).map(|seq| Frame::new(seq, vec![b'x'; 150])).collect();
    store.append(id, 1, frames).await.unwrap();
    run
}

async fn end(store: Arc<dyn Store>, run: Run) {
    let from = (run.state, run.attempt);
    let frames = vec![Frame::new(run.last_seq + 1, vec![b'x'; 150])];
    let to = Run { state: RunState::Closed, updated_at: Timestamp::now(), ..run };
    assert!(store.transition(Transition::new(from, to, frames, None)).await.unwrap());
}

async fn all<T: Send + 'static>(
    work: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut done = Vec::new();
    for task in work.map(tokio::spawn).collect::<Vec<_>>() {
        done.push(task.await.unwrap());
    }
    done
}

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let runs = std::env::args().nth(1).map_or(200_000, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let url = format!("disk:{}", folder.path().display());
    let store = open(&url, Durability::Process).unwrap();
    let began = Instant::now();
    for first in (0..runs).step_by(AT_ONCE) {
        let begun = all((first..first + AT_ONCE).map(|number| start(store.clone(), number))).await;
        all(begun.into_iter().map(|run| end(store.clone(), Run { last_seq: 10, ..run }))).await;
    }
    println!("{runs} runs in {:.1} s", began.elapsed().as_secs_f64());
    all((0..RUNNING).map(|number| start(store.clone(), number))).await;
    drop(store);
    let (before, began) = (rss(), Instant::now());
    let store = open(&url, Durability::Process).unwrap();
    println!("opened in {:?}", began.elapsed());
    println!("RSS {} MB before, {} MB after", before / 1024, rss() / 1024);
    let began = Instant::now();
    let running = store.orphans(usize::MAX).await.unwrap();
    assert_eq!(running.len(), RUNNING);
    all(running.into_iter().map(|run| end(store.clone(), run))).await;
    println!("{RUNNING} running runs ended in {:?}", began.elapsed());
}
